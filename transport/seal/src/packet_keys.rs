//! Keys of packets: one for each direction and epoch.
//!
//! ```text
//!   secret(0) -> secret(1) -> ...          HKDF-SHA256: a later secret does not tell an earlier one
//!       \-> key, iv   \-> key, iv          AES-128-GCM; the nonce is the iv xor the packet's counter
//! ```
//! A packet's counter says its epoch. 32 of its bits travel, and the rest follows from the packets that came before.

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk};
use trine_origin::Origin;
use zeroize::Zeroize;

use crate::window::Window;

/// Bytes of the tag that ends sealed bytes.
pub const TAG_BYTES: usize = 16;
/// An epoch has 2^24 counters.
pub const EPOCH_BITS: u32 = 24;
/// A session that has sealed so many packets in a direction must end.
pub const PACKETS_MAX: u64 = 1 << 40;
/// A session that has seen so many failed openings must end: far below what a forger of 128-bit tags needs.
pub const FAILURES_MAX: u64 = 1 << 36;

/// Seals what one end of a session sends. It draws the counters, so that none is used twice.
pub struct Sealer {
    chain: Chain,
    key: PacketKey,
    /// The next counter.
    next: u64,
    /// A child has the same key and the same next counter: it must not seal.
    origin: Origin,
}

impl Sealer {
    pub(crate) fn new(secret: &[u8; 32]) -> Self {
        let (chain, key) = Chain::begin(secret);
        Self {
            chain,
            key,
            next: 0,
            origin: Origin::here(),
        }
    }

    /// Draws the counter of the next sealed bytes. Nothing in a child of the process that made this: the two would seal
    /// different bytes with the same counters.
    #[inline]
    pub fn draw(&mut self) -> Option<Counter> {
        if !self.origin.is_here() {
            return None;
        }
        let counter = self.next;
        self.next += 1;
        if epoch_of(counter) > self.chain.epoch {
            self.key = self.chain.advance();
        }
        Some(Counter(counter))
    }

    /// The present epoch's secret, for a key log: whoever has it can read all packets from now on.
    #[must_use]
    pub fn for_key_log(&self) -> String {
        self.chain.for_key_log()
    }

    /// Counters that were drawn.
    #[must_use]
    pub fn drawn(&self) -> u64 {
        self.next
    }

    /// For tests: as many packets were sealed as a session may.
    #[doc(hidden)]
    pub fn wear(&mut self) {
        self.next = PACKETS_MAX;
        self.chain.epoch = epoch_of(PACKETS_MAX);
    }

    /// For tests: goes on as if so many packets had been sealed.
    #[doc(hidden)]
    pub fn skip_to(&mut self, counter: u64) {
        while self.chain.epoch < epoch_of(counter) {
            self.key = self.chain.advance();
        }
        self.next = counter;
    }

    /// Seals `plain` into `sealed`, whose last [`TAG_BYTES`] are the tag. The tag also covers `header`.
    ///
    /// # Panics
    ///
    /// If `sealed` is not longer than `plain` by [`TAG_BYTES`].
    #[inline]
    pub fn seal(&self, counter: Counter, header: &[u8], plain: &[u8], sealed: &mut [u8]) {
        debug_assert_eq!(epoch_of(counter.0), self.chain.epoch, "drawn and not used");
        assert_eq!(sealed.len(), plain.len() + TAG_BYTES, "room for the tag");
        let nonce = self.key.nonce(counter.0);
        let aad = Aad::from(header);
        let (text, tag) = sealed.split_at_mut(plain.len());
        let done = self
            .key
            .key
            .seal_out_of_place_scatter(nonce, aad, plain, text, &[], tag);
        done.expect("a packet is shorter than what the algorithm takes");
    }
}

/// A number that seals once.
#[derive(Debug, PartialEq, Eq)]
pub struct Counter(u64);

impl Counter {
    /// The bits that travel.
    #[must_use]
    #[inline]
    pub fn low(&self) -> u32 {
        self.0 as u32
    }
}

/// Why bytes were not opened.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum NotOpened {
    /// They came before, or too late to tell.
    Replayed,
    /// The tag is wrong: the bytes are damaged, forged, or of another session.
    Forged,
}

/// Opens what the other end of a session sends. Nothing changes before a tag is right, but for a count of failures.
pub struct Opener {
    chain: Chain,
    key: PacketKey,
    /// The epoch before, whose last packets may come late.
    previous: Option<Box<PacketKey>>,
    /// The epoch after, once a packet has claimed to be of it. It is made once, so that forged packets cost no more.
    next: Option<Box<(Chain, PacketKey)>>,
    window: Window,
    failures: u64,
}

impl Opener {
    pub(crate) fn new(secret: &[u8; 32]) -> Self {
        let (chain, key) = Chain::begin(secret);
        Self {
            chain,
            key,
            previous: None,
            next: None,
            window: Window::default(),
            failures: 0,
        }
    }

    /// The present epoch's secret, for a key log: whoever has it can read all packets from now on.
    #[must_use]
    pub fn for_key_log(&self) -> String {
        self.chain.for_key_log()
    }

    /// Failed openings.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures
    }

    /// The highest counter that was opened.
    #[must_use]
    pub fn highest(&self) -> u64 {
        self.window.highest()
    }

    /// For tests: as many packets were opened as a session may seal.
    #[doc(hidden)]
    pub fn wear(&mut self) {
        self.window.note(2 * PACKETS_MAX);
        self.chain.epoch = epoch_of(2 * PACKETS_MAX);
    }

    /// For tests: goes on as if the packet with this counter had come.
    #[doc(hidden)]
    pub fn skip_to(&mut self, counter: u64) {
        while self.chain.epoch < epoch_of(counter) {
            self.key = self.chain.advance();
        }
        self.window.note(counter);
    }

    /// Opens `sealed`, of which the last [`TAG_BYTES`] are the tag, into `plain`. `low` are the bits of the counter that
    /// travelled, `header` is what the tag also covers.
    ///
    /// # Errors
    ///
    /// [`NotOpened`]; the contents of `plain` mean nothing then.
    ///
    /// # Panics
    ///
    /// If `plain` is not shorter than `sealed` by [`TAG_BYTES`].
    #[inline]
    pub fn open(
        &mut self,
        low: u32,
        header: &[u8],
        sealed: &[u8],
        plain: &mut [u8],
    ) -> Result<(), NotOpened> {
        let counter = nearest(low, self.window.highest()).ok_or(NotOpened::Replayed)?;
        if !self.window.is_new(counter) {
            return Err(NotOpened::Replayed);
        }
        let epoch = epoch_of(counter);
        if epoch == self.chain.epoch {
            let is_good = self.key.open(counter, header, sealed, plain);
            return self.judge(counter, is_good);
        }
        self.open_in_neighbour(counter, header, sealed, plain)
    }

    /// The same in the epoch before the present one, or after it. The next one counts once a packet of it is right.
    #[cold]
    fn open_in_neighbour(
        &mut self,
        counter: u64,
        header: &[u8],
        sealed: &[u8],
        plain: &mut [u8],
    ) -> Result<(), NotOpened> {
        let (epoch, present) = (epoch_of(counter), self.chain.epoch);
        if epoch + 1 == present {
            let previous = self.previous.as_ref().ok_or(NotOpened::Replayed)?;
            let is_good = previous.open(counter, header, sealed, plain);
            return self.judge(counter, is_good);
        }
        if epoch != present + 1 {
            return self.judge(counter, false);
        }
        let next = self.next.get_or_insert_with(|| {
            let mut chain = self.chain.clone();
            let key = chain.advance();
            Box::new((chain, key))
        });
        let is_good = next.1.open(counter, header, sealed, plain);
        if is_good && let Some(next) = self.next.take() {
            let (chain, key) = *next;
            self.chain = chain;
            self.previous = Some(Box::new(std::mem::replace(&mut self.key, key)));
        }
        self.judge(counter, is_good)
    }

    #[inline]
    fn judge(&mut self, counter: u64, is_good: bool) -> Result<(), NotOpened> {
        if !is_good {
            self.failures += 1;
            return Err(NotOpened::Forged);
        }
        self.window.note(counter);
        Ok(())
    }
}

/// The counter with these low bits that is nearest to `highest`.
fn nearest(low: u32, highest: u64) -> Option<u64> {
    let distance = low.wrapping_sub(highest as u32).cast_signed();
    highest.checked_add_signed(i64::from(distance))
}

fn epoch_of(counter: u64) -> u64 {
    counter >> EPOCH_BITS
}

/// A direction's secret of the present epoch.
#[derive(Clone)]
struct Chain {
    epoch: u64,
    secret: [u8; 32],
}

impl Chain {
    fn begin(secret: &[u8; 32]) -> (Self, PacketKey) {
        let chain = Self {
            epoch: 0,
            secret: *secret,
        };
        let key = PacketKey::of(secret);
        (chain, key)
    }

    fn for_key_log(&self) -> String {
        let digits = self.secret.iter().map(|byte| format!("{byte:02x}"));
        digits.collect()
    }

    /// Goes to the next epoch. Its secret does not tell the one before.
    fn advance(&mut self) -> PacketKey {
        self.secret = expand(&self.secret, b"trine next epoch");
        self.epoch += 1;
        PacketKey::of(&self.secret)
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        self.secret.zeroize();
    }
}

struct PacketKey {
    key: LessSafeKey,
    /// The first bytes of the iv, and the last ones as a big-endian number.
    iv: ([u8; 4], u64),
}

impl PacketKey {
    fn of(secret: &[u8; 32]) -> Self {
        let mut key: [u8; 16] = expand(secret, b"trine packet key");
        let unbound = UnboundKey::new(&AES_128_GCM, &key).expect("a key of 16 bytes");
        key.zeroize();
        let [first @ .., a, b, c, d, e, f, g, h]: [u8; 12] = expand(secret, b"trine packet iv");
        Self {
            key: LessSafeKey::new(unbound),
            iv: (first, u64::from_be_bytes([a, b, c, d, e, f, g, h])),
        }
    }

    #[inline]
    fn nonce(&self, counter: u64) -> Nonce {
        let (first, last) = self.iv;
        let mut nonce = [0; 12];
        nonce[..4].copy_from_slice(&first);
        nonce[4..].copy_from_slice(&(last ^ counter).to_be_bytes());
        Nonce::assume_unique_for_key(nonce)
    }

    #[inline]
    fn open(&self, counter: u64, header: &[u8], sealed: &[u8], plain: &mut [u8]) -> bool {
        let Some((body, tag)) = sealed.split_last_chunk::<TAG_BYTES>() else {
            return false;
        };
        let nonce = self.nonce(counter);
        self.key
            .open_separate_gather(nonce, Aad::from(header), body, tag, plain)
            .is_ok()
    }
}

struct Len(usize);

impl KeyType for Len {
    fn len(&self) -> usize {
        self.0
    }
}

fn expand<const N: usize>(secret: &[u8; 32], label: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    let prk = Prk::new_less_safe(HKDF_SHA256, secret);
    let filled = prk
        .expand(&[label], Len(N))
        .and_then(|okm| okm.fill(&mut out));
    filled.expect("a length that HKDF gives");
    out
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sealer(next {})", self.next)
    }
}

impl std::fmt::Debug for Opener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Opener(highest {})", self.window.highest())
    }
}

#[cfg(test)]
mod tests;
