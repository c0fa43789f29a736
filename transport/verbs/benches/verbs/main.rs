//! `cargo bench -p trine-verbs --features device --bench verbs`: what each guideline of `VERBS.md` does, counted on
//! whatever RDMA device there is, and an RPC beside a bare datagram. `.ci/verbs --bench` runs it in the test machine.
//!
//! Counts are repeatable and checked; times are printed for hardware and mean nothing under emulation.

mod ends;
mod guidelines;
mod latency;
mod sequencers;

use trine_verbs::{VerbsBackend, VerbsConfig};

fn main() {
    guidelines::run();
    sequencers::run();
    latency::run();
}

fn open(config: &VerbsConfig) -> VerbsBackend {
    VerbsBackend::open(config).unwrap_or_else(|error| panic!("{error}"))
}
