//! The status of a replica, for people and tools.

use std::net::SocketAddr;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

use crate::stages::WriteStages;

/// When a write counts as durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fsync {
    /// Each write is synced by itself.
    Each,
    /// One sync for everything that has arrived during the last one.
    #[default]
    Batch,
    /// Nothing is synced before an orderly stop. After any other end the memory counts as lost.
    None,
}

/// When a write counts as durable, as a replica says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FsyncStatus {
    /// See [`Fsync::Each`].
    Each,
    /// See [`Fsync::Batch`].
    Batch,
    /// See [`Fsync::None`].
    None,
    /// A mode of a later release.
    #[serde(other)]
    Unknown,
}

impl From<Fsync> for FsyncStatus {
    fn from(fsync: Fsync) -> Self {
        match fsync {
            Fsync::Each => Self::Each,
            Fsync::Batch => Self::Batch,
            Fsync::None => Self::None,
        }
    }
}

/// The present role of a replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Belongs to no group yet.
    Unattached,
    /// Asks its peers to accept it, or receives the state.
    Joining,
    /// Receives the log without a vote.
    Learner,
    /// Follows a leader, or waits for one.
    Follower,
    /// Asks for votes.
    Candidate,
    /// Leads.
    Leader,
    /// A role of a later release.
    #[serde(other)]
    Unknown,
}

/// One member, as the answering replica knows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Its node id.
    #[serde(rename = "replica", alias = "node_id", alias = "place")]
    pub node_id: u32,
    /// Its present incarnation, in hexadecimal.
    pub incarnation: String,
    /// The replica's address.
    pub address: SocketAddr,
    /// Whether its vote counts.
    pub voter: bool,
    /// Whether this is the answering replica itself.
    pub this: bool,
    /// Only from a leader: how far its log is known to agree.
    pub matched: Option<u64>,
    /// Only from a leader: the number of entries that it lacks.
    #[serde(alias = "behind")]
    pub lag: Option<u64>,
    /// Only from a leader: whether it is being sent a snapshot.
    pub in_snapshot: Option<bool>,
    /// The newest state-machine version that it understands, if it has said so to the answering replica.
    #[serde(default)]
    pub state_version: Option<u8>,
    /// Nanoseconds since it was last heard from; nothing if never in this incarnation.
    pub silent_ns: Option<u64>,
    /// Where it answers beside `address`: one of the two runs on a copy of its directory. The answering replica refuses what
    /// comes from this one.
    #[serde(default)]
    pub also_at: Option<SocketAddr>,
}

/// How large the log is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct LogStatus {
    /// Index of the first entry that is still held.
    pub first_index: u64,
    /// Index of the last entry.
    pub last_index: u64,
    /// Entries held.
    pub entries: u64,
    /// Bytes held.
    pub bytes: u64,
    /// Times that it was compacted.
    pub compactions: u64,
    /// When a write counts as durable; nothing in memory mode.
    #[serde(default)]
    pub fsync: Option<FsyncStatus>,
    /// How long the oldest write that is not durable yet has been under way; 0 if all are, and in memory mode.
    #[serde(default)]
    pub oldest_write_ns: u64,
}

impl LogStatus {
    /// How long a write may be under way before its disk counts as hanging.
    const WRITE_NS_MAX: u64 = 2_000_000_000;

    /// Why the replica's disk cannot be counted on, in a sentence; nothing if its writes come through.
    #[must_use]
    pub fn hang(&self) -> Option<String> {
        let seconds = self.oldest_write_ns / 1_000_000_000;
        let hangs = self.oldest_write_ns > Self::WRITE_NS_MAX;
        hangs.then(|| format!("its disk hangs: a write has been under way for {seconds} s"))
    }
}

/// The client sessions.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct SessionStatus {
    /// Open sessions.
    pub open: u64,
    /// Closed sessions that are still remembered.
    pub closed: u64,
    /// Bytes of cached replies.
    pub reply_bytes: u64,
    /// Idle sessions that were evicted.
    pub evicted: u64,
    /// Those of them that had to give way before the end of their time to live.
    #[serde(default)]
    pub gave_way: u64,
    /// Registrations that were refused because every session was in use.
    pub refused: u64,
    /// Commands that were answered from a cached reply instead of being applied again.
    pub duplicates: u64,
    /// Commands that were refused because their sequence was used for another one.
    #[serde(default)]
    pub sequences_used: u64,
}

/// Whether the group keeps an ordered index.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OrderedStatus {
    /// No.
    #[default]
    Off,
    /// It is being built.
    Building {
        /// How many parts of a thousand are done.
        permille: u64,
    },
    /// Yes.
    On,
    /// What only a later release can say.
    Unknown,
}

/// A later release may say it with another word, or with other fields.
fn ordered_or_unknown<'de, D: Deserializer<'de>>(from: D) -> Result<OrderedStatus, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Read {
        Known(OrderedStatus),
        Other(IgnoredAny),
    }
    Ok(match Read::deserialize(from)? {
        Read::Known(status) => status,
        Read::Other(IgnoredAny) => OrderedStatus::Unknown,
    })
}

/// The store.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct StoreStatus {
    /// Keys held.
    #[serde(rename = "keys", alias = "items")]
    pub items: u64,
    /// Items among them that will expire.
    #[serde(default)]
    pub expiring: u64,
    /// Logical bytes held.
    pub logical_bytes: u64,
    /// The limit on logical bytes.
    pub memory_bytes: u64,
    /// A hash of everything in it: equal on all replicas at equal applied indexes.
    #[serde(default)]
    pub hash: [u64; 2],
    /// Whether there is an ordered index.
    #[serde(default, deserialize_with = "ordered_or_unknown")]
    pub ordered: OrderedStatus,
    /// Bytes of memory that it takes here.
    #[serde(default)]
    pub ordered_bytes: u64,
    /// Positions that are pinned for scans.
    #[serde(default)]
    pub pins: u64,
    /// Bytes of what this replica has kept for them.
    #[serde(default)]
    pub pinned_bytes: u64,
}

/// About how much, for callers who must not see what others do: the next power of two, and 1,024 at least.
#[must_use]
pub fn coarse(count: u64) -> u64 {
    count
        .max(1024)
        .checked_next_power_of_two()
        .unwrap_or(u64::MAX)
}

impl SessionStatus {
    fn leave_others_out(&mut self) {
        *self = Self {
            open: coarse(self.open),
            closed: coarse(self.closed),
            reply_bytes: coarse(self.reply_bytes),
            ..Self::default()
        };
    }
}

impl StoreStatus {
    /// What a caller may see who has a part of the keys: about how full the store is, and nothing that shows changes of
    /// others.
    #[must_use]
    pub fn without_others(&self) -> Self {
        let logical_bytes = coarse(self.logical_bytes);
        Self {
            items: coarse(self.items),
            expiring: coarse(self.expiring),
            logical_bytes: logical_bytes.min(self.memory_bytes),
            hash: [0; 2],
            ordered_bytes: coarse(self.ordered_bytes),
            pins: coarse(self.pins),
            pinned_bytes: coarse(self.pinned_bytes),
            ..*self
        }
    }
}

/// Counters since the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Counters {
    /// Writes proposed.
    pub writes_proposed: u64,
    /// Entries that carried them.
    pub entries_proposed: u64,
    /// Entries proposed only to move group time.
    #[serde(default)]
    pub ticks_proposed: u64,
    /// Commands applied.
    pub commands_applied: u64,
    /// Linearizable reads answered under a lease; counted among all of them, too.
    #[serde(default)]
    pub reads_under_lease: u64,
    /// Linearizable reads answered.
    pub reads_linearizable: u64,
    /// Linearizable reads answered while another replica led; counted among all of them, too.
    #[serde(default)]
    pub reads_following: u64,
    /// Stale reads answered.
    pub reads_stale: u64,
    /// Index rounds asked for.
    pub read_rounds: u64,
    /// Requests that were told to come back later.
    pub busy: u64,
    /// Scans among them that came too soon after others, while there were writes.
    #[serde(default)]
    pub scans_deferred: u64,
    /// Requests that were sent to another replica.
    pub redirected: u64,
    /// Registrations that were refused because the caller's address had its share of the sessions.
    #[serde(default)]
    pub registrations_refused: u64,
    /// Writes that were refused because their user held its share of the kept answers.
    #[serde(default)]
    pub reply_share_refused: u64,
    /// Requests of clients that had no right to what they asked for.
    #[serde(default)]
    pub denied: u64,
    /// Messages that made no sense and were dropped.
    pub messages_refused: u64,
    /// Messages for another cluster or another incarnation, dropped.
    pub messages_foreign: u64,
    /// Messages between replicas from an address that belongs to no known replica, dropped.
    #[serde(default, alias = "messages_of_strangers")]
    pub messages_unknown_address: u64,
    /// Messages that could not be sent: no buffer, no address, or too many outstanding.
    pub messages_unsent: u64,
    /// Appends that were not sent because the allowed number was under way to that member.
    #[serde(default)]
    pub appends_withheld: u64,
    /// Times that this replica became leader.
    pub elections_won: u64,
    /// Times that this replica campaigned at once, because it was told that the leader's process had ended.
    #[serde(default)]
    pub leader_deaths: u64,
    /// Times that this replica told another one to lead because its own disk hung.
    #[serde(default)]
    pub disk_handovers: u64,
    /// Notices of the end of a process that no leader of late was: forged, or very late.
    #[serde(default)]
    pub death_notices_unknown: u64,
    /// Notices that the leader's process has ended, within two election timeouts after the last one that this replica
    /// campaigned for. Nothing was done.
    #[serde(default)]
    pub death_notices_early: u64,
    /// Snapshots sent completely.
    pub snapshots_sent: u64,
    /// Snapshots installed.
    pub snapshots_installed: u64,
    /// Snapshots of the own state that were written to disk.
    #[serde(default)]
    pub snapshots_written: u64,
    /// Snapshot transfers that failed.
    pub snapshots_failed: u64,
    /// Images that were begun for backups.
    #[serde(default)]
    pub backups_begun: u64,
    /// Those of them that were read to their end.
    #[serde(default)]
    pub backups_read: u64,
    /// Watch requests that were answered with events, or with the news that there are none.
    #[serde(default)]
    pub watch_answers: u64,
    /// Events in those answers.
    #[serde(default)]
    pub watch_events: u64,
    /// Watch requests that asked for events which the history has forgotten.
    #[serde(default)]
    pub watches_compacted: u64,
}

/// Who watches keys at the answering replica.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct WatchStatus {
    /// Clients whose request waits for events.
    pub watchers: u64,
    /// Keys, prefixes and ranges that they watch.
    pub watches: u64,
    /// Bytes that the history of changes has from the system.
    pub history_bytes: u64,
    /// The position behind which all changes are in the history.
    pub oldest: u64,
}

/// An image of the answering replica's state that a backup reads.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct BackupStatus {
    /// The last entry that it holds.
    pub index: u64,
    /// Bytes of it that were handed out.
    pub bytes: u64,
    /// Logical bytes of its keys and values.
    pub bytes_total: u64,
}

/// A snapshot on its way to the answering replica.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct ReceivingStatus {
    /// Logical bytes of the keys and values that are here.
    pub bytes: u64,
    /// Logical bytes of all of them.
    pub bytes_total: u64,
}

impl ReceivingStatus {
    /// The share that is here.
    #[must_use]
    pub fn percent(&self) -> u64 {
        percent(self.bytes, self.bytes_total)
    }
}

impl BackupStatus {
    /// The share that was handed out.
    #[must_use]
    pub fn percent(&self) -> u64 {
        percent(self.bytes, self.bytes_total)
    }
}

fn percent(part: u64, whole: u64) -> u64 {
    let share = u128::from(part) * 100 / u128::from(whole.max(1));
    u64::try_from(share.min(100)).expect("at most 100")
}

/// The lease under which a leader answers reads by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LeaseStatus {
    /// The rest of the lease, in nanoseconds; none while there is no lease.
    pub left_ns: Option<u64>,
    /// How long it lasts from the beginning of the round that confirms it.
    pub length_ns: u64,
    /// The assumption of the lease: during one election timeout two replicas' clocks drift apart by at most this.
    pub drift_ns: u64,
}

/// Everything that `trine status` shows of one replica.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Its node id.
    #[serde(rename = "replica", alias = "node_id", alias = "place")]
    pub node_id: u32,
    /// Its present incarnation, in hexadecimal.
    pub incarnation: String,
    /// Its cluster, in hexadecimal; nothing while it belongs to none.
    pub cluster: Option<String>,
    /// The replica's address.
    pub address: SocketAddr,
    /// Its present role.
    pub role: Role,
    /// Why it does not serve clients, in a sentence; nothing if it does, or knows the leader.
    pub not_serving: Option<String>,
    /// How much of the group's state has arrived, while its leader sends it.
    #[serde(default)]
    pub receiving: Option<ReceivingStatus>,
    /// The image of its state that a backup reads.
    #[serde(default)]
    pub backup: Option<BackupStatus>,
    /// Who watches keys here; nothing if nobody can.
    #[serde(default)]
    pub watch: Option<WatchStatus>,
    /// Its term.
    pub term: u64,
    /// Where the leader is, as far as it knows.
    #[serde(rename = "leader_address")]
    pub leader: Option<SocketAddr>,
    /// The silence of a leader after which it campaigns, at the earliest: the election timeout, or more if the leader's
    /// messages had long gaps lately. 0 from a leader, a replica without a vote, or an earlier release.
    #[serde(default)]
    pub patience_ns: u64,
    /// Whether this replica would be told if the leader's process ended: it has the secret of that run.
    #[serde(default)]
    pub awaits_death_notice: bool,
    /// The commit index.
    pub committed: u64,
    /// The applied index.
    pub applied: u64,
    /// Group time in nanoseconds.
    pub group_time_ns: u64,
    /// The lease, where reads use one.
    #[serde(default)]
    pub lease: Option<LeaseStatus>,
    /// The state-machine version that the group has switched to; zero while that is not known.
    #[serde(default)]
    pub state_version: u8,
    /// The switch to a newer state-machine version; only from the leader.
    #[serde(default)]
    pub upgrade: Option<UpgradeStatus>,
    /// Every member.
    pub members: Vec<MemberStatus>,
    /// Whether a change of the membership is under way.
    pub change_in_progress: bool,
    /// The log.
    pub log: LogStatus,
    /// The client sessions.
    pub sessions: SessionStatus,
    /// The store.
    pub store: StoreStatus,
    /// Counters since the start.
    pub counters: Counters,
    /// The time of the writes that this replica has led, by stage, of a sample.
    #[serde(default)]
    pub stages: WriteStages,
}

/// What a leader knows about the next switch of the state-machine version.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UpgradeStatus {
    /// The newest version that some member understands.
    pub newest: u8,
    /// The newest version that all members understand, as far as they have said; 0 while one has said nothing.
    pub understood_by_all: u8,
    /// Node ids of the members that do not understand `newest`, or have not said so to this leader.
    pub lacking: Vec<u32>,
    /// Node ids of the members that are silent.
    pub silent: Vec<u32>,
    /// Nanoseconds until this leader switches by itself. Nothing while it waits for a member, has nothing to switch to, or
    /// leaves it to an operator.
    pub left_ns: Option<u64>,
    /// Whether only an operator switches.
    pub by_hand: bool,
}

impl Status {
    /// Leaves out what other callers have and do, for one who may touch the keys of a prefix alone. Indexes of the log stay:
    /// each answer to a write has one.
    pub fn leave_others_out(&mut self) {
        self.store = self.store.without_others();
        self.sessions.leave_others_out();
        self.log.bytes = coarse(self.log.bytes);
        self.counters = Counters::default();
        self.stages = WriteStages::default();
        (self.backup, self.receiving, self.watch) = (None, None, None);
    }

    /// Why nobody should count on this replica, in a sentence; nothing if it serves and its disk works.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        self.not_serving.clone().or_else(|| self.log.hang())
    }

    /// Which members answer at a second address, a sentence each.
    pub fn copies(&self) -> impl Iterator<Item = String> {
        let twice = self.members.iter();
        let twice = twice.filter_map(|member| Some((member, member.also_at?)));
        twice.map(|(member, other)| {
            let MemberStatus {
                node_id, address, ..
            } = member;
            format!(
                "node {node_id} answers at {address} and at {other}: one of them runs on a copy of its directory, end that one"
            )
        })
    }
}
