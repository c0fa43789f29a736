//! Files that get their name once they are whole. Until then they are `FILE.partial`, which only their owner reads.

use std::ffi::OsString;
use std::fs::{File, Permissions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, OFlags, RenameFlags, renameat_with};
use trine_keys::own_file::{self, AllowedFile, Opened, sync_directory};

use crate::failure::Failure;

/// What helps where a file cannot be written.
pub const OWN_FILE_HINT: &str =
    "give the name of a new file, in a directory that this user alone may write to";

/// Only the user reads keys, values and users.
const MODE: u32 = 0o600;

/// The name of a file while it is not whole.
pub fn partial_name(target: &Path) -> PathBuf {
    let mut name = OsString::from(target);
    name.push(".partial");
    PathBuf::from(name)
}

/// Refuses `-`, by which other programs mean standard output: it would become a file of this name.
///
/// # Errors
/// It is `-`.
pub fn require_name(target: &Path, hint: &str) -> Result<(), Failure> {
    match target.as_os_str() == "-" {
        true => Err(Failure::usage(
            "- would be a file of this name, not standard output; nothing was written",
            hint,
        )),
        false => Ok(()),
    }
}

/// Opens a partial file, or makes it, and locks it for this process. `what` it is a part of is a word for people. What it
/// holds is for the caller to judge. Before it writes there, it calls [`make_private`].
///
/// # Errors
/// The file cannot be made, somebody else may have put it there, or another process writes it.
pub fn open(partial: &Path, what: &str) -> Result<File, Failure> {
    let opened = own_file::open(partial, OFlags::RDWR, MODE, AllowedFile::File);
    let Opened { file, is_new } = opened.map_err(|error| not_made(partial, &error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Failure::usage(
            format!("another {what} is writing {}", partial.display()),
            "wait for it, or give another file",
        )),
        // A file system without locks: no other process goes on with a file that this one has made, because of the next line.
        Err(TryLockError::Error(_)) if is_new => Ok(file),
        Err(TryLockError::Error(error)) => Err(Failure::usage(
            format!(
                "cannot determine whether another {what} is writing {}: {error}",
                partial.display()
            ),
            "remove that file if none does, or give another file",
        )),
    }
}

/// An empty file of this user's, under a name that the program chooses. Should an earlier run have left one, it is emptied.
///
/// # Errors
/// The operating system refuses, or somebody else has put something there.
pub fn emptied(path: &Path) -> io::Result<File> {
    let file = own_file::open(path, OFlags::WRONLY, MODE, AllowedFile::File)?.file;
    file.set_len(0)?;
    Ok(file)
}

/// Puts a file with these bytes in the place of the one at `target`, by way of `beside`. Afterwards it is durable, or what was
/// there before still is. No two may do so at once.
///
/// # Errors
/// The operating system refuses, or somebody else has put something at `beside`.
pub fn replace(target: &Path, beside: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = emptied(beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(beside, target)?;
    sync_directory(target)
}

/// From now on only the owner reads the file, whatever was allowed before.
///
/// # Errors
/// The operating system refuses.
pub fn make_private(file: &File, path: &Path) -> Result<(), Failure> {
    file.set_permissions(Permissions::from_mode(MODE))
        .map_err(|error| not_made(path, &error))
}

/// Gives a whole and synced file its name. A name that is taken is refused, also if it was taken a moment ago.
///
/// # Errors
/// It keeps the name that it has. `what` is a word for people.
pub fn give_name(partial: &Path, target: &Path, what: &str) -> Result<(), Failure> {
    let named = rename(partial, target);
    let (partial, target_shown) = (partial.display(), target.display());
    named.map_err(|error| {
        let target = &target_shown;
        match error.kind() {
            io::ErrorKind::AlreadyExists => Failure::usage(
                format!("{target} exists now; the complete {what} is in {partial}"),
                "rename it with mv",
            ),
            _ => Failure::usage(
                format!("cannot rename {partial} to {target}: {error}"),
                format!("the {what} is complete; rename it"),
            ),
        }
    })?;
    sync_directory(target).map_err(|error| {
        Failure::usage(
            format!(
                "the {what} is complete in {target_shown}, but its directory cannot be synced: \
                 {error}"
            ),
            format!("after a power failure it may be called {partial}"),
        )
    })
}

fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        // Some file systems do not know it.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
            match std::fs::hard_link(from, to) {
                Ok(()) => std::fs::remove_file(from),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
                // Others know no second names either. There it cannot be done in one step.
                Err(_) if std::fs::symlink_metadata(to).is_err() => std::fs::rename(from, to),
                Err(_) => Err(io::ErrorKind::AlreadyExists.into()),
            }
        }
        Err(error) => Err(error.into()),
    }
}

/// A file that cannot be made.
pub fn not_made(path: &Path, error: &io::Error) -> Failure {
    Failure::usage(
        format!("cannot write {}: {error}", path.display()),
        OWN_FILE_HINT,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dash_is_refused_and_a_file_of_that_name_is_not() {
        let refused = require_name(Path::new("-"), "a hint").expect_err("refused");
        assert_eq!(refused.exit_status(), 2);
        assert!(refused.to_string().contains("a hint"), "{refused}");
        for name in ["./-", "-x", "x-"] {
            require_name(Path::new(name), "").expect(name);
        }
    }
}
