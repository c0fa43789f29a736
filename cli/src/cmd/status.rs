//! `trine status` shows what every replica says about itself.

pub(super) mod keys;
mod upgrade;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use serde_json::{Value, json};
use trine_client::{Obstacle, Report, leader_of, majority_gone, voters_in_step};
use trine_protocol::node_status::LinkStatus;
use trine_protocol::node_status::NodeStatus;
use trine_protocol::status::{FsyncStatus, OrderedStatus, Role, Status};

use clap::Args;
use trine_base::arguments::GroupArguments;
use trine_base::client::advice;
use trine_base::failure::Failure;
use trine_base::network::Network;
use trine_base::output::{Output, Table};
use trine_base::peers;
use trine_base::survey::{SURVEY_TIMEOUT, ask_everybody};
use trine_base::units::{plural, show_bytes, show_count, show_ns};

pub(super) use self::upgrade::upgrade_line;

#[derive(Debug, Args)]
pub(crate) struct StatusArguments {
    #[command(flatten)]
    pub(crate) group: GroupArguments,
}

pub(crate) fn run<N: Network>(
    network: &N,
    arguments: &StatusArguments,
    output: Output,
) -> Result<(), Failure> {
    let addresses = peers::resolve(&arguments.group.peers)?;
    let limit = arguments.group.timeout.min(SURVEY_TIMEOUT).into();
    let reports = ask_everybody(network, &addresses, limit)?;
    if reports.iter().all(|report| report.answer.is_err()) {
        return Err(nobody(&reports));
    }
    output.document(&document(&reports));
    output.line(summary(&reports));
    output.line("");
    output.line(replica_table(&reports));
    output.line("");
    output.line(link_table(&reports));
    if let Some(view) = keys::view(&reports) {
        output.line("");
        output.line(view);
    }
    if let Some(leader) = leader_of(&reports) {
        output.line("");
        output.line(store_line(leader));
        output.line(reads_line(leader));
        output.line(upgrade_line(leader));
    }
    let complaints = complaints(&reports);
    if !complaints.is_empty() {
        output.line("");
        complaints.iter().for_each(|line| output.line(line));
    }
    match leader_of(&reports) {
        Some(_) => Ok(()),
        None => Err(no_leader(&reports)),
    }
}

/// The failure for a group without a leader. The printed status then shows all that is known.
pub(super) fn no_leader(reports: &[Report]) -> Failure {
    match newcomers(reports) {
        None => Failure::not_reachable("no leader", NO_LEADER),
        Some(who) => Failure::not_reachable(who, NEWCOMERS),
    }
}

/// The advice for a group without a leader.
const NO_LEADER: &str = "if it lasts longer than an election, start the replicas that do not \
     answer; docs/operations.md describes what to do after the loss of a majority";

/// The advice for replicas that cannot know whether there is a leader.
const NEWCOMERS: &str = "the lines above show what each of them waits for; to see the group, name \
     a replica that serves with --peers";

/// Describes the answering replicas if none of them has a group's state. Such replicas say nothing about a leader.
fn newcomers(reports: &[Report]) -> Option<String> {
    let lacks = |status: &Status| {
        let who = format!("replica {} ({})", status.node_id, status.address);
        match (status.role, &status.cluster) {
            (Role::Unattached, _) => Some(format!("{who} is in no group yet")),
            (Role::Joining, Some(cluster)) => Some(format!(
                "{who} is joining cluster {cluster} and lacks the group's state yet"
            )),
            _ => None,
        }
    };
    let all: Option<Vec<String>> = reports
        .iter()
        .filter_map(Report::status)
        .map(lacks)
        .collect();
    all.filter(|all| !all.is_empty()).map(|all| all.join("; "))
}

pub(super) fn nobody(reports: &[Report]) -> Failure {
    let causes: Vec<String> = reports
        .iter()
        .filter_map(|report| {
            Some(format!(
                "{}: {}",
                report.address,
                report.answer.as_ref().err()?
            ))
        })
        .collect();
    // A replica that says why it does not serve this caller is there.
    let says_why = |obstacle: &Obstacle| {
        matches!(
            obstacle,
            Obstacle::Full | Obstacle::Key(_) | Obstacle::Denied
        )
    };
    let refused = reports
        .iter()
        .filter_map(|report| report.answer.as_ref().err().copied())
        .find(says_why);
    let (what, obstacle) = match refused {
        Some(Obstacle::Full) => ("no replica gives this caller a session", Obstacle::Full),
        Some(of_key) => ("no replica answers this caller", of_key),
        None => ("no replica answers", Obstacle::NoConnection),
    };
    Failure::not_reachable(
        format!("{what}\n  {}", causes.join("\n  ")),
        advice(obstacle),
    )
}

/// The whole status, for programs.
pub(super) fn document(reports: &[Report]) -> Value {
    let leader = leader_of(reports);
    let known = reports.iter().filter_map(Report::status);
    let leaders = known.flat_map(|status| &status.members);
    let leaders: BTreeMap<_, _> = leaders.map(|one| (one.address, one.node_id)).collect();
    let of_one = |report: &Report| match &report.answer {
        Ok(node) => {
            json!({
                "replica": node.replica.node_id, "address": report.address, "status": flat(node, &leaders),
            })
        }
        Err(obstacle) => json!({ "address": report.address, "error": obstacle.to_string() }),
    };
    json!({
        "leader": leader.map(|leader| leader.node_id),
        "leader_address": leader.map(|leader| leader.address),
        "term": leader.map(|leader| leader.term),
        "voters_in_step": voters_in_step(reports),
        "failures_tolerated": failures_tolerated(reports),
        "replicas": reports.iter().map(of_one).collect::<Vec<_>>(),
    })
}

/// What a node says of itself, in one object: of its replica, and of the links and the endpoint below it. `members` are
/// node ids by addresses.
fn flat(node: &NodeStatus, members: &BTreeMap<SocketAddr, u32>) -> Value {
    let mut document = json!(node);
    let leader = node.replica.leader.and_then(|at| members.get(&at));
    let parts = document.as_object_mut().expect("a status is an object");
    if let Some(Value::Object(replica)) = parts.remove("replica") {
        parts.extend(replica);
    }
    parts.insert("leader".to_owned(), json!(leader));
    document
}

/// The number of further replica failures that the service tolerates; `None` when it does not serve.
fn failures_tolerated(reports: &[Report]) -> Option<usize> {
    let voters = leader_of(reports)?
        .members
        .iter()
        .filter(|member| member.voter)
        .count();
    voters_in_step(reports)?.checked_sub(voters / 2 + 1)
}

/// The group in one sentence.
pub(super) fn summary(reports: &[Report]) -> String {
    if majority_gone(reports) {
        return "most replicas restarted empty: the group's data is gone, start a new group"
            .to_owned();
    }
    let Some(leader) = leader_of(reports) else {
        return match newcomers(reports) {
            None => "no leader: nothing can be written, and only stale reads are answered",
            Some(_) => {
                "no replica that answers has the group's state yet: nothing can be read or \
                 written"
            }
        }
        .to_owned();
    };
    let node_id = leader.node_id;
    let serving = format!(
        "replica {node_id} ({}) leads in term {}",
        leader.address, leader.term
    );
    let voters = leader.members.iter().filter(|member| member.voter).count();
    match (failures_tolerated(reports), voters_in_step(reports)) {
        (Some(0), _) => format!("{serving}; no further replica may be lost"),
        (Some(more), _) => format!(
            "{serving}; tolerates {}",
            plural(more as u64, "more failure")
        ),
        (None, _) if leader.change_in_progress => format!("{serving}; its membership is changing"),
        (None, in_step) => {
            let in_step = in_step.unwrap_or(0);
            format!("{serving}; only {in_step} of {voters} voters are in step")
        }
    }
}

fn replica_table(reports: &[Report]) -> Table {
    let mut table = Table::new([
        "replica",
        "address",
        "role",
        "term",
        "commit",
        "applied",
        "keys",
        "retransmitted",
    ]);
    for report in reports {
        let blank = String::new;
        match &report.answer {
            Ok(node) => table.row(replica_row(node)),
            Err(obstacle) => table.row([
                node_id_at(report.address, reports)
                    .map_or_else(|| "-".to_owned(), |n| n.to_string()),
                report.address.to_string(),
                match obstacle {
                    Obstacle::Full => "no room".to_owned(),
                    _ => "no answer".to_owned(),
                },
                blank(),
                blank(),
                blank(),
                blank(),
                blank(),
            ]),
        }
    }
    table
}

fn replica_row(node: &NodeStatus) -> [String; 8] {
    let replica = &node.replica;
    [
        replica.node_id.to_string(),
        replica.address.to_string(),
        role_and_restoring(replica),
        replica.term.to_string(),
        show_count(replica.committed),
        show_count(replica.applied),
        show_count(replica.store.items),
        show_count(node.transport.retransmissions),
    ]
}

/// The role of a replica. While the group's state is on its way to it, or from it into a backup, also the progress of that.
fn role_and_restoring(replica: &Status) -> String {
    let role = role_word(replica.role);
    match (replica.receiving, replica.backup) {
        (Some(state), _) => format!("{role}, receiving snapshot, {} %", state.percent()),
        (None, Some(image)) => format!("{role}, read by a backup, {} %", image.percent()),
        (None, None) => role.to_owned(),
    }
}

pub(super) fn role_word(role: Role) -> &'static str {
    match role {
        Role::Unattached => "in no group",
        Role::Joining => "joining",
        Role::Learner => "learner",
        Role::Follower => "follower",
        Role::Candidate => "candidate",
        Role::Leader => "leader",
        Role::Unknown => "unknown",
    }
}

/// The node id of the replica at `address`, as it reports it or as another replica lists it. The index in the
/// list of addresses does not matter, because the list may name some of the group in any order.
pub(super) fn node_id_at(address: SocketAddr, reports: &[Report]) -> Option<u32> {
    let mut known = reports.iter().filter_map(Report::status);
    if let Some(own) = known.find(|status| status.address == address) {
        return Some(own.node_id);
    }
    let known = reports.iter().filter_map(Report::status);
    let mut members = known.flat_map(|status| &status.members);
    let found = members.find(|member| member.address == address)?;
    Some(found.node_id)
}

/// Round-trip times and retransmissions on each link between replicas that carries consensus.
fn link_table(reports: &[Report]) -> Table {
    let mut table = Table::new(["link", "state", "rtt", "min RTT", "retransmitted", "packet"]);
    let node_id_of = |address: SocketAddr| {
        node_id_at(address, reports)
            .map_or_else(|| address.to_string(), |node_id| node_id.to_string())
    };
    for node in reports
        .iter()
        .filter_map(|report| report.answer.as_ref().ok())
    {
        for link in node.links.iter().filter(|link| link.class == "raft") {
            let name = format!("{} to {}", node.replica.node_id, node_id_of(link.address));
            table.row(link_row(name, link));
        }
    }
    table
}

/// The state of a link, for people: an established session without traffic says nothing about the present.
pub(super) fn link_state(link: &LinkStatus) -> &str {
    match link.state.as_str() {
        "up" if link.idle => "idle",
        state => state,
    }
}

fn link_row(name: String, link: &LinkStatus) -> [String; 6] {
    let time = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), show_ns);
    [
        name,
        link_state(link).to_owned(),
        time(link.rtt_ns),
        time(link.rtt_ns_min.filter(|ns| *ns > 0)),
        link.retransmissions
            .map_or_else(|| "-".to_owned(), show_count),
        link.packet_bytes
            .map_or_else(|| "-".to_owned(), |bytes| bytes.to_string()),
    ]
}

fn store_line(leader: &Status) -> String {
    let index = match leader.store.ordered {
        OrderedStatus::Off => String::new(),
        OrderedStatus::Building { permille } => {
            format!(
                ", ordered index {}.{} % built",
                permille / 10,
                permille % 10
            )
        }
        OrderedStatus::On => format!(
            ", ordered index of {}",
            show_bytes(leader.store.ordered_bytes)
        ),
        OrderedStatus::Unknown => ", ordered index unknown".to_owned(),
    };
    format!(
        "store: {} in {} of {}{index}; log: {} in {}, {} compacted, {}; {} open",
        plural(leader.store.items, "key"),
        show_bytes(leader.store.logical_bytes),
        show_bytes(leader.store.memory_bytes),
        plural(leader.log.entries, "entry").replace("entrys", "entries"),
        show_bytes(leader.log.bytes),
        plural(leader.log.compactions, "time"),
        log_mode(leader.log.fsync),
        plural(leader.sessions.open, "client session"),
    )
}

/// Where the log is, and when a write counts as durable there.
fn log_mode(fsync: Option<FsyncStatus>) -> &'static str {
    match fsync {
        None => "in memory alone",
        Some(FsyncStatus::Each) => "on disk (fsync each)",
        Some(FsyncStatus::Batch) => "on disk (fsync batch)",
        Some(FsyncStatus::None) => "on disk (fsync none)",
        Some(FsyncStatus::Unknown) => "on disk (fsync unknown)",
    }
}

/// How the leader confirms linearizable reads, and under which assumption.
fn reads_line(leader: &Status) -> String {
    let counters = &leader.counters;
    match &leader.lease {
        Some(lease) => format!(
            "reads: under a lease of {}, taking clocks to drift apart by at most {} meanwhile; {} of {}",
            show_ns(lease.length_ns),
            show_ns(lease.drift_ns),
            show_count(counters.reads_under_lease),
            show_count(counters.reads_linearizable),
        ),
        None => format!(
            "reads: confirmed by a majority; {} for {}",
            plural(counters.read_rounds, "round"),
            plural(counters.reads_linearizable, "read"),
        ),
    }
}

/// Why a replica does not answer, does not serve, or does not belong here.
fn complaints(reports: &[Report]) -> Vec<String> {
    let cluster = leader_of(reports).and_then(|leader| leader.cluster.clone());
    let of_one = |report: &Report| match &report.answer {
        Err(obstacle) => Some(obstacle.to_string()),
        Ok(node) if is_foreign(&node.replica, cluster.as_deref()) => {
            Some("belongs to another group; the list of peers mixes two".to_owned())
        }
        Ok(node) => node.replica.complaint(),
    };
    let named = |report: &Report| Some(format!("{}: {}", report.address, of_one(report)?));
    let of_keys = keys::complaints(reports);
    let answers = reports
        .iter()
        .filter_map(|report| report.answer.as_ref().ok());
    let copies: BTreeSet<String> = answers.flat_map(|node| node.replica.copies()).collect();
    let of_each = reports.iter().filter_map(named);
    of_each.chain(copies).chain(of_keys).collect()
}

/// Whether the replica belongs to another cluster than the leader's.
fn is_foreign(replica: &Status, leaders: Option<&str>) -> bool {
    match (replica.cluster.as_deref(), leaders) {
        (Some(own), Some(leaders)) => own != leaders,
        _ => false,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::from_value;
    use trine_protocol::node_status::TransportStatus;
    use trine_protocol::status::{Counters, LogStatus, SessionStatus, StoreStatus};

    use super::*;

    pub(in crate::cmd) fn report(node_id: u16, role: &str) -> Report {
        let address: SocketAddr = ([127, 0, 0, 1], 7470 + node_id).into();
        let replica = json!({
            "replica": node_id, "incarnation": "1", "cluster": "abc", "address": address, "role": role,
            "not_serving": null, "term": 0, "leader_address": null, "committed": 0, "applied": 0, "group_time_ns": 0,
            "members": [], "change_in_progress": false, "log": LogStatus::default(),
            "sessions": SessionStatus::default(), "store": StoreStatus::default(), "counters": Counters::default(),
        });
        let node =
            json!({ "replica": replica, "links": [], "transport": TransportStatus::default() });
        let answer = Ok(Box::new(from_value(node).expect("a status")));
        Report { address, answer }
    }

    /// One replica was on the files of another group that had come to a newer term: the group had no leader then, and its
    /// commands refused to work.
    #[test]
    fn a_replica_of_another_group_does_not_depose_the_leader() {
        let of = |node_id: u16, role: &str, cluster: &str, term: u64| {
            let mut report = report(node_id, role);
            let answer = report.answer.as_mut().expect("an answer");
            answer.replica.cluster = Some(cluster.to_owned());
            answer.replica.term = term;
            report
        };
        let leader = |reports: &[Report]| leader_of(reports).map(|status| status.node_id);
        let mut reports = vec![
            of(3, "candidate", "def", 3),
            of(1, "leader", "abc", 2),
            of(2, "follower", "abc", 2),
        ];
        assert_eq!(leader(&reports), Some(1));
        let said = complaints(&reports).join("\n");
        assert!(
            said.contains("127.0.0.1:7473: belongs to another group"),
            "{said}"
        );
        // Nor does one that leads there.
        reports[0] = of(3, "leader", "def", 3);
        assert_eq!(leader(&reports), Some(1));
        // In its own cluster a newer term does.
        reports.push(of(4, "candidate", "abc", 3));
        reports.remove(0);
        assert_eq!(leader(&reports), None);
    }

    /// A replica had moved, and was not found yet. For a moment after its start it counted as a voter in step, since its disk
    /// had the present term. An operator who then stopped the next replica had one of three left, and no
    /// write was answered for up to 6 s.
    #[test]
    fn a_replica_that_the_leader_has_not_reached_is_not_in_step() {
        let at = |node_id: u16| SocketAddr::from(([127, 0, 0, 1], 7470 + node_id));
        let of = |node_id: u16, role: &str, leader: Option<u16>| {
            let mut report = report(node_id, role);
            let replica = &mut report.answer.as_mut().expect("an answer").replica;
            replica.incarnation = node_id.to_string();
            replica.leader = leader.map(at);
            let members = (1..=3).map(|node_id: u16| {
                let incarnation = node_id.to_string();
                json!({ "replica": node_id, "incarnation": incarnation, "address": at(node_id), "voter": true, "this": false })
            });
            let members = members.map(|member| from_value(member).expect("a member"));
            replica.members = members.collect();
            report
        };
        let mut reports = vec![
            of(1, "leader", Some(1)),
            of(2, "follower", Some(1)),
            of(3, "follower", None),
        ];
        assert_eq!(voters_in_step(&reports), Some(2));
        assert_eq!(failures_tolerated(&reports), Some(0));
        reports[2] = of(3, "follower", Some(1));
        assert_eq!(failures_tolerated(&reports), Some(1));
    }

    /// All sessions were taken, and the answer was "no replica answers" with the advice to start a group.
    #[test]
    fn a_group_without_room_for_another_session_is_there() {
        let of = |answers: &[Obstacle]| {
            let reports = answers.iter().zip(7471..).map(|(obstacle, port)| Report {
                address: ([127, 0, 0, 1], port).into(),
                answer: Err(*obstacle),
            });
            reports.collect::<Vec<_>>()
        };
        let full = nobody(&of(&[Obstacle::NoConnection, Obstacle::Full])).to_string();
        for part in [
            "no replica gives this caller a session",
            "127.0.0.1:7472: the replica has no room for another session",
            "trine_transport_sessions_server",
        ] {
            assert!(full.contains(part), "{full}");
        }
        assert!(!full.contains("trine up"), "{full}");
        let silent = nobody(&of(&[Obstacle::NoAnswer])).to_string();
        assert!(silent.contains("no replica answers") && silent.contains("trine up"));
    }

    /// `trine status` of a joining replica said "no leader" while the group had one.
    #[test]
    fn a_joining_replica_alone_does_not_stand_for_a_group_without_a_leader() {
        let mut reports = vec![report(4, "joining")];
        let joining =
            "replica 4 (127.0.0.1:7474) is joining cluster abc and lacks the group's state yet";
        assert_eq!(newcomers(&reports).as_deref(), Some(joining));
        assert!(summary(&reports).starts_with("no replica that answers has"));
        let address = ([127, 0, 0, 1], 7471).into();
        let answer = Err(Obstacle::NoAnswer);
        reports.push(Report { address, answer });
        assert_eq!(newcomers(&reports).as_deref(), Some(joining));
        reports.push(report(2, "follower"));
        assert_eq!(newcomers(&reports), None);
        assert!(summary(&reports).starts_with("no leader"));
        assert_eq!(newcomers(&reports[1..2]), None);
    }
}
