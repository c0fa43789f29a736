//! The metrics, and their values in a snapshot. This file and `families/` alone hold the name, the
//! help and the value of each.

mod process;
mod redis;
mod sessions;

use trine_protocol::node_status::{KeysStatus, LinkStatus};
use trine_protocol::program::Program;
use trine_protocol::status::{FsyncStatus, MemberStatus, OrderedStatus, Role};
use trine_transport::CongestionControl;

use super::Snapshot;
use super::room::Room;

pub(super) use self::process::process;

/// Label names and values of one sample.
pub(super) type Labels = Vec<(&'static str, String)>;

/// A metric with all of its samples.
#[derive(Debug)]
pub(super) struct Family {
    /// Without its prefix, which is `trine_` for all but those of the process; counters get the suffix `_total`.
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) kind: MetricKind,
    pub(super) samples: Vec<(Labels, f64)>,
}

/// How a metric's value changes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum MetricKind {
    /// It only grows while the process lives.
    Counter,
    /// It goes up and down.
    Gauge,
}

fn gauge(name: &'static str, help: &'static str, value: impl Number) -> Family {
    one(name, help, MetricKind::Gauge, value)
}

fn counter(name: &'static str, help: &'static str, value: impl Number) -> Family {
    one(name, help, MetricKind::Counter, value)
}

fn one(name: &'static str, help: &'static str, kind: MetricKind, value: impl Number) -> Family {
    let samples = vec![(Labels::new(), value.number())];
    Family {
        name,
        help,
        kind,
        samples,
    }
}

/// A type that can be a sample's value.
trait Number {
    fn number(self) -> f64;
}

impl Number for u64 {
    fn number(self) -> f64 {
        self as f64
    }
}

impl Number for f64 {
    fn number(self) -> f64 {
        self
    }
}

impl Number for bool {
    fn number(self) -> f64 {
        f64::from(u8::from(self))
    }
}

/// Every metric of the replica.
pub(super) fn families(snapshot: &Snapshot) -> Vec<Family> {
    let mut all = raft(snapshot);
    all.extend(receiving(snapshot));
    all.extend(backup(snapshot));
    all.extend(watch(snapshot));
    all.extend(members(&snapshot.status.replica.members));
    all.extend(store(snapshot));
    all.extend(sessions::of(&snapshot.status.replica.sessions));
    all.extend(counters(snapshot));
    all.extend(transport(snapshot));
    all.extend(links(&snapshot.status.links));
    all.extend(snapshot.status.keys.iter().flat_map(keys));
    all.extend(machine(snapshot));
    all.extend(snapshot.resp.iter().flat_map(redis::clients));
    all.extend(snapshot.resp.iter().flat_map(redis::listeners));
    all
}

/// Metrics of the server itself; they exist before the replica's first turn, too.
pub(super) fn server(dropped_lines: Option<u64>) -> Vec<Family> {
    let program = Program::this();
    let labels = vec![
        ("version", program.release.to_string()),
        ("commit", program.commit),
        ("state_version", program.state_version.to_string()),
        ("message_version", program.message_version.to_string()),
    ];
    let info = Family {
        name: "build_info",
        help: "Always 1; the labels say which release runs, from which commit, and which versions it understands.",
        kind: MetricKind::Gauge,
        samples: vec![(labels, 1.0)],
    };
    let mut all = vec![info];
    if let Some(dropped) = dropped_lines {
        let help = "Lines of the log that were dropped because nobody took them, or that could not be written.";
        all.push(counter("log_lines_dropped", help, dropped));
    }
    all
}

/// The room for the data directory.
pub(super) fn room(room: &Room) -> [Family; 2] {
    let free = "Bytes that the replica may still take on the file system of its data directory.";
    let size = "Size of that file system.";
    [
        gauge("data_directory_free_bytes", free, room.free),
        gauge("data_directory_size_bytes", size, room.size),
    ]
}

/// 1 for the present way of keeping the log, 0 for the others.
fn log_fsync(fsync: Option<FsyncStatus>) -> Family {
    let ways = [
        (None, "memory"),
        (Some(FsyncStatus::Each), "each"),
        (Some(FsyncStatus::Batch), "batch"),
        (Some(FsyncStatus::None), "none"),
    ];
    let samples = ways.map(|(way, name)| {
        let labels = vec![("fsync", name.to_owned())];
        (labels, (fsync == way).number())
    });
    Family {
        name: "log_fsync",
        help: "1 for the way in which the log is kept: memory, or on disk by its fsync mode.",
        kind: MetricKind::Gauge,
        samples: samples.into(),
    }
}

/// The progress of a state transfer to a replica that has no state, or too old a one.
fn receiving(snapshot: &Snapshot) -> [Family; 2] {
    let state = snapshot.status.replica.receiving.unwrap_or_default();
    [
        gauge(
            "snapshot_receiving_bytes",
            "Bytes of keys and values that are here of the snapshot that is being received; 0 while there is none.",
            state.bytes,
        ),
        gauge(
            "snapshot_receiving_total_bytes",
            "Bytes of keys and values of the whole snapshot that is being received; 0 while there is none.",
            state.bytes_total,
        ),
    ]
}

/// Who watches keys here.
fn watch(snapshot: &Snapshot) -> [Family; 3] {
    let watch = snapshot.status.replica.watch.unwrap_or_default();
    [
        gauge(
            "watchers",
            "Clients whose watch request waits here for events.",
            watch.watchers,
        ),
        gauge(
            "watches",
            "Keys, prefixes and ranges that they watch.",
            watch.watches,
        ),
        gauge(
            "watch_history_bytes",
            "Bytes that the history of changes has from the system; 0 if there is none.",
            watch.history_bytes,
        ),
    ]
}

/// How far a backup has read this replica's image.
fn backup(snapshot: &Snapshot) -> [Family; 2] {
    let image = snapshot.status.replica.backup.unwrap_or_default();
    [
        gauge(
            "backup_read_bytes",
            "Bytes that a backup has read of an image of this replica; 0 while there is none.",
            image.bytes,
        ),
        gauge(
            "backup_total_bytes",
            "Bytes of keys and values of that image; 0 while there is none.",
            image.bytes_total,
        ),
    ]
}

// Long because it is a table, a metric an entry.
fn raft(snapshot: &Snapshot) -> Vec<Family> {
    let status = &snapshot.status.replica;
    let roles = [
        (Role::Unattached, "unattached"),
        (Role::Joining, "joining"),
        (Role::Learner, "learner"),
        (Role::Follower, "follower"),
        (Role::Candidate, "candidate"),
        (Role::Leader, "leader"),
    ];
    let samples = roles.map(|(role, name)| {
        (
            vec![("role", name.to_owned())],
            (status.role == role).number(),
        )
    });
    let role = Family {
        name: "raft_role",
        help: "1 for the role that the replica has, 0 for the others.",
        kind: MetricKind::Gauge,
        samples: samples.into(),
    };
    let lag = status.committed.saturating_sub(status.applied);
    vec![
        role,
        gauge(
            "node_id",
            "The node id of the replica.",
            u64::from(status.node_id),
        ),
        gauge("raft_term", "The term.", status.term),
        gauge(
            "raft_has_leader",
            "1 while a leader is known.",
            status.leader.is_some(),
        ),
        gauge(
            "raft_patience_seconds",
            "The leader's silence after which the replica campaigns, at the earliest; 0 at a leader and without a vote. More than the election \
             timeout if the leader's messages had long gaps lately.",
            seconds(status.patience_ns),
        ),
        gauge(
            "raft_awaits_death_notice",
            "1 while the replica would be told at once if the leader's process ended.",
            status.awaits_death_notice,
        ),
        gauge(
            "raft_committed_index",
            "The commit index.",
            status.committed,
        ),
        gauge("raft_applied_index", "The applied index.", status.applied),
        gauge(
            "raft_apply_lag_entries",
            "Entries that are committed and not applied.",
            lag,
        ),
        gauge(
            "serving",
            "1 while nothing keeps the replica from serving.",
            status.not_serving.is_none(),
        ),
        gauge(
            "membership_change_in_progress",
            "1 while the membership changes.",
            status.change_in_progress,
        ),
        gauge(
            "log_first_index",
            "Index of the first entry that is still held.",
            status.log.first_index,
        ),
        gauge(
            "log_last_index",
            "Index of the last entry.",
            status.log.last_index,
        ),
        gauge("log_entries", "Entries held.", status.log.entries),
        gauge("log_bytes", "Bytes held in the log.", status.log.bytes),
        log_fsync(status.log.fsync),
        gauge(
            "disk_oldest_write_seconds",
            "How long the oldest write that is not durable yet has been under way; 0 in memory mode.",
            seconds(status.log.oldest_write_ns),
        ),
        counter(
            "log_compactions",
            "Times that the log was compacted.",
            status.log.compactions,
        ),
        gauge(
            "group_time_seconds",
            "Group time, which expiry goes by.",
            seconds(status.group_time_ns),
        ),
    ]
}

/// The known facts about each member; only the leader knows lag and snapshots.
fn members(members: &[MemberStatus]) -> Vec<Family> {
    let each = |name, help, value: fn(&MemberStatus) -> Option<f64>| Family {
        name,
        help,
        kind: MetricKind::Gauge,
        samples: members
            .iter()
            .filter_map(|member| {
                let labels = vec![
                    ("node_id", member.node_id.to_string()),
                    ("address", member.address.to_string()),
                ];
                value(member).map(|value| (labels, value))
            })
            .collect(),
    };
    vec![
        each("member_voter", "1 if the member has a vote.", |member| {
            Some(member.voter.number())
        }),
        each(
            "member_lag_entries",
            "Entries that the member lacks, as the leader knows.",
            |member| member.lag.map(u64::number),
        ),
        each(
            "member_in_snapshot",
            "1 while the leader sends the member a snapshot.",
            |member| member.in_snapshot.map(bool::number),
        ),
        each(
            "member_silent_seconds",
            "Time since the member was last heard from.",
            |member| member.silent_ns.map(seconds),
        ),
        each(
            "member_at_two_addresses",
            "1 while the member answers at another address, too: one of them runs on a copy of its directory.",
            |member| (!member.this).then(|| member.also_at.is_some().number()),
        ),
    ]
}

fn store(snapshot: &Snapshot) -> Vec<Family> {
    let store = &snapshot.status.replica.store;
    vec![
        gauge("store_items", "Items in the store.", store.items),
        gauge(
            "store_bytes",
            "Logical bytes in the store.",
            store.logical_bytes,
        ),
        gauge(
            "store_limit_bytes",
            "The limit on logical bytes.",
            store.memory_bytes,
        ),
        gauge(
            "store_ordered",
            "1 while the group keeps an ordered index that is whole.",
            store.ordered == OrderedStatus::On,
        ),
        gauge(
            "store_ordered_bytes",
            "Memory of the ordered index.",
            store.ordered_bytes,
        ),
        gauge(
            "store_pins",
            "Positions that are pinned for scans.",
            store.pins,
        ),
        gauge(
            "store_pinned_bytes",
            "Memory of what was overwritten or removed, and is kept for pins.",
            store.pinned_bytes,
        ),
    ]
}

// Long because it is a table, a metric an entry.
fn counters(snapshot: &Snapshot) -> Vec<Family> {
    let (count, node) = (&snapshot.status.replica.counters, &snapshot.node);
    vec![
        counter("writes_proposed", "Writes proposed.", count.writes_proposed),
        counter(
            "entries_proposed",
            "Entries that carried them.",
            count.entries_proposed,
        ),
        counter(
            "ticks_proposed",
            "Entries proposed for nothing but the time.",
            count.ticks_proposed,
        ),
        counter(
            "commands_applied",
            "Commands applied.",
            count.commands_applied,
        ),
        counter(
            "reads_linearizable",
            "Linearizable reads answered.",
            count.reads_linearizable,
        ),
        counter(
            "reads_following",
            "Those of them that were answered while another replica led.",
            count.reads_following,
        ),
        counter(
            "snapshots_written",
            "Snapshots of the own state that were written to disk.",
            count.snapshots_written,
        ),
        counter(
            "backups_begun",
            "Images of the own state that were begun for backups.",
            count.backups_begun,
        ),
        counter(
            "backups_read",
            "Those of them that were read to their end.",
            count.backups_read,
        ),
        counter(
            "watch_answers",
            "Watch requests that were answered with events, or with the news that there are none.",
            count.watch_answers,
        ),
        counter(
            "watch_events",
            "Events in those answers.",
            count.watch_events,
        ),
        counter(
            "watches_compacted",
            "Watch requests that asked for events which the history has forgotten.",
            count.watches_compacted,
        ),
        counter(
            "reads_under_lease",
            "Those of them that a lease answered.",
            count.reads_under_lease,
        ),
        counter("reads_stale", "Stale reads answered.", count.reads_stale),
        counter("read_rounds", "Index rounds asked for.", count.read_rounds),
        counter(
            "requests_told_busy",
            "Requests that were told to come back later.",
            count.busy,
        ),
        counter(
            "scans_deferred",
            "Scans among them that came too soon after others, while there were writes.",
            count.scans_deferred,
        ),
        counter(
            "requests_denied",
            "Client requests whose sender has no right to what it asks for.",
            count.denied,
        ),
        counter(
            "requests_redirected",
            "Requests that were sent to another replica.",
            count.redirected,
        ),
        counter(
            "registrations_refused",
            "Registrations refused because the caller's address had its share of the sessions.",
            count.registrations_refused,
        ),
        counter(
            "writes_beyond_share",
            "Writes refused because their user held its share of the answers that are kept for clients.",
            count.reply_share_refused,
        ),
        counter(
            "requests_overloaded",
            "Requests turned away because too many wait.",
            node.overloaded,
        ),
        counter(
            "requests_unreadable",
            "Requests that made no sense.",
            node.unreadable + node.unknown_kind,
        ),
        counter(
            "messages_refused",
            "Messages that made no sense and were dropped.",
            count.messages_refused,
        ),
        counter(
            "messages_foreign",
            "Messages for another cluster or incarnation, dropped.",
            count.messages_foreign,
        ),
        counter(
            "messages_unknown_address",
            "Messages between replicas from an address at which no replica is known, dropped.",
            count.messages_unknown_address,
        ),
        counter(
            "messages_unsent",
            "Messages that could not be sent.",
            count.messages_unsent,
        ),
        counter(
            "appends_withheld",
            "Appends that were not sent because as many were under way to that member as may be.",
            count.appends_withheld,
        ),
        counter(
            "elections_won",
            "Times that the replica became leader.",
            count.elections_won,
        ),
        counter(
            "leader_deaths",
            "Times that the replica campaigned at once because the leader's process had ended.",
            count.leader_deaths,
        ),
        counter(
            "disk_handovers",
            "Times that the replica told another one to lead because its own disk hung.",
            count.disk_handovers,
        ),
        counter(
            "death_notices_unknown",
            "Notices of the end of a process that no leader of late was: forged, or very late.",
            count.death_notices_unknown,
        ),
        counter(
            "death_notices_early",
            "Notices of the end of the leader's process, too soon after the last one that the replica campaigned for.",
            count.death_notices_early,
        ),
        counter(
            "snapshots_sent",
            "Snapshots sent completely.",
            count.snapshots_sent,
        ),
        counter(
            "snapshots_installed",
            "Snapshots installed.",
            count.snapshots_installed,
        ),
        counter(
            "snapshots_failed",
            "Snapshot transfers that failed.",
            count.snapshots_failed,
        ),
    ]
}

// Long because it is a table, a metric an entry.
fn transport(snapshot: &Snapshot) -> Vec<Family> {
    let stats = &snapshot.endpoint;
    let drops = Family {
        name: "transport_drops",
        help: "Received packets that were dropped, by cause.",
        kind: MetricKind::Counter,
        samples: stats
            .drops
            .named()
            .map(|(cause, count)| (vec![("cause", cause.to_owned())], count.number()))
            .into(),
    };
    let congestion = Family {
        name: "transport_congestion_control",
        help: "1 for the congestion control that this node uses, 0 for the others.",
        kind: MetricKind::Gauge,
        samples: CongestionControl::ALL
            .iter()
            .map(|control| {
                let labels = vec![("control", control.name().to_owned())];
                (labels, (stats.congestion == *control).number())
            })
            .collect(),
    };
    vec![
        congestion,
        gauge(
            "transport_sessions_client",
            "Sessions that this node opened.",
            stats.sessions_client,
        ),
        gauge(
            "transport_sessions_server",
            "Sessions that peers and clients opened.",
            stats.sessions_server,
        ),
        counter(
            "transport_sessions_gave_way",
            "Sessions that ended for want of room, because their address had most of them.",
            stats.sessions_gave_way,
        ),
        gauge(
            "transport_request_bytes",
            "Memory of requests of several packets that are being received.",
            stats.request_bytes_held,
        ),
        gauge(
            "transport_response_bytes",
            "Memory of responses of several packets that clients have not fetched.",
            stats.response_bytes_held,
        ),
        counter(
            "transport_black_holes",
            "Sessions of this process that ended because packets of their size vanished on the path.",
            stats.black_holes,
        ),
        counter(
            "transport_requests_gave_way",
            "Requests that were given up half received, because their address held most of the memory.",
            stats.requests_gave_way,
        ),
        counter(
            "transport_requests_abandoned",
            "Requests that were given up half received, because their client did not go on.",
            stats.requests_abandoned,
        ),
        counter(
            "transport_responses_gave_way",
            "Responses that were released unfetched, because their address held most of the memory.",
            stats.responses_gave_way,
        ),
        gauge(
            "transport_buffer_bytes_given_back",
            "Those of the buffers' memory that went back to the system after a burst.",
            snapshot.status.transport.buffer_bytes_given_back,
        ),
        gauge(
            "transport_buffer_bytes",
            "Memory that message buffers have taken, as much as they ever needed at a time, also what was given back.",
            snapshot.status.transport.buffer_bytes,
        ),
        gauge(
            "transport_requests_pending",
            "Requests in flight or queued.",
            stats.requests_pending,
        ),
        counter(
            "transport_requests_completed",
            "Own requests that were answered.",
            stats.requests_completed,
        ),
        counter(
            "transport_requests_failed",
            "Own requests that ended with an error.",
            stats.requests_failed,
        ),
        counter(
            "transport_requests_executed",
            "Requests of others that were executed.",
            stats.requests_executed,
        ),
        counter(
            "transport_requests_expired",
            "Requests that had expired before they could run.",
            stats.requests_expired,
        ),
        counter(
            "transport_packets_sent",
            "Packets sent.",
            stats.packets_sent,
        ),
        counter(
            "transport_packets_received",
            "Packets received.",
            stats.packets_received,
        ),
        counter(
            "transport_retransmissions",
            "Packets retransmitted.",
            stats.retransmissions,
        ),
        counter(
            "transport_timeouts",
            "Rollbacks after a timeout.",
            stats.timeouts,
        ),
        counter(
            "transport_gaps",
            "Rollbacks after a gap in the peer's answers.",
            stats.gaps,
        ),
        counter(
            "transport_credit_stalls",
            "Times that a session had something to send but no credit.",
            stats.credit_stalls,
        ),
        counter("transport_busy_sent", "BUSY packets sent.", stats.busy_sent),
        counter(
            "transport_busy_received",
            "BUSY packets received.",
            stats.busy_received,
        ),
        counter(
            "transport_probes_sent",
            "Slow probes of executing requests.",
            stats.probes_sent,
        ),
        drops,
    ]
}

/// Which callers are taken, and who is connected in which role.
fn keys(keys: &KeysStatus) -> [Family; 2] {
    let stage = match keys.stage.as_str() {
        "require" => 2,
        "accept" => 1,
        _ => 0_u64,
    };
    let sessions = &keys.sessions;
    let roles = [
        ("member", sessions.member),
        ("admin", sessions.admin),
        ("user", sessions.user),
        ("none", sessions.none),
    ];
    let samples = roles.map(|(role, count)| (vec![("role", role.to_owned())], count.number()));
    let by_role = Family {
        name: "sessions_by_role",
        help: "Established sessions that others have opened, by what their keys prove; none is without a key.",
        kind: MetricKind::Gauge,
        samples: samples.into(),
    };
    let help = "Which callers are taken: 0 all, no key is used; 1 those with a key and those without; 2 those with a key.";
    [gauge("key_stage", help, stage), by_role]
}

/// The known facts about the sessions to each peer.
// Long because it is a table, a metric an entry.
fn links(links: &[LinkStatus]) -> Vec<Family> {
    let each = |name, help, kind, value: fn(&LinkStatus) -> Option<f64>| Family {
        name,
        help,
        kind,
        samples: links
            .iter()
            .filter_map(|link| {
                let labels = vec![
                    ("peer", link.address.to_string()),
                    ("class", link.class.clone()),
                ];
                value(link).map(|value| (labels, value))
            })
            .collect(),
    };
    let (gauge, counter) = (MetricKind::Gauge, MetricKind::Counter);
    vec![
        each(
            "link_up",
            "1 while the session to the peer stands.",
            gauge,
            |link| Some((link.state == "up").number()),
        ),
        each(
            "link_rtt_seconds",
            "Smoothed round-trip time; absent while nothing is sent to the peer.",
            gauge,
            |link| link.rtt_ns.map(seconds),
        ),
        each(
            "link_rtt_min_seconds",
            "The smallest round-trip time; absent while nothing is sent to the peer.",
            gauge,
            |link| link.rtt_ns_min.map(seconds),
        ),
        each(
            "link_rto_seconds",
            "The present retransmission timeout.",
            gauge,
            |link| link.rto_ns.map(seconds),
        ),
        each("link_credits", "Credits agreed on.", gauge, |link| {
            link.credits.map(f64::from)
        }),
        each("link_credits_in_use", "Credits in use.", gauge, |link| {
            link.credits_in_use.map(f64::from)
        }),
        each(
            "link_packet_bytes",
            "Largest packet agreed on, as UDP payload.",
            gauge,
            |link| link.packet_bytes.map(f64::from),
        ),
        each(
            "link_rate_bytes_per_second",
            "The rate that congestion control allows.",
            gauge,
            |link| link.rate_bytes_per_second.map(u64::number),
        ),
        each(
            "link_retransmissions",
            "Packets retransmitted in the present session.",
            counter,
            |link| link.retransmissions.map(u64::number),
        ),
        each(
            "link_credit_stalls",
            "Times without a credit in the present session.",
            counter,
            |link| link.credit_stalls.map(u64::number),
        ),
        each(
            "link_sessions_lost",
            "Sessions to the peer that ended.",
            counter,
            |link| Some(link.sessions_lost.number()),
        ),
    ]
}

fn machine(snapshot: &Snapshot) -> Vec<Family> {
    let (stats, turns) = (&snapshot.backend, &snapshot.event_loop);
    vec![
        counter(
            "backend_rx_datagrams",
            "Datagrams received.",
            stats.rx_datagrams,
        ),
        counter("backend_rx_bytes", "Bytes in them.", stats.rx_bytes),
        counter(
            "backend_rx_errors",
            "Receive calls that failed and were survived.",
            stats.rx_errors,
        ),
        counter(
            "backend_rx_overflows",
            "Datagrams lost because the receive queue had no room.",
            stats.rx_overflows,
        ),
        counter(
            "backend_tx_datagrams",
            "Datagrams sent.",
            stats.tx_datagrams,
        ),
        counter("backend_tx_bytes", "Bytes in those.", stats.tx_bytes),
        counter(
            "backend_rx_written",
            "Packets that peers wrote into this process's memory (verbs, paths herd and rfp).",
            stats.rx_written,
        ),
        counter("backend_tx_written", "Written to peers.", stats.tx_written),
        counter(
            "backend_tx_refused",
            "Packets that kernel or device refused.",
            stats.tx_refused,
        ),
        counter("loop_turns", "Turns of the event loop.", turns.turns),
        counter(
            "loop_turns_busy",
            "Turns in which a packet came or went.",
            turns.turns_busy,
        ),
        counter(
            "loop_sleeps",
            "Times that the event loop slept.",
            turns.sleeps,
        ),
    ]
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
