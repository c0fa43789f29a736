//! Kills leaders, starts them again, and waits for all voters before the next kill.

use std::time::Duration;

use trine_chaos::live::Group;
use trine_transport::time::{Duration as Nanos, Instant};

use super::clients::Crew;
use super::now;
use crate::args::ChaosArguments;
use crate::config::RECOVERY_LIMIT;
use crate::failure::Failure;
use crate::network::Network;
use crate::output::Output;
use crate::progress::Progress;
use crate::units::show_ns;
use crate::{group, interrupt};

/// How often the passing of time is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// One leader's death and what it cost.
#[derive(Copy, Clone, Debug)]
pub(super) struct Failover {
    /// The place; zero for all.
    pub(super) killed: usize,
    pub(super) killed_at: Instant,
    /// Until a write was acknowledged that had been called after the kill.
    pub(super) first_write: Nanos,
    /// Until every place had a voter again, the killed one under a new identity.
    pub(super) whole_again: Nanos,
}

/// Lets the clients work for the time that was asked for, killing leaders meanwhile.
pub(super) fn work<N: Network>(
    network: &N,
    group: &mut Group,
    arguments: &ChaosArguments,
    crew: &Crew<N>,
    output: Output,
    failovers: &mut Vec<Failover>,
) -> Result<(), Failure> {
    let mut clock = Clock::new(Nanos::from(arguments.duration));
    let end = clock.end;
    let (leader, all) = (arguments.kill_leader_every, arguments.kill_all_every);
    let Some(every) = leader.or(all).map(Nanos::from) else {
        return clock.wait_until(group, end, 0);
    };
    let mut next_kill = now() + every;
    while next_kill < end {
        clock.wait_until(group, next_kill, failovers.len())?;
        let failover = match all {
            None => kill_leader(network, group, crew)?,
            Some(_) => kill_all(network, group, crew)?,
        };
        let who = match failover.killed {
            0 => "all replicas".to_owned(),
            place => format!("replica {place}"),
        };
        let tell = format!(
            "  killed {who}: first new write after {}, all voters back after {}",
            show_ns(failover.first_write.as_nanos()),
            show_ns(failover.whole_again.as_nanos()),
        );
        clock.progress.suspend(|| output.line(tell));
        failovers.push(failover);
        next_kill = (next_kill + every).max(now());
    }
    clock.wait_until(group, end, failovers.len())
}

/// The time that the clients work, and how much of it has passed.
struct Clock {
    begun: Instant,
    end: Instant,
    progress: Progress,
}

impl Clock {
    fn new(duration: Nanos) -> Self {
        let begun = now();
        Self {
            begun,
            end: begun + duration,
            progress: Progress::new("under faults", duration.as_nanos()),
        }
    }

    /// Waits; a replica that ends by itself meanwhile, or the user, ends the wait.
    fn wait_until(
        &mut self,
        group: &mut Group,
        until: Instant,
        failovers: usize,
    ) -> Result<(), Failure> {
        while now() < until {
            interrupt::check()?;
            let left = Duration::from(until.saturating_since(now()));
            interrupt::pause(left.min(LOOK_EVERY));
            let passed = now().saturating_since(self.begun).as_nanos();
            self.progress
                .set(passed, || format!("{failovers} leaders killed"));
            let exits = group.take_exits().map_err(group::live_failure)?;
            if let Some(exit) = exits.into_iter().next() {
                let error = trine_chaos::live::LiveError::Ended { exit };
                return Err(group::live_failure(error));
            }
        }
        Ok(())
    }
}

fn kill_leader<N: Network>(
    network: &N,
    group: &mut Group,
    crew: &Crew<N>,
) -> Result<Failover, Failure> {
    let what = "a leader to kill";
    let reports = group::wait_for(network, group, what, RECOVERY_LIMIT, |reports| {
        trine_chaos::live::leader_of(reports).is_some()
    })?;
    let killed = group::leader_place(group, &reports).ok_or_else(|| {
        Failure::usage("the leader is none of the replicas that were started", "")
    })?;
    group.kill(killed).map_err(group::live_failure)?;
    let killed_at = now();
    let known = first_write_after(group, crew, killed_at)?;
    group.restart(killed).map_err(group::live_failure)?;
    whole_again(network, group, killed, killed_at, known)
}

/// The end of every process at once: what was acknowledged is on the disks.
fn kill_all<N: Network>(
    network: &N,
    group: &mut Group,
    crew: &Crew<N>,
) -> Result<Failover, Failure> {
    let places = 1..=group.addresses().len();
    let killed_at = now();
    for place in places.clone() {
        group.kill(place).map_err(group::live_failure)?;
    }
    for place in places {
        group.restart(place).map_err(group::live_failure)?;
    }
    let known = first_write_after(group, crew, killed_at)?;
    whole_again(network, group, 0, killed_at, known)
}

fn first_write_after<N: Network>(
    group: &mut Group,
    crew: &Crew<N>,
    killed_at: Instant,
) -> Result<Instant, Failure> {
    group
        .wait_until(
            "a write after the leader's death",
            RECOVERY_LIMIT,
            |_| match crew.write_called_after(killed_at) {
                Some(known) => Some(Ok(known)),
                None => interrupt::check().err().map(Err),
            },
        )
        .map_err(group::live_failure)?
}

fn whole_again<N: Network>(
    network: &N,
    group: &mut Group,
    killed: usize,
    killed_at: Instant,
    known: Instant,
) -> Result<Failover, Failure> {
    let count = group.addresses().len();
    group::wait_for_voters(network, group, count, RECOVERY_LIMIT)?;
    Ok(Failover {
        killed,
        killed_at,
        first_write: known.saturating_since(killed_at),
        whole_again: now().saturating_since(killed_at),
    })
}
