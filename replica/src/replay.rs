//! For checkers: what each position of a group's log has done to the store.
//!
//! A replica that is told to keeps the entries that it applies, until they are taken. A replay applies them once more, to a
//! state of its own, and shows the store behind each step.

use trine_kvstore::{Command, Position, Store};
use trine_protocol::message::{ClusterId, Operation};

use crate::state_machine::genesis::FIRST_INDEX;
use crate::state_machine::{Genesis, StateMachine};

/// A log entry that a replica has applied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AppliedEntry {
    /// Its index.
    pub index: u64,
    /// Empty for one that holds no command.
    pub(crate) data: Vec<u8>,
}

/// The state of a group, moved forward by the entries that its replicas have applied.
#[derive(Debug)]
pub struct Replay {
    state: StateMachine,
}

impl Replay {
    /// The state behind the first entry of a group. Its members change nothing in the store.
    pub(crate) fn new(cluster: ClusterId, genesis: Genesis) -> Self {
        let state = StateMachine::new(cluster, genesis, &[], FIRST_INDEX);
        Self { state }
    }

    /// Index of the entry that comes next.
    #[must_use]
    pub fn next_index(&self) -> u64 {
        self.state.applied_index() + 1
    }

    /// The position up to which everything is applied.
    #[must_use]
    pub fn position(&self) -> Position {
        self.state.applied_position()
    }

    /// The store behind everything that was applied.
    #[must_use]
    pub fn store(&self) -> &Store {
        self.state.store()
    }

    /// Applies the next entry. `seen` is shown the store when the entry has begun, which is behind its sweep, without a
    /// command. Then it is shown the store behind each command, whether that was applied or refused. A registration has
    /// no command of the store.
    ///
    /// # Panics
    /// If it is not the next one.
    pub fn apply(
        &mut self,
        entry: &AppliedEntry,
        mut seen: impl FnMut(Position, Option<&Command<'_>>, &Store),
    ) {
        let (index, state) = (entry.index, &mut self.state);
        let began = state.begin_entry(index, &entry.data);
        // A replica has applied it, and this state understands as much as any of this release.
        let Some(view) = began.expect("an entry of this release") else {
            return;
        };
        seen(state.applied_position(), None, state.store());
        for (place, envelope) in view.commands().enumerate() {
            let at = state.apply_at(place, &envelope, |_| {});
            let command = match envelope.operation {
                Operation::Register => None,
                _ => Command::decode(envelope.command).ok(),
            };
            seen(at, command.as_ref(), state.store());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ReplicaConfig;
    use crate::state_machine::entry::EntryBuilder;
    use trine_kvstore::Response;
    use trine_protocol::message::ClientRequest;

    fn encoded(command: &Command<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        bytes
    }

    fn value_of(store: &Store, key: &[u8]) -> Option<Vec<u8>> {
        match store.read(&Command::Get { key }) {
            Response::Value { value, .. } => Some(value.to_vec()),
            _ => None,
        }
    }

    #[test]
    fn the_store_is_shown_behind_each_command_and_one_that_comes_twice_changes_nothing() {
        let genesis = Genesis::new(&ReplicaConfig::default(), [1, 2]);
        let mut replay = Replay::new(ClusterId(7), genesis);
        let mut builder = EntryBuilder::default();
        builder.push(&ClientRequest {
            client: 5,
            ..ClientRequest::bare(Operation::Register)
        });
        let (index, data) = (2, builder.finish(9));
        replay.apply(&AppliedEntry { index, data }, |_, command, _| {
            assert_eq!(command, None);
        });
        let client = Position::new(2, 0).as_u64();
        let put = |value: &'static [u8]| encoded(&Command::Put { key: b"k", value });
        let (one, two) = (put(b"1"), put(b"2"));
        for (sequence, command) in [(1, &one), (2, &two), (1, &one)] {
            builder.push(&ClientRequest {
                client,
                sequence,
                lowest_awaited: 1,
                command,
                ..ClientRequest::bare(Operation::Apply)
            });
        }
        let (index, data) = (3, builder.finish(10));
        let mut told = Vec::new();
        replay.apply(&AppliedEntry { index, data }, |at, command, store| {
            told.push((
                at.as_u64() & 0xffff,
                command.is_some(),
                value_of(store, b"k"),
            ));
        });
        let value = |value: &[u8]| Some(value.to_vec());
        let expected = [
            (0, false, None),
            (0, true, value(b"1")),
            (1, true, value(b"2")),
            (2, true, value(b"2")),
        ];
        assert_eq!(told, expected);
        assert_eq!(replay.next_index(), 4);
        let (index, data) = (4, Vec::new());
        replay.apply(&AppliedEntry { index, data }, |_, _, _| {
            panic!("nothing begins")
        });
        assert_eq!(replay.position(), Position::new(4, 0));
    }
}
