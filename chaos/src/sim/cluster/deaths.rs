//! The process beside each replica's, which tells the group that this one has ended. What it says may be lost, come late,
//! and come again.

use super::Cluster;
use crate::checker::Verdict;
use crate::sim::Host;
use crate::sim::deaths::{DeathCounts, DeathLedger};
use crate::sim::member::Member;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use trine_protocol::message::{DEATH_NOTICE, RunSecret};
use trine_transport::prng::{Prng, Ratio};
use trine_transport::time::Duration;
use trine_transport::wire::notice;

/// The machine may die with the process: then nobody tells.
const TOLD: Ratio = Ratio::percent(60);
/// A stranger who has seen a notice sends it again later.
const AGAIN: Ratio = Ratio::percent(30);
/// A stranger says so of a replica that is only cut off, to each of the others.
const FALSE: Ratio = Ratio::percent(50);
/// For so long the processes may take, in nanoseconds.
const LATE_NS: u64 = 40_000_000;
/// For so long the stranger waits.
const AGAIN_NS: (u64, u64) = (50_000_000, 8_000_000_000);

/// The secrets of the runs under way.
pub(super) struct Companions {
    pub(super) ledger: Rc<RefCell<DeathLedger>>,
    /// Apart from all others.
    prng: Prng,
    secrets: BTreeMap<Host, RunSecret>,
    counts: DeathCounts,
}

impl Companions {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            ledger: Rc::default(),
            prng: Prng::new(seed ^ 0x00de_ad00_00de_ad00),
            secrets: BTreeMap::new(),
            counts: DeathCounts::default(),
        }
    }

    /// The secret of a run that begins.
    pub(super) fn begin(&mut self, host: Host) -> RunSecret {
        let secret = self.draw();
        self.secrets.insert(host, secret);
        secret
    }

    /// The run of a replica that runs at a machine.
    pub(super) fn run_at(&self, host: Host) -> Option<RunSecret> {
        self.secrets.get(&host).copied()
    }

    fn draw(&mut self) -> RunSecret {
        let mut secret = RunSecret([0; 16]);
        self.prng.fill(&mut secret.0);
        secret
    }
}

impl Cluster {
    /// Ends the program on a machine immediately. If it is a replica, the others may be told.
    pub(crate) fn kill(&mut self, host: Host) {
        let Some(program) = self.world.kill(host) else {
            return;
        };
        self.companions.counts.elections += elections_of(&program);
        if let Some(node) = program.replica() {
            let incarnation = node.replica().incarnation();
            self.companions
                .ledger
                .borrow_mut()
                .note_role(incarnation, None);
            self.seats.borrow_mut().note_crash(incarnation);
        }
        let secret = self.companions.secrets.remove(&host);
        if let Some(secret) = secret
            && self.companions.prng.chance(TOLD)
        {
            self.tell_death(host, secret);
        }
    }

    fn tell_death(&mut self, host: Host, secret: RunSecret) {
        let bytes = notice(DEATH_NOTICE, &secret.0);
        let others = self.places();
        for other in others.into_iter().filter(|&other| other != host) {
            let prng = &mut self.companions.prng;
            let late = Duration::from_nanos(prng.below(LATE_NS));
            self.companions.counts.told += 1;
            self.world.post(host, other, bytes.clone(), late);
            if prng.chance(AGAIN) {
                let again = Duration::from_nanos(prng.in_range(AGAIN_NS.0..=AGAIN_NS.1));
                self.world.post(host, other, bytes.clone(), again);
            }
        }
    }

    /// A stranger says to all others that this replica has ended, without its secret.
    pub(crate) fn tell_false_death(&mut self, host: Host) {
        let others: Vec<Host> = self
            .places()
            .into_iter()
            .filter(|&other| other != host)
            .collect();
        let neighbours = others.iter().cycle().skip(1);
        for (&to, &from) in others.iter().zip(neighbours) {
            if !self.companions.prng.chance(FALSE) {
                continue;
            }
            let secret = self.companions.draw();
            let late = Duration::from_nanos(self.companions.prng.below(LATE_NS));
            self.companions.counts.forged += 1;
            let bytes = notice(DEATH_NOTICE, &secret.0);
            self.world.post(from, to, bytes, late);
        }
    }

    /// No leader was taken for ended that was not.
    pub(crate) fn death_verdict(&self) -> Verdict {
        let finding = self.companions.ledger.borrow().finding.clone();
        finding.map_or(Verdict::Pass, Verdict::violation)
    }

    /// At no time would one crash have left the group without a leader for good.
    pub(crate) fn seat_verdict(&self) -> Verdict {
        let seats = self.seats.borrow();
        seats.finding().map_or(Verdict::Pass, Verdict::violation)
    }

    /// No leader rested while expired keys were left.
    pub(crate) fn sweep_verdict(&self) -> Verdict {
        let sweeps = self.sweeps.borrow();
        let finding = sweeps.finding.clone();
        finding.map_or(Verdict::Pass, Verdict::violation)
    }

    pub(crate) fn death_counts(&self) -> DeathCounts {
        let mut counts = self.companions.counts;
        let programs = self.world.machines().map(|(_, machine)| &machine.program);
        counts.elections += programs.map(elections_of).sum::<u64>();
        counts
    }
}

/// Elections that a replica has begun because it was told of a death.
fn elections_of(program: &Member) -> u64 {
    let node = program.replica();
    node.map_or(0, |node| node.replica().counters().leader_deaths)
}
