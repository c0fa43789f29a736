//! Where raft logs its actions: nowhere, unless the program gives it a place.

use std::sync::OnceLock;

use slog::{Discard, Logger, o};

static LOGGER: OnceLock<Logger> = OnceLock::new();

/// From now on every group of this process whose raft begins logs to `logger`. Logging changes nothing that a replica
/// does. False, and nothing done, when a logger was given before.
pub fn log_raft_to(logger: Logger) -> bool {
    LOGGER.set(logger).is_ok()
}

/// Raft's logger.
pub(crate) fn raft_logger() -> Logger {
    LOGGER
        .get()
        .cloned()
        .unwrap_or_else(|| Logger::root(Discard, o!()))
}
