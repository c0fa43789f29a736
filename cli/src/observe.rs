//! Rates and percentiles between two polls of a group, computed from counters.

use std::time::Instant;

use serde_json::{Value, json};
use trine_client::{Report, leader_of};
use trine_protocol::node_status::NodeStatus;
use trine_protocol::stages::Histogram;
use trine_protocol::status::Status;

/// The reports of all replicas at one moment.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) at: Instant,
    pub(crate) reports: Vec<Report>,
}

/// The percentiles of one stage of the writes; `None` if no write was sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StageLatency {
    pub(crate) name: &'static str,
    pub(crate) p50_ns: Option<u64>,
    pub(crate) p99_ns: Option<u64>,
}

/// The events between two polls.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Interval {
    pub(crate) seconds: f64,
    /// The leader's node id and term at the end.
    pub(crate) leader: Option<(u32, u64)>,
    /// `None` if the leader has changed.
    pub(crate) writes_per_second: Option<f64>,
    pub(crate) reads_per_second: f64,
    pub(crate) stages: [StageLatency; 4],
    /// The entries that the farthest member lacks.
    pub(crate) lag: Option<u64>,
    pub(crate) retransmissions: u64,
    /// Replicas that do not answer.
    pub(crate) silent: usize,
}

/// The two reports of `replica`, if both are from the same incarnation.
pub(crate) fn pair<'a>(before: &'a Sample, after: &'a NodeStatus) -> Option<&'a NodeStatus> {
    let mut nodes = nodes(before);
    nodes.find(|node| node.replica.incarnation == after.replica.incarnation)
}

fn nodes(sample: &Sample) -> impl Iterator<Item = &NodeStatus> {
    sample
        .reports
        .iter()
        .filter_map(|report| report.answer.as_deref().ok())
}

/// Linearizable and stale reads together.
pub(crate) fn reads(status: &Status) -> u64 {
    status.counters.reads_linearizable + status.counters.reads_stale
}

/// The growth of the counter, summed over the replicas that answered both polls.
fn growth(before: &Sample, after: &Sample, counter: fn(&NodeStatus) -> u64) -> u64 {
    nodes(after)
        .filter_map(|node| Some(counter(node).saturating_sub(counter(pair(before, node)?))))
        .sum()
}

/// The events from `before` until `after`.
pub(crate) fn between(before: &Sample, after: &Sample) -> Interval {
    let seconds = (after.at - before.at).as_secs_f64().max(1e-9);
    let leader = leader_of(&after.reports);
    let earlier = leader.and_then(|leader| {
        let same = |node: &&NodeStatus| node.replica.incarnation == leader.incarnation;
        nodes(before).find(same).map(|node| &node.replica)
    });
    let both = leader.zip(earlier);
    let writes = both.map(|(now, then)| {
        now.counters
            .writes_proposed
            .saturating_sub(then.counters.writes_proposed)
    });
    let reads = growth(before, after, |node| reads(&node.replica));
    Interval {
        seconds,
        leader: leader.map(|leader| (leader.node_id, leader.term)),
        writes_per_second: writes.map(|writes| writes as f64 / seconds),
        reads_per_second: reads as f64 / seconds,
        stages: stages(both),
        lag: leader.and_then(|leader| leader.members.iter().filter_map(|one| one.lag).max()),
        retransmissions: growth(before, after, |node| node.transport.retransmissions),
        silent: after
            .reports
            .iter()
            .filter(|report| report.answer.is_err())
            .count(),
    }
}

fn stages(both: Option<(&Status, &Status)>) -> [StageLatency; 4] {
    let Some((now, then)) = both else {
        return ["queue", "append", "quorum", "apply"].map(|name| StageLatency {
            name,
            p50_ns: None,
            p99_ns: None,
        });
    };
    let (now, then) = (now.stages.stages(), then.stages.stages());
    std::array::from_fn(|index| {
        let ((name, now), (_, then)) = (now[index], then[index]);
        let times = difference(now, then);
        StageLatency {
            name,
            p50_ns: times.percentile_ns(50),
            p99_ns: times.percentile_ns(99),
        }
    })
}

/// The times that were counted since `then`.
fn difference(now: &Histogram, then: &Histogram) -> Histogram {
    let classes =
        now.classes.iter().enumerate().map(|(class, &count)| {
            count.saturating_sub(then.classes.get(class).copied().unwrap_or(0))
        });
    let classes: Vec<u64> = classes.collect();
    Histogram {
        count: classes.iter().sum(),
        sum_ns: now.sum_ns.saturating_sub(then.sum_ns),
        classes,
    }
}

impl Interval {
    /// Returns the same for programs.
    pub(crate) fn document(&self) -> Value {
        let stage = |stage: &StageLatency| {
            let times = json!({ "p50_ns": stage.p50_ns, "p99_ns": stage.p99_ns });
            (stage.name.to_owned(), times)
        };
        json!({
            "seconds": self.seconds,
            "leader": self.leader.map(|(node_id, _)| node_id),
            "term": self.leader.map(|(_, term)| term),
            "writes_per_second": self.writes_per_second,
            "reads_per_second": self.reads_per_second,
            "stages": self.stages.iter().map(stage).collect::<serde_json::Map<_, _>>(),
            "lag": self.lag,
            "retransmissions": self.retransmissions,
            "silent": self.silent,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_counted_in_between_counts() {
        let histogram = |classes: &[u64]| Histogram {
            count: classes.iter().sum(),
            sum_ns: 0,
            classes: classes.to_vec(),
        };
        let late = difference(&histogram(&[0, 90, 0, 10]), &histogram(&[0, 90]));
        assert_eq!((late.count, late.percentile_ns(50)), (10, Some(7)));
        let none = difference(&histogram(&[1]), &histogram(&[1]));
        assert_eq!(none.percentile_ns(50), None);
    }
}
