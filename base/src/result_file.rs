//! Files for the results of a run: tried at its start, written at its end.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;

use crate::failure::Failure;

/// Checks that the file can be written, and keeps what it holds. A run would otherwise find that out after its work.
///
/// # Errors
/// Names `what` cannot be written, and why.
pub fn check(what: &str, path: &Path) -> Result<(), Failure> {
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened
        .map(drop)
        .map_err(|error| not_written(what, path, &error))
}

/// Writes the file.
///
/// # Errors
/// Names `what` was not written, and why.
pub fn write(what: &str, path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| not_written(what, path, &error))
}

fn not_written(what: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::usage(
        format!("cannot write the {what} to {}: {error}", path.display()),
        "",
    )
}
