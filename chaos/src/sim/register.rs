//! A group of replicas as a sequencer sees it: one linearizable value, whose answers may be late or lost.
//!
//! Each question takes effect at a moment of its own. It may lie long after the moment at which the caller has given up.

use std::collections::BTreeMap;
use trine_sequencer::{Ask, GroupAnswer, Record, Version};
use trine_transport::prng::{Prng, Ratio};
use trine_transport::time::{Duration, Instant};

pub(crate) struct Register {
    prng: Prng,
    value: Option<(Version, Record)>,
    versions: u64,
    /// Questions that have not taken effect, by their moments.
    under_way: BTreeMap<(Instant, u64), Ask>,
    /// What those that have taken effect were told.
    told: BTreeMap<u64, GroupAnswer>,
    number: u64,
}

/// A question that was sent.
#[derive(Copy, Clone)]
pub(crate) struct Sent {
    number: u64,
    /// When its answer is there, or its caller gives up.
    pub(crate) answered: Instant,
    /// Whether the caller gives up.
    lost: bool,
}

impl Register {
    pub(crate) fn new(prng: Prng) -> Self {
        Self {
            prng,
            value: None,
            versions: 0,
            under_way: BTreeMap::new(),
            told: BTreeMap::new(),
            number: 0,
        }
    }

    fn micros(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_micros(self.prng.in_range(least..=most))
    }

    /// How long the sync of a file takes.
    pub(crate) fn sync_time(&mut self) -> Duration {
        self.micros(100, 20_000)
    }

    /// Sends a question, for whose answer its caller waits `patience`.
    pub(crate) fn send(&mut self, now: Instant, ask: Ask, patience: Duration) -> Sent {
        self.number += 1;
        let way = match self.prng.below(100) {
            0..=4 => self.micros(10_000, 3_000_000),
            _ => self.micros(50, 3_000),
        };
        let back = match self.prng.below(100) {
            0..=4 => self.micros(10_000, 1_000_000),
            _ => self.micros(50, 1_000),
        };
        let effect = now + way;
        // Some never arrive.
        if !self.prng.chance(Ratio::percent(2)) {
            self.under_way.insert((effect, self.number), ask);
        }
        let lost = self.prng.chance(Ratio::percent(3)) || way + back > patience;
        let answered = if lost { now + patience } else { effect + back };
        Sent {
            number: self.number,
            answered,
            lost,
        }
    }

    /// What the caller of a question is told.
    pub(crate) fn answer(&mut self, now: Instant, sent: Sent) -> GroupAnswer {
        self.take_effect(now);
        match self.told.remove(&sent.number) {
            Some(told) if !sent.lost => told,
            _ => GroupAnswer::Nothing,
        }
    }

    fn take_effect(&mut self, now: Instant) {
        while let Some(first) = self
            .under_way
            .first_entry()
            .filter(|first| first.key().0 <= now)
        {
            let (_, number) = *first.key();
            let ask = first.remove();
            let told = self.apply(ask);
            self.told.insert(number, told);
        }
    }

    fn apply(&mut self, ask: Ask) -> GroupAnswer {
        match (ask, self.value) {
            (Ask::Read, None) | (Ask::Swap(..), None) => GroupAnswer::Absent,
            (Ask::Read, Some((version, record))) => GroupAnswer::Found(version, record),
            (Ask::Create(record), None) => self.write(record),
            (Ask::Swap(expected, record), Some((version, _))) if expected == version => {
                self.write(record)
            }
            (Ask::Create(_) | Ask::Swap(..), Some(_)) => GroupAnswer::Conflict,
        }
    }

    fn write(&mut self, record: Record) -> GroupAnswer {
        self.versions += 1;
        let version = Version(self.versions);
        self.value = Some((version, record));
        GroupAnswer::Written(version)
    }
}
