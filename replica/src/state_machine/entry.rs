//! One log entry: a batch of commands, each in its client's envelope, under one stamp of group time.
//!
//! ```text
//! 0        1        2                 4                          8                         16
//! | version| kind 1 | most expired    | number of commands (u32) | group time in ns (u64)  | commands ...
//! |        |        | items to remove |
//!
//! each command:
//! 0                4           5                8            16         24               32
//! | length (u32)   | operation | check (u24)    | client     | sequence | lowest awaited | store command ...
//! ```
//! Bytes 2 and 3 of kind 1 are a u16: up to so many expired items are removed ahead of the commands, clamped to 64..=4,096.
//! Before state-machine version 7 they are zero and ignored, and up to 64 are removed. An entry of kind 2 has a
//! state-machine version in byte 2 and no commands: the group switches to that version. An entry of kind 3, from version 8
//! on, has no commands either: behind its header come a member's incarnation (u64) and its new address, as a length (u32)
//! and text.
//! The check tells commands with one sequence apart (see `client_sessions`). Before state-machine version 9 it is ignored.
//! The length counts the store command alone. An entry without commands moves group time forward. Raft's own entry at
//! the beginning of a term has no bytes at all.

use std::net::SocketAddr;

use trine_protocol::message::{ClientRequest, Incarnation, Operation};

use super::codec::{Cursor, StateError, field, put_address, put_u64};
use crate::config::{ENTRY_BYTES_MAX, ENTRY_COMMANDS_MAX};

/// Version of the entry layout. A replica that meets another one stops: guessing would make replicas differ.
pub(crate) const ENTRY_VERSION: u8 = 1;
/// Bytes in front of the first command.
pub(crate) const ENTRY_HEADER_SIZE: usize = 16;
/// Bytes in front of each store command.
pub(crate) const ENVELOPE_SIZE: usize = 32;

const KIND_COMMANDS: u8 = 1;
/// Switches the group to the state-machine version in byte 2; holds no command.
const KIND_RAISE: u8 = 2;
/// Gives a member another address; holds no command.
pub(crate) const KIND_MOVE: u8 = 3;

/// A command as the state machine gets it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Envelope<'a> {
    /// The write operation to execute.
    pub(crate) operation: Operation,
    /// The client's id; for a registration the number that the client has drawn.
    pub(crate) client: u64,
    /// Number of the command in its session; of a registration the number of the user, 0 for none.
    pub(crate) sequence: u64,
    /// No sequence below this will be asked for again.
    pub(crate) lowest_awaited: u64,
    /// What tells it from another command of its sequence; `NO_CHECK` for nothing.
    pub(crate) check: u32,
    /// The encoded store command.
    pub(crate) command: &'a [u8],
}

impl Envelope<'_> {
    /// Of a registration: the number of the user whom the session will belong to. The leader has set it.
    pub(crate) fn user(&self) -> u32 {
        self.sequence as u32
    }
}

/// Packs commands into one entry.
#[derive(Default, Debug)]
pub(crate) struct EntryBuilder {
    /// Reused from entry to entry, so that it does not grow again for each.
    bytes: Vec<u8>,
    count: usize,
}

impl EntryBuilder {
    /// Whether a command of `command_bytes` fits into any entry at all.
    #[must_use]
    pub(crate) const fn can_ever_hold(command_bytes: usize) -> bool {
        command_bytes <= ENTRY_BYTES_MAX - ENTRY_HEADER_SIZE - ENVELOPE_SIZE
    }

    /// Whether a command of `command_bytes` still fits.
    #[must_use]
    pub(crate) fn has_room(&self, command_bytes: usize) -> bool {
        let used = self.bytes.len().max(ENTRY_HEADER_SIZE);
        self.count < ENTRY_COMMANDS_MAX && used + ENVELOPE_SIZE + command_bytes <= ENTRY_BYTES_MAX
    }

    /// Appends a command.
    ///
    /// # Panics
    /// When there is no room for it ([`EntryBuilder::has_room`]).
    pub(crate) fn push(&mut self, request: &ClientRequest<'_>) {
        assert!(
            self.has_room(request.command.len()),
            "an entry's limits are checked before proposing"
        );
        if self.bytes.is_empty() {
            self.bytes.resize(ENTRY_HEADER_SIZE, 0);
        }
        let mut head = [0; ENVELOPE_SIZE];
        head[..4].copy_from_slice(&(request.command.len() as u32).to_le_bytes());
        head[4] = request.operation as u8;
        head[5..8].copy_from_slice(&request.check.to_le_bytes()[..3]);
        head[8..16].copy_from_slice(&request.client.to_le_bytes());
        head[16..24].copy_from_slice(&request.sequence.to_le_bytes());
        head[24..].copy_from_slice(&request.lowest_awaited.to_le_bytes());
        let out = &mut self.bytes;
        out.reserve(ENVELOPE_SIZE + request.command.len());
        out.extend_from_slice(&head);
        out.extend_from_slice(request.command);
        self.count += 1;
    }

    /// Commands so far.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Bytes so far.
    #[must_use]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The entry's data; the builder is empty again. The data has no room to spare: the log keeps thousands of entries,
    /// and counts their bytes, not the spare capacity of a vector that has grown.
    pub(crate) fn finish(&mut self, group_time_ns: u64) -> Vec<u8> {
        self.finish_sweeping(group_time_ns, 0)
    }

    /// The same for an entry that removes up to `most` expired items ahead of its commands.
    pub(crate) fn finish_sweeping(&mut self, group_time_ns: u64, most: u16) -> Vec<u8> {
        let bytes = &mut self.bytes;
        bytes.resize(bytes.len().max(ENTRY_HEADER_SIZE), 0);
        bytes[0] = ENTRY_VERSION;
        bytes[1] = KIND_COMMANDS;
        bytes[2..4].copy_from_slice(&most.to_le_bytes());
        bytes[4..8].copy_from_slice(&(self.count as u32).to_le_bytes());
        bytes[8..16].copy_from_slice(&group_time_ns.to_le_bytes());
        assert!(self.count <= ENTRY_COMMANDS_MAX, "a reader takes no more");
        assert!(bytes.len() <= ENTRY_BYTES_MAX, "an entry has a limit");
        let data = bytes.as_slice().to_vec();
        bytes.clear();
        self.count = 0;
        data
    }
}

/// Whether an entry has no commands and switches to no version.
pub(crate) fn moves_time_alone(data: &[u8]) -> bool {
    data.len() == ENTRY_HEADER_SIZE && data[1] == KIND_COMMANDS
}

/// The data of an entry that switches the group to a newer state-machine version.
pub(crate) fn raise_version(group_time_ns: u64, version: u8) -> Vec<u8> {
    let mut bytes = EntryBuilder::default().finish(group_time_ns);
    bytes[1..3].copy_from_slice(&[KIND_RAISE, version]);
    bytes
}

/// The data of an entry that gives a member another address.
pub(crate) fn move_member(group_time_ns: u64, member: Incarnation, to: SocketAddr) -> Vec<u8> {
    let mut bytes = EntryBuilder::default().finish(group_time_ns);
    bytes[1] = KIND_MOVE;
    put_u64(&mut bytes, member.0);
    put_address(&mut bytes, to);
    bytes
}

/// The member that an entry gives another address, with that. For entries that are not applied yet.
pub(crate) fn moved_member(data: &[u8]) -> Option<(Incarnation, SocketAddr)> {
    if data.get(1) != Some(&KIND_MOVE) {
        return None;
    }
    match EntryView::decode(data).ok()?.change? {
        Change::Move { member, to } => Some((member, to)),
        Change::Raise { .. } => None,
    }
}

/// What an entry changes beside the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// The group switches to this state-machine version.
    Raise {
        /// The version.
        version: u8,
    },
    /// A member answers at another address.
    Move {
        /// The member.
        member: Incarnation,
        /// The address.
        to: SocketAddr,
    },
}

/// An entry whose every length has been checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EntryView<'a> {
    /// The stamp of group time.
    pub(crate) group_time_ns: u64,
    /// What it changes beside the store. Such an entry holds no commands.
    pub(crate) change: Option<Change>,
    /// The most expired items to remove, as the leader has written it: not clamped yet.
    pub(crate) sweep_most: u16,
    count: usize,
    commands: &'a [u8],
}

/// Why an entry cannot be applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum EntryError {
    /// Written by a newer release: this replica must not go on.
    #[error(
        "the log holds an entry of version {version}, kind {kind}: this replica is older than its group, upgrade it"
    )]
    Unknown {
        /// The entry's version.
        version: u8,
        /// The entry's kind.
        kind: u8,
    },
    /// The group has switched to a state-machine version of a newer release.
    #[error(
        "the group uses state-machine version {version} from here on, this replica understands {known} at most: upgrade it"
    )]
    NewerState {
        /// The group's.
        version: u8,
        /// This replica's.
        known: u8,
    },
    /// No release writes this. Every replica skips it alike.
    #[error("the log holds an entry that cannot be read")]
    Damaged,
}

impl From<StateError> for EntryError {
    fn from(_: StateError) -> Self {
        Self::Damaged
    }
}

impl<'a> EntryView<'a> {
    /// Reads an entry that is not empty.
    ///
    /// # Errors
    /// When its version is not ours, or a length contradicts another.
    pub(crate) fn decode(data: &'a [u8]) -> Result<Self, EntryError> {
        let mut cursor = Cursor::new(data, "entry");
        let (version, kind) = (cursor.u8()?, cursor.u8()?);
        if version != ENTRY_VERSION || !matches!(kind, KIND_COMMANDS | KIND_RAISE | KIND_MOVE) {
            return Err(EntryError::Unknown { version, kind });
        }
        let argument: [u8; 2] = *cursor.chunk()?;
        let count = cursor.u32()? as usize;
        let group_time_ns = cursor.u64()?;
        let (change, sweep_most) = match kind {
            KIND_RAISE => {
                let [version, _] = argument;
                (Some(Change::Raise { version }), 0)
            }
            KIND_MOVE => (Some(read_move(&mut cursor)?), 0),
            _ => (None, u16::from_le_bytes(argument)),
        };
        if count > ENTRY_COMMANDS_MAX || (change.is_some() && count > 0) {
            return Err(EntryError::Damaged);
        }
        let commands = match change {
            Some(_) => &[],
            None => &data[ENTRY_HEADER_SIZE..],
        };
        let view = Self {
            group_time_ns,
            change,
            sweep_most,
            count,
            commands,
        };
        if change.is_none() {
            for _ in 0..count {
                read_envelope(&mut cursor)?;
            }
        }
        cursor.finish()?;
        Ok(view)
    }

    /// Commands inside.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The commands in their order.
    pub(crate) fn commands(&self) -> impl Iterator<Item = Envelope<'a>> {
        let mut cursor = Cursor::new(self.commands, "entry");
        // `decode` has walked over every one of them.
        (0..self.count).map_while(move |_| read_envelope(&mut cursor).ok())
    }
}

fn read_move(cursor: &mut Cursor<'_>) -> Result<Change, StateError> {
    let member = Incarnation(cursor.u64()?);
    let to = cursor.address()?;
    Ok(Change::Move { member, to })
}

#[inline]
fn read_envelope<'a>(cursor: &mut Cursor<'a>) -> Result<Envelope<'a>, StateError> {
    let head: &[u8; ENVELOPE_SIZE] = cursor.chunk()?;
    let operation = match head[4] {
        1 => Operation::Register,
        2 => Operation::Apply,
        3 => Operation::ApplyAndClose,
        _ => return Err(cursor.error()),
    };
    let word = |at| u64::from_le_bytes(field(head, at));
    Ok(Envelope {
        operation,
        client: word(8),
        sequence: word(16),
        lowest_awaited: word(24),
        check: u32::from_le_bytes([head[5], head[6], head[7], 0]),
        command: cursor.take(u32::from_le_bytes(field(head, 0)) as usize)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use trine_protocol::message::{ClusterId, GroupId};

    fn request(sequence: u64, command: &[u8]) -> ClientRequest<'_> {
        ClientRequest {
            timed: false,
            operation: Operation::Apply,
            group: GroupId(0),
            cluster: ClusterId(7),
            client: 3,
            sequence,
            lowest_awaited: 1,
            session_number: 0,
            check: 0x0c_0b_0a,
            for_user: None,
            command,
        }
    }

    #[test]
    fn the_layout_is_pinned() {
        let mut builder = EntryBuilder::default();
        builder.push(&request(2, b"xy"));
        let bytes = builder.finish(0x0102);
        let mut expected = vec![1, 1, 0, 0, 1, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0];
        expected.extend([2, 0, 0, 0, 2, 0x0a, 0x0b, 0x0c]);
        expected.extend([
            3, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,
        ]);
        expected.extend(b"xy");
        assert_eq!(bytes, expected);
        assert_eq!(builder.count(), 0);
        let view = EntryView::decode(&bytes).unwrap();
        let checks = view.commands().map(|envelope| envelope.check);
        assert_eq!(checks.collect::<Vec<_>>(), [0x0c_0b_0a]);
    }

    #[test]
    fn the_layout_of_a_change_is_pinned() {
        let mut expected = vec![1, 2, 8, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0];
        let raise = raise_version(9, 8);
        assert_eq!(raise, expected);
        let view = EntryView::decode(&raise).unwrap();
        assert_eq!(view.change, Some(Change::Raise { version: 8 }));
        let (member, to) = (Incarnation(0x0102), "[::1]:7".parse().unwrap());
        let bytes = move_member(9, member, to);
        expected[1..3].copy_from_slice(&[3, 0]);
        expected.extend([2, 1, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0]);
        expected.extend(b"[::1]:7");
        assert_eq!(bytes, expected);
        let view = EntryView::decode(&bytes).unwrap();
        assert_eq!(view.change, Some(Change::Move { member, to }));
        assert_eq!((view.group_time_ns, view.count()), (9, 0));
        assert_eq!(moved_member(&bytes), Some((member, to)));
        assert_eq!(moved_member(&raise), None);
        assert_eq!(moved_member(&EntryBuilder::default().finish(9)), None);
        for cut in ENTRY_HEADER_SIZE..bytes.len() {
            assert_eq!(EntryView::decode(&bytes[..cut]), Err(EntryError::Damaged));
        }
        for bad in [[&bytes[..], &[0]].concat(), [&raise[..], &[0]].concat()] {
            assert_eq!(EntryView::decode(&bad), Err(EntryError::Damaged));
        }
    }

    #[test]
    fn an_entry_without_commands_carries_the_time() {
        let bytes = EntryBuilder::default().finish(99);
        let view = EntryView::decode(&bytes).unwrap();
        assert_eq!((view.group_time_ns, view.count()), (99, 0));
    }

    #[test]
    fn a_newer_entry_is_told_from_a_damaged_one() {
        let mut bytes = EntryBuilder::default().finish(0);
        bytes[0] = 2;
        assert_eq!(
            EntryView::decode(&bytes),
            Err(EntryError::Unknown {
                version: 2,
                kind: 1
            })
        );
        bytes[0] = 1;
        bytes[4] = 1;
        assert_eq!(EntryView::decode(&bytes), Err(EntryError::Damaged));
    }

    #[test]
    fn the_largest_command_fits_and_one_byte_more_does_not() {
        let largest = ENTRY_BYTES_MAX - ENTRY_HEADER_SIZE - ENVELOPE_SIZE;
        assert!(EntryBuilder::can_ever_hold(largest));
        assert!(!EntryBuilder::can_ever_hold(largest + 1));
        let mut builder = EntryBuilder::default();
        builder.push(&request(1, &vec![0; largest]));
        assert_eq!(builder.bytes(), ENTRY_BYTES_MAX);
        assert!(!builder.has_room(0));
    }

    /// The log of a leader took up to twice the memory that it is bounded to. Each entry's data was a vector that had
    /// grown command by command, and the log counts its bytes without its spare capacity.
    #[test]
    fn an_entry_in_the_log_holds_no_room_to_spare() {
        let mut builder = EntryBuilder::default();
        for commands in [1, 7, 100] {
            (0..commands).for_each(|sequence| builder.push(&request(sequence, &[7; 99])));
            let data = builder.finish(5);
            assert_eq!(data.capacity(), data.len());
        }
    }

    proptest! {
        #[test]
        fn what_is_packed_comes_out(commands in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..20)) {
            let mut builder = EntryBuilder::default();
            for (i, command) in commands.iter().enumerate() {
                builder.push(&request(i as u64, command));
            }
            let bytes = builder.finish(5);
            let view = EntryView::decode(&bytes).unwrap();
            let out: Vec<_> = view.commands().map(|e| (e.sequence, e.command.to_vec())).collect();
            let expected: Vec<_> = commands.into_iter().enumerate().map(|(i, c)| (i as u64, c)).collect();
            prop_assert_eq!(out, expected);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(view) = EntryView::decode(&bytes) {
                prop_assert_eq!(view.commands().count(), view.count());
            }
        }
    }
}
