//! What the parameters of an event are drawn with.

use super::{Amid, Name, Topology, Victim};
use std::collections::BTreeSet;
use trine_transport::prng::{Prng, Ratio};
use trine_transport::time::Duration;

/// How far a drifting clock runs wrong at most, in millionths.
pub const DRIFT_PER_MILLION_MAX: u64 = 10_000;

/// Draws the parameters of the events of one kind.
pub struct Draw {
    pub(super) prng: Prng,
    topology: Topology,
}

impl Draw {
    pub(super) fn new(prng: Prng, topology: Topology) -> Self {
        Self { prng, topology }
    }

    pub(super) fn chance(&mut self, percent: u32) -> bool {
        self.prng.chance(Ratio::percent(percent))
    }

    pub(super) fn span(&mut self, millis_min: u64, millis_max: u64) -> Duration {
        Duration::from_micros(self.prng.in_range(millis_min * 1_000..=millis_max * 1_000))
    }

    pub(super) fn machine(&mut self) -> usize {
        self.prng.below(self.topology.machines() as u64) as usize
    }

    pub(super) fn client_machine(&mut self) -> usize {
        self.prng.below(self.topology.client_machines as u64) as usize
    }

    pub(super) fn link(&mut self) -> (usize, usize) {
        let from = self.machine();
        let step = 1 + self.prng.below(self.topology.machines() as u64 - 1) as usize;
        (from, (from + step) % self.topology.machines())
    }

    pub(super) fn side(&mut self) -> BTreeSet<usize> {
        let mut machines: Vec<usize> = (0..self.topology.machines()).collect();
        self.prng.shuffle(&mut machines);
        let count = 1 + self.prng.below(machines.len() as u64 - 1) as usize;
        machines.into_iter().take(count).collect()
    }

    pub(super) fn victim(&mut self) -> Victim {
        if self.chance(50) {
            return Victim::Leader;
        }
        Victim::Replica(self.replica())
    }

    /// Whose disk hangs.
    pub(super) fn hanging(&mut self) -> Victim {
        match self.prng.below(10) {
            0..6 => Victim::Leader,
            6..9 => Victim::Replica(self.replica()),
            _ => Victim::All,
        }
    }

    pub(super) fn replica(&mut self) -> usize {
        self.prng.below(self.topology.replicas as u64) as usize
    }

    pub(super) fn amid(&mut self) -> Amid {
        let span = self.span(50, 1_500);
        match self.prng.below(3) {
            0 => Amid::Peace,
            1 => Amid::Cut(span),
            _ => Amid::Death(span),
        }
    }

    /// Who gets another address.
    pub(super) fn renumbered(&mut self) -> Victim {
        match self.prng.below(10) {
            0..3 => Victim::Leader,
            3..6 => Victim::Replica(self.replica()),
            _ => Victim::All,
        }
    }

    pub(super) fn name(&mut self) -> Name {
        match self.prng.below(3) {
            0 => Name::Late(self.span(1, 4_000)),
            1 => Name::Lies(self.span(1, 15_000)),
            _ => Name::Vanishes,
        }
    }

    /// For how long a copy of a disk runs, if it does.
    pub(super) fn copied(&mut self) -> Option<Duration> {
        self.chance(30).then(|| self.span(5_000, 20_000))
    }

    /// Packets that an attacker sends at once.
    pub(super) fn packets(&mut self) -> u64 {
        self.prng.in_range(10..=300)
    }

    /// Parts per million by which a clock runs too fast or too slow.
    pub(super) fn drift(&mut self) -> i32 {
        self.prng.in_range(0..=DRIFT_PER_MILLION_MAX * 2) as i32 - DRIFT_PER_MILLION_MAX as i32
    }
}
