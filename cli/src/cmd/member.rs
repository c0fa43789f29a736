//! `trine member ...` shows the members of the group and changes them.

mod args;

use std::net::SocketAddr;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use trine_client::{AdminDone, AdminError, ClientConfig, Obstacle, run_admin};
use trine_client::{Report, leader_of};
use trine_protocol::message::{AdminCommand, AdminRequest, ClusterId, Incarnation, NodeId};
use trine_protocol::status::{MemberStatus, Status};
use trine_transport::backend::{Backend, MonotonicClock};

pub(crate) use self::args::{MemberCommand, MemberListArguments, NewcomerArguments, NodeArguments};
use super::status::{no_leader, nobody, role_word as state_word};
use trine_base::arguments::AdminArguments;
use trine_base::capture;
use trine_base::client::advice;
use trine_base::endpoint::random_seed;
use trine_base::failure::Failure;
use trine_base::network::{Network, Opened};
use trine_base::output::{Output, Table};
use trine_base::peers;
use trine_base::progress::Progress;
use trine_base::restoring::Restoring;
use trine_base::survey::{SURVEY_TIMEOUT, ask_everybody, informant};
use trine_base::units::{show_count, show_ns};
use trine_base::waiting::while_waiting;

pub(crate) fn run<N: Network>(
    network: &N,
    command: &MemberCommand,
    output: Output,
) -> Result<(), Failure> {
    let execute =
        |command: AdminCommand, target: &NodeArguments, newcomer: Option<&NewcomerArguments>| {
            let address = newcomer.and_then(|newcomer| newcomer.address.as_deref());
            let beside = |item| peers::resolve_beside(item, &peers::resolve(&target.admin.peers)?);
            let address = address.map(beside).transpose()?;
            let what = Wanted {
                command,
                node_id: target.node_id,
                address,
            };
            give(network, &target.admin, what, output)
        };
    match command {
        MemberCommand::List(arguments) => list(network, arguments, output),
        MemberCommand::Add(arguments) => {
            let voter = !arguments.learner;
            execute(
                AdminCommand::Add { voter },
                &arguments.target,
                Some(&arguments.newcomer),
            )
        }
        MemberCommand::Promote(target) => execute(AdminCommand::Promote, target, None),
        MemberCommand::Remove(target) => execute(AdminCommand::Remove, target, None),
        MemberCommand::Replace(arguments) => execute(
            AdminCommand::Replace,
            &arguments.target,
            Some(&arguments.newcomer),
        ),
    }
}

/// An admin command for the group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) command: AdminCommand,
    pub(super) node_id: u32,
    /// The address of the new replica.
    pub(super) address: Option<SocketAddr>,
}

impl Wanted {
    /// Makes the replica with this node id the leader.
    pub(super) const fn transfer(node_id: u32) -> Self {
        Self {
            command: AdminCommand::TransferLeadership,
            node_id,
            address: None,
        }
    }
}

impl Wanted {
    /// Switches the group to the newest state version now.
    pub(super) const fn finish_upgrade() -> Self {
        Self {
            command: AdminCommand::FinishUpgrade,
            node_id: 0,
            address: None,
        }
    }
}

/// Sends an admin command, waits for its end and prints it.
pub(super) fn give<N: Network>(
    network: &N,
    arguments: &AdminArguments,
    wanted: Wanted,
    output: Output,
) -> Result<(), Failure> {
    let Wanted {
        command, node_id, ..
    } = wanted;
    let takes_in = matches!(command, AdminCommand::Add { .. } | AdminCommand::Replace);
    let given = match takes_in && network.is_ip() {
        true => while_shown(network, arguments, node_id, output, || {
            execute(network, arguments, wanted)
        }),
        false => {
            let addresses = peers::resolve(&arguments.peers)?;
            while_waiting(network, &addresses, output, || {
                execute(network, arguments, wanted)
            })
        }
    };
    let AdminDone { text, leader } = given?;
    output.document(&json!({
        "command": command_word(command), "replica": node_id, "done": text, "leader_address": leader,
    }));
    output.line(text);
    Ok(())
}

/// The pause before the group is asked for progress. Most admin commands have ended by then.
const SHOW_AFTER: Duration = Duration::from_millis(300);
/// The pause between two questions.
const SHOW_EVERY: Duration = Duration::from_millis(250);

/// The wait for a newcomer is mentioned after this time.
const WAIT_SHOWN_AFTER: Duration = Duration::from_secs(1);

/// What an admin command that takes a node in waits for, as far as the replicas know it.
fn newcomer_state(reports: &[Report], node_id: u32) -> String {
    if leader_of(reports).is_none() {
        return "for a leader of the group".to_owned();
    }
    let mut known = reports.iter().filter_map(Report::status);
    match known.find(|status| status.node_id == node_id) {
        Some(status) => format!("for node {node_id}, which is {}", state_word(status.role)),
        None => format!("for node {node_id}, which does not answer"),
    }
}

/// Runs `work`. If the node receives the group's state meanwhile, shows how much of it has arrived. This needs a
/// network that gives a process several sockets.
fn while_shown<N: Network, T>(
    network: &N,
    arguments: &AdminArguments,
    node_id: u32,
    output: Output,
    work: impl FnOnce() -> T,
) -> T {
    let (working, over) = mpsc::channel::<()>();
    let network = network.clone();
    // Names are resolved once, so that a finished admin command does not wait for that.
    let addresses = peers::resolve(&arguments.peers);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let Ok(addresses) = addresses else { return };
            let what = format!("node {node_id} receives the group's state");
            let mut restoring = Restoring::of(what);
            let mut waiting = None;
            let start = Instant::now();
            let mut pause = SHOW_AFTER;
            while over.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                pause = SHOW_EVERY;
                // A failed question is repeated soon; the admin command itself reports errors.
                if let Ok(reports) = ask_everybody(&network, &addresses, SHOW_EVERY.into()) {
                    let mut known = reports.iter().filter_map(Report::status);
                    let of_newcomer = |status: &Status| match status.node_id == node_id {
                        true => status.receiving,
                        false => None,
                    };
                    let receiving = known.find_map(of_newcomer);
                    restoring.update(receiving);
                    // One bar at a time.
                    if receiving.is_some() {
                        waiting = None;
                    } else if start.elapsed() >= WAIT_SHOWN_AFTER {
                        let begin = || Progress::at_terminal("waiting", None, output);
                        let waiting = waiting.get_or_insert_with(begin);
                        waiting.set(0, || newcomer_state(&reports, node_id));
                    }
                }
            }
        });
        let done = work();
        drop(working);
        done
    })
}

/// Sends an admin command and waits for its end.
pub(super) fn execute<N: Network>(
    network: &N,
    arguments: &AdminArguments,
    wanted: Wanted,
) -> Result<AdminDone, Failure> {
    let addresses = peers::resolve(&arguments.peers)?;
    let capture = arguments.capture.open()?;
    let opened = network.call(&addresses)?;
    let mut config = ClientConfig::new(addresses);
    config.operation_timeout = arguments.timeout.into();
    match capture {
        None => run_over(opened, config, wanted),
        Some(capture) => {
            let opened = capture::around_opened(network, opened, capture);
            run_over(opened, config, wanted)
        }
    }
}

fn run_over<B: Backend>(
    opened: Opened<B>,
    config: ClientConfig,
    wanted: Wanted,
) -> Result<AdminDone, Failure> {
    let Opened {
        backend,
        endpoint: transport,
        route_of,
        keep,
        ..
    } = opened;
    let request = AdminRequest {
        command: wanted.command,
        node_id: NodeId(wanted.node_id),
        incarnation: Incarnation::NONE,
        cluster: ClusterId::NONE,
        address: wanted.address,
    };
    let (clock, seed) = (MonotonicClock, random_seed()?);
    let given = run_admin(backend, clock, config, transport, route_of, request, seed);
    drop(keep);
    given.map_err(admin_failure)
}

fn command_word(command: AdminCommand) -> &'static str {
    match command {
        AdminCommand::Add { voter: true } => "add",
        AdminCommand::Add { voter: false } => "add_learner",
        AdminCommand::Promote => "promote",
        AdminCommand::Remove => "remove",
        AdminCommand::Replace => "replace",
        AdminCommand::TransferLeadership => "transfer",
        AdminCommand::FinishUpgrade => "finish_upgrade",
    }
}

/// Reports an admin command that failed, and says only what is certain.
fn admin_failure(error: AdminError) -> Failure {
    const HINT: &str = "`trine member list` and `trine status` show the current state; the same \
         command resumes the change";
    match error {
        AdminError::NotReachable { obstacle, waited } => {
            let waited = show_ns(waited.as_nanos());
            let message = format!("{obstacle}; nothing was changed (tried for {waited})");
            match obstacle {
                Obstacle::WrongCluster { .. }
                | Obstacle::VersionMismatch { .. }
                | Obstacle::OtherVersion(_)
                | Obstacle::BadTerms { .. }
                | Obstacle::Key(_) => Failure::usage(message, advice(obstacle)),
                _ => Failure::not_reachable(message, advice(obstacle)),
            }
        }
        AdminError::Refused { why, begun: false } => {
            Failure::negative(format!("{why}; nothing was changed"), "")
        }
        AdminError::Refused { why, begun: true } => Failure::outcome_unknown(
            format!("{why}; but the change was started, and may still take effect"),
            HINT,
        ),
        AdminError::OutcomeUnknown { progress, waited } => {
            let waited = show_ns(waited.as_nanos());
            Failure::outcome_unknown(format!("{progress} (waited {waited})"), HINT)
        }
        AdminError::Backend(error) => Failure::outcome_unknown(error.to_string(), HINT),
        AdminError::Client(error) => Failure::usage(error.to_string(), ""),
        AdminError::Transport(error) => Failure::usage(error.to_string(), ""),
    }
}

fn list<N: Network>(
    network: &N,
    arguments: &MemberListArguments,
    output: Output,
) -> Result<(), Failure> {
    let addresses = peers::resolve(&arguments.group.peers)?;
    let limit = arguments.group.timeout.min(SURVEY_TIMEOUT).into();
    let reports = ask_everybody(network, &addresses, limit)?;
    let Some(source) = informant(&reports) else {
        return Err(no_members(&reports));
    };
    output.document(&document(source));
    let leads = source.leader == Some(source.address);
    if !leads {
        output.line(format_args!(
            "no leader answers; according to replica {}:",
            source.node_id
        ));
    }
    output.line(table(source));
    if source.change_in_progress {
        output.line("a change of the membership is in progress");
    }
    match leads {
        true => Ok(()),
        false => Err(no_leader(&reports)),
    }
}

fn no_members(reports: &[Report]) -> Failure {
    if reports.iter().all(|report| report.answer.is_err()) {
        return nobody(reports);
    }
    let obstacle = Obstacle::NotAttached;
    Failure::not_reachable(obstacle.to_string(), advice(obstacle))
}

fn document(source: &Status) -> Value {
    let of_one = |member: &MemberStatus| {
        json!({
            "replica": member.node_id,
            "address": member.address,
            "role": role_word(source, member),
            "voter": member.voter,
            "incarnation": member.incarnation,
            "lag": member.lag,
            "silent_ns": member.silent_ns,
        })
    };
    let mut members = source.members.iter();
    let leader = members.find(|member| Some(member.address) == source.leader);
    json!({
        "cluster": source.cluster,
        "leader": leader.map(|leader| leader.node_id),
        "leader_address": source.leader,
        "reported_by": source.node_id,
        "change_in_progress": source.change_in_progress,
        "members": source.members.iter().map(of_one).collect::<Vec<_>>(),
    })
}

fn table(source: &Status) -> Table {
    let mut table = Table::new(["id", "address", "role", "lag", "last heard", "incarnation"]);
    for member in &source.members {
        let heard = match member.silent_ns {
            _ if member.this => "now".to_owned(),
            Some(ns) => format!("{} ago", show_ns(ns)),
            None => "-".to_owned(),
        };
        table.row([
            member.node_id.to_string(),
            member.address.to_string(),
            role_word(source, member).to_owned(),
            member.lag.map_or_else(|| "-".to_owned(), show_count),
            heard,
            member.incarnation.clone(),
        ]);
    }
    table
}

fn role_word(source: &Status, member: &MemberStatus) -> &'static str {
    match member.voter {
        true if source.leader == Some(member.address) => "leader",
        true => "voter",
        false => "learner",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_transport::time::Duration;

    #[test]
    fn what_became_of_an_admin_command_is_said_with_the_fitting_status() {
        let (obstacle, waited) = (Obstacle::NoLeader, Duration::from_millis(5));
        let why = || "it is the only voter".to_owned();
        let progress = "waiting for a replica".to_owned();
        let foreign = Obstacle::WrongCluster {
            theirs: ClusterId(9),
        };
        for (error, status, part) in [
            (
                AdminError::NotReachable { obstacle, waited },
                3,
                "nothing was changed",
            ),
            (
                AdminError::NotReachable {
                    obstacle: foreign,
                    waited,
                },
                2,
                "nothing was changed",
            ),
            (
                AdminError::Refused {
                    why: why(),
                    begun: false,
                },
                1,
                "only voter; nothing was",
            ),
            (
                AdminError::Refused {
                    why: why(),
                    begun: true,
                },
                3,
                "may still take effect",
            ),
            (
                AdminError::OutcomeUnknown { progress, waited },
                3,
                "outcome unknown: waiting",
            ),
        ] {
            let failure = admin_failure(error);
            assert_eq!(failure.exit_status(), status, "{failure}");
            assert!(failure.to_string().contains(part), "{failure}");
        }
    }
}
