//! Reads a file of secrets, and refuses one that others than its owner may read.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use trine_base::failure::Failure;

/// Why there is no text.
pub(crate) enum Unread {
    /// It could not be read.
    Io(io::Error),
    /// Others may read it.
    Open(Failure),
}

/// The text of `path`, which messages call `what`. A file of root with mode 0440 counts as closed: systemd hands out
/// credentials like that.
pub(crate) fn read(path: &Path, what: &str) -> Result<String, Unread> {
    let mut file = File::open(path).map_err(Unread::Io)?;
    let metadata = file.metadata().map_err(Unread::Io)?;
    let mode = metadata.permissions().mode() & 0o7777;
    let is_credential = mode == 0o440 && metadata.uid() == 0 && metadata.gid() == 0;
    if mode & 0o077 != 0 && !is_credential {
        let shown = path.display();
        return Err(Unread::Open(Failure::usage(
            format!("{what} {shown} can be read by others (mode {mode:04o})"),
            format!("run `chmod 600 {shown}`"),
        )));
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(Unread::Io)?;
    Ok(text)
}

/// The password in the first line of `path`, which messages call `what`.
///
/// # Errors
/// A file that others can read, or that has none.
pub fn first_line(path: &Path, what: &str) -> Result<Vec<u8>, Failure> {
    let cannot = |why: String| {
        Failure::usage(
            format!("cannot take {what} from {}: {why}", path.display()),
            "write it into the first line of the file",
        )
    };
    let text = read(path, "the password file").map_err(|why| match why {
        Unread::Open(failure) => failure,
        Unread::Io(error) => cannot(error.to_string()),
    })?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(line.as_bytes().to_vec()),
        _ => Err(cannot("its first line is empty".to_owned())),
    }
}
