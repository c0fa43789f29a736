//! The numbers that the replica's loop publishes for the metrics endpoint.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use trine_protocol::node_status::NodeStatus;
use trine_replica::node::NodeStats;
use trine_transport::backend::BackendStats;
use trine_transport::{EndpointStats, LoopStats};

use crate::resp::info::Stats;

/// The replica's numbers at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The time of the snapshot.
    pub taken: Instant,
    /// The replica is stopping.
    pub stopping: bool,
    /// The replica's status.
    pub status: NodeStatus,
    /// Counters of the node.
    pub node: NodeStats,
    /// Counters of the transport.
    pub endpoint: EndpointStats,
    /// Counters of the backend.
    pub backend: BackendStats,
    /// Counters of the event loop.
    pub event_loop: LoopStats,
    /// Counters of the server for Redis clients, where there is one.
    pub resp: Option<Stats>,
}

/// The latest snapshot.
#[derive(Debug, Default)]
pub struct Published {
    latest: Mutex<Option<Arc<Snapshot>>>,
    /// What the replica waits for before there is a snapshot.
    waiting: Mutex<Option<String>>,
}

impl Published {
    /// Replaces the snapshot. It never waits: if a reader is taking the old one, the new one is dropped, and the next
    /// follows soon. A reader takes nanoseconds unless the kernel stops it there.
    pub fn publish(&self, snapshot: Snapshot) {
        let fresh = Some(Arc::new(snapshot));
        let old = match self.latest.try_lock() {
            Ok(mut slot) => std::mem::replace(&mut *slot, fresh),
            Err(_) => fresh,
        };
        drop(old);
    }

    /// The latest snapshot; `None` before the first.
    pub fn latest(&self) -> Option<Arc<Snapshot>> {
        self.latest
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The replica does not run, and waits for `reason`. The snapshot of an earlier one says nothing any more.
    pub fn wait(&self, reason: &str) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        *waiting = Some(reason.to_owned());
        drop(waiting);
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        drop(latest.take());
    }

    /// What the replica waited for last.
    pub(super) fn waiting(&self) -> Option<String> {
        let waiting = self.waiting.lock();
        waiting.unwrap_or_else(PoisonError::into_inner).clone()
    }
}
