//! A directory of the operating system.

use std::fs::{DirBuilder, DirEntry, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use trine_protocol::message::{ClusterId, Member};

use super::descriptors;
use super::identity::{self, Identity};
use super::names::LOCK;
use super::spare::{self, FILE_MODE, Spare};
use super::{Disk, DiskCause, DiskError, DiskStage};

/// A locked directory. No other process opens it as long as this value exists.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// The next file of a size that was announced. In front of the lock: its thread ends before another process comes in.
    spare: Option<Spare>,
    _lock: File,
    /// The files that were written last, open.
    open: Vec<(String, File)>,
    watch: Option<Watch>,
}

/// Makes the directory at `path`, of this user alone, because values are in it. Its name has to last as long as its files, so
/// each directory that gets a new name in it is synced, and that of `path` in any case: an earlier call may not have come
/// to that.
///
/// # Errors
/// The operating system refuses.
pub fn make_directory(path: &Path) -> io::Result<()> {
    let is_there = |path: &&Path| path.as_os_str().is_empty() || path.exists();
    let missing = path.ancestors().take_while(|path| !is_there(path));
    let mut new: Vec<&Path> = missing.collect();
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    if new.is_empty() {
        new.push(path);
    }
    for made in new.iter().rev() {
        let parent = made.parent().filter(|path| !path.as_os_str().is_empty());
        match File::open(parent.unwrap_or(Path::new("."))) {
            // One that this user may not read can still be written. Then the name lasts as the file system likes.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            opened => opened?.sync_all()?,
        }
    }
    Ok(())
}

/// Whether the file system itself has put it at the top of a fresh volume.
pub(super) fn is_of_file_system(entry: &DirEntry) -> bool {
    entry.file_name() == "lost+found" && entry.file_type().is_ok_and(|kind| kind.is_dir())
}

/// Hears how far long work has come, and says whether it goes on.
struct Watch(Box<dyn FnMut(DiskStage, u64, u64) -> bool + Send>);

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watch")
    }
}

/// Files kept open: the last segment, the synced mark, and two snapshots.
const OPEN_MAX: usize = 4;

impl Directory {
    /// Makes the directory if it is not there, and locks it.
    ///
    /// # Errors
    /// It cannot be made, or another process has it.
    pub fn lock(path: &Path) -> Result<Self, DiskError> {
        let shown = path.display().to_string();
        let failed = |operation| {
            let shown = shown.clone();
            move |error: io::Error| failure(operation, shown, &error)
        };
        if !path.join(identity::FILE).exists() {
            make_directory(path).map_err(failed("create the directory"))?;
        }
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(FILE_MODE)
            .open(path.join(LOCK))
            .map_err(failed("open the lock in"))?;
        match lock.try_lock() {
            // Another process has removed the directory, or its lock, between the two calls.
            Ok(()) if !is_at(&lock, &path.join(LOCK)) => Err(used(shown)),
            Ok(()) => Ok(Self {
                path: path.to_owned(),
                spare: None,
                _lock: lock,
                open: Vec::new(),
                watch: None,
            }),
            Err(TryLockError::WouldBlock) => Err(used(shown)),
            Err(TryLockError::Error(error)) => Err(failed("lock")(error)),
        }
    }

    /// Who began the group of the replica in the directory at `path`, in the order of their node ids. Nothing if it was
    /// not there, belongs to no group, or cannot be read; opening the directory reports which. Needs no lock.
    #[must_use]
    pub fn first_members(path: &Path) -> Option<Vec<Member>> {
        let mut members = identity_at(path)?.origin?.members.0;
        members.sort_unstable_by_key(|member| member.node_id);
        Some(members)
    }

    /// The group of the replica in the directory at `path`. Nothing if it belongs to none, or the directory cannot be read;
    /// opening it reports which. Needs no lock.
    #[must_use]
    pub fn cluster(path: &Path) -> Option<ClusterId> {
        let cluster = identity_at(path)?.cluster;
        (!cluster.is_none()).then_some(cluster)
    }

    /// From now on `watch` hears how far long work has come, out of how much, and ends it by saying no.
    #[must_use]
    pub fn watched(
        mut self,
        watch: impl FnMut(DiskStage, u64, u64) -> bool + Send + 'static,
    ) -> Self {
        self.watch = Some(Watch(Box::new(watch)));
        self
    }

    /// Lets go of who was told: the long work is over.
    pub fn unwatch(&mut self) {
        self.watch = None;
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn failed(&self, operation: &'static str, name: &str, error: &io::Error) -> DiskError {
        failure(operation, self.path.join(name).display().to_string(), error)
    }

    fn with<T>(
        &mut self,
        operation: &'static str,
        name: &str,
        act: impl FnOnce(&File) -> io::Result<T>,
    ) -> Result<T, DiskError> {
        let result = self.file(name).and_then(act);
        result.map_err(|error| self.failed(operation, name, &error))
    }

    fn file(&mut self, name: &str) -> io::Result<&File> {
        if let Some(at) = self.open.iter().position(|(open, _)| open == name) {
            return Ok(&self.open[at].1);
        }
        let path = self.path.join(name);
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let file = descriptors::open(|| options.open(&path))?;
        Ok(self.keep(name, file))
    }

    fn keep(&mut self, name: &str, file: File) -> &File {
        self.open.retain(|(open, _)| open != name);
        if self.open.len() >= OPEN_MAX {
            self.open.remove(0);
        }
        self.open.push((name.to_owned(), file));
        &self.open[self.open.len() - 1].1
    }
}

fn identity_at(path: &Path) -> Option<Identity> {
    let bytes = std::fs::read(path.join(identity::FILE)).ok()?;
    Identity::decode(&bytes).ok()
}

fn used(file: String) -> DiskError {
    DiskError {
        operation: "lock",
        file,
        reason: "another process uses this directory".to_owned(),
        cause: DiskCause::Device,
    }
}

/// Whether this is the file that has that path now.
fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(open), Ok(there)) = (file.metadata(), std::fs::metadata(path)) else {
        return false;
    };
    (open.dev(), open.ino()) == (there.dev(), there.ino())
}

fn failure(operation: &'static str, file: String, error: &io::Error) -> DiskError {
    DiskError {
        operation,
        file,
        reason: error.to_string(),
        cause: match error.kind() {
            io::ErrorKind::StorageFull => DiskCause::Full,
            _ => DiskCause::Device,
        },
    }
}

impl Disk for Directory {
    fn names(&mut self) -> Result<Vec<String>, DiskError> {
        let list = || -> io::Result<Vec<String>> {
            let mut names = Vec::new();
            for entry in descriptors::open(|| std::fs::read_dir(&self.path))? {
                let entry = entry?;
                if !is_of_file_system(&entry) {
                    names.push(entry.file_name().to_string_lossy().into_owned());
                }
            }
            names.sort();
            Ok(names)
        };
        list().map_err(|error| self.failed("list", "", &error))
    }

    fn size(&mut self, name: &str) -> Result<u64, DiskError> {
        self.with("look at", name, |file| Ok(file.metadata()?.len()))
    }

    fn at(&mut self, step: DiskStage, done: u64, total: u64) -> Result<(), DiskError> {
        let goes_on = match &mut self.watch {
            Some(Watch(watch)) => watch(step, done, total),
            None => true,
        };
        match goes_on {
            true => Ok(()),
            false => Err(DiskError {
                operation: "go on with",
                file: self.path.display().to_string(),
                reason: "the user has ended it".to_owned(),
                cause: DiskCause::Ended,
            }),
        }
    }

    fn read(&mut self, name: &str, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        self.with("read", name, |file| file.read_exact_at(into, offset))
    }

    fn create(&mut self, name: &str, size: u64) -> Result<(), DiskError> {
        let path = self.path.join(name);
        let file = match self.spare.take_if(|spare| spare.size() == size) {
            // One that is late is given up: the writer never waits.
            Some(spare) => spare
                .take(&path)
                .map_or_else(|| spare::reserve(&path, size), Ok),
            None => spare::written(&path, size, |_| Ok(())),
        };
        let file = file.map_err(|error| self.failed("create", name, &error))?;
        self.keep(name, file);
        Ok(())
    }

    fn prepare(&mut self, size: u64) {
        // The one before goes first: both have the same name.
        self.spare = None;
        self.spare = Spare::begin(&self.path, size);
    }

    fn write(&mut self, name: &str, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.with("write", name, |file| file.write_all_at(bytes, offset))
    }

    fn sync(&mut self, name: &str) -> Result<(), DiskError> {
        self.with("sync", name, File::sync_data)
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), DiskError> {
        std::fs::rename(self.path.join(from), self.path.join(to))
            .map_err(|error| self.failed("rename", from, &error))?;
        self.open.retain(|(open, _)| open != to);
        if let Some((name, _)) = self.open.iter_mut().find(|(open, _)| open == from) {
            *name = to.to_owned();
        }
        Ok(())
    }

    fn remove(&mut self, name: &str) -> Result<(), DiskError> {
        self.open.retain(|(open, _)| open != name);
        std::fs::remove_file(self.path.join(name))
            .map_err(|error| self.failed("remove", name, &error))
    }

    fn sync_names(&mut self) -> Result<(), DiskError> {
        descriptors::open(|| File::open(&self.path))
            .and_then(|directory| directory.sync_all())
            .map_err(|error| self.failed("sync", "", &error))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::super::first_obstacle;
    use super::super::tests::{options, recoverable};
    use super::super::{OpenError, RecoverError, Recovered, open, recover};
    use super::*;
    use trine_protocol::message::{MemberRole, NodeId};

    struct Scratch(PathBuf);

    impl Scratch {
        /// A directory that holds what `recoverable` does.
        fn new(name: &str) -> Self {
            let name = format!("trine-directory-{}-{name}", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&path).unwrap();
            for (file, bytes) in recoverable().files {
                std::fs::write(path.join(file), bytes).unwrap();
            }
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// A fresh ext4 volume could not be a data directory: its `lost+found` was called a file of somebody else's.
    #[test]
    fn a_fresh_volume_is_an_empty_directory() {
        let scratch = Scratch::new("volume");
        for name in recoverable().files.keys() {
            std::fs::remove_file(scratch.0.join(name)).unwrap();
        }
        let volume = scratch.0.join("deep/volume");
        drop(Directory::lock(&volume).unwrap());
        std::fs::create_dir(volume.join("lost+found")).unwrap();
        assert_eq!(first_obstacle(&volume), None);
        let mut directory = Directory::lock(&volume).unwrap();
        assert_eq!(directory.names().unwrap(), [LOCK]);
        // A file of this name is none of the file system's.
        std::fs::remove_dir(volume.join("lost+found")).unwrap();
        std::fs::write(volume.join("lost+found"), "").unwrap();
        assert_eq!(directory.names().unwrap().len(), 2);
    }

    type Steps = Arc<Mutex<Vec<(DiskStage, u64, u64)>>>;

    /// The directory, whose work is ended at the progress call `end`, and the calls.
    fn watched(path: &Path, end: usize) -> (Directory, Steps) {
        let steps_seen = Steps::default();
        let seen = Arc::clone(&steps_seen);
        let directory = Directory::lock(path).unwrap();
        let watched = directory.watched(move |step, done, total| {
            let mut seen = seen.lock().unwrap();
            seen.push((step, done, total));
            seen.len() <= end
        });
        (watched, steps_seen)
    }

    fn recovered(path: &Path, end: usize) -> (Result<Recovered, RecoverError>, Steps) {
        let (directory, steps_seen) = watched(path, end);
        let member = Member {
            node_id: NodeId(1),
            role: MemberRole::Voter,
            incarnation: options().incarnation,
            address: ([127, 0, 0, 1], 7471).into(),
        };
        (
            recover(directory, options(), ClusterId(8), member),
            steps_seen,
        )
    }

    #[test]
    fn the_group_of_a_directory_is_known_without_its_lock() {
        let scratch = Scratch::new("cluster");
        let _locked = Directory::lock(&scratch.0).unwrap();
        assert_eq!(Directory::cluster(&scratch.0), Some(ClusterId(7)));
        std::fs::write(scratch.0.join(identity::FILE), "damaged").unwrap();
        assert_eq!(Directory::cluster(&scratch.0), None);
        assert_eq!(Directory::cluster(&scratch.0.join("none")), None);
    }

    #[test]
    fn reading_comes_to_its_total_and_can_be_ended_before() {
        let scratch = Scratch::new("reading");
        let (directory, _) = watched(&scratch.0, 0);
        match open(directory, options()) {
            Err(OpenError::Disk(error)) => assert_eq!(error.cause, DiskCause::Ended, "{error}"),
            other => panic!("{other:?}"),
        }
        let (directory, steps_seen) = watched(&scratch.0, usize::MAX);
        let opened = open(directory, options()).unwrap();
        assert!(opened.restored.is_some(), "nothing was changed");
        let steps_seen = steps_seen.lock().unwrap();
        let &(step, done, total) = steps_seen.last().unwrap();
        assert_eq!((step, done), (DiskStage::Reading, total));
        assert!(steps_seen.windows(2).all(|pair| pair[0].1 <= pair[1].1));
    }

    #[test]
    fn a_recovery_that_was_ended_at_any_check_begins_again() {
        let scratch = Scratch::new("recovery");
        let mut steps = Vec::new();
        for end in 0.. {
            let (done, steps_seen) = recovered(&scratch.0, end);
            steps.extend(steps_seen.lock().unwrap().last().map(|&(step, _, _)| step));
            match done {
                Ok(done) => {
                    assert_eq!((done.old, done.last), (ClusterId(7), 7));
                    break;
                }
                Err(RecoverError::Open(OpenError::Disk(error))) => {
                    assert_eq!(error.cause, DiskCause::Ended, "{error}");
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert!(steps.contains(&DiskStage::Reading) && steps.contains(&DiskStage::Applying));
        assert!(steps.contains(&DiskStage::Writing), "{steps:?}");
    }
}
