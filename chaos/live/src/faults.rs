//! How often did each fault fire, over all processes?

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use trine_local::faults::Fired;
use trine_local::{LineSink, Stream};

/// The counts that the replicas of a group report, added up over their incarnations.
#[derive(Debug, Default)]
pub(super) struct ReplicaFaults {
    runs: Mutex<BTreeMap<usize, Runs>>,
}

#[derive(Copy, Clone, Debug, Default)]
struct Runs {
    /// The counts of earlier incarnations.
    past: Fired,
    present: Fired,
}

impl ReplicaFaults {
    /// Reads the counts from the output of replicas.
    pub(super) fn sink(self: &Arc<Self>) -> LineSink {
        let counts = Arc::clone(self);
        Arc::new(move |node_id, stream, line: &str| {
            if stream == Stream::Out
                && let Some(fired) = Fired::from_line(line)
            {
                counts.note(node_id, fired);
            }
        })
    }

    fn note(&self, node_id: usize, fired: Fired) {
        let mut all = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let runs = all.entry(node_id).or_default();
        // Counts only grow within an incarnation.
        if fired.packets < runs.present.packets {
            let ended = runs.present;
            runs.past.add(&ended);
        }
        runs.present = fired;
    }

    pub(super) fn total(&self) -> Fired {
        let all = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        all.values().fold(Fired::default(), |mut sum, runs| {
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
        let faults = Arc::new(ReplicaFaults::default());
        let sink = faults.sink();
        let tell = |node_id, packets, loss| {
            let fired = Fired {
                packets,
                loss,
                ..Fired::default()
            };
            sink(node_id, Stream::Out, &fired.to_line());
        };
        tell(1, 100, 5);
        tell(1, 200, 9);
        tell(2, 50, 1);
        tell(1, 10, 2);
        sink(3, Stream::Out, "leader, term 4");
        let total = faults.total();
        assert_eq!((total.packets, total.loss), (260, 12));
    }
}
