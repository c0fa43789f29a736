//! The client library: one sans-IO core that hosts many logical clients, a blocking and an async front.
//!
//! A client never says "done" of a write that was not committed. When it cannot have an answer it says which of two
//! things is true. [`Error::NotReachable`] means that the command was not applied and never will be,
//! [`Error::OutcomeUnknown`] that it may have been. [`run_admin`] does the same for admin commands.

mod admin_client;
mod asynchronous;
mod backup_reader;
mod blocking;
mod config;
mod conversation;
mod core;
mod counts;
mod group_view;
mod large;
mod logical;
mod operation;
mod operations;
mod outcome;
mod peers;
mod pin;
mod pinned;
mod probe;
mod ranges;
mod sent_batch;
mod survey;
mod watcher;
mod whole;
mod window;

pub use admin_client::{AdminClient, AdminDone, AdminError, run_admin};
pub use asynchronous::{AsyncCall, AsyncClient, AsyncClients};
pub use backup_reader::{BackupError, BackupReader, BackupSession, Piece};
pub use blocking::{BlockingClient, CallError, OpenError};
pub use config::{
    ClientConfig, ClientConfigError, IN_FLIGHT_MAX, LOGICAL_CLIENTS_MAX, OPERATIONS_MAX, PEERS_MAX,
    RESPONSE_BYTES_MAX,
};
pub use core::{
    ClientId, ClientStats, Clients, EncodedCommand, Finished, Numbered, Submission, SubmitError,
};
pub use counts::PinnedCount;
pub use logical::NamedSession;
pub use operation::Mode;
pub use outcome::{Answer, Error, Obstacle, SessionRefusal, WriteTiming};
pub use pin::PinnedError;
pub use pinned::PinnedWalk;
pub use probe::{ProbeError, Probed, probe_status};
pub use ranges::{RangeDeletion, RangeWalk};
pub use survey::{Report, leader_of, majority_gone, voters_in_step};
pub use watcher::{
    AsyncWatcher, NextBatch, Objection, WatchAnswer, WatchBatch, WatchConfig, WatchError,
    WatchFrom, WatchSession, WatchStream, WatchTarget, WatchWish, WatchedChange, WatchedEvent,
    Watcher,
};
pub use whole::WholeWalk;
