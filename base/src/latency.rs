//! Latency histograms, their percentiles, and the table that shows them.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::config::{LATENCY_DIGITS, LATENCY_MAX};
use crate::output::Table;
use crate::units::{show_count, show_ns};

/// Latencies in nanoseconds.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
}

/// The reported percentiles, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// How many latencies were recorded.
    pub count: u64,
    /// Their mean.
    pub mean_ns: u64,
    /// The shortest.
    pub min_ns: u64,
    /// Half of them were at most this.
    pub p50_ns: u64,
    /// 90 % of them were at most this.
    pub p90_ns: u64,
    /// 99 % of them were at most this.
    pub p99_ns: u64,
    /// 99.9 % of them were at most this.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

impl Latencies {
    /// An empty histogram.
    pub fn new() -> Self {
        Self::with_digits(LATENCY_DIGITS)
    }

    /// An empty histogram that is small and soon empty again. Its values are exact to 1 digit, within 7 %.
    pub fn coarse() -> Self {
        Self::with_digits(1)
    }

    fn with_digits(digits: u8) -> Self {
        let most = u64::try_from(LATENCY_MAX.as_nanos()).expect("a constant below 584 years");
        let histogram = Histogram::new_with_bounds(1, most, digits)
            .expect("constant bounds that the histogram accepts");
        Self { histogram }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.histogram.reset();
    }

    /// Records one latency; a value beyond the range counts as the end of the range.
    pub fn record_ns(&mut self, ns: u64) {
        self.histogram.saturating_record(ns.max(1));
    }

    /// Corrects a closed loop for coordinated omission. A latency longer than `expected_interval` delays other
    /// requests, and these delays are added.
    pub fn corrected(&self, expected_interval: Duration) -> Self {
        let interval = u64::try_from(expected_interval.as_nanos()).unwrap_or(u64::MAX);
        let histogram = self.histogram.clone_correct(interval);
        Self { histogram }
    }

    /// Adds everything that `other` recorded.
    pub fn add(&mut self, other: &Self) {
        self.histogram
            .add(&other.histogram)
            .expect("all histograms here have the same bounds");
    }

    /// How many were recorded.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Their mean.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.histogram.mean() as u64)
    }

    /// The latency that this share of the requests did not exceed.
    pub fn at(&self, quantile: f64) -> u64 {
        self.histogram.value_at_quantile(quantile)
    }

    /// The usual percentiles.
    pub fn percentiles(&self) -> Percentiles {
        let at = |quantile| self.histogram.value_at_quantile(quantile);
        Percentiles {
            count: self.histogram.len(),
            mean_ns: self.histogram.mean() as u64,
            min_ns: self.histogram.min(),
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns: self.histogram.max(),
        }
    }
}

/// A table with a row for each named histogram; empty ones are left out.
pub fn latency_table<'a>(rows: impl IntoIterator<Item = (&'a str, Percentiles)>) -> Table {
    let mut table = Table::new([
        "latency", "count", "min", "p50", "p90", "p99", "p99.9", "max",
    ]);
    for (name, p) in rows {
        if p.count == 0 {
            continue;
        }
        let times = [p.min_ns, p.p50_ns, p.p90_ns, p.p99_ns, p.p999_ns, p.max_ns].map(show_ns);
        let [min, p50, p90, p99, p999, max] = times;
        table.row([
            name.to_owned(),
            show_count(p.count),
            min,
            p50,
            p90,
            p99,
            p999,
            max,
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_a_ramp() {
        let mut latencies = Latencies::new();
        (1..=1000).for_each(|us| latencies.record_ns(us * 1000));
        let p = latencies.percentiles();
        assert_eq!(p.count, 1000);
        assert!((499_000..=502_000).contains(&p.p50_ns), "{p:?}");
        assert!((989_000..=992_000).contains(&p.p99_ns), "{p:?}");
    }

    #[test]
    fn the_correction_counts_the_requests_that_a_stall_held_up() {
        let mut latencies = Latencies::new();
        (0..99).for_each(|_| latencies.record_ns(1_000));
        latencies.record_ns(100_000);
        let corrected = latencies.corrected(Duration::from_micros(1));
        assert_eq!(latencies.percentiles().p90_ns / 100, 10);
        // The stall lasts 100 intervals. Half of the requests that should have been sent waited in it.
        assert!(corrected.count() >= 190, "{}", corrected.count());
        assert!(corrected.percentiles().p90_ns > 50_000);
    }

    #[test]
    fn a_latency_beyond_the_range_counts_as_its_end() {
        let mut latencies = Latencies::new();
        latencies.record_ns(u64::MAX);
        assert_eq!(latencies.count(), 1);
    }
}
