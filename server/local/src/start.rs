//! Starting and watching a local group of real processes: what `up`, `demo` and `chaos` share.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use trine_base::{interrupt, survey};
use trine_client::{Report, leader_of, voters_in_step};
use trine_transport::time::Duration as Nanos;

use crate::config::START_LIMIT;
use crate::group::{Group, GroupConfig, LiveError, meaning_of_a_kill};
use crate::output::LineSink;
use trine_base::failure::Failure;
use trine_base::network::Network;

/// How long each poll of the group may take.
const SURVEY_LIMIT: Nanos = Nanos::from_millis(500);

/// Starts `trine serve` for every address and waits until all of them vote.
pub fn start<N: Network>(
    network: &N,
    addresses: Vec<SocketAddr>,
    serve_args: Vec<OsString>,
    sink: Option<LineSink>,
) -> Result<Group, Failure> {
    let config = config(network, addresses, serve_args, sink)?;
    start_by(network, config, Vec::new(), Vec::new(), START_LIMIT)
}

/// As [`start`], with `launcher` before the command of each replica, and another limit for the wait. The list of peers has
/// these names, if there are any, and otherwise the addresses.
pub fn start_by<N: Network>(
    network: &N,
    config: GroupConfig,
    launcher: Vec<OsString>,
    names: Vec<String>,
    limit: Duration,
) -> Result<Group, Failure> {
    let count = config.addresses.len();
    let begin = vec!["--bootstrap".into()];
    let mut group = Group::start_named(config, launcher, begin, names).map_err(live_failure)?;
    let voting = wait_for_voters(network, &mut group, count, limit);
    or_stop(group, voting)
}

/// Starts `trine serve` for every address, the first one with the arguments `begin`, which have it begin a group of its
/// own. Waits until that one leads. The others wait to be taken in.
pub fn start_alone<N: Network>(
    network: &N,
    addresses: Vec<SocketAddr>,
    serve_args: Vec<OsString>,
    sink: Option<LineSink>,
    begin: Vec<OsString>,
    limit: Duration,
) -> Result<Group, Failure> {
    let config = config(network, addresses, serve_args, sink)?;
    let mut group = Group::start_as(config, Vec::new(), begin).map_err(live_failure)?;
    let leading = wait_for(network, &mut group, "a leader", limit, |reports| {
        leader_of(reports).is_some()
    });
    or_stop(group, leading)
}

/// The group, if `done` is what it was started for. After a failure all replicas end first, in order. One that had to be
/// killed then is the worse failure: it is a negative one, and names the first.
///
/// # Errors
/// That of `done`, or how the group ended.
pub fn or_stop<T>(group: Group, done: Result<T, Failure>) -> Result<Group, Failure> {
    let Err(failure) = done else {
        return Ok(group);
    };
    match group.stop() {
        Ok(()) => Err(failure),
        Err(error) => Err(live_failure(error).because(failure.message())),
    }
}

/// What to run: this program on this network, after a look at whether the addresses are free.
///
/// # Errors
/// An address is in use, or the program's own path cannot be found.
pub fn config<N: Network>(
    network: &N,
    addresses: Vec<SocketAddr>,
    mut serve_args: Vec<OsString>,
    sink: Option<LineSink>,
) -> Result<GroupConfig, Failure> {
    let program = std::env::current_exe().map_err(|error| {
        Failure::usage(format!("cannot find the path of this program: {error}"), "")
    })?;
    serve_args.extend(network.serve_args());
    if !network.chooses_addresses() {
        ports_are_free(&addresses)?;
    }
    Ok(GroupConfig {
        program,
        addresses,
        serve_args,
        sink,
    })
}

/// Refuses addresses that another process has. A whole group that runs there already would answer instead of the one that
/// is to be started. So it is looked for before anything is started.
///
/// # Errors
/// One of them is in use.
pub fn ports_are_free(addresses: &[SocketAddr]) -> Result<(), Failure> {
    for address in addresses {
        match UdpSocket::bind(address) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                let message = format!(
                    "{address} is in use by another process, perhaps by a group that runs already"
                );
                let hint = format!(
                    "talk to that one (`trine status`), stop it (`ss -ulpn 'sport = :{}'` shows which process it is), \
                     or choose another port",
                    address.port()
                );
                return Err(Failure::usage(message, hint));
            }
            // Any other trouble the replica itself explains best.
            _ => {}
        }
    }
    Ok(())
}

/// Waits until `count` replicas vote and agree on their leader; returns what they say then.
pub fn wait_for_voters<N: Network>(
    network: &N,
    group: &mut Group,
    count: usize,
    limit: Duration,
) -> Result<Vec<Report>, Failure> {
    let what = format!("a leader with {count} voters in step");
    wait_for(network, group, &what, limit, |reports| {
        voters_in_step(reports) == Some(count)
    })
}

/// Waits until `condition` holds of what the replicas say.
pub fn wait_for<N: Network>(
    network: &N,
    group: &mut Group,
    what: &str,
    limit: Duration,
    condition: impl Fn(&[Report]) -> bool,
) -> Result<Vec<Report>, Failure> {
    let survey = |group: &mut Group| {
        if interrupt::interrupted() {
            return Some(Err(Failure::interrupted()));
        }
        match survey(network, group.addresses()) {
            Ok(reports) if condition(&reports) => Some(Ok(reports)),
            Ok(_) => None,
            Err(failure) => Some(Err(failure)),
        }
    };
    group
        .wait_until(what, limit, survey)
        .map_err(live_failure)?
}

/// Asks every replica for its status once.
pub fn survey<N: Network>(network: &N, addresses: &[SocketAddr]) -> Result<Vec<Report>, Failure> {
    survey::ask(network, addresses, SURVEY_LIMIT)
}

/// The node id of the replica that leads, if one does.
pub fn leader_node_id(group: &Group, reports: &[Report]) -> Option<usize> {
    leader_of(reports).and_then(|leader| group.node_id_of(leader.address))
}

/// A group of processes that cannot be run, in words: what a replica said last is the cause.
pub fn live_failure(error: LiveError) -> Failure {
    match error {
        LiveError::Ended { exit } => {
            let words: Vec<&str> = exit
                .tail
                .iter()
                .map(|line| line.trim_start_matches("trine: "))
                .collect();
            let message = format!("replica {} ended ({})", exit.node_id, exit.status);
            match words.is_empty() {
                true => Failure::usage(message, ""),
                false => Failure::usage(format!("{message}: {}", words.join("\n  ")), ""),
            }
        }
        LiveError::TimedOut { .. } => Failure::not_reachable(error.to_string(), ""),
        LiveError::Killed { unsynced, .. } => {
            Failure::negative(error.to_string(), meaning_of_a_kill(unsynced))
        }
        LiveError::Start { .. } | LiveError::Control(_) => Failure::usage(error.to_string(), ""),
    }
}
