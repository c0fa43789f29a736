//! The packets that a generator sends, and the check that each came back as it must.

mod ledger;
mod samples;

pub use ledger::{Arrival, Faults, Ledger};
pub use samples::{Expected, Sample, Samples};
