//! What a caller asks of a stream of changes, and why there may be none.

use std::net::SocketAddr;

use trine_kvstore::Position;
use trine_transport::backend::BackendError;

use super::event::WatchTarget;
use crate::outcome::Obstacle;

/// Where a stream begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WatchFrom {
    /// With what is acknowledged after the stream was opened.
    Now,
    /// With what has happened behind this position.
    Behind(Position),
}

/// What is watched, and how.
#[derive(Clone, Debug)]
pub struct WatchConfig {
    /// The replicas.
    pub addresses: Vec<SocketAddr>,
    /// The keys, prefixes and ranges, each with the number by which events name it.
    pub targets: Vec<(u32, WatchTarget)>,
    /// Where to begin.
    pub from: WatchFrom,
    /// Leave values out.
    pub keys_only: bool,
}

/// Why a stream cannot go on.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WatchError {
    /// No replica has all events that were asked for.
    #[error(
        "the changes after position {from} are no longer kept: the history goes back to \
         {oldest}"
    )]
    Compacted {
        /// Where it was to go on.
        from: Position,
        /// The oldest position that a replica can go on from.
        oldest: Position,
    },
    /// The group has not come to this position.
    #[error("position {from} is of the future: the group has applied {applied}")]
    Future {
        /// Where it was to begin.
        from: Position,
        /// Where the group is.
        applied: Position,
    },
    /// The replicas will not do it.
    #[error("{why}")]
    Refused {
        /// Their reason.
        why: String,
    },
    /// The caller has no right to it.
    #[error("denied: {why}")]
    Denied {
        /// What is missing.
        why: String,
    },
    /// The replicas do not take this caller, or are of another release.
    #[error("{0}")]
    NotServed(Obstacle),
    /// The transport's settings contradict themselves or the backend.
    #[error("{0}")]
    Transport(trine_transport::ConfigError),
    /// The socket became unusable.
    #[error("{0}")]
    Backend(BackendError),
    /// The thread that drives an [`AsyncWatcher`](super::AsyncWatcher) has ended.
    #[error("the thread of the watcher has ended")]
    Stopped,
}
