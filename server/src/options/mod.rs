//! A replica's options, and what is wrong with them on any machine.

mod check;
mod log;
mod replica;
mod resp;
mod serve;
mod watch;

pub use self::check::{check, check_common};
pub(crate) use self::check::{own_of, replica_config};
pub use self::log::{FsyncMode, LogArguments, LogMode};
pub use self::replica::{
    LimitArguments, ReadArguments, Reads, TimingArguments, default_store_bytes,
};
pub use self::resp::{HiddenPassword, RespArguments, needless_password, warn_of_shown_password};
pub use self::serve::ServeArguments;
pub use self::watch::{FileArguments, WatchArguments};
