//! What two backends tell each other about a connection: terms behind a CONNECT, a grant behind an ACCEPT, notices.
//!
//! Terms and grant follow the packet in its datagram. A receiver that does not know them takes them for a packet that
//! cannot be cut, and drops them; so it does not answer in kind, and the session uses datagrams alone. They are in no
//! announcement, which anybody can ask for.
//!
//! ```text
//! terms (client)                         grant (server)
//! 0..3    "tHt1"                         0..3    "tHg1"
//! 4..7    queue pair                     4..7    queue pair
//! 8..11   first packet sequence number   8..15   address of slot 0
//! 12..13  slots                          16..19  rkey
//! 14..15  bytes from slot to slot        20..21  slots
//! 16..19  checksum                       22..23  bytes from slot to slot
//!                                        24..27  checksum
//!
//! notice (either), a datagram of its own
//! 0       0x10: version 1, no type of the protocol
//! 1       1 the server sleeps, 2 the connection is closed, 3 look at the slots
//! 2..3    receiver's session index
//! 4..7    1: the first sequence that was not read; else 0
//! 8..11   checksum
//! ```
//!
//! Numbers are little-endian. Each checksum is CRC32C over the session's nonce and the bytes before it, so that only who
//! has seen the session's handshake can make one.

use super::slot::{SLOT_BYTES, seed_of};
use crate::config::SLOTS;
use trine_transport::wire::crc32c;

const WISH_MARK: [u8; 4] = *b"tHt1";
const GRANT_MARK: [u8; 4] = *b"tHg1";
const WISH_BYTES: usize = 20;
const GRANT_BYTES: usize = 28;
/// Bytes of terms or a grant at most.
pub(crate) const TERMS_BYTES_MAX: usize = GRANT_BYTES;
pub(crate) const NOTICE_BYTES: usize = 12;
const NOTICE_MARK: u8 = 0x10;

/// A client's end of a connection.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Wish {
    pub(crate) queue_pair: u32,
    pub(crate) psn: u32,
}

/// A server's end of a connection.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Grant {
    pub(crate) queue_pair: u32,
    pub(crate) address: u64,
    pub(crate) rkey: u32,
}

/// What a notice is about.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum NoticeKind {
    /// The server sleeps, and has read everything before the sequence.
    Sleeps,
    /// The server does not read the slots any more.
    Closed,
    /// The client has written a packet that the server may not have seen.
    Look,
}

/// A datagram that is for the backend alone.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Notice {
    pub(crate) kind: NoticeKind,
    /// The receiver's.
    pub(crate) session: u16,
    pub(crate) sequence: u32,
}

/// The bytes of terms or a grant.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Terms {
    bytes: [u8; TERMS_BYTES_MAX],
    len: usize,
}

impl std::ops::Deref for Terms {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Terms {
    /// `fields` behind `mark`, and the checksum behind them.
    fn of(nonce: u64, mark: [u8; 4], fields: &[&[u8]]) -> Self {
        let mut terms = Self {
            bytes: [0; TERMS_BYTES_MAX],
            len: 0,
        };
        terms.put(&mark);
        fields.iter().for_each(|field| terms.put(field));
        let sum = crc32c(seed_of(nonce), &terms);
        terms.put(&sum.to_le_bytes());
        terms
    }

    fn put(&mut self, field: &[u8]) {
        self.bytes[self.len..self.len + field.len()].copy_from_slice(field);
        self.len += field.len();
    }
}

/// Where the slots are that this release reads and writes.
fn layout() -> [u8; 4] {
    let [a, b] = (SLOTS as u16).to_le_bytes();
    let [c, d] = (SLOT_BYTES as u16).to_le_bytes();
    [a, b, c, d]
}

impl Wish {
    pub(crate) fn write(self, nonce: u64) -> Terms {
        let fields = [
            self.queue_pair.to_le_bytes(),
            self.psn.to_le_bytes(),
            layout(),
        ];
        Terms::of(nonce, WISH_MARK, &fields.each_ref().map(|field| &field[..]))
    }

    /// `None` if it is none, is damaged, or is for slots of another layout.
    pub(crate) fn read(nonce: u64, terms: &[u8]) -> Option<Self> {
        let fields = checked::<WISH_BYTES>(nonce, WISH_MARK, terms)?;
        (fields[12..16] == layout()).then(|| Self {
            queue_pair: u32_at(fields, 4),
            psn: u32_at(fields, 8),
        })
    }
}

impl Grant {
    pub(crate) fn write(self, nonce: u64) -> Terms {
        let queue_pair = self.queue_pair.to_le_bytes();
        let (address, rkey) = (self.address.to_le_bytes(), self.rkey.to_le_bytes());
        Terms::of(
            nonce,
            GRANT_MARK,
            &[&queue_pair, &address, &rkey, &layout()],
        )
    }

    /// As [`Wish::read`].
    pub(crate) fn read(nonce: u64, terms: &[u8]) -> Option<Self> {
        let fields = checked::<GRANT_BYTES>(nonce, GRANT_MARK, terms)?;
        let address = u64::from(u32_at(fields, 8)) | u64::from(u32_at(fields, 12)) << 32;
        (fields[20..24] == layout()).then(|| Self {
            queue_pair: u32_at(fields, 4),
            address,
            rkey: u32_at(fields, 16),
        })
    }
}

impl Notice {
    pub(crate) fn write(self, nonce: u64) -> [u8; NOTICE_BYTES] {
        let kind = match self.kind {
            NoticeKind::Sleeps => 1,
            NoticeKind::Closed => 2,
            NoticeKind::Look => 3,
        };
        let mut bytes = [0; NOTICE_BYTES];
        bytes[..2].copy_from_slice(&[NOTICE_MARK, kind]);
        bytes[2..4].copy_from_slice(&self.session.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.sequence.to_le_bytes());
        let sum = crc32c(seed_of(nonce), &bytes[..8]);
        bytes[8..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// A notice for any session: [`Notice::is_of`] says for which.
    #[inline]
    pub(crate) fn read(datagram: &[u8]) -> Option<Self> {
        if datagram.first() != Some(&NOTICE_MARK) {
            return None;
        }
        let bytes: &[u8; NOTICE_BYTES] = datagram.try_into().ok()?;
        let kind = match bytes[1] {
            1 => NoticeKind::Sleeps,
            2 => NoticeKind::Closed,
            3 => NoticeKind::Look,
            _ => return None,
        };
        Some(Self {
            kind,
            session: u16::from_le_bytes([bytes[2], bytes[3]]),
            sequence: u32_at(bytes, 4),
        })
    }

    /// Whether the bytes of a notice were made by somebody who knows the session.
    pub(crate) fn is_of(datagram: &[u8], nonce: u64) -> bool {
        let Some((summed, sum)) = datagram.split_last_chunk::<4>() else {
            return false;
        };
        u32::from_le_bytes(*sum) == crc32c(seed_of(nonce), summed)
    }
}

/// The fields, if mark, length and checksum are right.
fn checked<const BYTES: usize>(nonce: u64, mark: [u8; 4], terms: &[u8]) -> Option<&[u8; BYTES]> {
    let terms: &[u8; BYTES] = terms.try_into().ok()?;
    let (summed, sum) = terms.split_last_chunk::<4>()?;
    let is_right =
        summed.starts_with(&mark) && u32::from_le_bytes(*sum) == crc32c(seed_of(nonce), summed);
    is_right.then_some(terms)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let word = bytes[at..].first_chunk();
    u32::from_le_bytes(*word.expect("whoever asks for a field has checked the length"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_transport::prng::Prng;

    const WISH: Wish = Wish {
        queue_pair: 0x0001_0203,
        psn: 0x0004_0506,
    };
    const GRANT: Grant = Grant {
        queue_pair: 0x0001_0203,
        address: 0x1122_3344_5566_7788,
        rkey: 0x0a0b_0c0d,
    };
    const NOTICE: Notice = Notice {
        kind: NoticeKind::Sleeps,
        session: 0x0201,
        sequence: 0x0807_0605,
    };

    #[test]
    fn their_bytes() {
        let sum = |bytes: &[u8]| crc32c(seed_of(5), bytes).to_le_bytes().to_vec();
        let wish = [&b"tHt1"[..], &[3, 2, 1, 0, 6, 5, 4, 0, 8, 0, 0x40, 0x01]].concat();
        assert_eq!(WISH.write(5)[..], [wish.clone(), sum(&wish)].concat());
        let grant = [
            &b"tHg1"[..],
            &[3, 2, 1, 0],
            &[0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11],
            &[0x0d, 0x0c, 0x0b, 0x0a, 8, 0, 0x40, 0x01],
        ]
        .concat();
        assert_eq!(GRANT.write(5)[..], [grant.clone(), sum(&grant)].concat());
        let notice = [0x10, 1, 1, 2, 5, 6, 7, 8];
        assert_eq!(
            NOTICE.write(5)[..],
            [notice.to_vec(), sum(&notice)].concat()
        );
    }

    #[test]
    fn they_are_read_as_written_by_their_session_and_by_no_other() {
        assert_eq!(Wish::read(5, &WISH.write(5)), Some(WISH));
        assert_eq!(Grant::read(5, &GRANT.write(5)), Some(GRANT));
        assert_eq!(Wish::read(6, &WISH.write(5)), None);
        assert_eq!(Grant::read(6, &GRANT.write(5)), None);
        for kind in [NoticeKind::Sleeps, NoticeKind::Closed, NoticeKind::Look] {
            let notice = Notice { kind, ..NOTICE };
            let bytes = notice.write(5);
            assert_eq!(Notice::read(&bytes), Some(notice));
            assert!(Notice::is_of(&bytes, 5) && !Notice::is_of(&bytes, 6));
        }
    }

    #[test]
    fn changed_shortened_and_random_bytes_are_refused() {
        let (wish, grant, notice) = (WISH.write(5), GRANT.write(5), NOTICE.write(5));
        for at in 0..GRANT_BYTES {
            let changed = |bytes: &[u8]| -> Vec<u8> {
                let mut changed = bytes.to_vec();
                if let Some(byte) = changed.get_mut(at) {
                    *byte ^= 0x20;
                }
                changed
            };
            assert!(
                at >= WISH_BYTES || Wish::read(5, &changed(&wish)).is_none(),
                "{at}"
            );
            assert_eq!(Grant::read(5, &changed(&grant)), None, "{at}");
            assert!(
                at >= NOTICE_BYTES || !Notice::is_of(&changed(&notice), 5),
                "{at}"
            );
            assert_eq!(Wish::read(5, &grant[..at]), None);
            assert_eq!(Grant::read(5, &grant[..at]), None);
        }
        let mut prng = Prng::new(1);
        for _ in 0..10_000 {
            let length = prng.below(40) as usize;
            let mut bytes: Vec<u8> = (0..length).map(|_| prng.below(256) as u8).collect();
            if let Some(first) = bytes.first_mut() {
                *first = NOTICE_MARK;
            }
            assert_eq!(Wish::read(5, &bytes), None);
            assert_eq!(Grant::read(5, &bytes), None);
            assert!(Notice::read(&bytes).is_none() || length == NOTICE_BYTES);
        }
    }

    #[test]
    fn slots_of_another_layout_are_refused() {
        let fields = [1u32.to_le_bytes(), 2u32.to_le_bytes(), [16, 0, 0x40, 0x01]];
        let other = Terms::of(5, WISH_MARK, &fields.each_ref().map(|field| &field[..]));
        assert_eq!(Wish::read(5, &other), None);
    }
}
