//! How often did which fault fire at one replica?

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use trine_transport::backend::{FaultCounts, Faults};

/// The beginning of the line in which a replica with fault injection tells its counts.
pub const FAULTS_LINE: &str = "faults ";

/// Counts of one endpoint, or of many.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fired {
    /// Packets that passed the fault injector.
    pub packets: u64,
    /// Lost.
    pub loss: u64,
    /// Sent twice.
    pub dup: u64,
    /// Overtaken by later ones.
    pub reorder: u64,
    /// Damaged.
    pub corrupt: u64,
    /// Delayed.
    pub delay: u64,
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
    pub fn lost(&self) -> u64 {
        self.loss
    }

    /// How often any fault fired.
    pub fn damaged(&self) -> u64 {
        self.loss + self.dup + self.reorder + self.corrupt + self.delay
    }

    /// Adds the counts of another endpoint.
    pub fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.loss += other.loss;
        self.dup += other.dup;
        self.reorder += other.reorder;
        self.corrupt += other.corrupt;
        self.delay += other.delay;
    }

    /// The counts of those faults that were asked for.
    pub fn requested(&self, faults: &Faults) -> BTreeMap<String, u64> {
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
    pub fn to_line(self) -> String {
        let json = serde_json::to_string(&self).expect("numbers under plain names");
        format!("{FAULTS_LINE}{json}")
    }

    /// What such a line tells.
    pub fn from_line(line: &str) -> Option<Self> {
        serde_json::from_str(line.strip_prefix(FAULTS_LINE)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
