//! Which messages do clients and servers of an index exchange?
//!
//! | kind | request | answer |
//! |---|---|---|
//! | HELLO | empty | `DONE`, "TRIX", version of this table (u8), threads of the server (u32) |
//! | GET | key | `DONE` and the value, or `ABSENT` |
//! | PUT | key, value | `DONE`, or `FULL` and the most keys that the index may have (u64) |
//! | DELETE | key | `DONE`, or `ABSENT` |
//! | SCAN | key, limit (u32) | `DONE`, the number of keys (u32), the sum of their values (u64) |
//!
//! Keys are 8 bytes, compared from the first to the last, so a number is big-endian. All other numbers are
//! little-endian, values among them. A SCAN goes over the keys that succeed `key`. Every answer begins
//! with a verdict (u8). A bad request gets `UNKNOWN_KIND`, `MALFORMED`, or `BAD_LIMIT` with the largest limit (u32).
//! A request to which the caller has no right gets the answer in `rights/denied.rs`, whose verdict is 6.

use trine_index::{ConcurrentMap, Scan};
use trine_keys::Role;

use crate::config::INDEX_SCAN_KEYS_MAX;
use crate::rights::DENIED_BYTES_MAX;

/// Request kinds; none of them is one of a replica's or of a cache's.
pub const HELLO: u8 = 40;
/// The value of a key.
pub const GET: u8 = 41;
/// A value for a key.
pub const PUT: u8 = 42;
/// A key to be removed.
pub const DELETE: u8 = 43;
/// The sum over the values of succeeding keys.
pub const SCAN: u8 = 44;

const DONE: u8 = 0;
const ABSENT: u8 = 1;
const FULL: u8 = 2;
const MALFORMED: u8 = 3;
const UNKNOWN_KIND: u8 = 4;
const BAD_LIMIT: u8 = 5;

const MAGIC: [u8; 4] = *b"TRIX";
const VERSION: u8 = 1;
/// No answer is longer.
pub const ANSWER_BYTES_MAX: usize = DENIED_BYTES_MAX;

/// A request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Whether an index answers, and with how many threads.
    Hello,
    /// The value of a key.
    Get(u64),
    /// A value for a key.
    Put(u64, u64),
    /// A key to be removed.
    Delete(u64),
    /// The sum over the values of up to so many keys after one.
    Scan(u64, u32),
}

/// An answer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Of a HELLO: the threads of the server, never 0.
    Hello(u32),
    /// Of a GET.
    Value(u64),
    /// Of a PUT or a DELETE.
    Done,
    /// There is no such key.
    Absent,
    /// Of a SCAN.
    Scan(Scan),
    /// There is no room for a new key beside so many.
    Full(u64),
    /// The request is none.
    Refused(Refusal),
}

/// Why a request was not executed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Its length is wrong.
    Malformed,
    /// Its kind is none of an index.
    UnknownKind,
    /// A scan over no key, or over more than this.
    BadLimit(u32),
}

/// The bytes of a message, without an allocation.
#[derive(Copy, Clone, Debug)]
pub struct Encoded {
    bytes: [u8; 16],
    length: usize,
}

impl Encoded {
    fn new() -> Self {
        Self {
            bytes: [0; 16],
            length: 0,
        }
    }

    fn with(mut self, bytes: &[u8]) -> Self {
        self.bytes[self.length..][..bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
        self
    }
}

impl std::ops::Deref for Encoded {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl AsRef<[u8]> for Encoded {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// Splits a message into numbers; `None` if its length is another one.
fn numbers<const A: usize, const B: usize>(bytes: &[u8]) -> Option<([u8; A], [u8; B])> {
    let (first, rest) = bytes.split_first_chunk()?;
    Some((*first, rest.try_into().ok()?))
}

impl Ask {
    /// Its kind.
    #[must_use]
    pub fn kind(self) -> u8 {
        match self {
            Self::Hello => HELLO,
            Self::Get(_) => GET,
            Self::Put(..) => PUT,
            Self::Delete(_) => DELETE,
            Self::Scan(..) => SCAN,
        }
    }

    /// Its bytes behind the kind.
    #[must_use]
    pub fn encode(self) -> Encoded {
        let bytes = Encoded::new();
        match self {
            Self::Hello => bytes,
            Self::Get(key) | Self::Delete(key) => bytes.with(&key.to_be_bytes()),
            Self::Put(key, value) => bytes.with(&key.to_be_bytes()).with(&value.to_le_bytes()),
            Self::Scan(key, limit) => bytes.with(&key.to_be_bytes()).with(&limit.to_le_bytes()),
        }
    }

    /// Reads a request.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn decode(kind: u8, bytes: &[u8]) -> Result<Self, Refusal> {
        let key = || numbers::<8, 0>(bytes).map(|(key, _)| u64::from_be_bytes(key));
        let ask = match kind {
            HELLO => bytes.is_empty().then_some(Self::Hello),
            GET => key().map(Self::Get),
            DELETE => key().map(Self::Delete),
            PUT => numbers(bytes)
                .map(|(key, value)| Self::Put(u64::from_be_bytes(key), u64::from_le_bytes(value))),
            SCAN => numbers(bytes)
                .map(|(key, limit)| Self::Scan(u64::from_be_bytes(key), u32::from_le_bytes(limit))),
            _ => return Err(Refusal::UnknownKind),
        };
        match ask.ok_or(Refusal::Malformed)? {
            Self::Scan(_, limit) if !(1..=INDEX_SCAN_KEYS_MAX).contains(&limit) => {
                Err(Refusal::BadLimit(INDEX_SCAN_KEYS_MAX))
            }
            ask => Ok(ask),
        }
    }
}

impl Answer {
    /// Its bytes.
    #[must_use]
    pub fn encode(self) -> Encoded {
        let verdict = |verdict: u8| Encoded::new().with(&[verdict]);
        match self {
            Self::Hello(threads) => verdict(DONE)
                .with(&MAGIC)
                .with(&[VERSION])
                .with(&threads.to_le_bytes()),
            Self::Value(value) => verdict(DONE).with(&value.to_le_bytes()),
            Self::Done => verdict(DONE),
            Self::Absent => verdict(ABSENT),
            Self::Scan(scan) => verdict(DONE)
                .with(&scan.keys.to_le_bytes())
                .with(&scan.sum.to_le_bytes()),
            Self::Full(keys_max) => verdict(FULL).with(&keys_max.to_le_bytes()),
            Self::Refused(Refusal::Malformed) => verdict(MALFORMED),
            Self::Refused(Refusal::UnknownKind) => verdict(UNKNOWN_KIND),
            Self::Refused(Refusal::BadLimit(most)) => verdict(BAD_LIMIT).with(&most.to_le_bytes()),
        }
    }

    /// Reads the answer to a request; `None` for what an index of this release would not say.
    #[must_use]
    pub fn decode(ask: Ask, bytes: &[u8]) -> Option<Self> {
        let (verdict, rest) = bytes.split_first()?;
        match (*verdict, ask) {
            (DONE, Ask::Hello) => {
                let rest = rest.strip_prefix(&MAGIC)?.strip_prefix(&[VERSION])?;
                let threads = u32::from_le_bytes(rest.try_into().ok()?);
                (threads > 0).then_some(Self::Hello(threads))
            }
            (DONE, Ask::Get(_)) => Some(Self::Value(u64::from_le_bytes(rest.try_into().ok()?))),
            (DONE, Ask::Put(..) | Ask::Delete(_)) => rest.is_empty().then_some(Self::Done),
            (DONE, Ask::Scan(..)) => numbers(rest).map(|(keys, sum)| {
                Self::Scan(Scan {
                    keys: u32::from_le_bytes(keys),
                    sum: u64::from_le_bytes(sum),
                })
            }),
            (ABSENT, Ask::Get(_) | Ask::Delete(_)) => rest.is_empty().then_some(Self::Absent),
            (FULL, Ask::Put(..)) => Some(Self::Full(u64::from_le_bytes(rest.try_into().ok()?))),
            (MALFORMED, _) => Some(Self::Refused(Refusal::Malformed)),
            (UNKNOWN_KIND, _) => Some(Self::Refused(Refusal::UnknownKind)),
            (BAD_LIMIT, Ask::Scan(..)) => {
                let most = u32::from_le_bytes(rest.try_into().ok()?);
                Some(Self::Refused(Refusal::BadLimit(most)))
            }
            _ => None,
        }
    }
}

/// The role that a request of this kind needs; none for a HELLO and for what is no request.
#[must_use]
pub(super) fn role_needed(kind: u8) -> Option<Role> {
    match kind {
        GET | SCAN => Some(Role::Read),
        PUT | DELETE => Some(Role::Write),
        _ => None,
    }
}

/// Executes a request on a map whose server has so many threads. Any bytes have an answer.
#[must_use]
pub fn execute(map: &ConcurrentMap, threads: u32, kind: u8, request: &[u8]) -> Answer {
    match Ask::decode(kind, request) {
        Ok(Ask::Hello) => Answer::Hello(threads),
        Ok(Ask::Get(key)) => map.get(key).map_or(Answer::Absent, Answer::Value),
        Ok(Ask::Put(key, value)) => map
            .insert(key, value)
            .map_or_else(|full| Answer::Full(full.keys_max), |()| Answer::Done),
        Ok(Ask::Delete(key)) if map.remove(key) => Answer::Done,
        Ok(Ask::Delete(_)) => Answer::Absent,
        Ok(Ask::Scan(key, limit)) => Answer::Scan(map.scan(key, limit)),
        Err(refusal) => Answer::Refused(refusal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKS: [Ask; 5] = [
        Ask::Hello,
        Ask::Get(1 << 63),
        Ask::Put(2, u64::MAX),
        Ask::Delete(3),
        Ask::Scan(4, INDEX_SCAN_KEYS_MAX),
    ];

    #[test]
    fn a_request_survives_and_every_other_length_is_malformed() {
        for ask in ASKS {
            let bytes = ask.encode();
            assert_eq!(Ask::decode(ask.kind(), &bytes), Ok(ask));
            for length in 0..16 {
                let other = [&bytes[..], &[0; 16]].concat();
                if length != bytes.len() {
                    let decoded = Ask::decode(ask.kind(), &other[..length]);
                    assert_eq!(decoded, Err(Refusal::Malformed), "{ask:?} {length}");
                }
            }
        }
    }

    #[test]
    fn a_bad_request_is_refused_with_its_cause() {
        let most = INDEX_SCAN_KEYS_MAX;
        for limit in [0, most + 1, u32::MAX] {
            let bytes = Ask::Scan(1, limit).encode();
            assert_eq!(Ask::decode(SCAN, &bytes), Err(Refusal::BadLimit(most)));
        }
        for kind in (0..=255).filter(|kind| !(HELLO..=SCAN).contains(kind)) {
            assert_eq!(Ask::decode(kind, &[0; 8]), Err(Refusal::UnknownKind));
        }
    }

    #[test]
    fn an_answer_survives_and_is_no_other_requests() {
        let scan = Scan { keys: 128, sum: 9 };
        let bad_limit = Answer::Refused(Refusal::BadLimit(7));
        let answers = [
            (ASKS[0], Answer::Hello(3)),
            (ASKS[1], Answer::Value(u64::MAX)),
            (ASKS[1], Answer::Absent),
            (ASKS[2], Answer::Done),
            (ASKS[2], Answer::Full(10)),
            (ASKS[3], Answer::Absent),
            (ASKS[4], Answer::Scan(scan)),
            (ASKS[4], bad_limit),
            (ASKS[4], Answer::Refused(Refusal::Malformed)),
            (ASKS[0], Answer::Refused(Refusal::UnknownKind)),
        ];
        for (ask, answer) in answers {
            let bytes = answer.encode();
            assert!(bytes.len() <= ANSWER_BYTES_MAX);
            assert_eq!(Answer::decode(ask, &bytes), Some(answer));
        }
        assert_eq!(Answer::decode(ASKS[0], &Answer::Hello(0).encode()), None);
        assert_eq!(Answer::decode(ASKS[1], &Answer::Done.encode()), None);
        assert_eq!(Answer::decode(ASKS[1], &[]), None);
    }

    #[test]
    fn requests_are_executed_in_their_order_of_keys() {
        let map = ConcurrentMap::new(2);
        let run = |ask: Ask| execute(&map, 1, ask.kind(), &ask.encode());
        assert_eq!(run(Ask::Put(1 << 40, 5)), Answer::Done);
        assert_eq!(run(Ask::Put(255, 3)), Answer::Done);
        assert_eq!(run(Ask::Put(256, 3)), Answer::Full(2));
        let both = Scan { keys: 2, sum: 8 };
        assert_eq!(run(Ask::Scan(0, 9)), Answer::Scan(both));
        assert_eq!(run(Ask::Scan(0, 1)), Answer::Scan(Scan { keys: 1, sum: 3 }));
        assert_eq!(run(Ask::Delete(255)), Answer::Done);
        assert_eq!(run(Ask::Delete(255)), Answer::Absent);
        assert_eq!(run(Ask::Get(255)), Answer::Absent);
        assert_eq!(run(Ask::Get(1 << 40)), Answer::Value(5));
    }
}
