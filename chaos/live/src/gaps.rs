//! Long times without an acknowledged write, and the faults that were there meanwhile.

use serde_json::{Value, json};
use trine_chaos::history::History;
use trine_transport::time::{Duration, Instant};

use super::timeline::Timeline;
use trine_base::output::Output;
use trine_base::units::show_ns;

/// Shorter times without an acknowledged write are not shown.
const SHOWN_FROM: Duration = Duration::from_secs(1);

/// A time without an acknowledged write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    from: Instant,
    to: Instant,
    /// The faults that overlap it, until the group was whole again.
    faults: Vec<String>,
}

impl Gap {
    fn length(&self) -> Duration {
        self.to.saturating_since(self.from)
    }
}

/// The gaps of a run, in their order. Its beginning and the last acknowledgement are the ends of the time that is looked at.
pub(super) fn find(history: &History, timeline: &Timeline) -> Vec<Gap> {
    let acknowledged = history.operations().iter();
    let acknowledged = acknowledged.filter(|operation| operation.is_acknowledged_write());
    let mut at: Vec<u64> = acknowledged
        .filter_map(|operation| operation.return_ns)
        .chain([timeline.begun.as_nanos()])
        .collect();
    at.sort_unstable();
    let gaps = at.windows(2).map(|pair| {
        let (from, to) = (Instant::from_nanos(pair[0]), Instant::from_nanos(pair[1]));
        (from, to)
    });
    gaps.filter(|(from, to)| to.saturating_since(*from) > SHOWN_FROM)
        .map(|(from, to)| {
            let overlapping = timeline.faults.iter();
            let overlapping = overlapping.filter(|done| done.begun < to && done.whole > from);
            let faults = overlapping.map(|done| done.what.clone()).collect();
            Gap { from, to, faults }
        })
        .collect()
}

pub(super) fn print(gaps: &[Gap], timeline: &Timeline, output: Output) {
    if gaps.is_empty() {
        let least = show_ns(SHOWN_FROM.as_nanos());
        output.line(format_args!(
            "gaps         no {least} without an acknowledged write"
        ));
    }
    for gap in gaps {
        let seconds = gap.from.saturating_since(timeline.begun).as_nanos() as f64 / 1e9;
        let length = show_ns(gap.length().as_nanos());
        let faults = match gap.faults.is_empty() {
            true => "NOT EXPLAINED by a fault".to_owned(),
            false => gap.faults.join("; "),
        };
        output.line(format_args!(
            "gap          no write acknowledged for {length} from {seconds:.3} s on: {faults}"
        ));
    }
}

pub(super) fn document(gaps: &[Gap], timeline: &Timeline) -> Value {
    let gap = |gap: &Gap| {
        json!({
            "at_ns": gap.from.saturating_since(timeline.begun).as_nanos(),
            "length_ns": gap.length().as_nanos(),
            "faults": gap.faults,
        })
    };
    gaps.iter().map(gap).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Planned;
    use crate::timeline::Done;
    use trine_chaos::fault::{Fault, Strike, Victim};
    use trine_chaos::history::{Action, Answer};

    const SECOND: u64 = 1_000_000_000;

    fn fault(what: &str, begun: u64, whole: u64) -> Done {
        Done {
            planned: Planned {
                at: Duration::ZERO,
                kind: Fault::Pause,
                victim: Victim::Replica(0),
                hold: Duration::ZERO,
                strike: Strike::Pause,
                named: true,
            },
            what: what.to_owned(),
            node_ids: vec![1],
            begun: Instant::from_nanos(begun),
            ended: Instant::from_nanos(whole),
            whole: Instant::from_nanos(whole),
            fired: true,
        }
    }

    #[test]
    fn a_gap_names_the_faults_that_overlap_it_and_no_others() {
        let mut history = History::new();
        for (number, second) in [100, 103, 104, 106].into_iter().enumerate() {
            let value = vec![number as u8];
            let at = second * SECOND;
            let index = history.call(1, at - 10, b"r0", Action::Put { value });
            history.complete(index, at, Answer::Written { version: None }, None);
        }
        let timeline = Timeline {
            begun: Instant::from_nanos(99 * SECOND),
            faults: vec![
                fault("early", 99 * SECOND, 100 * SECOND),
                fault("amid", 101 * SECOND, 102 * SECOND),
                fault("late", 102 * SECOND + SECOND / 2, 104 * SECOND),
            ],
            leads: Vec::new(),
            missed: Vec::new(),
        };
        let gaps = find(&history, &timeline);
        let seen: Vec<_> = gaps
            .iter()
            .map(|gap| (gap.length().as_nanos() / SECOND, gap.faults.join(",")))
            .collect();
        assert_eq!(seen, [(3, "amid,late".to_owned()), (2, String::new())]);
        assert_eq!(document(&gaps, &timeline)[1]["at_ns"], 5 * SECOND);
    }
}
