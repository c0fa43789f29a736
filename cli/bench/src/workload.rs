//! The requested operations: YCSB's workloads, or a share of reads.

use std::collections::BTreeSet;
use std::str::FromStr;

use trine_transport::prng::{Prng, Ratio};

use super::zipf::{Chooser, Distribution};

/// The kind of one operation.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum OperationKind {
    Read,
    Update,
    Insert,
    /// The items behind a key, in their order.
    Scan,
    /// A read, and then a write of the same key, with one latency for both.
    ReadModifyWrite,
}

/// YCSB's core workloads.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Workload {
    A,
    B,
    C,
    D,
    E,
    F,
}

/// The most items of a scan in workload E, as in YCSB. Shorter ones are as frequent.
const SCAN_ITEMS_MAX: u64 = 100;

impl Workload {
    pub(super) fn mix(self) -> Mix {
        let (read, other, distribution) = match self {
            Self::A => (50, OperationKind::Update, Distribution::Zipf),
            Self::B => (95, OperationKind::Update, Distribution::Zipf),
            Self::C => (100, OperationKind::Update, Distribution::Zipf),
            Self::D => (95, OperationKind::Insert, Distribution::Latest),
            Self::E => (95, OperationKind::Insert, Distribution::Zipf),
            Self::F => (50, OperationKind::ReadModifyWrite, Distribution::Zipf),
        };
        Mix {
            read: Ratio::percent(read),
            reading: match self {
                Self::E => OperationKind::Scan,
                _ => OperationKind::Read,
            },
            other,
            distribution,
        }
    }

    /// As it is typed.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::B => "B",
            Self::C => "C",
            Self::D => "D",
            Self::E => "E",
            Self::F => "F",
        }
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.to_ascii_uppercase().as_str() {
            "A" => Ok(Self::A),
            "B" => Ok(Self::B),
            "C" => Ok(Self::C),
            "D" => Ok(Self::D),
            "E" => Ok(Self::E),
            "F" => Ok(Self::F),
            _ => Err("YCSB's workloads are A, B, C, D, E and F".into()),
        }
    }
}

/// Shares of operations and keys.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) struct Mix {
    pub(super) read: Ratio,
    /// The kind of reads.
    pub(super) reading: OperationKind,
    /// The kind of operation that is no read.
    pub(super) other: OperationKind,
    pub(super) distribution: Distribution,
}

/// Draws operations from a seed.
#[derive(Clone, Debug)]
pub(super) struct Generator {
    prng: Prng,
    mix: Mix,
    chooser: Chooser,
    /// The number of the next inserted key.
    next: u64,
    /// Every key below this one is in the store. Reads use only these keys.
    there: u64,
    /// Keys from `there` on that are in the store, while the insert of an earlier key is in flight.
    early: BTreeSet<u64>,
}

impl Generator {
    pub(super) fn new(seed: u64, mix: Mix, keys: u64) -> Self {
        Self {
            prng: Prng::new(seed),
            mix,
            chooser: Chooser::new(mix.distribution, keys),
            next: keys,
            there: keys,
            early: BTreeSet::new(),
        }
    }

    /// The next operation and the number of its key.
    pub(super) fn draw(&mut self) -> (OperationKind, u64) {
        let kind = match self.prng.chance(self.mix.read) {
            true => self.mix.reading,
            false => self.mix.other,
        };
        if kind == OperationKind::Insert {
            self.next += 1;
            return (kind, self.next - 1);
        }
        (kind, self.chooser.draw(self.there, &mut self.prng))
    }

    /// The most items that the next scan is to have.
    pub(super) fn draw_items(&mut self) -> u32 {
        1 + self.prng.below(SCAN_ITEMS_MAX) as u32
    }

    /// How many keys were used, from number 0 on.
    pub(super) fn keys_used(&self) -> u64 {
        self.next
    }

    /// The insert of a key has ended: it is in the store, or will never be.
    pub(super) fn inserted(&mut self, key: u64) {
        self.early.insert(key);
        while self.early.remove(&self.there) {
            self.there += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_workload_has_its_shares() {
        for (workload, reads, other) in [
            (Workload::E, 95_000, OperationKind::Insert),
            (Workload::A, 50_000, OperationKind::Update),
            (Workload::B, 95_000, OperationKind::Update),
            (Workload::C, 100_000, OperationKind::Update),
            (Workload::D, 95_000, OperationKind::Insert),
            (Workload::F, 50_000, OperationKind::ReadModifyWrite),
        ] {
            let mut generator = Generator::new(1, workload.mix(), 1_000);
            let drawn: Vec<(OperationKind, u64)> = (0..100_000).map(|_| generator.draw()).collect();
            let count = |kind| drawn.iter().filter(|(drawn, _)| *drawn == kind).count();
            let reading = workload.mix().reading;
            assert_eq!(reading == OperationKind::Scan, workload == Workload::E);
            assert!(count(reading).abs_diff(reads) < 1_000, "{workload:?}");
            assert_eq!(count(reading) + count(other), drawn.len(), "{workload:?}");
        }
        assert_eq!("e".parse(), Ok(Workload::E));
        let why = "g".parse::<Workload>().expect_err("there is none");
        assert!(why.contains("D, E and F"), "{why}");
    }

    #[test]
    fn scans_of_every_length_are_as_frequent() {
        let mut generator = Generator::new(1, Workload::E.mix(), 100);
        let mut counts = [0_u32; 101];
        for _ in 0..100_000 {
            counts[generator.draw_items() as usize] += 1;
        }
        assert_eq!(counts[0], 0);
        assert!(
            counts[1..].iter().all(|count| count.abs_diff(1_000) < 200),
            "{counts:?}"
        );
    }

    #[test]
    fn only_keys_that_are_there_are_asked_for() {
        let mut generator = Generator::new(1, Workload::D.mix(), 100);
        let (mut under_way, mut there) = (Vec::new(), 100);
        for _ in 0..20_000 {
            match generator.draw() {
                (OperationKind::Insert, key) => under_way.push(key),
                (_, key) => assert!(key < there, "{key} of {there}"),
            }
            // The last of three inserts in flight ends first.
            if under_way.len() == 3 {
                under_way
                    .drain(..)
                    .rev()
                    .for_each(|key| generator.inserted(key));
                there += 3;
            }
        }
        assert!(there > 900, "{there}");
    }
}
