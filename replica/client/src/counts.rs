//! Counting the keys of several ranges as of one position.
//!
//! One range is counted as it is. Several are counted at a pin, where an answer covers a part of a range.

use std::time::Duration;

use trine_kvstore::{Command, KeyRange, Position, Response};

use super::operation::Mode;
use super::pin::{Hold, PinStage, PinnedError, Taken};
use super::ranges::Rest;

/// A count of the keys of some ranges, all as of one position. It says which command follows, and how it is to be done. It
/// is told the answer.
#[derive(Clone, Debug)]
pub struct PinnedCount {
    /// What is left of each range.
    rests: Vec<Rest>,
    counts: Vec<u64>,
    /// The range that is being counted.
    place: usize,
    hold: Hold,
}

impl PinnedCount {
    /// A count that is read as `mode` says.
    #[must_use]
    pub fn of(ranges: &[KeyRange<'_>], mode: Mode) -> Self {
        let stage = match ranges.len() {
            0 => PinStage::Over,
            1 => PinStage::First,
            _ => PinStage::Pinning,
        };
        Self {
            rests: ranges.iter().map(|range| Rest::of(*range)).collect(),
            counts: vec![0; ranges.len()],
            place: 0,
            hold: Hold::new(mode, stage),
        }
    }

    /// How many keys each range has. Final once there is no further command.
    #[must_use]
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// The position whose state is counted, once it is known.
    #[must_use]
    pub const fn position(&self) -> Option<Position> {
        self.hold.position()
    }

    /// The next command; nothing at the end. `now` is the time since some moment of the caller's choice.
    #[must_use]
    pub fn command(&self, now: Duration) -> Option<(Mode, Command<'_>)> {
        let range = || self.rests.get(self.place).map(Rest::range);
        let first = || range().map(|range| Command::CountRange { range });
        let at = |position| range().map(|range| Command::CountAt { position, range });
        self.hold.command(now, first, at)
    }

    /// Takes the answer to it. `at` is the position that the answer names.
    ///
    /// # Errors
    /// When the count cannot go on.
    pub fn take(
        &mut self,
        now: Duration,
        at: Position,
        response: &Response<'_>,
    ) -> Result<(), PinnedError> {
        match (self.hold.take(now, response)?, response) {
            (Taken::OfPin, _) => {}
            (Taken::First, Response::Count { items }) => {
                self.counts[0] = *items;
                self.hold.end_at(at);
            }
            (Taken::AtPin, Response::Counted { items, next }) => {
                self.counts[self.place] += items;
                match next {
                    Some(next) => self.rests[self.place].go_on(next, false),
                    None => self.place += 1,
                }
                self.hold.was_read(self.place == self.rests.len());
            }
            _ => return Err(PinnedError::Unexpected),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_kvstore::{Limits, Store};

    /// A group of one store, which is written to while it is counted.
    fn counted(ranges: &[KeyRange<'_>], of_each: u16) -> (Vec<u64>, u32) {
        let mut store = Store::new(Limits::default(), [1, 2]).with_ordered();
        let mut index = 0;
        let mut put = |store: &mut Store, first: u8, number: u16| {
            index += 1;
            let key = [&[first][..], &number.to_be_bytes()].concat();
            let (key, value) = (key.as_slice(), &b"v"[..]);
            let at = Position::new(index, 0);
            store.apply(at, &Command::Put { key, value });
            at
        };
        for number in 0..of_each {
            put(&mut store, b'a', number);
            put(&mut store, b'b', number);
        }
        let mut count = PinnedCount::of(ranges, Mode::Read);
        let mut commands = 0;
        while let Some((mode, command)) = count.command(Duration::ZERO) {
            let at = put(&mut store, b'b', of_each + commands as u16);
            let at = Position::new(at.index(), 1);
            let mut bytes = Vec::new();
            match mode {
                Mode::Write | Mode::WriteAndClose => store.apply(at, &command).encode(&mut bytes),
                _ => store.read(&command).encode(&mut bytes),
            }
            let response = Response::decode(&bytes).expect("an answer");
            count.take(Duration::ZERO, at, &response).expect("counted");
            commands += 1;
        }
        (count.counts().to_vec(), commands)
    }

    #[test]
    fn several_ranges_are_counted_as_of_one_position() {
        let ranges = [KeyRange::Prefix(b"a"), KeyRange::Prefix(b"b")];
        // One key of b is written before the pin, the others behind it.
        let (counts, commands) = counted(&ranges, 5_000);
        assert_eq!(counts, [5_000, 5_001]);
        assert_eq!(commands, 1 + 2 + 2 + 1);
        assert_eq!(counted(&ranges[..1], 50), (vec![50], 1));
        assert_eq!(counted(&[], 50), (vec![], 0));
    }
}
