//! What a replica is told: how it stores, reads and times, and how it is watched.

mod log;
mod replica;
mod watch;

pub use self::log::{FsyncMode, LogArguments, LogMode};
pub use self::replica::{LimitArguments, ReadArguments, Reads, TimingArguments};
pub use self::watch::{FileArguments, WatchArguments};
