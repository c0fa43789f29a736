//! Key files on disk: only their owner reads them, and none is overwritten by accident.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::process::geteuid;
use zeroize::Zeroizing;

use crate::cluster::{ClusterKey, ClusterKeyError};
use crate::config::{BESIDE_TRIES_MAX, FILE_BYTES_MAX, LOCK_TRIES_MAX};
use crate::own_file::{self, AllowedFile, sync_directory};
use crate::presented::{Presented, PresentedError};
use crate::user::{UserKey, UserKeyError};

/// Only its owner reads a key.
const MODE: u32 = 0o600;

/// What happens to a file that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// It stays, and writing fails.
    Keep,
    /// The new one takes its place in one step, and gets its owner. At the end of a link that is the file that the link
    /// leads to. Without a file there, a new one is made.
    Replace,
}

/// Why a key file was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The operating system refuses.
    #[error("cannot {what} the key file {}: {error}", path.display())]
    Io {
        /// `read`, `lock`, `write`, or what else was to be done to it.
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
    /// It belongs to another user, and this is root: whoever owns it knows the key, and may change it.
    #[error(
        "the key file {} belongs to user {owner}, who knows the key, and root uses keys of its own alone: run the command as \
         that user (`sudo -u '#{owner}'`), or make the file root's (`chown root {}`)",
        path.display(), quoted(path)
    )]
    OfAnother {
        /// The file.
        path: PathBuf,
        /// The number of its user.
        owner: u32,
    },
    /// A directory or a device.
    #[error("{} is not a file, and a key file is needed", path.display())]
    NotAFile {
        /// What it is.
        path: PathBuf,
    },
    /// Longer than any key file, or no text.
    #[error("{} is not a key file: it is not text, or longer than {FILE_BYTES_MAX} bytes", path.display())]
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
    /// Another command has locked it.
    #[error(
        "another command is changing the key file {}, and it was left alone: wait for that \
         command, and check the file (`trine key show {}`)",
        path.display(), quoted(path)
    )]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// The one that would take its place cannot be given to its owner, who could not read it then.
    #[error(
        "the key file {} was left alone: it belongs to user {owner} and group {group}, and a new file cannot be given to \
         them ({error}): run the command as root, or as that user",
        path.display()
    )]
    Owner {
        /// The file.
        path: PathBuf,
        /// The number of its user.
        owner: u32,
        /// The number of its group.
        group: u32,
        /// The reason of the operating system.
        error: io::Error,
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
        parse_cluster(&read(path)?, path)
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

/// A cluster key file under a lock: whoever else wants to change it is refused, from before it was read until it is
/// replaced, or until this value goes.
#[derive(Debug)]
pub struct LockedKeyFile {
    /// As the caller calls it.
    path: PathBuf,
    /// Where it is, behind all links.
    target: PathBuf,
    key: ClusterKey,
    _locked: File,
}

impl LockedKeyFile {
    /// Locks a cluster key file and reads it. Waits for nobody.
    ///
    /// # Errors
    ///
    /// If another command has locked it, if others may read it, or if it is none.
    pub fn lock(path: &Path) -> Result<Self, FileError> {
        let failed = |error| not_done("read", path, error);
        for _ in 0..LOCK_TRIES_MAX {
            let target = target_of(path).map_err(failed)?;
            require_file(path)?;
            // Over NFS only who may write a file may lock it.
            let file = OpenOptions::new().read(true).write(true).open(path);
            let file = file.or_else(|_| File::open(path)).map_err(failed)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => break,
                // A file system without locks keeps nobody out, and is no reason to keep an old key.
                Err(TryLockError::Error(error)) if knows_no_locks(&error) => {}
                Err(TryLockError::Error(error)) => return Err(not_done("lock", path, error)),
            }
            // Another command may have replaced it since it was opened. Then this lock keeps nobody out.
            if is_at(&file, &target).map_err(failed)? {
                let key = parse_cluster(&text_of(&file, path)?, path)?;
                return Ok(Self {
                    path: path.to_owned(),
                    target,
                    key,
                    _locked: file,
                });
            }
        }
        Err(FileError::Busy {
            path: path.to_owned(),
        })
    }

    /// The key that is in it.
    #[must_use]
    pub fn key(&self) -> &ClusterKey {
        &self.key
    }

    /// Puts a file with this key in its place, in one step. Links to it and its owner stay as they are.
    ///
    /// # Errors
    ///
    /// If the new file cannot be given to the owner of the old one, or if the operating system refuses. The old file is
    /// there then, unless the error says that only its directory was not synced.
    pub fn replace(self, key: &ClusterKey) -> Result<(), FileError> {
        assert_eq!(key.group(), self.key.group(), "a file stays its group's");
        replace(&self.path, &self.target, &key.to_text())
    }
}

/// A new key file, which has no key yet. It is removed together with this value, unless a key was written. So it is known
/// that a key can be written before that key is made.
#[derive(Debug)]
pub struct NewKeyFile {
    path: PathBuf,
    file: File,
    is_kept: bool,
}

impl NewKeyFile {
    /// Makes the file, which only its owner may read (mode 0600), or takes the empty one that an interrupted command of this
    /// user has left.
    ///
    /// # Errors
    ///
    /// If there is another file already, or if the operating system refuses.
    pub fn create(path: &Path) -> Result<Self, FileError> {
        let exists = || FileError::Exists {
            path: path.to_owned(),
        };
        match Self::create_at(path) {
            Ok(mut made) => match made.file.try_lock() {
                Err(TryLockError::WouldBlock) => {
                    // Another command has taken it for one that was left.
                    made.is_kept = true;
                    Err(exists())
                }
                // A file system without locks: then no command takes what it finds.
                Ok(()) | Err(TryLockError::Error(_)) => Ok(made),
            },
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Self::take_over(path).ok().flatten().ok_or_else(exists)
            }
            Err(error) => Err(not_done("write", path, error)),
        }
    }

    /// The empty file that an interrupted command of this user has left at `path`, if that is one.
    fn take_over(path: &Path) -> io::Result<Option<Self>> {
        let file = own_file::open(path, OFlags::WRONLY, MODE, AllowedFile::File)?.file;
        if file.try_lock().is_err() {
            return Ok(None);
        }
        let about = file.metadata()?;
        let is_private = about.permissions().mode() & 0o7777 == MODE;
        let is_left = about.len() == 0 && is_private && is_at(&file, path)?;
        Ok(is_left.then(|| Self {
            path: path.to_owned(),
            file,
            is_kept: false,
        }))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a user's key into it.
    ///
    /// # Errors
    ///
    /// If the operating system refuses. The file is removed then.
    pub fn write(self, key: &UserKey) -> Result<(), FileError> {
        self.finish(&key.to_file_text())
    }

    fn create_at(path: &Path) -> io::Result<Self> {
        let taken = || io::Error::from(io::ErrorKind::AlreadyExists);
        let opened = own_file::open(path, OFlags::WRONLY, MODE, AllowedFile::File);
        let opened = opened.map_err(|error| match fs::symlink_metadata(path) {
            Ok(_) => taken(),
            Err(_) => error,
        })?;
        match opened.is_new {
            false => Err(taken()),
            true => Ok(Self {
                path: path.to_owned(),
                file: opened.file,
                is_kept: false,
            }),
        }
    }

    fn finish(mut self, text: &str) -> Result<(), FileError> {
        self.put(text)
            .and_then(|()| sync_directory(&self.path))
            .map_err(|error| not_done("write", &self.path, error))?;
        self.is_kept = true;
        Ok(())
    }

    fn put(&mut self, text: &str) -> io::Result<()> {
        self.file.write_all(text.as_bytes())?;
        self.file.sync_all()
    }

    /// Gives it to these, unless it is theirs. The group may not read it anyway, so another one is no obstacle.
    fn give_to(&self, owner: u32, group: u32) -> io::Result<()> {
        let metadata = self.file.metadata()?;
        if (metadata.uid(), metadata.gid()) == (owner, group) {
            return Ok(());
        }
        fchown(&self.file, Some(owner), Some(group)).or_else(|error| {
            match metadata.uid() == owner {
                true => Ok(()),
                false => Err(error),
            }
        })
    }
}

impl Drop for NewKeyFile {
    fn drop(&mut self) {
        if !self.is_kept {
            // Half a key file helps nobody, and would be in the way of the next try. Its own failure adds nothing.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn not_done(what: &'static str, path: &Path, error: io::Error) -> FileError {
    FileError::Io {
        what,
        path: path.to_owned(),
        error,
    }
}

fn parse_cluster(text: &str, path: &Path) -> Result<ClusterKey, FileError> {
    ClusterKey::parse(text).map_err(|error| FileError::Cluster {
        path: path.to_owned(),
        error,
    })
}

fn read(path: &Path) -> Result<Zeroizing<String>, FileError> {
    require_file(path)?;
    let failed = |error| not_done("read", path, error);
    let file = File::open(path).map_err(failed)?;
    let owner = file.metadata().map_err(failed)?.uid();
    if is_foreign(geteuid().as_raw(), owner) {
        return Err(FileError::OfAnother {
            path: path.to_owned(),
            owner,
        });
    }
    text_of(&file, path)
}

/// To be asked before it is opened: that of a pipe would wait for a writer.
fn require_file(path: &Path) -> Result<(), FileError> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => Ok(()),
        Ok(_) => Err(FileError::NotAFile {
            path: path.to_owned(),
        }),
        Err(error) => Err(not_done("read", path, error)),
    }
}

/// The text of the open file that the caller calls `path`.
fn text_of(file: &File, path: &Path) -> Result<Zeroizing<String>, FileError> {
    let failed = |error| not_done("read", path, error);
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

/// Whether a user must not use a key file for its owner's sake. Only root can read one of another user at all: then others
/// know the key, and whoever put the file there may have chosen it. To change one in its place is another matter: it stays
/// that user's.
fn is_foreign(user: u32, owner: u32) -> bool {
    user == 0 && owner != 0
}

fn write(path: &Path, text: &str, existing: Existing) -> Result<(), FileError> {
    match existing {
        Existing::Keep => NewKeyFile::create(path)?.finish(text),
        Existing::Replace => {
            let target = target_of(path).map_err(|error| not_done("write", path, error))?;
            replace(path, &target, text)
        }
    }
}

/// Where a file is that the caller calls `path`, behind all links. A link that leads to nothing is an error; where there
/// is not even a link, that is where a file can be made.
fn target_of(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Err(error)
            if error.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(path).is_err() =>
        {
            Ok(path.to_owned())
        }
        target => target,
    }
}

/// Whether an error of a lock says that the file system has none.
fn knows_no_locks(error: &io::Error) -> bool {
    /// ENOLCK of Linux: an NFS server without its service of locks.
    const NO_LOCKS: i32 = 37;
    error.kind() == io::ErrorKind::Unsupported || error.raw_os_error() == Some(NO_LOCKS)
}

/// Whether the open file is the one that has this name now.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let (open, named) = (file.metadata()?, fs::metadata(path)?);
    Ok((open.dev(), open.ino()) == (named.dev(), named.ino()))
}

/// Puts a file with this text in the place of the one at `target`, which the caller calls `path`.
fn replace(path: &Path, target: &Path, text: &str) -> Result<(), FileError> {
    let failed = |error| not_done("write", path, error);
    let old = match fs::metadata(target) {
        Ok(metadata) if !metadata.is_file() => {
            return Err(FileError::NotAFile {
                path: path.to_owned(),
            });
        }
        Ok(metadata) => Some((metadata.uid(), metadata.gid())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed(error)),
    };
    let mut beside = create_beside(target).map_err(failed)?;
    if let Some((owner, group)) = old {
        // Who could read the old one would not be able to read the new one.
        beside
            .give_to(owner, group)
            .map_err(|error| FileError::Owner {
                path: path.to_owned(),
                owner,
                group,
                error,
            })?;
    }
    beside
        .put(text)
        .and_then(|()| fs::rename(&beside.path, target))
        .map_err(failed)?;
    // It has another name now.
    beside.is_kept = true;
    sync_directory(target).map_err(|error| not_done("sync the directory of", path, error))
}

/// Makes a file beside another one. No file that is there is touched, not even one that an interrupted command has left:
/// it may be anybody's.
fn create_beside(target: &Path) -> io::Result<NewKeyFile> {
    for number in 0..BESIDE_TRIES_MAX {
        let mut name = OsString::from(".");
        name.push(target.file_name().unwrap_or_default());
        name.push(format!(".{}.{number}.tmp", std::process::id()));
        match NewKeyFile::create_at(&target.with_file_name(name)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => return created,
        }
    }
    Err(io::Error::other(
        "interrupted commands have left too many files beside it: remove those that are called .NAME.NUMBER.NUMBER.tmp",
    ))
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
