//! What two backends tell each other about a connection: terms behind a CONNECT, a grant behind an ACCEPT, notices.
//!
//! Terms and grant follow the packet in its datagram. A receiver that does not know them takes them for a packet that
//! cannot be cut, and drops them; so it does not answer in kind, and the session uses datagrams alone. They are in no
//! announcement, which anybody can ask for.
//!
//! ```text
//! terms (client)                         grant (server)
//! 0..3    "tHt1" herd, "tRt1" rfp        0..3    "tHg1" herd, "tRg1" rfp
//! 4..7    queue pair                     4..7    queue pair
//! 8..11   first packet sequence number   8..15   address of slot 0
//! 12..13  slots                          16..19  rkey
//! 14..15  bytes from slot to slot        20..21  slots
//! rfp: 16..17 and 18..19, the same       22..23  bytes from slot to slot
//!         of answers                     rfp: 24..39, the same of answers
//! then    checksum                       then    checksum
//!
//! notice (either), a datagram of its own
//! 0       0x10: version 1, no type of the protocol
//! 1       1 the server sleeps, 2 the connection is closed, 3 look at the slots, 4 send answers as datagrams
//! 2..3    receiver's session index
//! 4..7    1: the first sequence that was not read; 4: the first answer that was not fetched; else 0
//! 8..11   checksum
//! ```
//!
//! Numbers are little-endian. Each checksum is CRC32C over the session's nonce and the bytes before it, so that only who
//! has seen the session's handshake can make one.

use super::slot::{ANSWER_BYTES, SLOT_BYTES, seed_of};
use crate::config::SLOTS;
use crate::one_sided_path::OneSidedPath;
use trine_transport::wire::crc32c;

const MARK_BYTES: usize = 4;
const SUM_BYTES: usize = 4;
/// Bytes of terms or a grant at most.
pub(crate) const TERMS_BYTES_MAX: usize = 44;
pub(crate) const NOTICE_BYTES: usize = 12;
const NOTICE_MARK: u8 = 0x10;

/// A client's end of a connection, as it offers it to the server.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct ConnectionOffer {
    pub(crate) queue_pair: u32,
    pub(crate) psn: u32,
}

/// Memory of another end, and the key to it.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Area {
    pub(crate) address: u64,
    pub(crate) rkey: u32,
}

/// A server's end of a connection.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Grant {
    pub(crate) queue_pair: u32,
    pub(crate) requests: Area,
    /// Only of path rfp.
    pub(crate) answers: Area,
}

/// Why bytes are no grant.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum NoGrant {
    /// They are damaged, of another session or of another path.
    Unreadable,
    /// The server's regions have other slots than this release's.
    OtherLayout,
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
    /// The client fetches no answers until it writes otherwise: they have to be sent.
    Reply,
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

/// How many slots a region has, and how far apart they are.
fn layout(slot_bytes: usize) -> [u8; 4] {
    let [a, b] = (SLOTS as u16).to_le_bytes();
    let [c, d] = (slot_bytes as u16).to_le_bytes();
    [a, b, c, d]
}

fn marks(path: OneSidedPath) -> ([u8; MARK_BYTES], [u8; MARK_BYTES]) {
    match path {
        OneSidedPath::Herd => (*b"tHt1", *b"tHg1"),
        OneSidedPath::Rfp => (*b"tRt1", *b"tRg1"),
    }
}

impl ConnectionOffer {
    pub(crate) fn write(self, path: OneSidedPath, nonce: u64) -> Terms {
        let (mark, _) = marks(path);
        let (queue_pair, psn) = (self.queue_pair.to_le_bytes(), self.psn.to_le_bytes());
        let (requests, answers) = (layout(SLOT_BYTES), layout(ANSWER_BYTES));
        let fields: &[&[u8]] = match path {
            OneSidedPath::Herd => &[&queue_pair, &psn, &requests],
            OneSidedPath::Rfp => &[&queue_pair, &psn, &requests, &answers],
        };
        Terms::of(nonce, mark, fields)
    }

    /// `None` if it is none, is damaged, is of another path, or is for slots of another layout.
    pub(crate) fn read(path: OneSidedPath, nonce: u64, terms: &[u8]) -> Option<Self> {
        let mut fields = checked(nonce, marks(path).0, terms)?;
        let wish = Self {
            queue_pair: u32::from_le_bytes(take(&mut fields)?),
            psn: u32::from_le_bytes(take(&mut fields)?),
        };
        let mut is_good = take(&mut fields)? == layout(SLOT_BYTES);
        if path == OneSidedPath::Rfp {
            is_good &= take(&mut fields)? == layout(ANSWER_BYTES);
        }
        (is_good && fields.is_empty()).then_some(wish)
    }
}

impl Area {
    fn write(self, slot_bytes: usize) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.address.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.rkey.to_le_bytes());
        bytes[12..].copy_from_slice(&layout(slot_bytes));
        bytes
    }

    /// The place, and the layout that it comes with.
    fn read(fields: &mut &[u8]) -> Option<(Self, [u8; 4])> {
        let place = Self {
            address: u64::from_le_bytes(take(fields)?),
            rkey: u32::from_le_bytes(take(fields)?),
        };
        Some((place, take(fields)?))
    }
}

impl Grant {
    pub(crate) fn write(self, path: OneSidedPath, nonce: u64) -> Terms {
        let (_, mark) = marks(path);
        let queue_pair = self.queue_pair.to_le_bytes();
        let (requests, answers) = (
            self.requests.write(SLOT_BYTES),
            self.answers.write(ANSWER_BYTES),
        );
        let fields: &[&[u8]] = match path {
            OneSidedPath::Herd => &[&queue_pair, &requests],
            OneSidedPath::Rfp => &[&queue_pair, &requests, &answers],
        };
        Terms::of(nonce, mark, fields)
    }

    /// What a server has granted.
    pub(crate) fn read(path: OneSidedPath, nonce: u64, terms: &[u8]) -> Result<Self, NoGrant> {
        let read = || -> Option<Result<Self, NoGrant>> {
            let mut fields = checked(nonce, marks(path).1, terms)?;
            let queue_pair = u32::from_le_bytes(take(&mut fields)?);
            let (requests, slots) = Area::read(&mut fields)?;
            let mut is_good = slots == layout(SLOT_BYTES);
            let mut answers = Area::default();
            if path == OneSidedPath::Rfp {
                let slots;
                (answers, slots) = Area::read(&mut fields)?;
                is_good &= slots == layout(ANSWER_BYTES);
            }
            let grant = Self {
                queue_pair,
                requests,
                answers,
            };
            fields.is_empty().then_some(if is_good {
                Ok(grant)
            } else {
                Err(NoGrant::OtherLayout)
            })
        };
        read().unwrap_or(Err(NoGrant::Unreadable))
    }
}

impl Notice {
    pub(crate) fn write(self, nonce: u64) -> [u8; NOTICE_BYTES] {
        let kind = match self.kind {
            NoticeKind::Sleeps => 1,
            NoticeKind::Closed => 2,
            NoticeKind::Look => 3,
            NoticeKind::Reply => 4,
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
            4 => NoticeKind::Reply,
            _ => return None,
        };
        Some(Self {
            kind,
            session: u16::from_le_bytes([bytes[2], bytes[3]]),
            sequence: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
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

/// The fields between mark and checksum, if both are right.
fn checked(nonce: u64, mark: [u8; MARK_BYTES], terms: &[u8]) -> Option<&[u8]> {
    let (summed, sum) = terms.split_last_chunk::<SUM_BYTES>()?;
    let fields = summed.strip_prefix(&mark)?;
    (u32::from_le_bytes(*sum) == crc32c(seed_of(nonce), summed)).then_some(fields)
}

/// Takes a field off the front.
fn take<const BYTES: usize>(fields: &mut &[u8]) -> Option<[u8; BYTES]> {
    let (field, rest) = fields.split_first_chunk::<BYTES>()?;
    *fields = rest;
    Some(*field)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::one_sided_path::OneSidedPath::{Herd, Rfp};
    use trine_transport::prng::Prng;

    const WISH: ConnectionOffer = ConnectionOffer {
        queue_pair: 0x0001_0203,
        psn: 0x0004_0506,
    };
    const GRANT: Grant = Grant {
        queue_pair: 0x0001_0203,
        requests: Area {
            address: 0x1122_3344_5566_7788,
            rkey: 0x0a0b_0c0d,
        },
        answers: Area {
            address: 0x0102_0304_0506_0708,
            rkey: 0x1a1b_1c1d,
        },
    };
    const NOTICE: Notice = Notice {
        kind: NoticeKind::Sleeps,
        session: 0x0201,
        sequence: 0x0807_0605,
    };
    /// Only of path rfp.
    const WITHOUT_ANSWERS: Grant = Grant {
        answers: Area {
            address: 0,
            rkey: 0,
        },
        ..GRANT
    };

    fn summed(parts: &[&[u8]]) -> Vec<u8> {
        let bytes = parts.concat();
        let sum = crc32c(seed_of(5), &bytes).to_le_bytes();
        [bytes, sum.to_vec()].concat()
    }

    #[test]
    fn their_bytes() {
        let wish = [3, 2, 1, 0, 6, 5, 4, 0, 8, 0, 0x40, 0x01];
        let answers = [8, 0, 0, 4];
        assert_eq!(WISH.write(Herd, 5)[..], summed(&[b"tHt1", &wish]));
        assert_eq!(WISH.write(Rfp, 5)[..], summed(&[b"tRt1", &wish, &answers]));
        let grant = [
            &[3, 2, 1, 0][..],
            &[0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11],
            &[0x0d, 0x0c, 0x0b, 0x0a, 8, 0, 0x40, 0x01],
        ]
        .concat();
        let answers = [8, 7, 6, 5, 4, 3, 2, 1, 0x1d, 0x1c, 0x1b, 0x1a, 8, 0, 0, 4];
        assert_eq!(GRANT.write(Herd, 5)[..], summed(&[b"tHg1", &grant]));
        assert_eq!(
            GRANT.write(Rfp, 5)[..],
            summed(&[b"tRg1", &grant, &answers])
        );
        assert_eq!(GRANT.write(Rfp, 5).len(), TERMS_BYTES_MAX);
        assert_eq!(NOTICE.write(5)[..], summed(&[&[0x10, 1, 1, 2, 5, 6, 7, 8]]));
    }

    #[test]
    fn they_are_read_as_written_by_their_session_and_path_and_by_no_other() {
        for (path, other, grant) in [(Herd, Rfp, WITHOUT_ANSWERS), (Rfp, Herd, GRANT)] {
            assert_eq!(
                ConnectionOffer::read(path, 5, &WISH.write(path, 5)),
                Some(WISH)
            );
            assert_eq!(Grant::read(path, 5, &GRANT.write(path, 5)), Ok(grant));
            assert_eq!(ConnectionOffer::read(path, 6, &WISH.write(path, 5)), None);
            assert_eq!(ConnectionOffer::read(other, 5, &WISH.write(path, 5)), None);
            for (path, nonce) in [(path, 6), (other, 5)] {
                let read = Grant::read(path, nonce, &GRANT.write(grant_path(grant), 5));
                assert_eq!(read, Err(NoGrant::Unreadable));
            }
        }
        use NoticeKind as K;
        for kind in [K::Sleeps, K::Closed, K::Look, K::Reply] {
            let notice = Notice { kind, ..NOTICE };
            let bytes = notice.write(5);
            assert_eq!(Notice::read(&bytes), Some(notice));
            assert!(Notice::is_of(&bytes, 5) && !Notice::is_of(&bytes, 6));
        }
    }

    fn grant_path(grant: Grant) -> OneSidedPath {
        if grant == GRANT { Rfp } else { Herd }
    }

    #[test]
    fn changed_shortened_and_random_bytes_are_refused() {
        let changed = |bytes: &[u8], at: usize| -> Vec<u8> {
            let mut changed = bytes.to_vec();
            changed[at] ^= 0x20;
            changed
        };
        for path in [Herd, Rfp] {
            let (wish, grant) = (WISH.write(path, 5), GRANT.write(path, 5));
            for at in 0..wish.len() {
                assert_eq!(
                    ConnectionOffer::read(path, 5, &changed(&wish, at)),
                    None,
                    "{at}"
                );
                assert_eq!(ConnectionOffer::read(path, 5, &wish[..at]), None, "{at}");
            }
            for at in 0..grant.len() {
                for bytes in [&changed(&grant, at)[..], &grant[..at]] {
                    assert_eq!(
                        Grant::read(path, 5, bytes),
                        Err(NoGrant::Unreadable),
                        "{at}"
                    );
                }
            }
        }
        let notice = NOTICE.write(5);
        for at in 0..NOTICE_BYTES {
            assert!(!Notice::is_of(&changed(&notice, at), 5), "{at}");
        }
        let mut prng = Prng::new(1);
        for _ in 0..10_000 {
            let length = prng.below(60) as usize;
            let mut bytes: Vec<u8> = (0..length).map(|_| prng.below(256) as u8).collect();
            if let Some(first) = bytes.first_mut() {
                *first = NOTICE_MARK;
            }
            for path in [Herd, Rfp] {
                assert_eq!(ConnectionOffer::read(path, 5, &bytes), None);
                assert_eq!(Grant::read(path, 5, &bytes), Err(NoGrant::Unreadable));
            }
            assert!(Notice::read(&bytes).is_none() || length == NOTICE_BYTES);
        }
    }

    /// Fewer slots, or smaller ones: a region that is too small.
    #[test]
    fn slots_of_another_layout_are_refused() {
        for layout in [[16, 0, 0x40, 0x01], [7, 0, 0x40, 0x01], [8, 0, 0, 1]] {
            let wish = summed(&[b"tHt1", &[1, 0, 0, 0, 2, 0, 0, 0], &layout]);
            assert_eq!(ConnectionOffer::read(Herd, 5, &wish), None);
            let grant = summed(&[b"tHg1", &[0; 4], &[0; 12], &layout]);
            assert_eq!(Grant::read(Herd, 5, &grant), Err(NoGrant::OtherLayout));
            let good = [8, 0, 0x40, 0x01];
            let grant = summed(&[b"tRg1", &[0; 4], &[0; 12], &good, &[0; 12], &layout]);
            assert_eq!(Grant::read(Rfp, 5, &grant), Err(NoGrant::OtherLayout));
        }
    }
}
