//! Errors of a data directory, in words that name the file and the way out.

use trine_kvstore::command::STATE_VERSION;

use crate::state_machine::codec::StateError;

/// The device has refused an operation.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("cannot {operation} {file}: {reason}")]
pub struct DiskError {
    /// What was tried.
    pub operation: &'static str,
    /// On which file.
    pub file: String,
    /// The device's error.
    pub reason: String,
    /// The subject of the error, for programs.
    pub cause: DiskCause,
}

/// The kind of refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskCause {
    /// The device, or a layer between it and the program, does not do it.
    Device,
    /// There is no room left.
    Full,
    /// Nothing is wrong: the observer of the work of a [`super::Directory`] did not let it go on.
    Ended,
}

/// The files do not hold everything that this replica may have acknowledged.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{file}: {what}")]
pub struct LostMemory {
    /// The damaged or missing file.
    pub file: String,
    /// The problem with it.
    pub what: String,
}

impl LostMemory {
    /// Says what is wrong with a file.
    #[must_use]
    pub fn new(file: &str, what: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            what: what.into(),
        }
    }
}

/// Why a data directory was not opened. Nothing in it was changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// The device fails.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The promises that this replica may have made cannot be read any more.
    #[error("{0}")]
    Lost(#[from] LostMemory),
    /// The replica's state was found to differ from the majority's: its files would bring the same state back.
    #[error("{file}: {why}")]
    Quarantined {
        /// The file that says so.
        file: String,
        /// What was found.
        why: String,
    },
    /// Written by a later release.
    #[error("{file} has format {found}, this release reads formats up to {known}")]
    Newer {
        /// The file.
        file: String,
        /// Its format.
        found: u16,
        /// The newest one that this release knows.
        known: u16,
    },
    /// The directory belongs to another node of the group.
    #[error("{file} belongs to node {found}, this replica was started for node {wanted}")]
    OtherNodeId {
        /// The file.
        file: String,
        /// Its node id.
        found: u32,
        /// The node id that was asked for.
        wanted: u32,
    },
    /// A recovery has ended midway: the next one takes it back and starts over.
    #[error("{file}: a recovery of this directory was interrupted")]
    Recovering {
        /// The file that says so.
        file: String,
    },
    /// There are files, and they are not this program's.
    #[error("{file} is no file of trine's")]
    Foreign {
        /// The file.
        file: String,
    },
}

impl OpenError {
    /// The error for a file with state that cannot be read. Whatever a later release has written is not lost.
    pub(crate) fn of_state(error: StateError, file: &str, lost: LostMemory) -> Self {
        match error.newer {
            Some(version) => Self::Newer {
                file: file.to_owned(),
                found: version.into(),
                known: STATE_VERSION.into(),
            },
            None => lost.into(),
        }
    }
}
