//! The replicated state: store, client sessions, members and group time, moved forward by log entries alone.

pub(crate) mod codec;
pub(crate) mod entry;
pub(crate) mod genesis;

pub(crate) use genesis::Genesis;

use raft::eraftpb::ConfState;
use trine_kvstore::command::{STATE_VERSION, SWEEP_VERSION};
use trine_kvstore::interleave::LANES;
use trine_kvstore::{Command, Ordered, PinOwner, Position, Response, Store, Swept};
use trine_protocol::message::{ClientStatus, ClusterId, Member, NO_CHECK, Operation};

use crate::audit::{Asked, Audit, By, ToldBefore, Trail, memory_asked_for, outcome_of, words_of};
use crate::client_sessions::{ClientSessions, Registration, SessionVerdict};
use crate::membership::MemberTable;
use entry::{Change, EntryError, EntryView, Envelope};

/// The answer to a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CommandReply<'a> {
    /// How it ended.
    pub(crate) status: ClientStatus,
    /// Where it was applied; for a registration the client id.
    pub(crate) position: Position,
    /// The store's encoded response.
    pub(crate) response: &'a [u8],
}

/// Everything that replicas agree on. Equal log prefixes give equal values of this.
#[derive(Debug)]
pub(crate) struct StateMachine {
    cluster: ClusterId,
    genesis: Genesis,
    store: Store,
    sessions: ClientSessions,
    members: MemberTable,
    group_time_ns: u64,
    applied_index: u64,
    /// The last command that was applied, or the entry itself where it held none.
    applied_position: Position,
    commands_applied: u64,
    /// The newest version that this replica understands. Not part of the state.
    known_version: u8,
    /// What the last applied entry has removed ahead of its commands. Not part of the state.
    swept: Swept,
    /// Admin commands that were applied. Not part of the state.
    trail: Trail,
    /// Whether the entry that is applied is in that trail of before a restart. Not part of the state.
    told_before: ToldBefore,
    /// Reused for encoding responses.
    scratch: Vec<u8>,
}

impl StateMachine {
    /// The state after the first entry, which sets the group's limits and names its members.
    #[must_use]
    pub(crate) fn new(
        cluster: ClusterId,
        genesis: Genesis,
        members: &[Member],
        first_index: u64,
    ) -> Self {
        let store = Store::with_version(
            genesis.store_limits,
            genesis.hash_seed,
            genesis.state_version,
        );
        Self {
            cluster,
            genesis,
            store: match genesis.ordered {
                true => store.with_ordered(),
                false => store,
            },
            sessions: ClientSessions::new(genesis.session_limits),
            members: MemberTable::new(members),
            group_time_ns: 0,
            applied_index: first_index,
            applied_position: Position::new(first_index, 0),
            commands_applied: 0,
            known_version: STATE_VERSION,
            swept: Swept::default(),
            trail: Trail::default(),
            told_before: ToldBefore::No,
            scratch: Vec::new(),
        }
    }

    /// Understands no newer version than this one.
    #[must_use]
    pub(crate) fn understanding(mut self, version: u8) -> Self {
        self.known_version = version;
        self
    }

    /// Keeps a history of the changes from here on, in up to `bytes` of memory. Not part of the state.
    #[must_use]
    pub(crate) fn with_history(mut self, bytes: usize) -> Self {
        self.store.keep_history(bytes, self.applied_position);
        self
    }

    /// Keeps at most so many bytes for pins, if an operator has said so. Not part of the state.
    #[must_use]
    pub(crate) fn retaining(mut self, most: Option<u64>) -> Self {
        self.store.set_retain_bytes(most);
        self
    }

    /// Whether the group has switched to a version that this replica does not understand.
    #[must_use]
    pub(crate) fn is_too_new(&self) -> bool {
        self.store.state_version() > self.known_version
    }

    /// The state that a snapshot holds, put together by `snapshot_transfer`.
    pub(crate) fn from_parts(parts: Parts) -> Self {
        Self {
            cluster: parts.cluster,
            genesis: parts.genesis,
            store: parts.store,
            sessions: parts.sessions,
            members: parts.members,
            group_time_ns: parts.group_time_ns,
            applied_index: parts.applied_index,
            applied_position: parts.applied_position,
            commands_applied: 0,
            known_version: STATE_VERSION,
            swept: Swept::default(),
            trail: Trail::default(),
            told_before: ToldBefore::No,
            scratch: Vec::new(),
        }
    }

    /// The same state for a new group of one member: its old clients do not take it for the old group.
    #[must_use]
    pub(crate) fn begin_again(self, cluster: ClusterId, member: &Member) -> Self {
        Self {
            cluster,
            members: MemberTable::new(&[*member]),
            ..self
        }
    }

    /// The state of a backup as the beginning of a new group: the sessions of the old group's clients mean nothing
    /// there, and the log goes on after `index`. Time stood still between backup and restore but for `passed_ns`. The next
    /// `numbers` numbers of users are left out.
    #[must_use]
    pub(crate) fn restored_at(mut self, index: u64, passed_ns: u64, numbers: u32) -> Self {
        self.store.leave_out_user_numbers(numbers);
        // They belong to sessions of the old group.
        self.store.end_pins();
        self.sessions = ClientSessions::new(self.genesis.session_limits);
        self.applied_index = index;
        self.applied_position = Position::new(index, 0);
        if passed_ns > 0 {
            self.group_time_ns = self.group_time_ns.saturating_add(passed_ns);
            self.store.set_group_time(self.group_time_ns);
        }
        self
    }

    /// Applies the entry at `index` and hands each command's answer to `answers`, in the order of the commands.
    ///
    /// # Errors
    /// The entry was written by a newer release, and nothing was applied. (An entry that no release can have written is
    /// skipped, on every replica alike.)
    pub(crate) fn apply(
        &mut self,
        index: u64,
        data: &[u8],
        mut answers: impl FnMut(usize, CommandReply<'_>),
    ) -> Result<(), EntryError> {
        let Some(view) = self.begin_entry(index, data)? else {
            return Ok(());
        };
        let mut ahead = view.commands();
        for (place, envelope) in view.commands().enumerate() {
            if place.is_multiple_of(LANES) {
                self.warm(ahead.by_ref());
            }
            self.apply_at(place, &envelope, |answer| answers(place, answer));
        }
        Ok(())
    }

    /// Everything of the entry at `index` that comes before its commands. Nothing for an entry without any meaning.
    ///
    /// # Errors
    /// As [`StateMachine::apply`].
    pub(crate) fn begin_entry<'e>(
        &mut self,
        index: u64,
        data: &'e [u8],
    ) -> Result<Option<EntryView<'e>>, EntryError> {
        assert_eq!(
            index,
            self.applied_index + 1,
            "entries are applied in order, each once"
        );
        let view = match EntryView::decode(data) {
            _ if data.is_empty() => None,
            Ok(view) => Some(view),
            Err(EntryError::Damaged) => None,
            Err(newer) => return Err(newer),
        };
        let change = view.and_then(|view| view.change);
        if let Some(change) = change {
            self.check_known(change)?;
        }
        self.applied_index = index;
        self.applied_position = Position::new(index, 0);
        self.swept = Swept::default();
        let Some(view) = view else { return Ok(None) };
        self.group_time_ns = self.group_time_ns.max(view.group_time_ns);
        self.store.begin_entry(self.applied_position);
        let asked = match self.understands(SWEEP_VERSION) {
            true => view.sweep_most,
            // An older program knows no such number.
            false => 0,
        };
        self.swept = self.store.step_group_time(self.group_time_ns, asked);
        self.store.build_index();
        match change {
            Some(Change::Raise { version }) => {
                // A version that is none changes nothing, on every replica alike.
                let raise = Command::RaiseVersion { version };
                let _ = self.store.apply(self.applied_position, &raise);
            }
            // No leader proposes it ahead of that version, whose members would not all know it.
            Some(Change::Move { member, to }) if self.version() >= PLACE_VERSION => {
                self.members.relocate(member, to);
            }
            Some(Change::Move { .. }) | None => {}
        }
        Ok(Some(view))
    }

    /// Whether this replica may apply such a change, as an older program would find.
    fn check_known(&self, change: Change) -> Result<(), EntryError> {
        let known = self.known_version;
        match change {
            Change::Raise { version } if version > known => {
                Err(EntryError::NewerState { version, known })
            }
            Change::Move { .. } if !self.understands(PLACE_VERSION) => Err(EntryError::Unknown {
                version: entry::ENTRY_VERSION,
                kind: entry::KIND_MOVE,
            }),
            Change::Raise { .. } | Change::Move { .. } => Ok(()),
        }
    }

    /// Applies the command at this place of the entry that has begun, and returns its position.
    #[inline]
    pub(crate) fn apply_at(
        &mut self,
        place: usize,
        envelope: &Envelope<'_>,
        answer: impl FnOnce(CommandReply<'_>),
    ) -> Position {
        // `EntryView` holds at most 65,535 commands.
        let at = Position::new(self.applied_index, place as u16);
        self.applied_position = at;
        self.apply_command(at, envelope, answer);
        at
    }

    /// Brings the data of the next commands into the cache, all of it at once.
    fn warm<'e>(&self, envelopes: impl Iterator<Item = Envelope<'e>>) {
        let mut keys = [None; LANES];
        let mut count = 0;
        for (envelope, key) in envelopes.take(LANES).zip(&mut keys) {
            let command = Command::decode(envelope.command).ok();
            *key = command.and_then(|command| command.key());
            count += 1;
        }
        // A single command waits for memory alone anyway.
        if count > 1 {
            self.store.warm(count, |number| keys[number]);
        }
    }

    /// A change of the configuration was applied at `index`.
    pub(crate) fn apply_conf_change(
        &mut self,
        index: u64,
        named: Option<&Member>,
        conf: Option<&ConfState>,
    ) {
        assert_eq!(
            index,
            self.applied_index + 1,
            "entries are applied in order, each once"
        );
        self.applied_index = index;
        self.applied_position = Position::new(index, 0);
        if let Some(conf) = conf {
            self.members.change(named, conf);
        }
    }

    fn apply_command(
        &mut self,
        at: Position,
        envelope: &Envelope<'_>,
        answer: impl FnOnce(CommandReply<'_>),
    ) {
        self.commands_applied += 1;
        self.sessions.set_version(self.store.state_version());
        let refusal = |status| CommandReply {
            status,
            position: at,
            response: &[],
        };
        if envelope.operation == Operation::Register {
            let user = match self.store.state_version() >= USERS_VERSION {
                true => envelope.user(),
                false => 0,
            };
            return answer(
                match self
                    .sessions
                    .register_for(at, envelope.client, user, self.group_time_ns)
                {
                    Registration::Session(client) => CommandReply {
                        status: ClientStatus::Ok,
                        position: client,
                        response: &[],
                    },
                    Registration::Full => refusal(ClientStatus::SessionsFull),
                },
            );
        }
        let Envelope {
            client,
            sequence,
            lowest_awaited,
            ..
        } = *envelope;
        let now_ns = self.group_time_ns;
        let name = (client, sequence, self.check_of(envelope));
        let verdict = self.sessions.judge(name, lowest_awaited, now_ns);
        match verdict {
            SessionVerdict::Apply => answer(self.apply_new(at, name, envelope)),
            SessionVerdict::Duplicate => answer(self.cached_answer(client, sequence, at)),
            SessionVerdict::Refuse(status) => answer(refusal(status)),
        }
        // A last command that was refused will be asked again, and needs its session for that.
        let refused = matches!(verdict, SessionVerdict::Refuse(_));
        if envelope.operation == Operation::ApplyAndClose && !refused {
            self.sessions.close(client);
        }
    }

    /// `name` is what the session has judged the command by.
    fn apply_new(
        &mut self,
        at: Position,
        name: (u64, u64, u32),
        envelope: &Envelope<'_>,
    ) -> CommandReply<'_> {
        let Ok(command) = Command::decode(envelope.command) else {
            return CommandReply {
                status: ClientStatus::Malformed,
                position: at,
                response: &[],
            };
        };
        self.scratch.clear();
        match words_of(&command) {
            None => {
                let owner = self.owner_of(envelope.client, &command);
                self.store
                    .apply_for(owner, at, &command)
                    .encode(&mut self.scratch);
            }
            Some(what) => self.administrate(at, envelope, &command, what),
        }
        self.sessions.record(name, at, &self.scratch);
        CommandReply {
            status: ClientStatus::Ok,
            position: at,
            response: &self.scratch,
        }
    }

    /// What tells a command from another one of its sequence: nothing before the group has switched to the version that
    /// brought checks.
    fn check_of(&self, envelope: &Envelope<'_>) -> u32 {
        match self.version() >= CHECK_VERSION {
            true => envelope.check,
            false => NO_CHECK,
        }
    }

    /// To whom a pin belongs that a command takes. Other commands do not look for it.
    fn owner_of(&self, client: u64, command: &Command<'_>) -> PinOwner {
        let user = match command {
            Command::Pin => self.sessions.user_of(client).unwrap_or(0),
            _ => 0,
        };
        PinOwner { client, user }
    }

    /// Says whether the entry that is applied next was applied here before a restart already.
    pub(crate) fn set_told_before(&mut self, told: ToldBefore) {
        self.told_before = told;
    }

    /// Applies an admin command and leaves a line about it.
    fn administrate(
        &mut self,
        at: Position,
        envelope: &Envelope<'_>,
        command: &Command<'_>,
        what: String,
    ) {
        let (client, sequence) = (envelope.client, envelope.sequence);
        // Before the command: it may remove its own user.
        let user = self.sessions.user_of(client).unwrap_or(0);
        let by = By::session_of(user, self.store.users());
        let response = self.store.apply(at, command);
        response.encode(&mut self.scratch);
        let line = Audit {
            position: at,
            by,
            what,
            outcome: outcome_of(&response),
            sets_memory: match response {
                Response::Error(_) => None,
                _ => memory_asked_for(command),
            },
            asked: (user == 0).then_some(Asked { client, sequence }),
        };
        match self.told_before {
            ToldBefore::No => self.trail.push(line),
            ToldBefore::Yes => {}
            ToldBefore::Probably => self.trail.push(line.of_before()),
        }
    }

    /// The oldest line about an admin command that was not read yet, and how many were lost before it.
    pub(crate) fn next_audit(&mut self) -> Option<(Audit, u64)> {
        self.trail.pop()
    }

    fn cached_answer(&self, client: u64, sequence: u64, at: Position) -> CommandReply<'_> {
        match self.sessions.cached(client, sequence) {
            Some(reply) => CommandReply {
                status: ClientStatus::Ok,
                position: reply.position,
                response: &reply.response,
            },
            None => CommandReply {
                status: ClientStatus::Stale,
                position: at,
                response: &[],
            },
        }
    }

    /// The group's cluster id.
    #[must_use]
    pub(crate) fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// The settings of the first entry.
    #[must_use]
    pub(crate) fn genesis(&self) -> &Genesis {
        &self.genesis
    }

    /// The store, to read from.
    #[must_use]
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// The store, to write a snapshot of; commands go through [`StateMachine::apply`] alone.
    pub(crate) fn store_mut(&mut self) -> &mut Store {
        &mut self.store
    }

    /// Whether entries also move the building of an ordered index on.
    #[must_use]
    pub(crate) fn is_building_index(&self) -> bool {
        matches!(self.store.ordered(), Ordered::Building(_))
    }

    /// Whether this replica knows what that version has brought. The group may run an older one.
    #[must_use]
    pub(crate) fn understands(&self, version: u8) -> bool {
        self.known_version >= version
    }

    /// What the last applied entry has removed ahead of its commands.
    #[must_use]
    pub(crate) fn swept(&self) -> Swept {
        self.swept
    }

    /// The version that the group has switched to.
    #[must_use]
    pub(crate) fn version(&self) -> u8 {
        self.store.state_version()
    }

    /// The client sessions.
    #[must_use]
    pub(crate) fn sessions(&self) -> &ClientSessions {
        &self.sessions
    }

    /// The members.
    #[must_use]
    pub(crate) fn members(&self) -> &MemberTable {
        &self.members
    }

    /// Group time in nanoseconds.
    #[must_use]
    pub(crate) fn group_time_ns(&self) -> u64 {
        self.group_time_ns
    }

    /// Index of the last applied entry.
    #[must_use]
    pub(crate) fn applied_index(&self) -> u64 {
        self.applied_index
    }

    /// Position up to which everything is applied: a read from here sees the state at it.
    #[must_use]
    pub(crate) fn applied_position(&self) -> Position {
        self.applied_position
    }

    /// A hash over all of it: equal log prefixes give equal ones, also across a snapshot.
    #[must_use]
    pub(crate) fn digest(&self) -> u128 {
        let mut hash = self.store.state_hash();
        let mut add = |bytes: &[u8]| {
            for word in bytes.chunks(16) {
                let mut padded = [0; 16];
                padded[..word.len()].copy_from_slice(word);
                hash = (hash ^ u128::from_le_bytes(padded)).wrapping_mul(DIGEST_FACTOR);
                // A product's high bits never reach its low ones.
                hash ^= hash >> 67;
            }
        };
        self.sessions
            .to_pieces(1 << 16)
            .iter()
            .for_each(|piece| add(piece));
        for member in self.members.all() {
            add(&member.incarnation.0.to_le_bytes());
            add(&[member.role as u8]);
            // An earlier release leaves it out, and every replica of a group has to do the same.
            if self.version() >= PLACE_VERSION {
                let address = member.address.to_string();
                add(&[address.len() as u8]);
                add(address.as_bytes());
            }
        }
        add(&self.group_time_ns.to_le_bytes());
        add(&self.applied_position.as_u64().to_le_bytes());
        hash
    }

    /// Commands applied since the start of this process.
    #[must_use]
    pub(crate) fn commands_applied(&self) -> u64 {
        self.commands_applied
    }
}

/// The data that a state machine is rebuilt from.
pub(crate) struct Parts {
    pub(crate) cluster: ClusterId,
    pub(crate) genesis: Genesis,
    pub(crate) store: Store,
    pub(crate) sessions: ClientSessions,
    pub(crate) members: MemberTable,
    pub(crate) group_time_ns: u64,
    pub(crate) applied_index: u64,
    pub(crate) applied_position: Position,
}

/// The state-machine version from which on a registration says whose session it opens.
const USERS_VERSION: u8 = 5;

/// The state-machine version from which on the log says where a member answers that has moved.
pub(crate) const PLACE_VERSION: u8 = 8;
/// The version from which on a sequence is one command: see [`ClientSessions::judge`].
pub(crate) const CHECK_VERSION: u8 = 9;

const _: () = assert!(PLACE_VERSION < CHECK_VERSION && CHECK_VERSION <= STATE_VERSION);

/// Odd, and with bits all over: each word of a digest moves every other.
const DIGEST_FACTOR: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;

#[cfg(test)]
mod tests;
