//! Where the lines of an export go: standard output, or a file that gets its name once it is whole.

use std::path::Path;

use trine_base::failure::Failure;
use trine_base::new_file;
use trine_base::whole_file::WholeFile;

use crate::cmd::stream::{Unwritten, print};

/// Where the lines go.
pub(super) enum Sink<'p> {
    Standard,
    File(WholeFile<'p>),
}

impl<'p> Sink<'p> {
    /// A new file.
    pub(super) fn create(path: &'p Path) -> Result<Self, Failure> {
        new_file::require_name(
            path,
            "omit FILE for standard output, or give ./- for a file of that name",
        )?;
        WholeFile::create(path, "export").map(Self::File)
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), Unwritten> {
        match self {
            Self::Standard => print(bytes),
            Self::File(file) => Ok(file.write(bytes)?),
        }
    }

    /// All lines are written.
    pub(super) fn finish(self) -> Result<(), Failure> {
        match self {
            Self::Standard => Ok(()),
            Self::File(file) => file.finish(),
        }
    }

    /// Not all lines are written, for this reason.
    pub(super) fn undo(self, failure: Failure) -> Failure {
        match self {
            Self::Standard => failure.while_doing("not all keys were written"),
            Self::File(file) => file.undo(failure),
        }
    }
}
