//! What the replica's loop leaves for the metrics endpoint.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use trine_protocol::node_status::NodeStatus;
use trine_replica::node::NodeStats;
use trine_transport::backend::BackendStats;
use trine_transport::{EndpointStats, LoopStats};

use crate::resp::Stats;

/// The replica's numbers at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) taken: Instant,
    /// The replica is on its way out.
    pub(crate) stopping: bool,
    pub(crate) status: NodeStatus,
    pub(crate) node: NodeStats,
    pub(crate) endpoint: EndpointStats,
    pub(crate) backend: BackendStats,
    pub(crate) event_loop: LoopStats,
    /// Of the server for Redis clients, where there is one.
    pub(crate) resp: Option<Stats>,
}

/// The latest snapshot.
#[derive(Debug, Default)]
pub(crate) struct Published(Mutex<Option<Arc<Snapshot>>>);

impl Published {
    /// Replaces the snapshot. Never waits: while a reader takes the old one, which is a matter of nanoseconds unless the
    /// kernel stops it there, the new one is dropped, and the next follows soon.
    pub(crate) fn publish(&self, snapshot: Snapshot) {
        let fresh = Some(Arc::new(snapshot));
        let old = match self.0.try_lock() {
            Ok(mut slot) => std::mem::replace(&mut *slot, fresh),
            Err(_) => fresh,
        };
        drop(old);
    }

    /// The latest snapshot; nothing before the first.
    pub(crate) fn latest(&self) -> Option<Arc<Snapshot>> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
