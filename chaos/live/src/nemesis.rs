//! Executes the schedule, one fault after the other, and waits for all voters in between.

mod world;

use std::time::Duration;

use trine_chaos::fault::{Strike, Victim};
use trine_client::{Report, voters_in_step};
use trine_local::{Group, LiveError};
use trine_transport::time::{Duration as Nanos, Instant};

use super::clients::Crew;
use super::links::Links;
use super::now;
use super::sandbox::Sandbox;
use super::schedule::Planned;
use super::small_disk;
use super::timeline::Done;
use trine_base::bars::above_bars;
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::network::Network;
use trine_base::output::Output;
use trine_base::progress::Progress;
use trine_base::units::{plural, show_ns};
use trine_local::config::RECOVERY_LIMIT;
use trine_local::start as group;

/// The poll interval for the passing of time.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The file that fills a disk. It is gone before the replica starts again, so the replica finds nothing foreign in its
/// directory.
const FILLER: &str = "filler";
/// The message of a replica that ends because its disk is full.
const NO_ROOM: &str = "No space left on device";
/// The time in which a replica has to end after it was asked to, or after its disk became full.
const END_LIMIT: Duration = Duration::from_secs(20);

/// One kill of the leader, or of all replicas, and its cost.
#[derive(Copy, Clone, Debug)]
pub(super) struct Failover {
    /// The node id; zero for all.
    pub(super) killed: usize,
    pub(super) killed_at: Instant,
    /// The time until the first acknowledgement of a write that was called after the kill.
    pub(super) first_write: Nanos,
    /// The time until every node id had a voter again, with a new identity for the killed one.
    pub(super) whole_again: Nanos,
}

/// The part of a run that injects faults, and its record of them.
pub(super) struct Nemesis<'a, N: Network> {
    pub(super) network: &'a N,
    pub(super) group: &'a mut Group,
    pub(super) crew: &'a Crew<N>,
    pub(super) links: Links,
    pub(super) sandbox: &'a Sandbox,
    pub(super) output: Output,
    pub(super) failovers: Vec<Failover>,
    pub(super) done: Vec<Done>,
}

/// The duration of the clients' work, and how much of it has passed.
pub(super) struct Clock {
    pub(super) begun: Instant,
    end: Instant,
    progress: Progress,
}

impl Clock {
    pub(super) fn new(duration: Nanos) -> Self {
        let begun = now();
        Self {
            begun,
            end: begun + duration,
            progress: Progress::new("under faults", duration.as_nanos()),
        }
    }

    /// When the work ends that was asked for.
    pub(super) fn end(&self) -> Instant {
        self.end
    }
}

impl<N: Network> Nemesis<'_, N> {
    /// Lets the clients work until the clock's end, under the faults of the schedule. Faults that had no turn remain in
    /// it.
    pub(super) fn work(
        &mut self,
        clock: &mut Clock,
        schedule: &mut Vec<Planned>,
    ) -> Result<(), Failure> {
        while let Some(planned) = schedule.first().copied() {
            let due = (clock.begun + planned.at).max(now());
            if due >= clock.end {
                break;
            }
            self.wait_until(clock, due)?;
            schedule.remove(0);
            let done = self.strike(clock, planned)?;
            let whole = show_ns(done.whole.saturating_since(done.begun).as_nanos());
            let tell = format!("  {}: all voters in step after {whole}", done.what);
            above_bars(|| self.output.line(tell));
            self.done.push(done);
        }
        let end = clock.end;
        self.wait_until(clock, end)
    }

    /// Waits until a time. A replica that ends by itself, or the user, ends the wait early.
    pub(super) fn wait_until(&mut self, clock: &mut Clock, until: Instant) -> Result<(), Failure> {
        while now() < until {
            interrupt::check()?;
            let left = Duration::from(until.saturating_since(now()));
            interrupt::pause(left.min(POLL_INTERVAL));
            let passed = now().saturating_since(clock.begun).as_nanos();
            let count = self.done.len() as u64;
            clock.progress.set(passed, || plural(count, "fault"));
            let exits = self.group.take_exits().map_err(group::live_failure)?;
            if let Some(exit) = exits.into_iter().next() {
                return Err(group::live_failure(LiveError::Ended { exit }));
            }
        }
        Ok(())
    }

    /// Injects one fault, removes it, and waits for the group to be whole.
    pub(super) fn strike(&mut self, clock: &mut Clock, planned: Planned) -> Result<Done, Failure> {
        let node_ids = self.node_ids(planned.victim)?;
        let victim = node_ids[0];
        let begun = now();
        let hold = planned.hold;
        let hit = match planned.strike {
            Strike::Kill => self.kill(&node_ids, begun)?,
            Strike::Restart => self.restart(victim)?,
            Strike::Pause => self.pause(clock, victim, hold)?,
            Strike::Part { clients } => {
                let more = if clients { " and from clients" } else { "" };
                let what = format!("cut replica {victim} off from the others{more}");
                self.change_links(clock, victim, hold, what, |links, group| {
                    links.part(group, victim, clients)
                })?
            }
            Strike::CutOff { deaf } => {
                let what = match deaf {
                    true => format!("replica {victim} did not hear the others"),
                    false => format!("the others did not hear replica {victim}"),
                };
                self.change_links(clock, victim, hold, what, |links, group| {
                    links.cut_off(group, victim, deaf)
                })?
            }
            Strike::Damage { further, faults } => {
                let faults = self.links.able(faults);
                let to = (victim - 1 + further) % self.group.addresses().len() + 1;
                let what = format!("link from {victim} to {to} with {faults}");
                self.change_links(clock, victim, hold, what, |links, group| {
                    links.damage(group, victim, to, &faults)
                })?
            }
            Strike::FillDisk => self.fill_disk(victim)?,
            Strike::Readdress { under, late } => {
                self.readdress(clock, victim, hold, under, late)?
            }
            Strike::Misname { how } => self.misname(clock, victim, hold, how)?,
            Strike::HangDisk => self.hang_disk(clock, victim, hold)?,
            Strike::Shrink { bytes, silent } => {
                self.shrink_link(clock, victim, hold, bytes, silent)?
            }
        };
        let ended = now();
        self.wait_until_whole()?;
        let whole = now();
        if planned.strike == Strike::Kill {
            let known = hit.known.unwrap_or(ended);
            self.failovers.push(Failover {
                killed: if node_ids.len() > 1 { 0 } else { victim },
                killed_at: begun,
                first_write: known.saturating_since(begun),
                whole_again: whole.saturating_since(begun),
            });
        }
        Ok(Done {
            planned,
            what: hit.what,
            node_ids,
            begun,
            ended,
            whole,
            fired: hit.fired,
        })
    }

    /// Waits until all voters are in step, and each of them knows where the others are. Until then the next fault could
    /// meet a group that has one replica less already.
    fn wait_until_whole(&mut self) -> Result<(), Failure> {
        let addresses = self.group.addresses().to_vec();
        let what = format!(
            "a leader with {} voters in step, which know where the others are",
            addresses.len()
        );
        let is_whole = |reports: &[Report]| {
            let known = reports.iter().filter_map(Report::status);
            let mut members = known.flat_map(|status| &status.members);
            voters_in_step(reports) == Some(addresses.len())
                && members.all(|member| addresses.contains(&member.address))
        };
        group::wait_for(self.network, self.group, &what, RECOVERY_LIMIT, is_whole).map(drop)
    }

    fn node_ids(&mut self, victim: Victim) -> Result<Vec<usize>, Failure> {
        match victim {
            Victim::Replica(index) => Ok(vec![index + 1]),
            Victim::All => Ok((1..=self.group.addresses().len()).collect()),
            Victim::Leader => {
                let what = "a leader to break";
                let reports =
                    group::wait_for(self.network, self.group, what, RECOVERY_LIMIT, |reports| {
                        trine_client::leader_of(reports).is_some()
                    })?;
                let node_id = group::leader_node_id(self.group, &reports);
                let node_id = node_id.ok_or_else(|| {
                    Failure::usage("the leader is none of the replicas that were started", "")
                })?;
                Ok(vec![node_id])
            }
        }
    }

    /// Sends SIGKILL. In memory mode the other replicas have to make progress before the dead one may return with a new
    /// identity. If all die at once, the acknowledged writes are on the disks.
    fn kill(&mut self, node_ids: &[usize], begun: Instant) -> Result<Hit, Failure> {
        for &node_id in node_ids {
            self.group.kill(node_id).map_err(group::live_failure)?;
        }
        let restart = |nemesis: &mut Self| {
            let mut node_ids = node_ids.iter();
            node_ids
                .try_for_each(|&node_id| nemesis.group.restart(node_id))
                .map_err(group::live_failure)
        };
        let all = node_ids.len() > 1;
        if all {
            restart(self)?;
        }
        let known = first_write_after(self.group, self.crew, begun)?;
        if !all {
            restart(self)?;
        }
        let what = match all {
            true => "killed all replicas".to_owned(),
            false => format!("killed replica {}", node_ids[0]),
        };
        Ok(Hit {
            known: Some(known),
            ..Hit::new(what)
        })
    }

    fn restart(&mut self, victim: usize) -> Result<Hit, Failure> {
        self.stop(victim)?;
        self.group.restart(victim).map_err(group::live_failure)?;
        Ok(Hit::new(format!("restarted replica {victim}")))
    }

    /// Asks a replica to end, and waits for that.
    fn stop(&mut self, victim: usize) -> Result<(), Failure> {
        let process = self.group.process(victim).ok_or_else(is_down)?;
        process.ask_to_stop().map_err(control)?;
        self.wait_for_end(victim, "asked to end")
    }

    fn pause(&mut self, clock: &mut Clock, victim: usize, hold: Nanos) -> Result<Hit, Failure> {
        let process = self.group.process(victim).ok_or_else(is_down)?;
        process.pause().map_err(control)?;
        let waited = self.wait_until(clock, now() + hold);
        // The process resumes even if the wait was cut short, because a paused process cannot be asked to end.
        let process = self.group.process(victim).ok_or_else(is_down)?;
        process.resume().map_err(control)?;
        waited?;
        let hold = show_ns(hold.as_nanos());
        Ok(Hit::new(format!("paused replica {victim} for {hold}")))
    }

    /// Changes the victim's links for a while.
    fn change_links(
        &mut self,
        clock: &mut Clock,
        victim: usize,
        hold: Nanos,
        what: String,
        change: impl FnOnce(&Links, &Group) -> Result<(), Failure>,
    ) -> Result<Hit, Failure> {
        let before = self.links.damaged(self.group, victim)?;
        change(&self.links, self.group)?;
        let waited = self.wait_until(clock, now() + hold);
        let after = self.links.damaged(self.group, victim)?;
        let lost = self.links.heal(self.group, victim)?;
        waited?;
        let hold = show_ns(hold.as_nanos());
        Ok(Hit {
            fired: after > before || lost > 0,
            ..Hit::new(format!("{what} for {hold}"))
        })
    }

    fn fill_disk(&mut self, victim: usize) -> Result<Hit, Failure> {
        let filler = self.sandbox.disks[victim - 1].join(FILLER);
        small_disk::fill(&filler)?;
        let ended = self.wait_for_end(victim, "left without room on its disk");
        small_disk::free(&filler)?;
        ended?;
        let process = self.group.process(victim).ok_or_else(is_down)?;
        let said = process.tail();
        if !said.iter().any(|line| line.contains(NO_ROOM)) {
            let said = said.join("\n  ");
            let message = format!("replica {victim} ended, but not for want of room: {said}");
            return Err(Failure::negative(message, ""));
        }
        self.group.restart(victim).map_err(group::live_failure)?;
        Ok(Hit::new(format!("filled the disk of replica {victim}")))
    }

    fn wait_for_end(&mut self, victim: usize, why: &str) -> Result<(), Failure> {
        let until = now() + Nanos::from(END_LIMIT);
        while now() < until {
            interrupt::check()?;
            let process = self.group.process(victim).ok_or_else(is_down)?;
            let ended = process.wait_at_most(POLL_INTERVAL).map_err(control)?;
            if ended.is_some() {
                return Ok(());
            }
        }
        let limit = humantime::format_duration(END_LIMIT);
        Err(Failure::negative(
            format!("replica {victim} was {why} and did not end within {limit}"),
            "",
        ))
    }
}

/// The effect of a fault.
struct Hit {
    what: String,
    fired: bool,
    /// The time at which a write that was called after the fault began was known to have succeeded.
    known: Option<Instant>,
}

impl Hit {
    fn new(what: String) -> Self {
        Self {
            what,
            fired: true,
            known: None,
        }
    }
}

fn is_down() -> Failure {
    Failure::usage("a replica that was to be broken does not run", "")
}

fn control(error: std::io::Error) -> Failure {
    group::live_failure(LiveError::Control(error))
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
