//! A replica's options: storage, reads, timing, and observation.

mod log;
mod replica;
mod watch;

pub use self::log::{FsyncMode, LogArguments, LogMode};
pub use self::replica::{
    LimitArguments, ReadArguments, Reads, TimingArguments, default_store_bytes,
};
pub use self::watch::{FileArguments, WatchArguments};
