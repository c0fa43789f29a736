//! Batches of commands: the memory that they will touch is first brought into the cache, all of it
//! together.

use super::Store;
use crate::command::Command;
use crate::interleave::{LANES, batch};
use crate::position::Position;
use crate::response::Response;

impl Store {
    /// Applies commands in order and hands out each answer with its number. The same as
    /// [`Store::apply`] one by one, but up to [`LANES`] commands wait for memory together.
    pub fn apply_batch<'c>(
        &mut self,
        commands: &[(Position, Command<'c>)],
        mut answered: impl FnMut(usize, Response<'_>),
    ) {
        for (group, first) in commands.chunks(LANES).zip((0..).step_by(LANES)) {
            self.warm(group.len(), |number| group[number].1.key());
            for (number, (at, command)) in group.iter().enumerate() {
                answered(first + number, self.apply(*at, command));
            }
        }
    }

    /// Brings bucket and item of each key into the cache, interleaved. It changes nothing. If
    /// commands about these keys are applied soon after, they find the memory near.
    pub fn warm<'k>(&self, count: usize, key: impl Fn(usize) -> Option<&'k [u8]>) {
        batch::<LANES, _>(
            count,
            |number| self.items.lookup_later(key(number).unwrap_or(&[])),
            |_, _| {},
        );
    }
}
