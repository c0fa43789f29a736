//! The settings of a replica, and every limit that bounds its memory.

use trine_kvstore::Limits;
use trine_kvstore::command::{ORDERED_VERSION, STATE_VERSION, STATE_VERSION_FIRST};
use trine_transport::time::Duration;

/// Most commands that one log entry packs; the place inside an entry has 16 bits.
pub const ENTRY_COMMANDS_MAX: usize = 65_535;
/// Most bytes that one log entry packs.
pub const ENTRY_BYTES_MAX: usize = 4 << 20;
/// Admin commands about members that a leader remembers, so that each has one audit line.
pub(crate) const AUDITED_COMMANDS_MAX: usize = 16;
/// Most audit lines that wait to be read.
pub const AUDIT_LINES_MAX: usize = 256;
/// Audit lines a minute about administrative commands that were denied to one user.
pub(crate) const DENIED_LINES_MAX: u32 = 16;
/// Most bytes of a key, or of a prefix, that a refusal shows.
pub const DENIED_KEY_BYTES_MAX: usize = 64;
/// Most nodes of a group: one less than the members that a message can list. A newcomer replaces the member with its
/// node id only after it was a member beside it.
pub const NODES_MAX: usize = trine_protocol::message::MEMBERS_MAX - 1;
/// Appends in flight to a follower for each slot of the session that carries them. Further ones wait in the log, where
/// raft makes larger appends of them. In the session they would delay heartbeats, and the leader's answers to ReadIndex
/// questions, until those are too old to be sent.
pub const APPENDS_PER_SLOT: usize = 2;
/// Commands of one client session that may be in flight.
pub const SESSION_WINDOW: u64 = 64;
/// Kept answers may fill one part in so many of their memory before callers with a large share of them have to wait.
pub const REPLIES_BUSY_PART: u64 = 2;
/// The share of one user, or of one session without a user: one part in so many.
pub const REPLY_SHARE_PART: u64 = 4;
/// ReadIndex rounds that may be outstanding; reads that arrive meanwhile share the next one.
pub const READ_ROUNDS_MAX: usize = 4;
/// Bytes of answers to reads in one turn, that of the last one not counted. Raft's messages and the clock wait for a
/// turn: with more, large reads of many clients would make a leader look dead.
pub const READ_ANSWER_BYTES_PER_TURN: usize = 4 << 20;
/// A read of a range counts as so many of these bytes at least: it may look at many keys, and answer with a few bytes.
pub const RANGE_READ_BYTES_MIN: usize = 64 << 10;
/// What a scan is charged for each key that it may look at, in nanoseconds. An estimate, on the safe side.
pub const SCAN_KEY_NS: u64 = 200;
/// Scans take one part in so many of the time while commands are applied.
pub const SCAN_SHARE: u64 = 10;
/// What a page of a walk counts among those bytes at least: it may look at many items and tell of none.
pub const WALK_CHARGE_BYTES: usize = trine_kvstore::config::WALK_BYTES_MAX;
/// The same of a read of a range while expired keys wait to be removed: it looks at up to 4,096 items, one by one.
pub const EXPIRED_RANGE_CHARGE_BYTES: usize = WALK_CHARGE_BYTES
    * trine_kvstore::config::COUNT_EXPIRED_MAX
    / trine_kvstore::config::WALK_ITEMS_MAX as usize;
/// Time that a leader's own sweep of expired items takes in one log entry.
pub const SWEEP_ENTRY: Duration = Duration::from_micros(200);
/// Time that its sweeps take in all entries that it has proposed and not applied yet.
pub const SWEEP_UNAPPLIED: Duration = Duration::from_micros(400);
/// A read that cannot be answered until expired items are removed waits this long. Mostly its caller's deadline ends
/// before.
pub const READ_WAITS_FOR_SWEEP_MAX: Duration = Duration::from_secs(10);
/// Most reads that wait for that at a time; others are told to come again.
pub const READS_BEHIND_SWEEP_MAX: usize = 1_024;
/// Bytes of appends under way to one member, that of the last one not counted. Raft counts them, whatever they weigh.
/// It starts the count again whenever it has lost track of the member, while the session still carries the earlier
/// ones.
pub const APPEND_BYTES_UNDER_WAY_MAX: usize = 32 << 20;
/// Most snapshot transfers that a leader serves at a time.
pub const SNAPSHOT_TRANSFERS_MAX: usize = 4;
/// Most chunks of one snapshot that a receiver takes before it gives up.
pub const SNAPSHOT_CHUNKS_MAX: u32 = 1 << 20;
/// Requests to peers whose outcome is not known yet; more are dropped as the network would.
pub const PEER_REQUESTS_MAX: usize = 16_384;
/// A first member of a new group that has had no leader for so long starts again as an unattached replica. A
/// bootstrapper that had to yield tries again.
pub const BEGIN_PATIENCE: Duration = Duration::from_secs(5);
/// How often a member without a leader asks another one whether it still is a member.
pub const MEMBERSHIP_QUESTION_EVERY: Duration = Duration::from_millis(500);
/// Rounds of raft's ready loop in one turn, before other work gets its turn.
pub const READY_ROUNDS_MAX: usize = 64;
/// Terms that messages may raise a replica's term by at once.
pub const TERM_ALLOWANCE_MAX: u64 = 1 << 32;
/// Terms that are added to that allowance in a second, up to its maximum.
pub const TERMS_PER_SECOND: u64 = 1 << 20;
/// Addresses that one name in `--peers` counts for; a name service may give any number.
pub const CANDIDATES_MAX: usize = 8;
/// News about where members are that wait to be read; more of them is lost.
pub const PLACE_NEWS_MAX: usize = 16;
/// Addresses of replicas that a replica remembers from answers, beside its members and `--peers`; the oldest gives way.
pub const LEARNED_ADDRESSES_MAX: usize = 128;
const _: () = assert!(LEARNED_ADDRESSES_MAX > NODES_MAX);
/// Pause between two questions to a replica about who the members are, while a replica unknown to this one speaks to
/// it.
pub const MEMBERS_QUESTION_EVERY: Duration = Duration::from_millis(100);
/// The same between two questions to the leader, which may have found members at other places.
pub const LEADER_QUESTION_EVERY: Duration = Duration::from_secs(10);
/// The same between two questions of a leader that is elsewhere than the table says.
pub const OWN_PLACE_QUESTION_EVERY: Duration = Duration::from_secs(1);
/// A log that has reached a bound is compacted by this share of the bound.
pub const COMPACTED_SHARE: usize = 16;
/// The log in memory holds the bytes of its entries in pieces of this size.
pub const LOG_PIECE_BYTES: usize = 1 << 20;
/// Pieces that a log keeps for later entries: as many as one compaction of a log with the default bound sets free, and one that
/// it may end within.
pub const LOG_SPARE_PIECES_MAX: usize = 5;
/// Bytes of log records that one frame on disk takes before the next one begins; a single record may be longer.
pub const FRAME_BYTES_MAX: usize = 8 << 20;
/// Bytes that one turn of the writer thread takes.
pub const WRITE_BATCH_BYTES_MAX: usize = 16 << 20;
/// The least size of a log segment.
pub const SEGMENT_BYTES_MIN: u64 = 16 << 10;
/// The size of a log segment unless something else is asked for.
pub const SEGMENT_BYTES: u64 = 32 << 20;
/// Bytes of a replica's own snapshot that one turn hands to the disk, before other work gets its turn.
pub const OWN_SNAPSHOT_BYTES_PER_TURN: usize = 1 << 20;
/// Bytes of snapshots that may wait for the disk. A snapshot of its own is made no faster then, and the sender of one
/// that is received has to wait then.
pub const SNAPSHOT_BYTES_WAITING_MAX: usize = 8 << 20;
/// An image for a backup of which no piece was asked for in this time goes. Its caller can go on with it until then.
pub const BACKUP_IDLE_MAX: Duration = Duration::from_secs(60);
/// While another caller waits for an image, its reader keeps it for so long in any case, and then only if it reads so many
/// bytes of new pieces a second.
pub const BACKUP_CONTEST: Duration = Duration::from_secs(10);
pub(crate) const BACKUP_CONTEST_BYTES_PER_SECOND: u64 = 256 << 10;
/// A caller that does not ask again within this time waits no more.
pub(crate) const BACKUP_CONTEST_GAP_MAX: Duration = Duration::from_secs(5);
/// Requests for pieces of that image that may wait for a turn.
pub const BACKUP_PIECES_WAITING_MAX: usize = 16;
/// Bytes of that image that one turn hands out, that of the last piece not counted, before other work gets its turn.
pub const BACKUP_BYTES_PER_TURN: usize = 1 << 20;
/// In disk mode a snapshot waits for a backup until this many times the log has piled up that begins one. Then the
/// image of the backup is given up.
pub const BACKUP_LOG_SHARE_MAX: u64 = 8;
/// After a backup has made way for a member that needs the state, or for the replica's own snapshot, the next one waits so
/// long. Raft asks again within a heartbeat, and an image for a backup must not be there first each time.
pub const BACKUP_PAUSE: Duration = Duration::from_secs(2);
/// A restored group begins so many entries after its backup: no position that the old group has given out since can
/// come again.
pub const RESTORE_INDEX_GAP: u64 = 1 << 32;
/// The gap grows by a random number below this, so that two groups that begin with one backup give out other positions.
pub const RESTORE_INDEX_SPREAD: u64 = 1 << 42;
/// A restored group gives no number or generation of a user that the old group may have given out after the backup. It goes
/// on this much later, and by a random number below [`RESTORE_NUMBER_SPREAD`].
pub const RESTORE_NUMBER_GAP: u32 = 1 << 16;
/// See [`RESTORE_NUMBER_GAP`].
pub const RESTORE_NUMBER_SPREAD: u32 = 1 << 22;
/// Bytes of the latest changes that a replica keeps for those who watch keys, unless something else is asked for.
pub const WATCH_HISTORY_BYTES: usize = 16 << 20;
/// The least history, unless there is none: the largest event has less than a piece of it.
pub const WATCH_HISTORY_BYTES_MIN: usize = 1 << 20;
/// Clients that watch at a time.
pub const WATCHERS_MAX: usize = 1024;
/// Clients of one holder that watch at a time.
pub const WATCHERS_PER_HOLDER_MAX: usize = 256;
/// Bytes of what all clients watch.
pub const WATCH_BYTES_MAX: usize = 16 << 20;
/// Bytes of what the clients of one holder watch.
pub const WATCH_BYTES_PER_HOLDER_MAX: usize = 4 << 20;
/// Ranges with a start and an end that all clients watch: each event is compared with all of them.
pub const WATCH_RANGES_MAX: usize = 1024;
/// Bytes of answers to watchers that one turn hands out, that of the last answer not counted.
pub const WATCH_BYTES_PER_TURN: usize = 1 << 20;
/// Answers to watchers that one turn hands out: a system call each, and the other members wait meanwhile.
pub const WATCH_ANSWERS_PER_TURN: usize = 32;
/// What a client watches stays for so long behind an answer. The next request mostly comes within a round trip.
pub const WATCH_REST: Duration = Duration::from_secs(1);
/// Events of the past that one turn looks at for clients that have just come.
pub const WATCH_EVENTS_PER_TURN: usize = 4096;
/// Events that are noted for a watcher before it is answered; if there are more, the history is looked through for it.
pub const WATCH_HITS_MAX: usize = 256;
/// Pause before a client asks a replica again that cannot serve its watch now.
pub const WATCH_PAUSE_MS: u32 = 2_000;
/// Bytes that a watch counts beside its keys.
pub const WATCH_CHARGE_BYTES: usize = 128;
/// A watch request without events is answered after so long, with the position up to which nothing has happened.
pub const WATCH_HOLD: Duration = Duration::from_secs(10);
/// A replica that has not applied yet what a watch request begins with says so after this long.
pub const WATCH_BEHIND_MAX: Duration = Duration::from_secs(2);
/// Version of the replicated state machine: the meaning of entries. A replica that knows less refuses to apply.
pub const STATE_MACHINE_VERSION: u16 = 1;

/// From this version of the state on, the session that has been idle longest gives way when there is no room.
pub const VERSION_SESSIONS_GIVE_WAY: u8 = 5;
/// From this version of the state on, a closed session makes room after open ones that have been idle for longer, and
/// never within the entry that closed it.
pub const VERSION_CLOSED_SESSIONS_STAY: u8 = ORDERED_VERSION;
/// A session that was used more recently than this (nanoseconds of group time) gives no way to another.
pub const IDLE_TO_GIVE_WAY_NS: u64 = 1_000_000_000;

const _: () = assert!(ENTRY_COMMANDS_MAX < 1 << 16);
const _: () = assert!(
    SESSION_WINDOW <= 64,
    "a session's window is kept in a 64-bit mask by clients"
);

/// The bounds of the client sessions. Replicated state: it changes answers, so every replica has the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionLimits {
    /// Most sessions, those that are closed but still remembered included.
    pub count_max: u32,
    /// Most bytes of sessions and cached replies; beyond it by one session's window at most, of 64 replies.
    pub reply_bytes_max: u64,
    /// A session that was not used for this long (nanoseconds of group time) may be evicted. When there is no room, a
    /// second without use suffices for the one that has been idle longest.
    pub ttl_ns: u64,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self {
            count_max: 65_536,
            reply_bytes_max: 64 << 20,
            ttl_ns: 60_000_000_000,
        }
    }
}

/// How a leader makes sure that a linearizable read sees everything that was acknowledged before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReadMode {
    /// It asks a quorum whether it still leads, once for all reads that have arrived. Assumes nothing about clocks.
    #[default]
    Index,
    /// A quorum that has confirmed a leadership gives its vote to no other replica for one election timeout. Until
    /// shortly before that the leader answers alone. Assumes that during one election timeout no two replicas'
    /// monotonic clocks drift apart by more than [`ReplicaConfig::lease_drift`].
    Lease,
}

/// How a replica behaves. Everything that changes answers is taken from here only by `--bootstrap`, and travels
/// through the log from then on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicaConfig {
    /// Length of one raft tick.
    pub tick: Duration,
    /// Ticks between two heartbeats of the leader.
    pub heartbeat_ticks: usize,
    /// The least ticks without a leader before a replica campaigns: leases rely on them. It waits for up to half as many more,
    /// and longer where a leader's messages came late before.
    pub election_ticks: usize,
    /// Begin a new group: every named peer has to be reachable and unattached.
    pub bootstrap: bool,
    /// How linearizable reads are confirmed.
    pub reads: ReadMode,
    /// By how much two replicas' clocks may drift apart during one election timeout; a lease ends that much earlier.
    pub lease_drift: Duration,
    /// Pause between two attempts to reach peers while unattached.
    pub attach_retry: Duration,
    /// The store's limits for a new group.
    pub store_limits: Limits,
    /// Whether a new group keeps an ordered index from the beginning.
    pub ordered: bool,
    /// The session limits for a new group.
    pub session_limits: SessionLimits,
    /// The log is compacted when it holds more bytes than this.
    pub log_bytes_max: usize,
    /// The log is compacted when it holds more entries than this.
    pub log_entries_max: usize,
    /// In disk mode a snapshot is written when enough bytes of log were written since the last one. Enough is this
    /// many, or as many as that one had, whichever is more.
    pub disk_log_bytes_max: u64,
    /// Bytes of client commands, reads included, that may wait before clients are told to come back later.
    pub pending_bytes_max: usize,
    /// Client requests, reads included, that may wait for their answer.
    pub pending_requests_max: usize,
    /// Bytes of one append message between replicas. The default fits, with its framing, into a buffer of 64 KiB. As
    /// many buffers as may be in flight to a follower that catches up stay allocated permanently.
    pub append_bytes_max: u64,
    /// Append messages to one follower that may be in flight.
    pub appends_in_flight_max: usize,
    /// Payload bytes of one snapshot chunk.
    pub snapshot_chunk_bytes: usize,
    /// The newest state-machine version that this replica takes part in: that of its release, or an older one, as a
    /// replica of an older release would. A group switches to a version once all of its members understand it.
    pub state_version: u8,
    /// How long all members have to have understood a newer state-machine version before this replica, as the leader, switches
    /// the group to it. None: only an operator switches. `trine serve` waits for a day; here the default is no time.
    pub upgrade_after: Option<Duration>,
    /// Bytes of the latest changes that are kept for those who watch keys; with 0 nobody can watch here.
    pub watch_history_bytes: usize,
    /// Bytes of what was overwritten or deleted that are kept for pins at most. None: 64 MiB, or half of the items' bytes if
    /// that is more. Beyond it this replica gives its oldest pin up, and others give the pages.
    pub retain_bytes: Option<u64>,
    /// How long a graceful stop waits for another replica to take over leadership.
    pub handover_timeout: Duration,
}

impl Default for ReplicaConfig {
    fn default() -> Self {
        Self {
            tick: Duration::from_millis(8),
            heartbeat_ticks: 4,
            election_ticks: 15,
            bootstrap: false,
            reads: ReadMode::Index,
            lease_drift: Duration::from_millis(10),
            attach_retry: Duration::from_millis(50),
            store_limits: Limits::default(),
            ordered: false,
            session_limits: SessionLimits::default(),
            log_bytes_max: 64 << 20,
            log_entries_max: 65_536,
            disk_log_bytes_max: 64 << 20,
            pending_bytes_max: 32 << 20,
            pending_requests_max: 65_536,
            append_bytes_max: 60 << 10,
            appends_in_flight_max: 64,
            snapshot_chunk_bytes: 64 << 10,
            state_version: STATE_VERSION,
            upgrade_after: Some(Duration::ZERO),
            watch_history_bytes: WATCH_HISTORY_BYTES,
            retain_bytes: None,
            handover_timeout: Duration::from_millis(500),
        }
    }
}

/// A setting that cannot work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// raft needs at least one tick between heartbeats, and elections have to be rarer than heartbeats.
    #[error(
        "the election timeout ({election} ticks) has to be longer than the heartbeat interval ({heartbeat} ticks, at least 1)"
    )]
    Ticks {
        /// The configured election ticks.
        election: usize,
        /// The configured heartbeat ticks.
        heartbeat: usize,
    },
    /// A lease would be over before it begins.
    #[error(
        "a lease of one election timeout less a tick less `lease_drift` has no length: lower the drift or raise the timeout"
    )]
    Lease,
    /// A limit is too small for a single command to pass.
    #[error("`{what}` is too small: at least {least}")]
    TooSmall {
        /// The setting.
        what: &'static str,
        /// Its least value.
        least: usize,
    },
    /// The list of peers names a node id twice, names this replica with another address, or lacks it.
    #[error(
        "the peer list has to name each node id once, at most {NODES_MAX}, node {node_id} among them with this replica's own address"
    )]
    Peers {
        /// This replica's node id.
        node_id: u32,
    },
    /// No release has such a state machine.
    #[error(
        "`state_version` {version}: this release understands {STATE_VERSION_FIRST} to {STATE_VERSION}"
    )]
    StateVersion {
        /// The requested settings.
        version: u8,
    },
    /// A group of this version cannot have an ordered index.
    #[error(
        "`ordered` needs `state_version` {ORDERED_VERSION} or a later one, and it is set to {version}"
    )]
    Ordered {
        /// The requested version.
        version: u8,
    },
    /// raft ids are never zero.
    #[error("the incarnation must not be zero")]
    Incarnation,
}

impl ReplicaConfig {
    /// Checks the settings against each other.
    ///
    /// # Errors
    /// Names the setting that cannot work.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.heartbeat_ticks == 0 || self.election_ticks <= self.heartbeat_ticks {
            return Err(ConfigError::Ticks {
                election: self.election_ticks,
                heartbeat: self.heartbeat_ticks,
            });
        }
        let without_a_vote = self.tick.as_nanos() * (self.election_ticks as u64 - 1);
        if self.reads == ReadMode::Lease && self.lease_drift.as_nanos() >= without_a_vote {
            return Err(ConfigError::Lease);
        }
        if !(STATE_VERSION_FIRST..=STATE_VERSION).contains(&self.state_version) {
            let version = self.state_version;
            return Err(ConfigError::StateVersion { version });
        }
        if self.ordered && self.state_version < ORDERED_VERSION {
            let version = self.state_version;
            return Err(ConfigError::Ordered { version });
        }
        let floors = [
            ("tick", self.tick.as_nanos() as usize, 100_000),
            ("log_bytes_max", self.log_bytes_max, 64 << 10),
            ("log_entries_max", self.log_entries_max, 16),
            ("pending_bytes_max", self.pending_bytes_max, ENTRY_BYTES_MAX),
            ("pending_requests_max", self.pending_requests_max, 1),
            ("append_bytes_max", self.append_bytes_max as usize, 1024),
            ("appends_in_flight_max", self.appends_in_flight_max, 1),
            ("snapshot_chunk_bytes", self.snapshot_chunk_bytes, 1024),
        ];
        for (what, value, least) in floors {
            if value < least {
                return Err(ConfigError::TooSmall { what, least });
            }
        }
        Ok(())
    }
}
