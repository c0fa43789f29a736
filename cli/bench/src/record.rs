//! The measurements: latencies by kind of operation, and throughput and latency over time.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use trine_transport::time::Instant;

use super::stores::OperationOutcome;
use super::workload::OperationKind;
use trine_base::config::LATENCY_MAX;
use trine_base::failure::Failure;
use trine_base::latency::Latencies;

/// The most points of a plot over time.
const POINTS_MAX: u64 = 100;
/// A shorter stretch holds too few operations for a percentile.
const STRETCH_NS_MIN: u64 = 50_000_000;
/// Digits of the percentiles in a plot.
const POINT_DIGITS: u8 = 2;

/// One stretch of the measurement.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Point {
    /// The end of the stretch, in seconds from the beginning.
    pub(super) seconds: f64,
    pub(super) operations_per_second: f64,
    pub(super) p50_ns: u64,
    pub(super) p99_ns: u64,
    pub(super) errors: u64,
}

/// Records every operation that ends.
pub(super) struct Recorder {
    begun: Instant,
    stretch_ns: u64,
    /// The stretch that `now` belongs to.
    stretch: u64,
    now: Histogram<u64>,
    now_errors: u64,
    points: Vec<Point>,
    latencies: [Latencies; 5],
    pub(super) misses: u64,
    pub(super) errors: u64,
    pub(super) first_failure: Option<Failure>,
}

impl Recorder {
    /// For a measurement that begins now and lasts about `ns`.
    pub(super) fn new(begun: Instant, ns: u64) -> Self {
        let most = u64::try_from(LATENCY_MAX.as_nanos()).expect("a constant below 584 years");
        let now = Histogram::new_with_bounds(1, most, POINT_DIGITS)
            .expect("constant bounds that are accepted");
        Self {
            begun,
            stretch_ns: (ns / POINTS_MAX).max(STRETCH_NS_MIN),
            stretch: 0,
            now,
            now_errors: 0,
            points: Vec::new(),
            latencies: std::array::from_fn(|_| Latencies::new()),
            misses: 0,
            errors: 0,
            first_failure: None,
        }
    }

    /// Records that an operation that was due at `due` has ended.
    pub(super) fn record(
        &mut self,
        kind: OperationKind,
        due: Instant,
        ended: Instant,
        outcome: &OperationOutcome,
    ) {
        let stretch = ended.saturating_since(self.begun).as_nanos() / self.stretch_ns;
        if stretch > self.stretch {
            self.close_stretch();
            self.skip_to(stretch);
        }
        match outcome {
            OperationOutcome::Failed(why) => {
                self.errors += 1;
                self.now_errors += 1;
                self.first_failure.get_or_insert_with(|| why.clone());
                return;
            }
            OperationOutcome::Missing => self.misses += 1,
            OperationOutcome::Done => {}
        }
        let ns = ended.saturating_since(due).as_nanos();
        self.latencies[kind as usize].record_ns(ns);
        self.now.saturating_record(ns.max(1));
    }

    /// Adds a point without operations for each stretch of an outage. A line between what was before and what came after it
    /// would show operations that nobody had.
    fn skip_to(&mut self, stretch: u64) {
        let seconds = self.stretch_ns as f64 / 1e9;
        let skipped = self.stretch + 1..stretch;
        // What comes after the end can be late without end.
        self.points
            .extend(skipped.take(POINTS_MAX as usize).map(|skipped| Point {
                seconds: (skipped + 1) as f64 * seconds,
                operations_per_second: 0.0,
                p50_ns: 0,
                p99_ns: 0,
                errors: 0,
            }));
        self.stretch = stretch;
    }

    /// Adds a point for the completed stretch.
    fn close_stretch(&mut self) {
        let seconds = self.stretch_ns as f64 / 1e9;
        self.points.push(Point {
            seconds: (self.stretch + 1) as f64 * seconds,
            operations_per_second: self.now.len() as f64 / seconds,
            p50_ns: self.now.value_at_quantile(0.5),
            p99_ns: self.now.value_at_quantile(0.99),
            errors: self.now_errors,
        });
        self.now.reset();
        self.now_errors = 0;
    }

    /// The course over time. The last stretch is left out because it was not a whole one, unless there is no other.
    pub(super) fn points(&mut self) -> &[Point] {
        let has_ended = !self.now.is_empty() || self.now_errors > 0;
        if self.points.is_empty() && has_ended {
            self.close_stretch();
        }
        &self.points
    }

    pub(super) fn of(&self, kind: OperationKind) -> &Latencies {
        &self.latencies[kind as usize]
    }

    /// The operations of several kinds together.
    pub(super) fn together(&self, kinds: &[OperationKind]) -> Latencies {
        let mut sum = Latencies::new();
        kinds.iter().for_each(|kind| sum.add(self.of(*kind)));
        sum
    }

    pub(super) fn operations(&self) -> u64 {
        self.latencies.iter().map(Latencies::count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_transport::time::Duration;

    #[test]
    fn an_operation_counts_from_when_it_was_due_and_in_the_stretch_in_which_it_ended() {
        let begun = Instant::ZERO + Duration::from_millis(1_000);
        let at = |ms| begun + Duration::from_millis(ms);
        let mut recorder = Recorder::new(begun, 1);
        // Ten operations fell due during a stall, and all end after it. Counted from the time of sending, each would
        // take a moment.
        (0..10).for_each(|n| {
            recorder.record(
                OperationKind::Read,
                at(n * 10),
                at(100),
                &OperationOutcome::Done,
            )
        });
        recorder.record(
            OperationKind::Update,
            at(120),
            at(149),
            &OperationOutcome::Failed(Failure::negative("no", "")),
        );
        recorder.record(
            OperationKind::Update,
            at(170),
            at(171),
            &OperationOutcome::Missing,
        );
        let p = recorder.of(OperationKind::Read).percentiles();
        assert_eq!(
            (p.count, p.max_ns / 1_000_000, p.min_ns.div_ceil(1_000_000)),
            (10, 100, 10)
        );
        assert!((50..=60).contains(&(p.p50_ns / 1_000_000)), "{p:?}");
        assert_eq!(
            (recorder.errors, recorder.misses, recorder.operations()),
            (1, 1, 11)
        );
        let points = recorder.points();
        // Where nothing ended, nothing is what the plot shows: a line from before an outage to what came after it said
        // that operations had become slower and slower.
        let shown = points
            .iter()
            .map(|point| (point.operations_per_second, point.errors));
        let shown: Vec<(f64, u64)> = shown.collect();
        assert_eq!(shown, [(0.0, 0), (0.0, 0), (200.0, 1)], "{points:?}");
        assert!((points[1].seconds - 0.1).abs() < 1e-9, "{points:?}");
    }
}
