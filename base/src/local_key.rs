//! The file with the key of a local `trine up`, and how commands of the same user find it.
//!
//! For the address of each replica there is an entry, `STATE/trine/HOST/ADDRESS`, that names the key file. `up` holds a
//! lock on its entries while it runs. An entry without a lock was left by one that was killed, and counts for nothing.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::net::SocketAddr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::process::{Flock, FlockType, Pid, fcntl_getlk, geteuid};

use crate::failure::Failure;

/// A path is at most this long, and a longer entry is none.
const PATH_BYTES_MAX: u64 = 4096;
/// How often an entry is opened again that another process has just removed.
const REOPENED_MAX: u32 = 8;

/// The key file of the group that a running `trine up` of this user has at one of `peers`, the first of them that has
/// one.
#[must_use]
pub fn find(peers: &[SocketAddr]) -> Option<PathBuf> {
    let places: Vec<PathBuf> = places()
        .into_iter()
        .filter(|place| is_ours(place))
        .collect();
    let mut entries = peers
        .iter()
        .flat_map(|peer| places.iter().map(|place| place.join(peer.to_string())));
    entries.find_map(|entry| named_by(&entry))
}

/// The processes of `trine up` of this user that have a group at one of `peers`, by their ids. 0 stands for one in another PID
/// namespace.
#[must_use]
pub fn holders(peers: &[SocketAddr]) -> BTreeSet<u32> {
    let places = places().into_iter().filter(|place| is_ours(place));
    let places: Vec<PathBuf> = places.collect();
    let entries = peers
        .iter()
        .flat_map(|peer| places.iter().map(|place| place.join(peer.to_string())));
    let holders = entries.filter_map(|entry| {
        let pid = holder(&File::open(entry).ok()?)?;
        Some(pid.map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs()))
    });
    holders.collect()
}

/// The directory of this user's groups, made if it is not there. Nobody else may look into it.
///
/// # Errors
/// There is no place for it.
pub fn directory() -> Result<PathBuf, Failure> {
    let mut why = Vec::new();
    for place in places() {
        match make(&place) {
            Ok(()) => return Ok(place),
            Err(error) => why.push(format!("{}: {error}", place.display())),
        }
    }
    if why.is_empty() {
        why.push("neither HOME nor XDG_STATE_HOME names a directory".to_owned());
    }
    Err(Failure::usage(
        format!(
            "there is no directory for the files with which commands find the group's key: {}",
            why.join("; ")
        ),
        "set XDG_STATE_HOME to a directory of your own, give a key with --key FILE, or do without \
         a key (--insecure)",
    ))
}

/// The entries of a running group. They go when this is dropped.
#[derive(Debug)]
pub struct Entries {
    held: Vec<(PathBuf, File)>,
}

impl Entries {
    /// Takes the entries of a group at `addresses`. They name no key yet.
    ///
    /// # Errors
    /// Another `trine up` has one of them, or they cannot be written.
    pub fn hold(directory: &Path, addresses: &[SocketAddr]) -> Result<Self, Failure> {
        let mut entries = Self { held: Vec::new() };
        for address in addresses {
            let path = directory.join(address.to_string());
            let file = hold(&path).map_err(|error| match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::PermissionDenied if path.exists() => {
                    Failure::usage(
                        format!("another `trine up` has a group at {address}"),
                        "use that one (`trine status`), stop it, or choose another --base-port",
                    )
                }
                _ => cannot_write(&path, &error),
            })?;
            entries.held.push((path, file));
        }
        Ok(entries)
    }

    /// Lets commands find the key file at `key`, an absolute path.
    ///
    /// # Errors
    /// The entries cannot be written.
    pub fn name(&mut self, key: &Path) -> Result<(), Failure> {
        for (path, file) in &mut self.held {
            let written = file
                .set_len(0)
                .and_then(|()| file.rewind())
                .and_then(|()| file.write_all(key.as_os_str().as_bytes()));
            written.map_err(|error| cannot_write(path, &error))?;
        }
        Ok(())
    }
}

impl Drop for Entries {
    fn drop(&mut self) {
        for (path, _held) in &self.held {
            // It is still held, so it is this process's own. One that stays counts for nothing without its lock.
            let _ = fs::remove_file(path);
        }
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::usage(
        format!("cannot write {}: {error}", path.display()),
        "commands find the group's key there; XDG_STATE_HOME names another place",
    )
}

/// The places for this machine's groups, the best first. A home may be on several machines, so each has its own.
fn places() -> Vec<PathBuf> {
    let variable = |name| {
        let named = std::env::var_os(name).map(PathBuf::from);
        named.filter(|path| path.is_absolute())
    };
    let of_home = || {
        let home = std::env::home_dir().filter(|path| path.is_absolute());
        home.map(|home| home.join(".local/state"))
    };
    let state = variable("XDG_STATE_HOME").or_else(of_home);
    let found = [state, variable("XDG_RUNTIME_DIR")];
    let uname = rustix::system::uname();
    let host = OsStr::from_bytes(uname.nodename().to_bytes());
    let within = |place: PathBuf| place.join("trine").join(host);
    found.into_iter().flatten().map(within).collect()
}

/// Makes the directory and its parents. The last two are this user's alone.
fn make(place: &Path) -> io::Result<()> {
    let parent = place.parent().unwrap_or(place);
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(place)?;
    for own in [parent, place] {
        if fs::metadata(own)?.uid() != geteuid().as_raw() {
            return Err(io::Error::other("it belongs to another user"));
        }
        fs::set_permissions(own, Permissions::from_mode(0o700))?;
    }
    // An old directory may be on a file system that has become read-only.
    let probe = place.join(format!(".{}", std::process::id()));
    File::create(&probe).and_then(|_| fs::remove_file(&probe))
}

/// Whether nobody else can have put something there.
fn is_ours(place: &Path) -> bool {
    let own = |path: &Path| {
        let found = fs::metadata(path);
        found.is_ok_and(|found| found.uid() == geteuid().as_raw() && found.mode() & 0o022 == 0)
    };
    place.parent().is_some_and(own) && own(place)
}

/// The key file that an entry names, if the process that wrote it still runs.
fn named_by(entry: &Path) -> Option<PathBuf> {
    let file = File::open(entry).ok()?;
    if !is_held(&file) {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(PATH_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    let path = PathBuf::from(OsString::from_vec(bytes));
    path.is_absolute().then_some(path)
}

/// Whether another process has a lock on the file.
fn is_held(file: &File) -> bool {
    holder(file).is_some()
}

/// The process that has a lock on the file, if another one has. Asking takes none, so it is in nobody's way.
fn holder(file: &File) -> Option<Option<Pid>> {
    let whole = Flock::from(FlockType::WriteLock);
    let held = fcntl_getlk(file, &whole).ok()??;
    Some(held.pid)
}

/// Opens the entry and locks it. The lock ends with this process, whatever ends it.
fn hold(path: &Path) -> io::Result<File> {
    for _ in 0..REOPENED_MAX {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)?;
        fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive)?;
        // The one that had it before may have removed it in between. Then this is a file that nobody finds.
        let opened = file.metadata()?;
        match fs::metadata(path) {
            Ok(found) if found.ino() == opened.ino() && found.dev() == opened.dev() => {
                return Ok(file);
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("it is repeatedly removed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory of the test's own. A lock is held by a process, so the rest is tested with processes
    /// (`cli/tests/all/up_key.rs`).
    fn directory(name: &str) -> PathBuf {
        let path =
            std::env::temp_dir().join(format!("trine-local-key-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        path
    }

    #[test]
    fn entries_are_the_users_alone_and_go_with_their_group() {
        let path = directory("entries").join("trine/host");
        make(&path).expect("made");
        let mode = |path: &Path| fs::metadata(path).expect("there").mode() & 0o777;
        assert_eq!(mode(&path), 0o700);
        assert!(is_ours(&path));
        let address = "127.0.0.1:7471".parse().expect("an address");
        let mut entries = Entries::hold(&path, &[address]).expect("held");
        entries.name(Path::new("/a/key")).expect("written");
        entries.name(Path::new("/b")).expect("written again");
        let entry = path.join("127.0.0.1:7471");
        assert_eq!(mode(&entry), 0o600);
        assert_eq!(fs::read_to_string(&entry).expect("read"), "/b");
        // Of its own lock a process is not told: to itself the entry is one without a lock.
        assert_eq!(named_by(&entry), None);
        drop(entries);
        assert!(!entry.exists());
        fs::set_permissions(&path, Permissions::from_mode(0o770)).expect("changed");
        assert!(!is_ours(&path), "others may write into it");
        make(&path).expect("there already");
        assert!(is_ours(&path), "and not any more");
        let _ = fs::remove_dir_all(path.ancestors().nth(2).expect("a root"));
    }
}
