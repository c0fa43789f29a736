//! What a running replica reads again in its settings file.

use std::path::Path;

use trine_base::failure::Failure;
use trine_base::network::KeyStage;

/// The settings that the command line or the environment has fixed at the start. The file does not change them.
#[derive(Clone, Copy, Debug, Default)]
pub struct FixedSettings {
    /// The log level.
    pub log_level: bool,
    /// Which callers are taken.
    pub keys: bool,
}

/// How it is read. The command line knows the form of the file.
#[derive(Clone, Copy, Debug)]
pub struct FromFile {
    /// The log level, if the file has one. It is read at SIGUSR1.
    pub log_level: fn(&Path) -> Result<Option<String>, Failure>,
    /// Which callers are taken, if the file says so. It is read at SIGHUP.
    pub key_stage: fn(&Path) -> Result<Option<KeyStage>, Failure>,
}
