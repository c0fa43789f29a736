//! The key with which `trine up` seals its group: where it comes from, and that commands find it.
//!
//! A group in memory begins anew with each `up`, and names and generations of users begin with it. So it gets a new key.
//! A group on disk keeps its own, in its directory.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use trine_base::announce::note;
use trine_base::failure::Failure;
use trine_base::local_key::{self, Entries};
use trine_keys::{ClusterKey, Existing, FileError};

use super::super::key::file_failure;
use super::kept::replicas_in;

/// The name of the key file in a group's directory.
const FILE: &str = "group.key";

/// The key file of a running group. What was made for this run alone goes when it is dropped.
#[derive(Debug)]
pub(super) struct GroupKey {
    pub(super) path: PathBuf,
    /// Lets commands find the key. `None` if there is no place for that.
    _entries: Option<Entries>,
    _made: Option<MadeForThisRun>,
}

impl GroupKey {
    /// The key in a file that the user named, of a group at `addresses`.
    pub(super) fn named(path: &Path, addresses: &[SocketAddr]) -> Result<Self, Failure> {
        let path = absolute(path)?;
        ClusterKey::read(&path).map_err(file_failure)?;
        Ok(Self {
            _entries: findable(&path, addresses)?,
            path,
            _made: None,
        })
    }

    /// The key that a group keeps in its directory. The first `up` makes it.
    pub(super) fn kept_in(directory: &Path, addresses: &[SocketAddr]) -> Result<Self, Failure> {
        let path = absolute(&directory.join(FILE))?;
        match draw()?.write(&path, Existing::Keep) {
            Ok(()) if !replicas_in(directory).is_empty() => note(format_args!(
                "warning: the group had no key file: {} is new, and users' keys that were derived \
                 from another one are void; if there was one, stop the group, put it back, and \
                 start again",
                path.display()
            )),
            Ok(()) | Err(FileError::Exists { .. }) => {}
            Err(error) => return Err(file_failure(error)),
        }
        Self::named(&path, addresses)
    }

    /// A new key, for a group that ends with this process.
    pub(super) fn of_this_run(addresses: &[SocketAddr]) -> Result<Self, Failure> {
        let directory = local_key::directory()?;
        // First the entries: a group that runs there keeps its key.
        let mut entries = Entries::hold(&directory, addresses)?;
        let path = directory.join(format!("{}.key", addresses[0]));
        let made = MadeForThisRun(path.clone());
        draw()?
            .write(&path, Existing::Replace)
            .map_err(file_failure)?;
        entries.name(&path)?;
        Ok(Self {
            path,
            _entries: Some(entries),
            _made: Some(made),
        })
    }
}

/// A key file of which nobody has any use after this run.
#[derive(Debug)]
struct MadeForThisRun(PathBuf);

impl Drop for MadeForThisRun {
    fn drop(&mut self) {
        // The next run replaces it otherwise.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Lets `trine down` find a group without a key. Without a place for that it runs all the same.
pub(super) fn of_none(addresses: &[SocketAddr]) -> Result<Option<Entries>, Failure> {
    let Ok(directory) = local_key::directory() else {
        return Ok(None);
    };
    let mut entries = Entries::hold(&directory, addresses)?;
    // One that was killed may have left the name of its key.
    entries.name(Path::new(""))?;
    Ok(Some(entries))
}

/// Lets commands find a key whose file lies elsewhere. Without a place for that the group runs all the same.
fn findable(key: &Path, addresses: &[SocketAddr]) -> Result<Option<Entries>, Failure> {
    let directory = match local_key::directory() {
        Ok(directory) => directory,
        Err(failure) => {
            note(format_args!(
                "warning: commands need --key {}: {}",
                key.display(),
                failure.message()
            ));
            return Ok(None);
        }
    };
    let mut entries = Entries::hold(&directory, addresses)?;
    entries.name(key)?;
    Ok(Some(entries))
}

fn draw() -> Result<ClusterKey, Failure> {
    ClusterKey::draw().map_err(|error| Failure::usage(error.to_string(), ""))
}

/// Commands run in other directories.
fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| {
        Failure::usage(
            format!("{} is not the path of a key file: {error}", path.display()),
            "",
        )
    })
}
