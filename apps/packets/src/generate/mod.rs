//! Which packets does a generator send, and did each of them come back as it must?

mod ledger;
mod samples;

pub use ledger::{Arrival, Faults, Ledger};
pub use samples::{Expected, Sample, Samples};
