//! The hash table and the deterministic state machine on it.
//!
//! [`Store::apply`] is the only way in which state changes, and [`Command`] is its whole input
//! language. Every replica that applies the same commands at the same positions gives the same
//! answers, also after it was rebuilt from a snapshot. `DESIGN.md` beside this crate describes
//! the layout and the rules.

mod arena;
pub mod cache;
pub mod checksum;
pub mod codec;
pub mod command;
pub mod config;
pub mod cursor;
pub mod error;
mod expiry;
mod flushed;
mod hash;
pub mod history;
pub mod interleave;
mod items;
pub mod limits;
mod machine;
pub mod memory;
pub mod ordered;
mod pins;
pub mod position;
pub mod response;
mod shadows;
pub mod snapshot;
pub mod store;
mod table;
pub mod users;

pub use cache::{Cache, CacheConfig, CacheConfigError};
pub use codec::{BufferTooSmall, DecodeError, List};
pub use command::{
    Access, Command, Condition, ExecuteMode, ExpireCondition, KeyRange, Kind, Pair, Prefix,
    ScanOptions, SetCondition, SetExpiry, SetOptions, WalkContent, after_prefix,
};
pub use cursor::Cursor;
pub use error::{OtherError, StoreError};
pub use history::History;
pub use limits::{Limits, LimitsError};
pub use ordered::Ordered;
pub use pins::PinOwner;
pub use position::Position;
pub use response::{AbortCause, Entry, Found, Page, RangeItem, Response, Versioned};
pub use snapshot::{RestoreError, SnapshotError, SnapshotReader, SnapshotStep, SnapshotSummary};
pub use store::{Stats, Store, Swept, integer};
pub use users::{Rights, User, Users};
