//! Supervises the replicas of `trine up`. It restarts a dead one, and reports when the group is whole or beyond help.

use std::time::{Duration, Instant};

use trine_client::{Report, majority_gone, voters_in_step};
use trine_local::{Exit, Group, LiveError};
use trine_protocol::status::Role;

use crate::config::{RESTART_PAUSE, RESTART_PAUSE_MAX, RESTART_PAUSE_RESET, SUPERVISE_EVERY};
use trine_base::announce::Announcer;
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::network::Network;
use trine_base::units::show_duration;
use trine_local::start as group;

/// The interval of questions to the replicas while the group is not whole.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Supervises the replicas, whose logs are on disk or in memory, until the user ends it.
pub(super) fn supervise<N: Network>(
    network: &N,
    mut group: Group,
    on_disk: bool,
    announcer: Announcer,
) -> Result<(), Failure> {
    let now = Instant::now();
    let mut restarts = vec![Restarts::new(now); group.addresses().len()];
    let mut healing = None;
    while !interrupt::interrupted() {
        interrupt::pause(SUPERVISE_EVERY);
        for exit in group.take_exits().map_err(group::live_failure)? {
            let pause = restarts[exit.node_id - 1].on_exit(Instant::now());
            tell_exit(&exit, pause, on_disk, announcer);
            healing = Some(Healing::new(on_disk));
        }
        for (node_id, replica) in (1..).zip(&mut restarts) {
            if replica.is_due(Instant::now())
                && let Err(error) = group.restart(node_id)
            {
                // The others go on: they may be the majority, and their memory all that there is.
                let pause = replica.on_exit(Instant::now());
                tell_not_started(node_id, error, pause, announcer);
            }
        }
        if let Some(state) = &mut healing
            && state.poll(network, &group, announcer)
        {
            healing = None;
        }
    }
    announcer.line("stopping ...");
    group.stop().map_err(group::live_failure)
}

/// The start time of a replica, and the time of its next restart.
#[derive(Copy, Clone, Debug)]
struct Restarts {
    started: Instant,
    pause: Duration,
    due: Option<Instant>,
}

impl Restarts {
    fn new(now: Instant) -> Self {
        Self {
            started: now,
            pause: RESTART_PAUSE,
            due: None,
        }
    }

    /// Records that the replica has ended. Returns the pause before its restart, which doubles after a short run.
    fn on_exit(&mut self, now: Instant) -> Duration {
        if now - self.started > RESTART_PAUSE_RESET {
            self.pause = RESTART_PAUSE;
        }
        let pause = self.pause;
        self.due = Some(now + pause);
        self.pause = (pause * 2).min(RESTART_PAUSE_MAX);
        pause
    }

    /// Whether it has to start now; then it counts as started.
    fn is_due(&mut self, now: Instant) -> bool {
        let due = self.due.is_some_and(|due| due <= now);
        if due {
            self.due = None;
            self.started = now;
        }
        due
    }
}

/// A group that lost a replica, until it is whole again.
struct Healing {
    next_poll: Instant,
    on_disk: bool,
    told_gone: bool,
    told_unasked: bool,
}

impl Healing {
    fn new(on_disk: bool) -> Self {
        Self {
            next_poll: Instant::now() + ASK_EVERY,
            on_disk,
            told_gone: false,
            told_unasked: false,
        }
    }

    /// Asks the replicas if it is time to; returns true when the group is whole. While they cannot be asked, it is not.
    fn poll<N: Network>(&mut self, network: &N, group: &Group, announcer: Announcer) -> bool {
        if Instant::now() < self.next_poll {
            return false;
        }
        self.next_poll = Instant::now() + ASK_EVERY;
        let reports = match group::survey(network, group.addresses()) {
            Ok(reports) => reports,
            Err(failure) => {
                if !std::mem::replace(&mut self.told_unasked, true) {
                    let why = failure.in_one_line();
                    announcer.event(format_args!("the replicas cannot be asked: {why}"));
                }
                return false;
            }
        };
        self.told_unasked = false;
        if !self.told_gone
            && let Some(what) = what_is_gone(&reports, self.on_disk)
        {
            self.told_gone = true;
            announcer.event(what);
        }
        let whole = voters_in_step(&reports) == Some(group.addresses().len());
        if whole {
            announcer.event("all replicas vote again");
        }
        whole
    }
}

/// Describes a group that will never serve again. It had begun. If none of its replicas belongs to a group now, all
/// have lost it. None of them has anything to wait for.
fn what_is_gone(reports: &[Report], on_disk: bool) -> Option<&'static str> {
    let knows_nothing = |report: &Report| {
        let status = report.status();
        status.is_some_and(|status| status.role == Role::Unattached)
    };
    if majority_gone(reports) {
        return Some(
            "most replicas died before the others could restore them: what the group stored is \
             gone. Stop it with Ctrl-C and start a new one.",
        );
    }
    if !reports.iter().all(knows_nothing) {
        return None;
    }
    Some(match on_disk {
        true => {
            "no replica has its files any more: what the group stored is gone. Stop it with \
             Ctrl-C; the same command then starts a new, empty one."
        }
        false => {
            "all replicas died, and the data was only in their memory: what the group stored is \
             gone. Stop it with Ctrl-C; the same command then starts a new, empty one (with --log \
             disk the data would survive)."
        }
    })
}

fn tell_exit(exit: &Exit, pause: Duration, on_disk: bool, announcer: Announcer) {
    let pause = show_duration(pause);
    let (node_id, status) = (exit.node_id, exit.status);
    let as_what = match on_disk {
        true => "to continue with its log",
        false => "empty, to re-join the group",
    };
    announcer.event(format_args!(
        "replica {node_id} ended ({status}); starting it again in {pause}, {as_what}"
    ));
}

fn tell_not_started(node_id: usize, error: LiveError, pause: Duration, announcer: Announcer) {
    let pause = show_duration(pause);
    let why = group::live_failure(error).in_one_line();
    announcer.event(format_args!(
        "replica {node_id} was not started: {why}; trying again in {pause}"
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_that_dies_again_and_again_waits_longer_each_time() {
        let start = Instant::now();
        let mut replica = Restarts::new(start);
        assert_eq!(replica.on_exit(start), RESTART_PAUSE);
        assert!(!replica.is_due(start));
        let restarted = start + RESTART_PAUSE;
        assert!(replica.is_due(restarted) && !replica.is_due(restarted));
        assert_eq!(replica.on_exit(restarted), RESTART_PAUSE * 2);
        let mut last = Duration::ZERO;
        for _ in 0..20 {
            last = replica.on_exit(restarted);
        }
        assert_eq!(last, RESTART_PAUSE_MAX);
        let much_later = restarted + RESTART_PAUSE_RESET * 2;
        assert_eq!(
            replica.on_exit(much_later),
            RESTART_PAUSE,
            "it had lived long"
        );
    }
}
