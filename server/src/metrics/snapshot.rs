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
pub struct Snapshot {
    /// When.
    pub taken: Instant,
    /// The replica is on its way out.
    pub stopping: bool,
    /// What the replica says of itself.
    pub status: NodeStatus,
    /// Counters of the node.
    pub node: NodeStats,
    /// Counters of the transport.
    pub endpoint: EndpointStats,
    /// Counters of what carries packets.
    pub backend: BackendStats,
    /// Counters of the event loop.
    pub event_loop: LoopStats,
    /// Of the server for Redis clients, where there is one.
    pub resp: Option<Stats>,
}

/// The latest snapshot.
#[derive(Debug, Default)]
pub struct Published(Mutex<Option<Arc<Snapshot>>>);

impl Published {
    /// Replaces the snapshot. Never waits: while a reader takes the old one, which is a matter of nanoseconds unless the
    /// kernel stops it there, the new one is dropped, and the next follows soon.
    pub fn publish(&self, snapshot: Snapshot) {
        let fresh = Some(Arc::new(snapshot));
        let old = match self.0.try_lock() {
            Ok(mut slot) => std::mem::replace(&mut *slot, fresh),
            Err(_) => fresh,
        };
        drop(old);
    }

    /// The latest snapshot; nothing before the first.
    pub fn latest(&self) -> Option<Arc<Snapshot>> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
