//! The deterministic state machine: commands in, answers out.
//!
//! Everything that an answer depends on is replicated: the items, the limits, group time, the hash
//! seed, the state-machine version. There is no clock, no randomness and no iteration order of a
//! standard map in here.

mod batch;
mod execute;
mod expire;
mod flush;
mod get;
mod history;
mod journal;
mod list;
mod number;
mod ordered;
mod pin;
mod remove;
mod walk;
mod write;

use crate::arena::ItemView;
use crate::codec::Sink;
use crate::command::{Command, STATE_VERSION, STATE_VERSION_FIRST};

use crate::error::StoreError;
use crate::history::History;
use crate::items::{Items, KeyLookup};
use crate::limits::Limits;
use crate::ordered::Ordered;
use crate::pins::{PinOwner, Pins};
use crate::position::Position;
use crate::response::{Response, Versioned};
use crate::snapshot::format::SnapshotSummary;
use crate::users::{User, Users};
use expire::RoomMade;
use journal::Journal;
use ordered::Deletions;
use walk::WalkSelection;

pub use expire::Swept;
pub use number::integer;

/// One shard of the key space with its replicated state.
#[derive(Debug)]
pub struct Store {
    pub(crate) items: Items,
    limits: Limits,
    group_time_ns: u64,
    state_version: u8,
    applied: Position,
    pub(crate) users: Users,
    /// What DELETEs of ranges have done in the present log entry.
    deletions: Deletions,
    /// What commands of the present log entry have removed to make room.
    room_made: RoomMade,
    pub(crate) pins: Pins,
    /// Open exactly while a command runs that may have to be undone.
    journal: Journal,
    /// A value that is on its way out of the store, for the response that carries it.
    departing: Vec<u8>,
    /// What was changed last, for those who watch. Boxed: without one a change tests a pointer.
    history: Option<Box<History>>,
    /// The encoded elements of a list response, or a value that is being put together.
    scratch: Vec<u8>,
}

/// A store's items and memory.
#[derive(Copy, Clone, Eq, PartialEq, Default, Debug)]
pub struct Stats {
    /// Live items.
    pub items: u64,
    /// Items among them that have an expiry.
    pub expiring: u64,
    /// Bytes that the memory limit counts.
    pub logical_bytes: u64,
    /// Bytes in the blocks of items.
    pub arena_live_bytes: u64,
    /// Bytes that the arena has from the system.
    pub arena_bytes: u64,
    /// Bytes that the index has from the system.
    pub index_bytes: u64,
    /// Bytes that the ordered index has from the system, one that was dropped and is not freed yet included.
    pub ordered_bytes: u64,
}

impl Store {
    /// An empty store. `hash_seed` is drawn when the group begins and is replicated state.
    ///
    /// # Panics
    /// If the limits fail [`Limits::check`].
    #[must_use]
    pub fn new(limits: Limits, hash_seed: [u64; 2]) -> Self {
        Self::with_version(limits, hash_seed, STATE_VERSION)
    }

    /// An empty store of a group that runs this state-machine version.
    ///
    /// # Panics
    /// If the limits fail [`Limits::check`] or the version is unknown.
    #[must_use]
    pub fn with_version(limits: Limits, hash_seed: [u64; 2], state_version: u8) -> Self {
        limits
            .check()
            .expect("limits are checked before they become replicated state");
        assert!((STATE_VERSION_FIRST..=STATE_VERSION).contains(&state_version));
        Self::with_items(Items::new(hash_seed), limits, state_version)
    }

    fn with_items(items: Items, limits: Limits, state_version: u8) -> Self {
        Self {
            items,
            limits,
            group_time_ns: 0,
            state_version,
            applied: Position::ZERO,
            users: Users::default(),
            deletions: Deletions::default(),
            room_made: RoomMade::default(),
            pins: Pins::default(),
            journal: Journal::default(),
            departing: Vec::new(),
            history: None,
            scratch: Vec::new(),
        }
    }

    /// Applies one command at its position and answers it.
    ///
    /// # Panics
    /// If `at` is not behind every earlier position: versions would no longer tell changes apart.
    pub fn apply(&mut self, at: Position, command: &Command<'_>) -> Response<'_> {
        self.apply_for(PinOwner::default(), at, command)
    }

    /// The same for a client session and its user, to whom the pins belong that are taken. To other commands it makes no
    /// difference.
    ///
    /// # Panics
    /// As [`Store::apply`].
    pub fn apply_for(
        &mut self,
        owner: PinOwner,
        at: Position,
        command: &Command<'_>,
    ) -> Response<'_> {
        assert!(
            at > self.applied,
            "commands are applied in the order of their positions"
        );
        self.applied = at;
        self.items.changes_at = at;
        if let Some(history) = &mut self.history {
            history.begin(at, command.kind());
        }
        if command.version() > self.state_version {
            let (required, active) = (command.version(), self.state_version);
            return Response::Error(StoreError::VersionNotActive { required, active });
        }
        match command {
            Command::MultiPut { pairs } => self.multi_put(at, pairs),
            Command::Execute {
                mode,
                conditions,
                operations,
            } => self.execute(at, *mode, conditions, operations),
            Command::MultiGet { keys } => self.multi_get(keys),
            Command::Walk { .. }
            | Command::WalkAt { .. }
            | Command::ScanAt { .. }
            | Command::CountAt { .. } => Response::Error(StoreError::OnlyRead),
            Command::Pin => self.pin(at, owner),
            Command::RenewPin { position } => self.renew_pin(*position, owner.client),
            Command::Unpin { position } => self.unpin(*position, owner.client),
            Command::Flush => self.flush(),
            Command::SetLimits { limits } => self.set_limits(*limits),
            Command::SetOrdered { on } => self.set_ordered(*on),
            Command::DeleteRange { range, count } => self.delete_range(range, *count),
            Command::SetMemory { memory_bytes } => self.set_memory(*memory_bytes),
            Command::RaiseVersion { version } => self.raise_version(*version),
            Command::AddUser {
                issuer,
                name,
                rights,
            } => user(self.users.add(at, *issuer, *name, *rights)),
            Command::RotateUser { issuer, name } => user(self.users.rotate(at, *issuer, *name)),
            Command::RemoveUser { name } => match self.users.remove(at, *name) {
                Ok(()) => Response::Done,
                Err(error) => Response::Error(error),
            },
            _ => self.apply_to_key(at, command),
        }
    }

    /// Applies a command that is about one key.
    fn apply_to_key(&mut self, at: Position, command: &Command<'_>) -> Response<'_> {
        match *command {
            Command::Get { .. }
            | Command::TimeToLive { .. }
            | Command::Count
            | Command::Scan { .. }
            | Command::CountRange { .. }
            | Command::ListUsers => self.read(command),
            Command::Put { key, value } => self.put(at, key, value),
            Command::Delete { key } => self.delete(key),
            Command::Set {
                key,
                value,
                options,
            } => self.set(at, key, value, options),
            Command::GetDelete { key } => self.get_delete(key),
            Command::CompareAndSwap {
                key,
                expected,
                value,
            } => self.compare_and_swap(at, key, expected, value),
            Command::Increment { key, delta } => self.increment(at, key, delta),
            Command::Append { key, value } => self.append(at, key, value),
            Command::Expire { key, after_ns } => self.expire(at, key, after_ns),
            Command::ExpireIf {
                key,
                after_ns,
                condition,
            } => self.expire_if(at, key, after_ns, (condition, 0)),
            Command::ExpireIfBeyond {
                key,
                after_ns,
                condition,
                margin_ns,
            } => self.expire_if(at, key, after_ns, (condition, margin_ns)),
            Command::Persist { key } => self.persist(at, key),
            _ => Response::Error(StoreError::NotInExecute),
        }
    }

    /// Answers a command that changes nothing, from the state as it is.
    #[must_use]
    pub fn read(&self, command: &Command<'_>) -> Response<'_> {
        self.read_at(command, self.group_time_ns)
    }

    /// The same, with times to live as they are at `now_ns` of group time. A leader knows a later group time than it has
    /// applied, because only entries carry stamps. Which keys are there is decided by the applied one alone.
    #[must_use]
    pub fn read_at(&self, command: &Command<'_>, now_ns: u64) -> Response<'_> {
        match command {
            Command::Get { key } => match self.get(key) {
                Some(Versioned { value, version }) => Response::Value { value, version },
                None => Response::NotFound,
            },
            Command::TimeToLive { key } => self.time_to_live(key, now_ns),
            Command::MultiGet { keys } => self.read_many(keys),
            Command::Count => self.count(),
            Command::Scan { range, options } => self.scan(range, *options),
            Command::CountRange { range } => self.count_range(range),
            Command::ScanAt {
                position,
                range,
                options,
            } => self.scan_at(*position, range, *options),
            Command::CountAt { position, range } => self.count_at(*position, range),
            Command::ListUsers => Response::Users(self.users.to_list()),
            Command::Walk {
                from,
                count,
                content,
                prefix,
            } => self.walk(
                *from,
                *count,
                &WalkSelection::new(*content, prefix.0, now_ns),
            ),
            Command::WalkAt {
                position,
                from,
                count,
                content,
                prefix,
            } => self.walk_at(*position, *from, *count, (*content, prefix.0)),
            Command::Execute {
                conditions,
                operations,
                ..
            } => self.read_operations(conditions, operations, now_ns),
            _ => Response::Error(StoreError::NotReadOnly),
        }
    }

    /// Gives none of the next `count` numbers and generations to a user. A group that never had users keeps its numbers.
    pub fn leave_out_user_numbers(&mut self, count: u32) {
        self.users.leave_out(count);
    }

    /// The replicated limits.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The group's users.
    #[must_use]
    pub fn users(&self) -> &Users {
        &self.users
    }

    /// The replicated hash seed.
    #[must_use]
    pub fn hash_seed(&self) -> [u64; 2] {
        self.items.hasher.seed()
    }

    /// The state-machine version that the group runs.
    #[must_use]
    pub fn state_version(&self) -> u8 {
        self.state_version
    }

    /// Whether the group keeps an ordered index.
    #[must_use]
    pub fn ordered(&self) -> Ordered {
        self.items.ordered()
    }

    /// The position of the last applied command.
    #[must_use]
    pub fn applied(&self) -> Position {
        self.applied
    }

    /// The store's items and memory.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let (arena, index_bytes) = self.items.usage();
        Stats {
            items: self.items.count(),
            expiring: self.items.expiries.count(),
            logical_bytes: self.items.logical_bytes(),
            arena_live_bytes: arena.live_bytes,
            arena_bytes: arena.region_bytes,
            index_bytes,
            ordered_bytes: self.items.ordered_bytes(),
        }
    }

    /// A 128-bit sum over all that a snapshot holds, at no cost: two replicas that applied the same
    /// commands have the same one. A program that keeps more replicated state beside the store adds
    /// the hash of that (wrapping).
    #[must_use]
    pub fn state_hash(&self) -> u128 {
        let mut rest = Vec::with_capacity(64);
        self.limits.write(&mut rest);
        rest.put_u64(self.group_time_ns);
        rest.put_u8(self.state_version);
        rest.put_u64(self.items.count());
        rest.put_u64(self.items.logical_bytes());
        self.items.ordered().write(&mut rest);
        self.pins.write(&mut rest);
        self.items
            .sum()
            .wrapping_add(self.items.hasher.bytes(&rest))
            .wrapping_add(self.users.hash(&self.items.hasher))
    }

    /// All of the replicated state but the items.
    pub(crate) fn summary(&self) -> SnapshotSummary {
        SnapshotSummary {
            position: self.applied,
            limits: self.limits,
            hash_seed: self.hash_seed(),
            group_time_ns: self.group_time_ns,
            state_version: self.state_version,
            items: self.items.count(),
            logical_bytes: self.items.logical_bytes(),
            state_hash: self.state_hash(),
            ordered: self.items.ordered(),
        }
    }

    /// The store of a summary, before its items are added.
    pub(crate) fn from_summary(summary: &SnapshotSummary) -> Self {
        let mut items = Items::for_count(summary.hash_seed, summary.items);
        items.begin_with_index(summary.ordered);
        let mut store = Self::with_items(items, summary.limits, summary.state_version);
        store.group_time_ns = summary.group_time_ns;
        store.applied = summary.position;
        store
    }

    /// The item that was found, unless it has expired.
    #[inline]
    fn live(&self, found: KeyLookup) -> Option<ItemView<'_>> {
        self.items
            .item(found)
            .filter(|item| !self.has_expired(item.stamp.expiry_ns))
    }

    fn set_limits(&mut self, limits: Limits) -> Response<'_> {
        if limits.check().is_err() {
            return Response::Error(StoreError::BadLimits);
        }
        self.limits = limits;
        Response::Done
    }

    /// Growing takes nothing: the arena and the index take memory as items come. Shrinking gives nothing back either,
    /// and so must leave room for what is there.
    fn set_memory(&mut self, memory_bytes: u64) -> Response<'_> {
        let used = self.items.logical_bytes();
        // A limit may be below what is used already. Then a raise is no harm.
        if memory_bytes < used.min(self.limits.memory_bytes) {
            return Response::Error(StoreError::MemoryInUse { used });
        }
        self.set_limits(Limits {
            memory_bytes,
            ..self.limits
        })
    }

    fn raise_version(&mut self, version: u8) -> Response<'_> {
        if version < self.state_version || version > STATE_VERSION {
            return Response::Error(StoreError::BadVersion { asked: version });
        }
        self.state_version = version;
        Response::Done
    }
}

/// The answer to a command about a user.
fn user(changed: Result<User<'_>, StoreError>) -> Response<'_> {
    match changed {
        Ok(user) => Response::User(user),
        Err(error) => Response::Error(error),
    }
}
