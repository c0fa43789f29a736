//! What does a running replica read again in its settings file?

use std::path::Path;

use trine_base::failure::Failure;
use trine_base::network::KeyStage;

/// How it is read. The command line knows the form of the file.
#[derive(Clone, Copy, Debug)]
pub struct FromFile {
    /// The log level, if the file has one. It is read at SIGUSR1.
    pub log_level: fn(&Path) -> Result<Option<String>, Failure>,
    /// Which callers are taken, if the file says so. It is read at SIGHUP.
    pub key_stage: fn(&Path) -> Result<Option<KeyStage>, Failure>,
}
