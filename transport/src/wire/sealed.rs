//! Sealed packets (PROTOCOL.md section 9): consecutive packets of a session that share one tag, a *run*.
//!
//! ```text
//!   header | sealed body | header | sealed body | .. | header with TRAILER | sealed body | tag
//! ```
//! All headers of a run carry the low bits of its counter in the place of the checksum, and the tag covers them. A packet
//! that waits to be sealed has TRAILER set, and its session's mark in that place.

use super::header::{Flags, Header, PacketType, VERSION};
use super::layout::{CHECKSUM_AT, HEADER_BYTES, put_words};
use trine_seal::{NotOpened, Opener, Sealer, TAG_BYTES};

/// Packets of a run at most.
const RUN_PACKETS_MAX: usize = 32;
/// Where the length begins, two bytes.
const LENGTH_AT: usize = 4;

/// The session that a packet names, if the packet may be sealed: not one of a handshake, and no RESET.
#[inline]
pub(crate) fn names_session(packet: &[u8]) -> Option<u16> {
    use PacketType as T;
    const UNSEALED: u16 = types(&[
        T::Notice,
        T::Reset,
        T::Connect,
        T::Cookie,
        T::Accept,
        T::Refuse,
    ]);
    let header = packet.first_chunk::<HEADER_BYTES>()?;
    (header[0] >> 4 == VERSION && !is_one_of(header, UNSEALED)).then(|| session_of(header))
}

/// A set of packet types: a bit for each.
const fn types(all: &[PacketType]) -> u16 {
    let (mut set, mut at) = (0, 0);
    while at < all.len() {
        set |= 1 << all[at] as u8;
        at += 1;
    }
    set
}

#[inline(always)]
fn is_one_of(header: &[u8; HEADER_BYTES], set: u16) -> bool {
    set >> (header[0] & 0x0f) & 1 != 0
}

fn session_of(header: &[u8; HEADER_BYTES]) -> u16 {
    u16::from_le_bytes([header[2], header[3]])
}

fn is_last(header: &[u8; HEADER_BYTES]) -> bool {
    Flags(header[1]).has(Flags::TRAILER)
}

/// PING and DISCONNECT: their bodies are authenticated and not encrypted. An end that does not know the session must
/// read them.
fn has_clear_body(header: &[u8; HEADER_BYTES]) -> bool {
    const CLEAR: u16 = types(&[PacketType::Ping, PacketType::Disconnect]);
    is_one_of(header, CLEAR)
}

fn length_of(header: &[u8; HEADER_BYTES]) -> usize {
    usize::from(u16::from_le_bytes([
        header[LENGTH_AT],
        header[LENGTH_AT + 1],
    ]))
}

/// Sets length, counter and TRAILER of a header.
fn finish(header: &mut [u8], length: usize, counter: u32, is_last: bool) {
    // At most the MTU.
    header[LENGTH_AT..LENGTH_AT + 2].copy_from_slice(&(length as u16).to_le_bytes());
    header[CHECKSUM_AT..HEADER_BYTES].copy_from_slice(&counter.to_le_bytes());
    header[1] = header[1] & !Flags::TRAILER.0 | if is_last { Flags::TRAILER.0 } else { 0 };
}

/// Sealed packets at the front of a datagram.
#[derive(Copy, Clone)]
pub(crate) struct SealedRun<'a> {
    bytes: &'a [u8],
    packets: usize,
}

impl<'a> SealedRun<'a> {
    /// Cuts the first run off a datagram. `None` if no packet of its session ends one.
    pub(crate) fn cut(datagram: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let session = names_session(datagram)?;
        let (mut at, mut packets) = (0, 0);
        while packets < RUN_PACKETS_MAX {
            let header = datagram.get(at..)?.first_chunk::<HEADER_BYTES>()?;
            let (length, is_last) = (length_of(header), is_last(header));
            let least = HEADER_BYTES + if is_last { TAG_BYTES } else { 0 };
            let is_clear = has_clear_body(header);
            if session_of(header) != session
                || length < least
                || is_clear && (packets > 0 || !is_last)
            {
                return None;
            }
            at += length;
            packets += 1;
            if is_last {
                let (bytes, rest) = datagram.split_at_checked(at)?;
                return Some((Self { bytes, packets }, rest));
            }
        }
        None
    }

    fn header(&self) -> &'a [u8; HEADER_BYTES] {
        self.bytes.first_chunk().expect("a run has a packet")
    }

    /// The receiver's session.
    pub(crate) fn session(&self) -> u16 {
        session_of(self.header())
    }

    /// The body of a PING or a DISCONNECT, which anybody can read.
    pub(crate) fn clear_body(&self) -> Option<&'a [u8]> {
        let body = &self.bytes[HEADER_BYTES..self.bytes.len() - TAG_BYTES];
        has_clear_body(self.header()).then_some(body)
    }

    /// The token of a PING or a DISCONNECT.
    pub(crate) fn token(&self) -> super::RequestNumber {
        super::header::HeaderBytes(self.header()).request()
    }
}

/// Opened packets: as if they had come unsealed, one after the other. Reused from run to run.
#[derive(Default)]
pub(crate) struct OpenedPackets {
    packets: Vec<u8>,
    len: usize,
    scratch: Scratch,
}

/// The parts of a run of several packets, each side by side.
#[derive(Default)]
struct Scratch {
    headers: Vec<u8>,
    bodies: Vec<u8>,
    opened: Vec<u8>,
}

impl OpenedPackets {
    /// The packets that were opened last.
    pub(crate) fn packets(&self) -> &[u8] {
        &self.packets[..self.len]
    }

    /// Opens a run.
    pub(crate) fn open(
        &mut self,
        run: &SealedRun<'_>,
        opener: &mut Opener,
    ) -> Result<(), NotOpened> {
        self.len = run.bytes.len() - TAG_BYTES;
        if self.packets.len() < self.len {
            self.packets.resize(self.len, 0);
        }
        let counter = super::crc::stored(run.header());
        if run.packets > 1 {
            return self.open_several(run, counter, opener);
        }
        let covered = if has_clear_body(run.header()) {
            self.len
        } else {
            HEADER_BYTES
        };
        let (header, sealed) = run.bytes.split_at(covered);
        let (head, plain) = self.packets[..self.len].split_at_mut(covered);
        opener.open(counter, header, sealed, plain)?;
        head.copy_from_slice(header);
        finish(head, self.len, 0, false);
        Ok(())
    }

    #[inline(never)]
    fn open_several(
        &mut self,
        run: &SealedRun<'_>,
        counter: u32,
        opener: &mut Opener,
    ) -> Result<(), NotOpened> {
        let Scratch {
            headers,
            bodies,
            opened,
        } = &mut self.scratch;
        headers.clear();
        bodies.clear();
        let mut rest = run.bytes;
        while let Some(header) = rest.first_chunk::<HEADER_BYTES>() {
            let (packet, after) = rest.split_at(length_of(header));
            headers.extend_from_slice(header);
            bodies.extend_from_slice(&packet[HEADER_BYTES..]);
            rest = after;
        }
        opened.resize(bodies.len() - TAG_BYTES, 0);
        opener.open(counter, headers, bodies, opened)?;
        let (mut at, mut bodies) = (0, &opened[..]);
        for header in headers.as_chunks::<HEADER_BYTES>().0 {
            let tag = if is_last(header) { TAG_BYTES } else { 0 };
            let length = length_of(header) - tag;
            let packet = &mut self.packets[at..at + length];
            let (head, body) = packet.split_at_mut(HEADER_BYTES);
            head.copy_from_slice(header);
            finish(head, length, 0, false);
            let (of_packet, after) = bodies.split_at(body.len());
            body.copy_from_slice(of_packet);
            (at, bodies) = (at + length, after);
        }
        Ok(())
    }
}

/// The mark of a packet that waits to be sealed; `None` for a packet that is sent as it is.
#[inline]
pub(crate) fn seal_mark(head: &[u8]) -> Option<u32> {
    let header = head.first_chunk::<HEADER_BYTES>()?;
    is_last(header).then(|| super::crc::stored(header))
}

/// Packets that are to be sealed together, and the memory for it. Reused from run to run.
pub(crate) struct RunSealer {
    packets_max: usize,
    headers: Vec<u8>,
    bodies: Vec<u8>,
    sealed: Vec<u8>,
    lengths: Vec<u16>,
}

impl RunSealer {
    /// With `tag_per_run` as the endpoint's configuration has it.
    pub(crate) fn new(tag_per_run: bool) -> Self {
        Self {
            packets_max: if tag_per_run { RUN_PACKETS_MAX } else { 1 },
            headers: Vec::new(),
            bodies: Vec::new(),
            sealed: Vec::new(),
            lengths: Vec::new(),
        }
    }

    /// Whether a run of so many packets takes another one.
    pub(crate) fn has_room(&self, packets: usize) -> bool {
        packets < self.packets_max
    }

    /// Bytes that sealing adds to a run.
    pub(crate) const EXTRA: usize = TAG_BYTES;

    /// Seals a packet whose bytes are `head` and, behind it, `body`. Writes it to `out`, which has exactly its size. False,
    /// and nothing is written, in a forked child.
    pub(crate) fn seal_one(
        &mut self,
        sealer: &mut Sealer,
        head: &[u8],
        body: &[u8],
        out: &mut [u8],
    ) -> bool {
        let (header, extension) = head.split_at(HEADER_BYTES);
        let Some(counter) = sealer.draw() else {
            return false;
        };
        let length = out.len();
        let (place, sealed) = out.split_at_mut(HEADER_BYTES);
        place.copy_from_slice(header);
        finish(place, length, counter.low(), true);
        if body.is_empty() {
            sealer.seal(counter, place, extension, sealed);
        } else if extension.is_empty() {
            sealer.seal(counter, place, body, sealed);
        } else {
            self.bodies.clear();
            self.bodies.extend_from_slice(extension);
            self.bodies.extend_from_slice(body);
            sealer.seal(counter, place, &self.bodies, sealed);
        }
        true
    }

    /// Seals packets with one tag. Writes them to `out`, which has exactly their size. False, and nothing is written, in a
    /// forked child.
    pub(crate) fn seal_several<'a>(
        &mut self,
        sealer: &mut Sealer,
        packets: impl Iterator<Item = (&'a [u8], &'a [u8])>,
        out: &mut [u8],
    ) -> bool {
        let Some(counter) = sealer.draw() else {
            return false;
        };
        self.headers.clear();
        self.bodies.clear();
        self.lengths.clear();
        for (head, body) in packets {
            let (header, extension) = head.split_at(HEADER_BYTES);
            self.headers.extend_from_slice(header);
            self.bodies.extend_from_slice(extension);
            self.bodies.extend_from_slice(body);
            // At most the MTU.
            self.lengths.push((head.len() + body.len()) as u16);
        }
        if let Some(last) = self.lengths.last_mut() {
            *last += TAG_BYTES as u16;
        }
        let mut left = self.lengths.len();
        let headers = self.headers.as_chunks_mut::<HEADER_BYTES>().0;
        for (header, length) in headers.iter_mut().zip(&self.lengths) {
            left -= 1;
            finish(header, usize::from(*length), counter.low(), left == 0);
        }
        self.sealed.resize(self.bodies.len() + TAG_BYTES, 0);
        sealer.seal(counter, &self.headers, &self.bodies, &mut self.sealed);
        let (mut out, mut sealed) = (out, &self.sealed[..]);
        for (header, length) in self
            .headers
            .as_chunks::<HEADER_BYTES>()
            .0
            .iter()
            .zip(&self.lengths)
        {
            let (packet, after) = out.split_at_mut(usize::from(*length));
            let (head, body) = packet.split_at_mut(HEADER_BYTES);
            head.copy_from_slice(header);
            let (of_packet, rest) = sealed.split_at(body.len());
            body.copy_from_slice(of_packet);
            (out, sealed) = (after, rest);
        }
        true
    }
}

/// Writes a sealed control packet, and returns its length. The bodies of PING and DISCONNECT stay readable. Nothing is written
/// in a forked child.
pub(crate) fn seal_control(
    sealer: &mut Sealer,
    header: &Header,
    body: &[u8],
    out: &mut [u8],
) -> Option<usize> {
    let counter = sealer.draw()?;
    let mut head = [0; HEADER_BYTES];
    let length = HEADER_BYTES + body.len() + TAG_BYTES;
    put_words(&mut head, header.words(length), counter.low());
    finish(&mut head, length, counter.low(), true);
    out[..HEADER_BYTES].copy_from_slice(&head);
    let (place, rest) = out[HEADER_BYTES..length].split_at_mut(body.len());
    if !has_clear_body(&head) {
        sealer.seal(counter, &head, body, &mut out[HEADER_BYTES..length]);
        return Some(length);
    }
    place.copy_from_slice(body);
    let covered = [&head[..], body].concat();
    sealer.seal(counter, &covered, &[], rest);
    Some(length)
}
