//! Counts how often each fault fired, over all processes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use trine_local::faults;
use trine_local::{LineSink, Stream};
use trine_transport::backend::FaultCounts;

/// The counts that the replicas of a group report, added up over their incarnations.
#[derive(Debug, Default)]
pub(super) struct ReplicaFaults {
    runs: Mutex<BTreeMap<usize, Runs>>,
}

#[derive(Copy, Clone, Debug, Default)]
struct Runs {
    /// The counts of earlier incarnations.
    past: FaultCounts,
    present: FaultCounts,
}

impl ReplicaFaults {
    /// Reads the counts from the output of replicas.
    pub(super) fn sink(self: &Arc<Self>) -> LineSink {
        let counts = Arc::clone(self);
        Arc::new(move |node_id, stream, line: &str| {
            if stream == Stream::Out
                && let Some(fired) = faults::from_line(line)
            {
                counts.note(node_id, fired);
            }
        })
    }

    fn note(&self, node_id: usize, fired: FaultCounts) {
        let mut all = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let runs = all.entry(node_id).or_default();
        // Counts only grow within an incarnation.
        if fired.packets < runs.present.packets {
            let ended = runs.present;
            runs.past.add(&ended);
        }
        runs.present = fired;
    }

    pub(super) fn total(&self) -> FaultCounts {
        let all = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        all.values().fold(FaultCounts::default(), |mut sum, runs| {
            sum.add(&runs.past);
            sum.add(&runs.present);
            sum
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_added_over_replicas_and_their_incarnations() {
        let counts = Arc::new(ReplicaFaults::default());
        let sink = counts.sink();
        let tell = |node_id, packets, lost| {
            let fired = FaultCounts {
                packets,
                lost,
                ..FaultCounts::default()
            };
            sink(node_id, Stream::Out, &faults::to_line(&fired));
        };
        tell(1, 100, 5);
        tell(1, 200, 9);
        tell(2, 50, 1);
        tell(1, 10, 2);
        sink(3, Stream::Out, "leader, term 4");
        let total = counts.total();
        assert_eq!((total.packets, total.lost), (260, 12));
    }
}
