//! Options that several commands share.

mod global;
mod group;
mod log;
mod replica;

pub(crate) use self::global::GlobalArguments;
pub(crate) use self::group::{ClientArguments, GroupArguments, OrderArguments};
pub(crate) use self::log::{FsyncMode, LogArguments};
pub(crate) use self::replica::{
    LimitArguments, ReadArguments, Reads, TimingArguments, replica_count,
};
