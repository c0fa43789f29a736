//! What the benchmarks of the index and of the sequencer share.

mod driver;
mod setup;

pub(crate) use self::driver::{Driver, Work};
pub(crate) use self::setup::{InProcess, Remote, Setup};

/// The middle value, or the mean of the two in the middle.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        count => f64::midpoint(values[(count - 1) / 2], values[count / 2]),
    }
}
