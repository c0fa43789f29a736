//! The messages between callers and servers of a sequencer. Numbers are little-endian.
//!
//! | kind | request | answer |
//! |---|---|---|
//! | HELLO | empty | "TRSQ", version of this table (u8), [`Keeping`] (u8) |
//! | NEXT | how many numbers (u32) | a verdict (u8); after `DONE` the first of them (u64), after `NONE` a [`Why`] (u8), after `MALFORMED` the most numbers of a request (u32) |
//! | STATS | empty | [`Stats`] as JSON |
//! | SPECULATE | empty | a verdict (u8); after `DONE` a [`Speculation`]: a port (u16) and a guess (u32) |
//!
//! The numbers of an answer follow each other. A NEXT or STATS to which the caller has no right gets the answer of
//! `trine-apps` for denials, which begins with 6. Other kinds get an empty answer. A HELLO to a replica, a cache or an index
//! gets no such answer, because their kinds are others.

use serde::{Deserialize, Serialize};

use crate::config::COUNT_MAX;
use crate::speculative::AnswerCounters;
use crate::supply::Why;

/// A question who is there.
pub const HELLO: u8 = 56;
/// A request for numbers.
pub const NEXT: u8 = 57;
/// A question for a thread's counters.
pub const STATS: u8 = 58;

/// A question where the thread takes requests of four bytes. Nothing comes back from one that takes none.
pub const SPECULATE: u8 = 59;

const DONE: u8 = 0;
const MALFORMED: u8 = 1;
const NONE: u8 = 2;

const MAGIC: [u8; 4] = *b"TRSQ";
const VERSION: u8 = 1;

/// No answer to a HELLO or a NEXT is longer.
pub const ANSWER_BYTES_MAX: usize = 9;
/// No answer to a STATS is longer.
pub const STATS_BYTES_MAX: usize = 1_024;

/// Where a server keeps which numbers are taken.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Keeping {
    /// In a file of its own.
    File,
    /// In a group of replicas, and one server at a time gives out numbers.
    Strict,
    /// In a group of replicas, and each server gives out numbers of its own blocks.
    Loose,
}

impl Keeping {
    const ALL: [Self; 3] = [Self::File, Self::Strict, Self::Loose];

    fn number(self) -> u8 {
        match self {
            Self::File => 0,
            Self::Strict => 1,
            Self::Loose => 2,
        }
    }

    /// The answer to a HELLO.
    pub fn hello(self) -> [u8; 6] {
        let [a, b, c, d] = MAGIC;
        [a, b, c, d, VERSION, self.number()]
    }

    /// `None` for the answer of anything but a sequencer of this release's protocol.
    pub fn of_hello(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(&MAGIC)?.strip_prefix(&[VERSION])?;
        let [number] = rest else { return None };
        Self::ALL
            .into_iter()
            .find(|keeping| keeping.number() == *number)
    }
}

/// The bytes of a request for `count` numbers.
pub fn next_request(count: u32) -> [u8; 4] {
    count.to_le_bytes()
}

/// How many numbers a request asks for; `None` if no server can give that many.
pub fn count_of(request: &[u8]) -> Option<u32> {
    let count = u32::from_le_bytes(request.try_into().ok()?);
    (1..=COUNT_MAX).contains(&count).then_some(count)
}

/// The answer to a NEXT.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The first of the numbers; the others follow it.
    First(u64),
    /// This server gives out no number now.
    None(Why),
    /// The request is none; this is the most numbers of one.
    Malformed(u32),
}

impl Answer {
    /// Its length on the wire.
    pub fn encoded_len(&self) -> usize {
        match self {
            Self::First(_) => 9,
            Self::None(_) => 2,
            Self::Malformed(_) => 5,
        }
    }

    /// Writes it into a buffer of [`Answer::encoded_len`] bytes.
    ///
    /// # Panics
    /// If the buffer has another length.
    pub fn encode_into(&self, bytes: &mut [u8]) {
        match self {
            Self::First(first) => {
                bytes[0] = DONE;
                bytes[1..].copy_from_slice(&first.to_le_bytes());
            }
            Self::None(why) => bytes.copy_from_slice(&[NONE, why.number()]),
            Self::Malformed(most) => {
                bytes[0] = MALFORMED;
                bytes[1..].copy_from_slice(&most.to_le_bytes());
            }
        }
    }

    /// Reads one; `None` for anything else.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes.split_first()? {
            (&DONE, rest) => Some(Self::First(u64::from_le_bytes(rest.try_into().ok()?))),
            (&NONE, &[why]) => Why::of_number(why).map(Self::None),
            (&MALFORMED, rest) => Some(Self::Malformed(u32::from_le_bytes(rest.try_into().ok()?))),
            _ => None,
        }
    }
}

/// Where a thread takes requests of four bytes ([`crate::speculative`]).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Speculation {
    /// The port, on the address of the thread.
    pub port: u16,
    /// The high half of the next number: the first guess.
    pub guess: u32,
}

impl Speculation {
    /// The bytes of the longest answer.
    pub const BYTES: usize = 7;

    /// The answer to a SPECULATE.
    pub fn encode(self) -> [u8; Self::BYTES] {
        let ([a, b], [c, d, e, f]) = (self.port.to_le_bytes(), self.guess.to_le_bytes());
        [DONE, a, b, c, d, e, f]
    }

    /// Reads one; `None` for the answer of a thread that takes no such requests.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let &[DONE, a, b, c, d, e, f] = bytes else {
            return None;
        };
        Some(Self {
            port: u16::from_le_bytes([a, b]),
            guess: u32::from_le_bytes([c, d, e, f]),
        })
    }
}

/// The counters of a thread since its start, and what the server has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Where the server keeps which numbers are taken.
    pub keeping: Keeping,
    /// Whether it gives out numbers now.
    pub serving: bool,
    /// The number that comes next, if no other block is reserved before.
    pub next: u64,
    /// Numbers that are reserved and not given out.
    pub reserved: u64,
    /// Requests that got numbers.
    pub answered: u64,
    /// The numbers that they got.
    pub numbers: u64,
    /// Turns that gave out numbers: each takes those of all its requests at once.
    pub turns: u64,
    /// The most requests of one turn.
    pub largest_turn: u64,
    /// Requests that got none.
    pub without: u64,
    /// Requests that were none, or were denied.
    pub refused: u64,
    /// The requests of four bytes, if the thread takes them. They are in none of the numbers above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speculative: Option<AnswerCounters>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_survives_and_anything_else_is_refused() {
        for keeping in Keeping::ALL {
            let bytes = keeping.hello();
            assert_eq!(Keeping::of_hello(&bytes), Some(keeping));
            for length in 0..bytes.len() {
                assert_eq!(Keeping::of_hello(&bytes[..length]), None, "{length} bytes");
            }
            assert_eq!(Keeping::of_hello(&[&bytes[..], &[0]].concat()), None);
        }
        assert_eq!(Keeping::of_hello(b"TRSQ\x01\x03"), None);
        assert_eq!(Keeping::of_hello(b"TRSQ\x02\x00"), None);
        assert_eq!(Keeping::of_hello(b"TRCH\x01\0\0\0\0\x01\0\0\0"), None);
    }

    #[test]
    fn an_answer_survives_and_anything_else_is_refused() {
        for answer in [
            Answer::First(0),
            Answer::First(u64::from(u32::MAX) + 1),
            Answer::First(u64::MAX),
            Answer::None(Why::Elsewhere),
            Answer::None(Why::NotReserved),
            Answer::Malformed(COUNT_MAX),
        ] {
            let mut bytes = [0; ANSWER_BYTES_MAX];
            answer.encode_into(&mut bytes[..answer.encoded_len()]);
            let bytes = &bytes[..answer.encoded_len()];
            assert_eq!(Answer::decode(bytes), Some(answer));
            for length in 0..bytes.len() {
                assert_eq!(Answer::decode(&bytes[..length]), None, "{length} bytes");
            }
            assert_eq!(Answer::decode(&[bytes, &[0]].concat()), None);
        }
        assert_eq!(Answer::decode(&[NONE, 9]), None);
        assert_eq!(Answer::decode(&[6, 1]), None);
    }

    #[test]
    fn where_requests_of_four_bytes_go_survives_and_anything_else_is_refused() {
        let speculation = Speculation {
            port: 7_484,
            guess: u32::MAX - 1,
        };
        let bytes = speculation.encode();
        assert_eq!(Speculation::decode(&bytes), Some(speculation));
        for length in 0..bytes.len() {
            assert_eq!(Speculation::decode(&bytes[..length]), None);
        }
        assert_eq!(Speculation::decode(&[6, 1, 2, 3, 4, 5, 6]), None);
    }

    #[test]
    fn a_request_asks_for_one_number_to_the_most() {
        for (count, read) in [
            (0, None),
            (1, Some(1)),
            (COUNT_MAX, Some(COUNT_MAX)),
            (COUNT_MAX + 1, None),
            (u32::MAX, None),
        ] {
            assert_eq!(count_of(&next_request(count)), read);
        }
        for bytes in [&b""[..], b"\x01", b"\x01\0\0", b"\x01\0\0\0\0"] {
            assert_eq!(count_of(bytes), None);
        }
    }

    #[test]
    fn the_longest_counters_fit() {
        let most = u64::MAX;
        let stats = Stats {
            keeping: Keeping::Strict,
            serving: false,
            next: most,
            reserved: most,
            answered: most,
            numbers: most,
            turns: most,
            largest_turn: most,
            without: most,
            refused: most,
            speculative: Some(AnswerCounters {
                answered: most,
                corrected: most,
                without: most,
                refused: most,
                dropped: most,
            }),
        };
        let text = serde_json::to_vec(&stats).expect("numbers under text keys");
        assert!(text.len() <= STATS_BYTES_MAX);
        assert_eq!(serde_json::from_slice::<Stats>(&text).expect("read"), stats);
    }
}
