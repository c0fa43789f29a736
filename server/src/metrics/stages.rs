//! The time of writes by stage, as one histogram for each stage.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use trine_protocol::stages::Histogram;
use trine_protocol::stages::WriteStages;

/// The limits of the buckets are powers of two in nanoseconds, from a microsecond to a second.
const FIRST_BITS: usize = 10;
const LAST_BITS: usize = 30;

pub(super) fn encode(stages: &WriteStages, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "Time of the writes that this replica has led, by stage, of a sample.";
    let name = "write_stage_seconds";
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    for (stage, histogram) in stages.stages() {
        let labels = [("stage", stage)];
        let sum = histogram.sum_ns as f64 / 1e9;
        metric
            .encode_family(&labels)?
            .encode_histogram::<NoLabelSet>(sum, histogram.count, &buckets(histogram), None)?;
    }
    Ok(())
}

/// Pairs of a limit in seconds and the number of values below it that no earlier bucket holds. The limits are always
/// the same.
fn buckets(histogram: &Histogram) -> Vec<(f64, u64)> {
    let mut buckets: Vec<(f64, u64)> = (FIRST_BITS..=LAST_BITS)
        .map(|bits| ((1_u64 << bits) as f64 / 1e9, 0))
        .collect();
    buckets.push((f64::INFINITY, 0));
    for (bits, count) in histogram.classes.iter().enumerate() {
        let index = bits.clamp(FIRST_BITS, LAST_BITS + 1) - FIRST_BITS;
        buckets[index].1 += count;
    }
    let total: u64 = buckets.iter().map(|(_, count)| count).sum();
    assert_eq!(total, histogram.count, "each time is in one bucket");
    buckets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_in_the_bucket_that_its_class_lies_in() {
        let mut classes = vec![0; 33];
        for (class, count) in [(0, 1), (10, 2), (11, 4), (30, 8), (31, 16), (32, 32)] {
            classes[class] = count;
        }
        let histogram = Histogram {
            count: 63,
            sum_ns: 1,
            classes,
        };
        let buckets = buckets(&histogram);
        assert_eq!(buckets.len(), 22);
        assert_eq!(buckets[0], (1.024e-6, 3));
        assert_eq!(buckets[1], (2.048e-6, 4));
        assert_eq!(buckets[20].1, 8);
        assert_eq!(buckets[21], (f64::INFINITY, 48));
        let all: u64 = buckets.iter().map(|bucket| bucket.1).sum();
        assert_eq!(all, histogram.count);
    }
}
