//! How often did which fault fire, over all processes?

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use trine_local::{LineSink, Stream};
use trine_transport::backend::{FaultCounts, Faults};

/// What a line begins with in which a replica in the lab tells its counts.
pub(crate) const FAULTS_LINE: &str = "faults ";

/// Counts of one endpoint, or of many.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fired {
    packets: u64,
    loss: u64,
    dup: u64,
    reorder: u64,
    corrupt: u64,
    delay: u64,
}

impl From<FaultCounts> for Fired {
    fn from(counts: FaultCounts) -> Self {
        Self {
            packets: counts.packets,
            loss: counts.lost,
            dup: counts.duplicated,
            reorder: counts.reordered,
            corrupt: counts.corrupted,
            delay: counts.delayed,
        }
    }
}

impl Fired {
    /// Packets lost on purpose.
    pub(crate) fn lost(&self) -> u64 {
        self.loss
    }

    /// How often any fault fired.
    pub(crate) fn damaged(&self) -> u64 {
        self.loss + self.dup + self.reorder + self.corrupt + self.delay
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.loss += other.loss;
        self.dup += other.dup;
        self.reorder += other.reorder;
        self.corrupt += other.corrupt;
        self.delay += other.delay;
    }

    /// The counts of those faults that were asked for.
    pub(crate) fn requested(&self, faults: &Faults) -> BTreeMap<String, u64> {
        let all = [
            ("loss", self.loss, !faults.loss.is_zero()),
            ("dup", self.dup, !faults.duplicate.is_zero()),
            ("reorder", self.reorder, !faults.reorder.is_zero()),
            ("corrupt", self.corrupt, !faults.corrupt.is_zero()),
            ("delay", self.delay, faults.delay.is_some()),
        ];
        let asked = all.into_iter().filter(|(_, _, asked)| *asked);
        asked
            .map(|(name, count, _)| (name.to_owned(), count))
            .collect()
    }

    /// The line in which a replica tells them.
    pub(crate) fn to_line(self) -> String {
        let json = serde_json::to_string(&self).expect("numbers under plain names");
        format!("{FAULTS_LINE}{json}")
    }

    fn from_line(line: &str) -> Option<Self> {
        serde_json::from_str(line.strip_prefix(FAULTS_LINE)?).ok()
    }
}

/// The counts that the replicas of a group tell, added up over their lives.
#[derive(Debug, Default)]
pub(super) struct ReplicaFaults {
    lives: Mutex<BTreeMap<usize, Lives>>,
}

#[derive(Copy, Clone, Debug, Default)]
struct Lives {
    /// Of the lives before the present one.
    past: Fired,
    present: Fired,
}

impl ReplicaFaults {
    /// Reads the counts from what replicas print.
    pub(super) fn sink(self: &Arc<Self>) -> LineSink {
        let counts = Arc::clone(self);
        Arc::new(move |place, stream, line: &str| {
            if stream == Stream::Out
                && let Some(fired) = Fired::from_line(line)
            {
                counts.note(place, fired);
            }
        })
    }

    fn note(&self, place: usize, fired: Fired) {
        let mut all = self.lives.lock().unwrap_or_else(PoisonError::into_inner);
        let lives = all.entry(place).or_default();
        // Counts only grow within a life.
        if fired.packets < lives.present.packets {
            let ended = lives.present;
            lives.past.add(&ended);
        }
        lives.present = fired;
    }

    pub(super) fn total(&self) -> Fired {
        let all = self.lives.lock().unwrap_or_else(PoisonError::into_inner);
        all.values().fold(Fired::default(), |mut sum, lives| {
            sum.add(&lives.past);
            sum.add(&lives.present);
            sum
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_added_over_replicas_and_their_lives() {
        let faults = Arc::new(ReplicaFaults::default());
        let sink = faults.sink();
        let tell = |place, packets, loss| {
            let fired = Fired {
                packets,
                loss,
                ..Fired::default()
            };
            sink(place, Stream::Out, &fired.to_line());
        };
        tell(1, 100, 5);
        tell(1, 200, 9);
        tell(2, 50, 1);
        tell(1, 10, 2);
        sink(3, Stream::Out, "leader, term 4");
        let total = faults.total();
        assert_eq!((total.packets, total.loss), (260, 12));
    }

    #[test]
    fn only_requested_faults_are_told() {
        let faults: Faults = "loss=5%,reorder=1%".parse().expect("faults");
        let fired = Fired {
            loss: 3,
            dup: 9,
            ..Fired::default()
        };
        let expected = [("loss".to_owned(), 3), ("reorder".to_owned(), 0)];
        assert_eq!(fired.requested(&faults), expected.into());
    }
}
