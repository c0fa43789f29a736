//! The position of a command in the replicated order.

use std::fmt;

/// The place of one command in the order that all replicas share: (log index << 16) | place
/// inside the log entry. Item versions and client ids are positions.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Default, Debug)]
pub struct Position(u64);

impl Position {
    /// Before every command.
    pub const ZERO: Self = Self(0);

    /// The largest log index that a position can carry.
    pub const INDEX_MAX: u64 = (1 << 48) - 1;

    /// The position of the command at `place` inside the log entry at `index`.
    ///
    /// # Panics
    /// If `index` needs more than 48 bits: no log grows that long.
    #[must_use]
    pub const fn new(index: u64, place: u16) -> Self {
        assert!(index <= Self::INDEX_MAX);
        Self((index << 16) | place as u64)
    }

    /// The position with this numeric form.
    #[must_use]
    pub const fn from_u64(position: u64) -> Self {
        Self(position)
    }

    /// The least position behind this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The log index.
    #[must_use]
    pub const fn index(self) -> u64 {
        self.0 >> 16
    }

    /// The place inside the log entry.
    #[must_use]
    pub const fn place(self) -> u16 {
        (self.0 & 0xffff) as u16
    }

    /// The numeric form, ordered as the commands are.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Position {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.index(), self.place())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_and_place_survive_and_order_is_index_first() {
        let position = Position::new(77, 65_535);
        assert_eq!((position.index(), position.place()), (77, 65_535));
        assert!(position < Position::new(78, 0));
        assert_eq!(Position::from_u64(position.as_u64()), position);
    }
}
