//! Where a walk goes on: a place in the order of the key hashes, as a number that does not show it.
//!
//! A cursor is the upper 52 bits of the next place. Many clients keep it in a floating-point number, which has no more.
//! The bits go through a permutation that is keyed by the replicated hash seed. So every replica of a group reads every
//! cursor alike, and a client learns nothing of the hash from it.

use crate::codec::{DecodeError, Field, Reader, Sink};
use crate::hash::{fold, secret};

/// Bits of a cursor.
const BITS: u32 = 52;

/// Bits of a place in the order that a cursor does not have.
pub(crate) const DROPPED_BITS: u32 = 64 - BITS;

/// Where a walk begins or goes on.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Default, Debug)]
pub struct Cursor(u64);

impl Cursor {
    /// Where a walk begins. As an answer it says that the walk is at its end.
    pub const START: Self = Self(0);

    /// The cursor with this number; none if it is no cursor of any group.
    #[must_use]
    pub const fn new(number: u64) -> Option<Self> {
        if number >> BITS == 0 {
            Some(Self(number))
        } else {
            None
        }
    }

    /// A cursor that depends on all bits of a number: a place to begin a walk at.
    #[must_use]
    pub const fn anywhere(number: u64) -> Self {
        Self((number ^ number >> BITS) & ((1 << BITS) - 1))
    }

    /// The number.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

impl Field<'_> for Cursor {
    fn write_field(&self, sink: &mut impl Sink) {
        sink.put_u64(self.0);
    }
    fn read_field(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Self::new(reader.u64()?).ok_or(DecodeError::BadField { field: "cursor" })
    }
}

const HALF_BITS: u32 = BITS / 2;
const HALF: u64 = (1 << HALF_BITS) - 1;
const ROUNDS: usize = 8;

/// The first of the seed's secrets that belong to this permutation.
const SECRETS_FROM: u64 = 16;

/// The permutation of one group: a balanced Feistel network. The number 0 stays what it is.
pub(crate) struct Permutation {
    keys: [u64; ROUNDS],
    last: u64,
}

impl Permutation {
    pub(crate) fn new(seed: [u64; 2]) -> Self {
        let mut numbers = SECRETS_FROM..;
        let mut next = || secret(seed, numbers.next().unwrap_or(SECRETS_FROM));
        Self {
            keys: [(); ROUNDS].map(|()| next()),
            last: next(),
        }
    }

    /// The cursor of the place with these upper bits.
    pub(crate) fn cursor(&self, place: u64) -> Cursor {
        debug_assert!(place >> BITS == 0);
        if place == 0 {
            return Cursor::START;
        }
        match self.forward(place) {
            0 => Cursor(self.forward(0)),
            number => Cursor(number),
        }
    }

    /// The upper bits of the cursor's place.
    pub(crate) fn place(&self, cursor: Cursor) -> u64 {
        if cursor == Cursor::START {
            return 0;
        }
        match self.backward(cursor.0) {
            0 => self.backward(0),
            place => place,
        }
    }

    fn forward(&self, number: u64) -> u64 {
        let (mut left, mut right) = (number >> HALF_BITS, number & HALF);
        for &key in &self.keys {
            (left, right) = (right, left ^ self.mixed(right, key));
        }
        left << HALF_BITS | right
    }

    fn backward(&self, number: u64) -> u64 {
        let (mut left, mut right) = (number >> HALF_BITS, number & HALF);
        for &key in self.keys.iter().rev() {
            (left, right) = (right ^ self.mixed(left, key), left);
        }
        left << HALF_BITS | right
    }

    fn mixed(&self, half: u64, key: u64) -> u64 {
        fold(fold(half ^ key, self.last) ^ key, self.last.rotate_left(29)) & HALF
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_place_has_a_cursor_of_its_own(seed: [u64; 2], place in 0_u64..1 << BITS) {
            let permutation = Permutation::new(seed);
            let cursor = permutation.cursor(place);
            prop_assert!(Cursor::new(cursor.as_u64()).is_some());
            prop_assert_eq!(permutation.place(cursor), place);
            let made_up = Cursor(place);
            prop_assert_eq!(permutation.cursor(permutation.place(made_up)), made_up);
        }
    }

    #[test]
    fn zero_is_the_start_and_nothing_else_is() {
        let permutation = Permutation::new([1, 2]);
        assert_eq!(permutation.cursor(0), Cursor::START);
        assert_eq!(permutation.place(Cursor::START), 0);
        // The one place that the network would map to zero, and the one that it would make of zero.
        let to_zero = permutation.backward(0);
        assert_ne!(permutation.cursor(to_zero), Cursor::START);
        assert_eq!(permutation.place(permutation.cursor(to_zero)), to_zero);
    }

    /// Old clients and other replicas keep cursors over an upgrade.
    #[test]
    fn these_numbers_are_part_of_the_protocol() {
        let permutation = Permutation::new([1, 2]);
        let cursors = [1, 2, 1 << 51].map(|place| permutation.cursor(place).as_u64());
        assert_eq!(cursors, GOLDEN, "{cursors:#x?}");
    }

    const GOLDEN: [u64; 3] = [0x9949_29e2_6133, 0xbba7_0e68_2582, 0x6_2e5d_4206_ad35];

    #[test]
    fn neighbours_have_cursors_that_are_far_apart() {
        let permutation = Permutation::new([3, 4]);
        let mut flipped = 0;
        for place in 1..=1_000_u64 {
            let (one, other) = (permutation.cursor(place), permutation.cursor(place + 1));
            flipped += (one.as_u64() ^ other.as_u64()).count_ones();
        }
        // Half of 52 bits on average; over 1,000 pairs the deviation is about 0.1.
        assert!((25_000..27_000).contains(&flipped), "{flipped}");
    }

    #[test]
    fn a_number_that_is_too_large_is_no_cursor() {
        assert_eq!(Cursor::new(1 << BITS), None);
        assert_eq!(
            Cursor::new((1 << BITS) - 1).map(Cursor::as_u64),
            Some((1 << BITS) - 1)
        );
        let bytes = (1_u64 << BITS).to_le_bytes();
        let read = Cursor::read_field(&mut Reader::new(&bytes));
        assert_eq!(read, Err(DecodeError::BadField { field: "cursor" }));
        assert!(Cursor::new(Cursor::anywhere(u64::MAX).as_u64()).is_some());
    }
}
