//! Where does each setting of `trine serve` and `trine up` come from? Options go before the environment, that before the
//! file, that before the default.
//!
//! The one definition is the command line's: every option of the two commands is a key of the file, by the same name,
//! and a variable of the environment, TRINE_ and that name. So nothing can be set in one way only, and a value is read
//! by the same parser wherever it comes from.

mod args;
mod configurable;
mod file;
mod key;
mod reference;
mod resolve;

pub(crate) use self::args::{ConfigCommand, Configured};
pub(crate) use self::configurable::ConfigurableCommand;
#[cfg(test)]
pub(crate) use self::configurable::command_line;
pub(crate) use self::file::{Mistake, SettingsFile};
pub(crate) use self::key::{Key, definition, keys, reason_of};
pub(crate) use self::reference::{default_file, reference};
pub(crate) use self::resolve::{
    Missing, Resolved, Secrets, Stop, arguments_of_file, document, log_level_of_file,
    resolve_for_show,
};
