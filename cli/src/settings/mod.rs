//! Where each setting of `trine serve` and `trine up` comes from. Options override the environment. The environment
//! overrides the file, and the file overrides the default.
//!
//! The command line is the only definition. Every option of the two commands is a key of the file with the same name.
//! It is also an environment variable: TRINE_ and that name. So every setting can be set in each of these ways. The
//! same parser reads its value from every source.

mod args;
mod configurable;
mod file;
mod key;
mod reference;
mod resolve;

pub(crate) use self::args::{
    ConfigCommand, Configured, FilesCommand, GetArguments, GroupSetting, SetCommand, Switch,
};
pub(crate) use self::configurable::ConfigurableCommand;
#[cfg(test)]
pub(crate) use self::configurable::command_line;
pub(crate) use self::file::{Mistake, SettingsFile};
pub(crate) use self::key::{SettingKey, definition, keys, reason_of};
pub(crate) use self::reference::{default_file, reference};
pub(crate) use self::resolve::{
    Missing, Resolved, Secrets, Stop, arguments_of_file, document, key_stage_of_file,
    log_level_of_file, resolve_for_show,
};
