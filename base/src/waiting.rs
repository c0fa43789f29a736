//! What a person sees while a command waits for the group. A line on standard error says what is known, and goes
//! away with the answer. Programs and files get nothing.

use std::net::SocketAddr;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use trine_client::{Obstacle, Report, leader_of};

use crate::network::Network;
use crate::output::Output;
use crate::progress::Progress;
use crate::survey::{ask_everybody, why_it_stands_still};

/// The pause before the group is asked. Most commands have ended by then.
const SHOW_AFTER: Duration = Duration::from_secs(1);
/// The pause between two questions.
const SHOW_EVERY: Duration = Duration::from_millis(250);

/// Runs `work`. Once it has taken a second, shows what the replicas at `addresses` say about the group.
pub fn while_waiting<N: Network, T>(
    network: &N,
    addresses: &[SocketAddr],
    output: Output,
    work: impl FnOnce() -> T,
) -> T {
    while_waiting_for(network, addresses, output, what_is_known, work)
}

/// Works like [`while_waiting`], with other words for what the reports say.
pub fn while_waiting_for<N: Network, T>(
    network: &N,
    addresses: &[SocketAddr],
    output: Output,
    words: impl Fn(&[Report]) -> String + Send,
    work: impl FnOnce() -> T,
) -> T {
    // The questions need a socket beside that of the command. Other networks give a process one.
    if !network.is_ip() || !Progress::shows(output) {
        return work();
    }
    let (working, over) = mpsc::channel::<()>();
    let network = network.clone();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut progress = None;
            let mut pause = SHOW_AFTER;
            while over.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                pause = SHOW_EVERY;
                // A failed question is repeated soon; the command itself reports errors.
                if let Ok(reports) = ask_everybody(&network, addresses, SHOW_EVERY.into()) {
                    let text = words(&reports);
                    let begin = || Progress::at_terminal("waiting", None, output);
                    progress.get_or_insert_with(begin).set(0, || text);
                }
            }
        });
        let done = work();
        drop(working);
        done
    })
}

/// What a command waits for, as far as the replicas know it.
fn what_is_known(reports: &[Report]) -> String {
    let silent = |report: &Report| report.answer.is_err();
    let is_full = |report: &Report| report.answer.as_ref().err() == Some(&Obstacle::Full);
    match (why_it_stands_still(reports), leader_of(reports)) {
        (Some(why), _) => format!("for a leader: {why}"),
        (None, Some(leader)) => format!(
            "for the leader, replica {} ({})",
            leader.node_id, leader.address
        ),
        (None, None) if reports.iter().all(silent) && reports.iter().any(is_full) => {
            "for the group: its replicas have no room for another session".to_owned()
        }
        (None, None) if reports.iter().all(silent) => {
            "for the group: no replica answers".to_owned()
        }
        (None, None) => "for a leader: no replica that answers has the group's state".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_group_is_said_to_be_silent() {
        let address = ([127, 0, 0, 1], 7471).into();
        let answer = Err(Obstacle::NoAnswer);
        let reports = [Report { address, answer }];
        assert_eq!(what_is_known(&reports), "for the group: no replica answers");
        let answer = Err(Obstacle::Full);
        let reports = [Report { address, answer }];
        let full = "for the group: its replicas have no room for another session";
        assert_eq!(what_is_known(&reports), full);
    }
}
