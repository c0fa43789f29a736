//! Numbers by datagrams of four bytes, without sessions: Spec-S0 of Kalia, Kaminsky, Andersen, "Design Guidelines for High
//! Performance RDMA Systems" (USENIX ATC 2016, section 4.2).
//!
//! ```text
//! request   4 bytes   the client's guess of the high half of the next number, its bits inverted
//! answer    4 bytes   the low half of a number, its bits inverted: the guess was right
//!           8 bytes   a whole number: the guess was wrong, and the high half of this number is the next guess
//!           2 bytes   2 and a `Why`: no number
//! ```
//! Numbers are little-endian. On InfiniBand four bytes travel in the header of a SEND, so neither a request nor an answer has
//! a payload. A packet whose first byte is zero does not (`VERBS.md`); halves are inverted because guesses are small.
//!
//! | file | answers |
//! |---|---|
//! | `asker.rs` | what does a client make of the answers? |
//! | `answerer.rs` | what does a server answer? |
//! | `ends.rs` | how do both use a backend? |
//!
//! **Nothing is authenticated**, and an answer names no request. So a packet must be its own datagram, the network must not
//! forge packets, and it must not double them. A doubled request gets a number that no request waits for. A later request
//! of the same client may get it. It still comes once, but another client may have got a larger one before.

mod answerer;
mod asker;
mod ends;

pub use self::answerer::{AnswerCounters, Answerer, Published};
pub use self::asker::{AnswerEffect, Asker};
pub use self::ends::{ClientEnd, ServerEnd, ServerPath};

use crate::supply::Why;

const NONE: u8 = 2;

/// The bytes of a request with this guess.
pub fn request(guess: u32) -> [u8; 4] {
    (!guess).to_le_bytes()
}

/// The guess of a request; `None` if the bytes are none.
pub fn guess_of(bytes: &[u8]) -> Option<u32> {
    Some(!u32::from_le_bytes(bytes.try_into().ok()?))
}

/// The high half of a number: what a client guesses.
pub fn high_half(number: u64) -> u32 {
    (number >> 32) as u32
}

/// An answer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The low half of a number, whose high half was guessed.
    Half(u32),
    /// A number.
    Whole(u64),
    /// This server gives out no number now.
    None(Why),
}

impl Reply {
    /// The answer to a request with this guess, which gets this number.
    pub fn of(number: u64, guess: u32) -> Self {
        match high_half(number) == guess {
            true => Self::Half(number as u32),
            false => Self::Whole(number),
        }
    }

    /// Writes it; how many bytes it has.
    pub fn encode_into(self, room: &mut [u8; 8]) -> usize {
        match self {
            Self::Half(low) => {
                room[..4].copy_from_slice(&(!low).to_le_bytes());
                4
            }
            Self::Whole(number) => {
                *room = number.to_le_bytes();
                8
            }
            Self::None(why) => {
                room[..2].copy_from_slice(&[NONE, why.number()]);
                2
            }
        }
    }

    /// Reads one; `None` for anything else.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        match *bytes {
            [a, b, c, d] => Some(Self::Half(!u32::from_le_bytes([a, b, c, d]))),
            [NONE, why] => Why::of_number(why).map(Self::None),
            _ => Some(Self::Whole(u64::from_le_bytes(bytes.try_into().ok()?))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_survive_and_anything_else_is_refused() {
        for (number, guess, reply, length) in [
            (7, 0, Reply::Half(7), 4),
            (1 << 32, 0, Reply::Whole(1 << 32), 8),
            (5 << 32 | 9, 5, Reply::Half(9), 4),
            (u64::MAX, u32::MAX, Reply::Half(u32::MAX), 4),
            (7, 1, Reply::Whole(7), 8),
        ] {
            assert_eq!(Reply::of(number, guess), reply);
            let mut bytes = [0; 8];
            assert_eq!(reply.encode_into(&mut bytes), length);
            assert_eq!(Reply::decode(&bytes[..length]), Some(reply));
            assert_eq!(guess_of(&request(guess)), Some(guess));
        }
        let mut bytes = [0; 8];
        for why in [Why::Elsewhere, Why::NotReserved] {
            let length = Reply::None(why).encode_into(&mut bytes);
            assert_eq!(Reply::decode(&bytes[..length]), Some(Reply::None(why)));
        }
        for length in [0, 1, 2, 3, 5, 6, 7, 9, 64] {
            let bytes = vec![0xee; length];
            assert_eq!((Reply::decode(&bytes), guess_of(&bytes)), (None, None));
        }
    }

    /// Packets that begin with zero are whole on InfiniBand: those of the first epochs are none.
    #[test]
    fn the_guesses_of_a_file_begin_with_another_byte_than_zero() {
        for epoch in [0, 1, 255, 256, 65_537] {
            let guess = high_half(crate::block_of(epoch).start);
            assert_ne!(request(guess)[0], 0, "epoch {epoch}");
        }
    }
}
