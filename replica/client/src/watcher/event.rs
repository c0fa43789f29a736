//! What is watched, and what is told of it, owned by the caller.

use trine_kvstore::history::Change;
use trine_kvstore::{KeyRange, Kind, Position};
use trine_protocol::message::{Watch, WatchEvent, Watched};
use trine_transport::time::Duration;

/// Some keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WatchTarget {
    /// One key.
    Key(Vec<u8>),
    /// All keys that begin with this.
    Prefix(Vec<u8>),
    /// All keys from `start` on, and before `end` if there is one.
    Range {
        /// The least key.
        start: Vec<u8>,
        /// The least key behind the range.
        end: Option<Vec<u8>>,
    },
}

impl WatchTarget {
    pub(super) fn watch((id, target): &(u32, Self)) -> Watch<'_> {
        let watched = match target {
            Self::Key(key) => Watched::Key(key),
            Self::Prefix(prefix) => Watched::Range(KeyRange::Prefix(prefix)),
            Self::Range { start, end } => Watched::Range(KeyRange::Between {
                start,
                end: end.as_deref(),
            }),
        };
        Watch { id: *id, watched }
    }
}

/// Events that have arrived together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WatchBatch {
    /// In the order of their positions.
    pub events: Vec<WatchedEvent>,
    /// Everything up to here was told. A stream that begins behind it misses nothing and repeats nothing.
    pub position: Position,
    /// The last events are of a later position, and more of that one follow.
    pub more: bool,
}

/// The net effect of one position on one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WatchedEvent {
    /// The numbers of the targets that it belongs to.
    pub targets: Vec<u32>,
    /// Where it has happened.
    pub position: Position,
    /// The kind of command that did it; nothing if this release does not know it.
    pub command: Option<Kind>,
    /// What has happened.
    pub change: WatchedChange,
}

/// What has happened to a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WatchedChange {
    /// It has this value now.
    Written {
        /// The key.
        key: Vec<u8>,
        /// The value, unless it was left out: for its size, or because only keys were asked for.
        value: Option<Vec<u8>>,
        /// The length of the value.
        value_bytes: u32,
        /// Its time to live at that position.
        remaining: Option<Duration>,
    },
    /// A command has removed it.
    Removed {
        /// The key.
        key: Vec<u8>,
    },
    /// It has expired.
    Expired {
        /// The key.
        key: Vec<u8>,
    },
    /// All keys are gone.
    Flushed,
}

impl From<WatchEvent<'_>> for WatchedEvent {
    fn from(event: WatchEvent<'_>) -> Self {
        let change = match event.change {
            Change::Written {
                key,
                value,
                value_bytes,
                remaining_ns,
            } => WatchedChange::Written {
                key: key.to_vec(),
                value: value.map(<[u8]>::to_vec),
                value_bytes,
                remaining: remaining_ns.map(Duration::from_nanos),
            },
            Change::Removed { key } => WatchedChange::Removed { key: key.to_vec() },
            Change::Expired { key } => WatchedChange::Expired { key: key.to_vec() },
            Change::Flushed => WatchedChange::Flushed,
        };
        Self {
            targets: event.ids,
            position: event.position,
            command: event.command,
            change,
        }
    }
}
