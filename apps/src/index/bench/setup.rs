//! The index that the benchmark runs in its own process, and its processors.

use std::sync::Arc;
use std::thread;

use trine_base::failure::Failure;
use trine_base::placement::{self, PlacementArguments};
use trine_index::ConcurrentMap;
use trine_protocol::endpoint_config;
use trine_transport::Holder;
use trine_transport::backend::{RingBackend, RingRoute};

use crate::index::args::IndexBenchArguments;
use crate::index::dispatch::Dispatch;
use crate::index::serve::{ServerLoop, assemble};
use crate::rights::Rights;

/// A server of `map`, with a worker thread for scans if `has_worker`. The worker runs on the second processor of
/// `--cpu`.
pub(super) fn server(
    backend: RingBackend,
    map: &Arc<ConcurrentMap>,
    has_worker: bool,
    arguments: &IndexBenchArguments,
) -> Result<ServerLoop<RingBackend>, Failure> {
    let holder_of = Box::new(|_: &RingRoute| Holder::Shared);
    let dispatch = Dispatch::new(Arc::clone(map), 1, holder_of);
    // A worker inherits the processors of the thread that starts it, which is one for this alone.
    let start = || {
        arguments
            .processors()?
            .map_or(Ok(()), |(_, worker)| run_on(worker))?;
        let rights = Rights::default();
        assemble(
            backend,
            endpoint_config(),
            dispatch,
            rights,
            u32::from(has_worker),
        )
    };
    thread::scope(|scope| scope.spawn(start).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Keeps the calling thread on a processor.
pub(super) fn run_on(cpu: u32) -> Result<(), Failure> {
    placement::apply(&PlacementArguments {
        cpu: Some(cpu),
        ..PlacementArguments::default()
    })
}
