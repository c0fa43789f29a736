//! The messages between clients and servers of an index.
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

use trine_index::{ConcurrentMap, ScanResult};
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
pub enum IndexRequest {
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
pub enum IndexResponse {
    /// Of a HELLO: the threads of the server, never 0.
    Hello(u32),
    /// Of a GET.
    Value(u64),
    /// Of a PUT or a DELETE.
    Done,
    /// There is no such key.
    Absent,
    /// Of a SCAN.
    Scan(ScanResult),
    /// There is no room for a new key beside so many.
    Full(u64),
    /// The request is none.
    Refused(IndexRefusal),
}

/// Why a request was not executed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum IndexRefusal {
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

impl IndexRequest {
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
    pub fn decode(kind: u8, bytes: &[u8]) -> Result<Self, IndexRefusal> {
        let key = || numbers::<8, 0>(bytes).map(|(key, _)| u64::from_be_bytes(key));
        let ask = match kind {
            HELLO => bytes.is_empty().then_some(Self::Hello),
            GET => key().map(Self::Get),
            DELETE => key().map(Self::Delete),
            PUT => numbers(bytes)
                .map(|(key, value)| Self::Put(u64::from_be_bytes(key), u64::from_le_bytes(value))),
            SCAN => numbers(bytes)
                .map(|(key, limit)| Self::Scan(u64::from_be_bytes(key), u32::from_le_bytes(limit))),
            _ => return Err(IndexRefusal::UnknownKind),
        };
        match ask.ok_or(IndexRefusal::Malformed)? {
            Self::Scan(_, limit) if !(1..=INDEX_SCAN_KEYS_MAX).contains(&limit) => {
                Err(IndexRefusal::BadLimit(INDEX_SCAN_KEYS_MAX))
            }
            ask => Ok(ask),
        }
    }
}

impl IndexResponse {
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
            Self::Refused(IndexRefusal::Malformed) => verdict(MALFORMED),
            Self::Refused(IndexRefusal::UnknownKind) => verdict(UNKNOWN_KIND),
            Self::Refused(IndexRefusal::BadLimit(most)) => {
                verdict(BAD_LIMIT).with(&most.to_le_bytes())
            }
        }
    }

    /// Reads the answer to a request; `None` for what an index of this release would not say.
    #[must_use]
    pub fn decode(ask: IndexRequest, bytes: &[u8]) -> Option<Self> {
        let (verdict, rest) = bytes.split_first()?;
        match (*verdict, ask) {
            (DONE, IndexRequest::Hello) => {
                let rest = rest.strip_prefix(&MAGIC)?.strip_prefix(&[VERSION])?;
                let threads = u32::from_le_bytes(rest.try_into().ok()?);
                (threads > 0).then_some(Self::Hello(threads))
            }
            (DONE, IndexRequest::Get(_)) => {
                Some(Self::Value(u64::from_le_bytes(rest.try_into().ok()?)))
            }
            (DONE, IndexRequest::Put(..) | IndexRequest::Delete(_)) => {
                rest.is_empty().then_some(Self::Done)
            }
            (DONE, IndexRequest::Scan(..)) => numbers(rest).map(|(keys, sum)| {
                Self::Scan(ScanResult {
                    keys: u32::from_le_bytes(keys),
                    sum: u64::from_le_bytes(sum),
                })
            }),
            (ABSENT, IndexRequest::Get(_) | IndexRequest::Delete(_)) => {
                rest.is_empty().then_some(Self::Absent)
            }
            (FULL, IndexRequest::Put(..)) => {
                Some(Self::Full(u64::from_le_bytes(rest.try_into().ok()?)))
            }
            (MALFORMED, _) => Some(Self::Refused(IndexRefusal::Malformed)),
            (UNKNOWN_KIND, _) => Some(Self::Refused(IndexRefusal::UnknownKind)),
            (BAD_LIMIT, IndexRequest::Scan(..)) => {
                let most = u32::from_le_bytes(rest.try_into().ok()?);
                Some(Self::Refused(IndexRefusal::BadLimit(most)))
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
pub fn execute(map: &ConcurrentMap, threads: u32, kind: u8, request: &[u8]) -> IndexResponse {
    match IndexRequest::decode(kind, request) {
        Ok(IndexRequest::Hello) => IndexResponse::Hello(threads),
        Ok(IndexRequest::Get(key)) => map
            .get(key)
            .map_or(IndexResponse::Absent, IndexResponse::Value),
        Ok(IndexRequest::Put(key, value)) => map.insert(key, value).map_or_else(
            |full| IndexResponse::Full(full.keys_max),
            |()| IndexResponse::Done,
        ),
        Ok(IndexRequest::Delete(key)) if map.remove(key) => IndexResponse::Done,
        Ok(IndexRequest::Delete(_)) => IndexResponse::Absent,
        Ok(IndexRequest::Scan(key, limit)) => IndexResponse::Scan(map.scan(key, limit)),
        Err(refusal) => IndexResponse::Refused(refusal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKS: [IndexRequest; 5] = [
        IndexRequest::Hello,
        IndexRequest::Get(1 << 63),
        IndexRequest::Put(2, u64::MAX),
        IndexRequest::Delete(3),
        IndexRequest::Scan(4, INDEX_SCAN_KEYS_MAX),
    ];

    #[test]
    fn a_request_survives_and_every_other_length_is_malformed() {
        for ask in ASKS {
            let bytes = ask.encode();
            assert_eq!(IndexRequest::decode(ask.kind(), &bytes), Ok(ask));
            for length in 0..16 {
                let other = [&bytes[..], &[0; 16]].concat();
                if length != bytes.len() {
                    let decoded = IndexRequest::decode(ask.kind(), &other[..length]);
                    assert_eq!(decoded, Err(IndexRefusal::Malformed), "{ask:?} {length}");
                }
            }
        }
    }

    #[test]
    fn a_bad_request_is_refused_with_its_cause() {
        let most = INDEX_SCAN_KEYS_MAX;
        for limit in [0, most + 1, u32::MAX] {
            let bytes = IndexRequest::Scan(1, limit).encode();
            assert_eq!(
                IndexRequest::decode(SCAN, &bytes),
                Err(IndexRefusal::BadLimit(most))
            );
        }
        for kind in (0..=255).filter(|kind| !(HELLO..=SCAN).contains(kind)) {
            assert_eq!(
                IndexRequest::decode(kind, &[0; 8]),
                Err(IndexRefusal::UnknownKind)
            );
        }
    }

    #[test]
    fn an_answer_survives_and_is_no_other_requests() {
        let scan = ScanResult { keys: 128, sum: 9 };
        let bad_limit = IndexResponse::Refused(IndexRefusal::BadLimit(7));
        let answers = [
            (ASKS[0], IndexResponse::Hello(3)),
            (ASKS[1], IndexResponse::Value(u64::MAX)),
            (ASKS[1], IndexResponse::Absent),
            (ASKS[2], IndexResponse::Done),
            (ASKS[2], IndexResponse::Full(10)),
            (ASKS[3], IndexResponse::Absent),
            (ASKS[4], IndexResponse::Scan(scan)),
            (ASKS[4], bad_limit),
            (ASKS[4], IndexResponse::Refused(IndexRefusal::Malformed)),
            (ASKS[0], IndexResponse::Refused(IndexRefusal::UnknownKind)),
        ];
        for (ask, answer) in answers {
            let bytes = answer.encode();
            assert!(bytes.len() <= ANSWER_BYTES_MAX);
            assert_eq!(IndexResponse::decode(ask, &bytes), Some(answer));
        }
        assert_eq!(
            IndexResponse::decode(ASKS[0], &IndexResponse::Hello(0).encode()),
            None
        );
        assert_eq!(
            IndexResponse::decode(ASKS[1], &IndexResponse::Done.encode()),
            None
        );
        assert_eq!(IndexResponse::decode(ASKS[1], &[]), None);
    }

    #[test]
    fn requests_are_executed_in_their_order_of_keys() {
        let map = ConcurrentMap::new(2);
        let run = |ask: IndexRequest| execute(&map, 1, ask.kind(), &ask.encode());
        assert_eq!(run(IndexRequest::Put(1 << 40, 5)), IndexResponse::Done);
        assert_eq!(run(IndexRequest::Put(255, 3)), IndexResponse::Done);
        assert_eq!(run(IndexRequest::Put(256, 3)), IndexResponse::Full(2));
        let both = ScanResult { keys: 2, sum: 8 };
        assert_eq!(run(IndexRequest::Scan(0, 9)), IndexResponse::Scan(both));
        assert_eq!(
            run(IndexRequest::Scan(0, 1)),
            IndexResponse::Scan(ScanResult { keys: 1, sum: 3 })
        );
        assert_eq!(run(IndexRequest::Delete(255)), IndexResponse::Done);
        assert_eq!(run(IndexRequest::Delete(255)), IndexResponse::Absent);
        assert_eq!(run(IndexRequest::Get(255)), IndexResponse::Absent);
        assert_eq!(run(IndexRequest::Get(1 << 40)), IndexResponse::Value(5));
    }
}
