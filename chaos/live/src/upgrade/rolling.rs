//! Replaces the replicas, one after the other, and has backups cross meanwhile.

use std::ffi::OsString;
use std::time::Duration;

use serde_json::Value;
use trine_base::bars::above_bars;
use trine_base::failure::Failure;
use trine_base::network::Network;
use trine_base::units::show_ns;
use trine_chaos::fault::Victim;
use trine_client::{Report, leader_of};
use trine_local::config::RECOVERY_LIMIT;
use trine_local::start as group;
use trine_transport::time::{Duration as Nanos, Instant};

use super::Upgrade;
use super::asking::words_of_clients;
use super::crossing::{Crossed, Scratch, cross_both};
use super::judge::Passed;
use super::legs::Leg;
use super::program::Binary;
use crate::nemesis::{Clock, Nemesis};
use crate::now;
use crate::schedule::Planned;

/// How much longer than asked for a run may take until all replicas were replaced.
const LATE_LIMIT: Nanos = Nanos::from_secs(600);
/// How long the clients go on at least after the last step of each leg, and after the switch.
const AFTERWARDS: Nanos = Nanos::from_secs(2);
/// How long the switch to a newer state version may take, and how often it is looked for.
const SWITCH_LIMIT: Nanos = Nanos::from_secs(20);
const SWITCH_POLL: Nanos = Nanos::from_millis(200);

/// What has happened so far.
#[derive(Debug, Default)]
pub(crate) struct Course {
    /// The legs that came to their end.
    pub(super) passed: Vec<Passed>,
    pub(super) crossed: Vec<Crossed>,
    /// Replicas that took the state from a leader that was the other program.
    pub(super) snapshots: u64,
    /// What became of the state version at the end.
    pub(super) switch: Option<String>,
    /// How much longer than asked for the steps took.
    pub(super) late: Nanos,
}

/// The part of a run that replaces replicas.
pub(crate) struct Rolling<'u, 'r, 'n, N: Network> {
    upgrade: &'u Upgrade,
    nemesis: &'r mut Nemesis<'n, N>,
    /// Whether each replica is the new program, by node id.
    are_new: Vec<bool>,
    scratch: Scratch,
    course: &'r mut Course,
}

impl<'u, 'r, 'n, N: Network> Rolling<'u, 'r, 'n, N> {
    pub(crate) fn new(
        upgrade: &'u Upgrade,
        nemesis: &'r mut Nemesis<'n, N>,
        course: &'r mut Course,
    ) -> Result<Self, Failure> {
        Ok(Self {
            upgrade,
            are_new: vec![false; nemesis.group.addresses().len()],
            nemesis,
            scratch: Scratch::new()?,
            course,
        })
    }

    /// Goes through all legs, and lets the clients work until the clock's end or a moment longer. Steps that had no turn
    /// remain in `missed`.
    pub(crate) fn work(
        mut self,
        clock: &mut Clock,
        missed: &mut Vec<Planned>,
    ) -> Result<(), Failure> {
        let replicas = self.are_new.len();
        let mut begun = now();
        for (index, planned) in self.upgrade.schedule.iter().enumerate() {
            let leg = Leg::of(index, replicas);
            self.nemesis.wait_until(clock, clock.begun + planned.at)?;
            if now() > clock.end() + LATE_LIMIT {
                return Err(too_late(leg));
            }
            if index % replicas == 0 {
                begun = now();
            }
            missed.remove(0);
            self.replace(clock, *planned, leg)?;
            match (leg, (index + 1) % replicas) {
                (Leg::On, 1) => self.cross("on the way on")?,
                // The last one of the new program is still there.
                (Leg::Back, 1) => self.cross("on the way back")?,
                (_, 0) => self.pass(clock, leg, begun)?,
                _ => {}
            }
        }
        self.switch(clock)?;
        self.course.late = now().saturating_since(clock.end());
        let end = clock.end();
        self.nemesis.wait_until(clock, end)
    }

    /// All replicas of the leg were replaced: lets the clients work with the program that they are now.
    fn pass(&mut self, clock: &mut Clock, leg: Leg, begun: Instant) -> Result<(), Failure> {
        let whole = now();
        self.nemesis.wait_until(clock, whole + AFTERWARDS)?;
        let ended = now();
        self.course.passed.push(Passed {
            leg,
            begun,
            whole,
            ended,
        });
        Ok(())
    }

    /// Ends a replica, starts the other program in its place, and waits until all voters are in step.
    fn replace(&mut self, clock: &mut Clock, planned: Planned, leg: Leg) -> Result<(), Failure> {
        let Victim::Replica(index) = planned.victim else {
            unreachable!("the schedule names each replica");
        };
        let (node_id, is_new) = (index + 1, leg.is_to_new());
        let pair = &self.upgrade.pair;
        let (program, name) = match is_new {
            true => (&pair.new, "new"),
            false => (&pair.old, "old"),
        };
        self.nemesis.group.run_by(node_id, program.path.clone());
        let mut done = self.nemesis.strike(clock, planned)?;
        done.what = format!("{leg}: {}, the {name} program took its place", done.what);
        let reports = self.wait_for_program(node_id, program)?;
        self.are_new[index] = is_new;
        self.note_snapshot(node_id, &reports);
        self.require_state_version(&reports)?;
        let whole = show_ns(done.whole.saturating_since(done.begun).as_nanos());
        let tell = format!("  {}: all voters in step after {whole}", done.what);
        above_bars(|| self.nemesis.output.line(tell));
        self.nemesis.done.push(done);
        Ok(())
    }

    /// Waits until the replica itself says that it is this program.
    fn wait_for_program(
        &mut self,
        node_id: usize,
        program: &Binary,
    ) -> Result<Vec<Report>, Failure> {
        let address = self.nemesis.group.addresses()[node_id - 1];
        let what = format!("a leader, and replica {node_id} as {}", program.about);
        let is_program = |reports: &[Report]| {
            let own = reports.iter().find(|report| report.address == address);
            let answer = own.and_then(|report| report.answer.as_ref().ok());
            leader_of(reports).is_some()
                && answer.is_some_and(|node| node.program.as_ref() == Some(&program.about))
        };
        let Nemesis { network, group, .. } = &mut *self.nemesis;
        group::wait_for(*network, group, &what, RECOVERY_LIMIT, is_program)
    }

    /// Counts a snapshot that came from a leader of the other program.
    fn note_snapshot(&mut self, node_id: usize, reports: &[Report]) {
        let group = &*self.nemesis.group;
        let address = group.addresses()[node_id - 1];
        let installed = reports
            .iter()
            .filter(|report| report.address == address)
            .filter_map(Report::status)
            .any(|status| status.counters.snapshots_installed > 0);
        let leader = group::leader_node_id(group, reports);
        let is_other =
            leader.is_some_and(|leader| self.are_new[leader - 1] != self.are_new[node_id - 1]);
        self.course.snapshots += u64::from(installed && is_other);
    }

    /// No leader may switch by itself, because no replica could go back then.
    fn require_state_version(&self, reports: &[Report]) -> Result<(), Failure> {
        let first = self.upgrade.pair.old.about.state_version;
        match leader_of(reports).map(|leader| leader.state_version) {
            Some(used) if used != first => Err(Failure::negative(
                format!(
                    "the group began with state version {first} and uses {used} now, although nobody has asked for the switch"
                ),
                "",
            )),
            _ => Ok(()),
        }
    }

    fn cross(&mut self, when: &'static str) -> Result<(), Failure> {
        let Nemesis { network, group, .. } = &*self.nemesis;
        let pair = &self.upgrade.pair;
        // Each program's backup is the image of a replica of that program.
        let replica_of = |is_new: bool| {
            let at = self.are_new.iter().position(|&other| other == is_new);
            at.expect("the group is of both programs") + 1
        };
        let replicas = [replica_of(false), replica_of(true)];
        let place = (&self.scratch, when);
        let crossed = cross_both(*network, pair, place, &group.peers(), replicas)?;
        for Crossed {
            made_by,
            restored_by,
            ..
        } in &crossed
        {
            let tell = format!("  a backup by {made_by} was restored by {restored_by}, {when}");
            above_bars(|| self.nemesis.output.line(tell));
        }
        self.course.crossed.extend(crossed);
        Ok(())
    }

    /// Has the group use the newer state version, if there is one, and sees that clients go on with it.
    fn switch(&mut self, clock: &mut Clock) -> Result<(), Failure> {
        let pair = &self.upgrade.pair;
        let (from, to) = (pair.old.about.state_version, pair.new.about.state_version);
        if !pair.switch() {
            let text = format!("both programs use state version {to}: there was none to switch to");
            self.course.switch = Some(text);
            return Ok(());
        }
        self.ask(&["upgrade", "finish"])?;
        let asked = now();
        while !self.uses(to)? {
            if now() > asked + SWITCH_LIMIT {
                let limit = show_ns(SWITCH_LIMIT.as_nanos());
                let message = format!(
                    "state version {to} was not in use {limit} after `trine upgrade finish`"
                );
                return Err(Failure::negative(message, ""));
            }
            self.nemesis.wait_until(clock, now() + SWITCH_POLL)?;
        }
        let begun = now();
        self.nemesis.wait_until(clock, begun + AFTERWARDS)?;
        self.require_write_after(begun)?;
        self.course.passed.push(Passed {
            leg: Leg::Switched,
            begun,
            whole: begun,
            ended: now(),
        });
        let text = format!("`trine upgrade finish` switched from state version {from} to {to}");
        above_bars(|| self.nemesis.output.line(format_args!("  {text}")));
        self.course.switch = Some(text);
        Ok(())
    }

    fn require_write_after(&self, switched: Instant) -> Result<(), Failure> {
        match self.nemesis.crew.write_called_after(switched) {
            Some(_) => Ok(()),
            None => {
                let after = humantime::format_duration(Duration::from(AFTERWARDS));
                let message = format!("no write was acknowledged within {after} after the switch");
                Err(Failure::negative(message, ""))
            }
        }
    }

    /// Whether `trine upgrade status` of the new program says that this state version is in use.
    fn uses(&self, version: u8) -> Result<bool, Failure> {
        let said = self.ask(&["upgrade", "status", "--json"])?;
        let document: Value = serde_json::from_str(&said).unwrap_or_default();
        Ok(document["state_version"] == version)
    }

    fn ask(&self, command: &[&str]) -> Result<String, Failure> {
        let Nemesis { network, group, .. } = &*self.nemesis;
        let command = command.iter().map(OsString::from);
        let words = words_of_clients(*network, command, &group.peers());
        self.upgrade.pair.new.ask(&words)
    }
}

fn too_late(leg: Leg) -> Failure {
    let limit = humantime::format_duration(Duration::from(LATE_LIMIT));
    Failure::negative(
        format!("the leg `{leg}` was not over {limit} after the end of --for"),
        "give a longer --for, or fewer --replicas",
    )
}
