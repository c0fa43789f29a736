//! Files for the results of a run: tried at its start, written at its end.

use std::io::{self, Write};
use std::path::Path;

use rustix::fs::OFlags;
use trine_keys::own_file::{self, AllowedFile};

use crate::failure::Failure;
use crate::new_file::OWN_FILE_HINT;

/// A report is for everybody who may read the directory, as far as the user's mask says.
const MODE: u32 = 0o666;

/// Checks that the file can be written, and keeps what it holds. A run would otherwise find that out after its work.
///
/// # Errors
/// Names `what` cannot be written, and why.
pub fn check(what: &str, path: &Path) -> Result<(), Failure> {
    let flags = OFlags::WRONLY | OFlags::APPEND;
    let opened = own_file::open(path, flags, MODE, AllowedFile::Any);
    opened
        .map(drop)
        .map_err(|error| not_written(what, path, &error))
}

/// Writes the file.
///
/// # Errors
/// Names `what` was not written, and why.
pub fn write(what: &str, path: &Path, text: &str) -> Result<(), Failure> {
    let write = || {
        let mut file = own_file::open(path, OFlags::WRONLY, MODE, AllowedFile::Any)?.file;
        // Not before it is known whose it is. A pipe has nothing to cut off.
        if file.metadata()?.is_file() {
            file.set_len(0)?;
        }
        file.write_all(text.as_bytes())
    };
    write().map_err(|error| not_written(what, path, &error))
}

fn not_written(what: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::usage(
        format!("cannot write the {what} to {}: {error}", path.display()),
        OWN_FILE_HINT,
    )
}
