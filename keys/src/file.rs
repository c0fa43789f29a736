//! Key files on disk: only their owner reads them, and none is overwritten by accident.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::cluster::{ClusterKey, ClusterKeyError};
use crate::config::FILE_BYTES_MAX;
use crate::presented::{Presented, PresentedError};
use crate::user::{UserKey, UserKeyError};

/// What happens to a file that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// It stays, and writing fails.
    Keep,
    /// The new one takes its place in one step.
    Replace,
}

/// Why a key file was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The operating system refuses.
    #[error("cannot {what} the key file {}: {error}", path.display())]
    Io {
        /// `read` or `write`.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Its reason.
        error: io::Error,
    },
    /// Others may read it.
    #[error(
        "the key file {} can be read by others (mode {mode:04o}): run `chmod 600 {}`",
        path.display(), quoted(path)
    )]
    Open {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A directory or a device.
    #[error("{} is no file, and a key file is needed", path.display())]
    NotAFile {
        /// What it is.
        path: PathBuf,
    },
    /// Longer than any key file, or no text.
    #[error("{} is no key file: it is no text, or longer than {FILE_BYTES_MAX} bytes", path.display())]
    NotAKeyFile {
        /// The file.
        path: PathBuf,
    },
    /// There is one already.
    #[error("the file {} exists and was left alone: remove it or choose another path", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A cluster key file was expected.
    #[error("{}: {error}", path.display())]
    Cluster {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: ClusterKeyError,
    },
    /// A user's key was expected.
    #[error("{}: {error}", path.display())]
    User {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: UserKeyError,
    },
    /// Either of them was expected.
    #[error("{}: {error}", path.display())]
    Presented {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: PresentedError,
    },
}

impl ClusterKey {
    /// Reads a cluster key file.
    ///
    /// # Errors
    ///
    /// If others may read the file, or if it is none.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        Self::parse(&read(path)?).map_err(|error| FileError::Cluster {
            path: path.to_owned(),
            error,
        })
    }

    /// Writes a cluster key file that only its owner may read (mode 0600).
    ///
    /// # Errors
    ///
    /// If there is one already and `existing` keeps it, or if the operating system refuses.
    pub fn write(&self, path: &Path, existing: Existing) -> Result<(), FileError> {
        write(path, &self.to_text(), existing)
    }
}

impl UserKey {
    /// Reads the file of a user's key.
    ///
    /// # Errors
    ///
    /// If others may read the file, or if it is none.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        Self::parse(&read(path)?).map_err(|error| FileError::User {
            path: path.to_owned(),
            error,
        })
    }

    /// Writes the key into a file that only its owner may read (mode 0600).
    ///
    /// # Errors
    ///
    /// If there is one already and `existing` keeps it, or if the operating system refuses.
    pub fn write(&self, path: &Path, existing: Existing) -> Result<(), FileError> {
        write(path, &self.to_file_text(), existing)
    }
}

impl Presented {
    /// Reads the key of connections from a cluster key file or from the file of a user's key.
    ///
    /// # Errors
    ///
    /// If others may read the file, or if it is neither.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        Self::parse(&read(path)?).map_err(|error| FileError::Presented {
            path: path.to_owned(),
            error,
        })
    }
}

fn read(path: &Path) -> Result<Zeroizing<String>, FileError> {
    let failed = |error| FileError::Io {
        what: "read",
        path: path.to_owned(),
        error,
    };
    // Before it is opened: that of a pipe would wait for a writer.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(FileError::NotAFile {
            path: path.to_owned(),
        });
    }
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let mode = metadata.permissions().mode() & 0o7777;
    if is_open(mode, metadata.uid(), metadata.gid()) {
        return Err(FileError::Open {
            path: path.to_owned(),
            mode,
        });
    }
    let not_a_key_file = || FileError::NotAKeyFile {
        path: path.to_owned(),
    };
    // Room for the longest: a vector that grows leaves copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(FILE_BYTES_MAX + 1));
    file.take(FILE_BYTES_MAX as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() > FILE_BYTES_MAX {
        return Err(not_a_key_file());
    }
    let text = std::str::from_utf8(&bytes).map_err(|_| not_a_key_file())?;
    Ok(Zeroizing::new(text.to_owned()))
}

/// Whether others than the owner may read or change it. A file of root with mode 0440 counts as closed: systemd hands out
/// credentials so (`LoadCredential=`). The service's user is in an access control list, whose mask stands where the
/// permissions of the group stand.
fn is_open(mode: u32, owner: u32, group: u32) -> bool {
    let is_credential = mode == 0o440 && owner == 0 && group == 0;
    mode & 0o077 != 0 && !is_credential
}

fn write(path: &Path, text: &str, existing: Existing) -> Result<(), FileError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::AlreadyExists => FileError::Exists {
            path: path.to_owned(),
        },
        _ => FileError::Io {
            what: "write",
            path: path.to_owned(),
            error,
        },
    };
    match existing {
        Existing::Keep => write_new(path, text).map_err(failed),
        Existing::Replace => {
            let mut beside = path.as_os_str().to_owned();
            beside.push(".new");
            let beside = PathBuf::from(beside);
            // What an interrupted call left.
            match fs::remove_file(&beside) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
                _ => {}
            }
            write_new(&beside, text)
                .and_then(|()| fs::rename(&beside, path))
                .and_then(|()| sync_directory(path))
                .map_err(failed)
        }
    }
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| sync_directory(path));
    if written.is_err() {
        // Half a key file helps nobody, and would be in the way of the next try. Its own failure adds nothing.
        let _ = fs::remove_file(path);
    }
    written
}

/// A new name is kept by its directory.
fn sync_directory(path: &Path) -> io::Result<()> {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// The path as a shell takes it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@%=:,".contains(c);
    if !text.is_empty() && text.chars().all(plain) && !text.starts_with('-') {
        return text;
    }
    let dashes = if text.starts_with('-') { "-- " } else { "" };
    format!("{dashes}'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests;
