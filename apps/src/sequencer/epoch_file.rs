//! The file in which a server without a group keeps which numbers are taken.
//!
//! The file is replaced as a whole, and file and directory are synced before a number of the new epoch is given out. A lock
//! beside it keeps a second server away. The lock file stays: it tells a removed state from none.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use trine_base::failure::Failure;
use trine_base::new_file;
use trine_sequencer::config::EPOCH_MAX;
use trine_sequencer::{Grant, block_of, next_epoch, read_epoch, write_epoch};
use trine_transport::time::Instant;

use super::reserve::{NumberSource, StepOutcome};

/// The file, which this process alone has.
pub(super) struct EpochFile {
    path: PathBuf,
    /// The last epoch that was begun.
    last: Option<u64>,
    /// The epoch that was to begin last.
    tried: Option<u64>,
    /// No number is less than this.
    least: u64,
    lock: File,
}

impl EpochFile {
    /// Locks the file and reads it.
    ///
    /// # Errors
    /// Another server has it, it cannot be read, or it is no state of a sequencer.
    pub(super) fn open(path: &Path, least: u64) -> Result<Self, Failure> {
        let path = &resolved(path)?;
        let beside = sibling(path, ".lock");
        let lock = lock(path, &beside)?;
        let marked = lock.metadata().map_err(|error| unusable(&beside, &error))?;
        let there_before = marked.len() > 0;
        let last = match fs::read_to_string(path) {
            Ok(text) => Some(read_epoch(&text).map_err(|bad| damaged(path, &bad.to_string()))?),
            Err(error) if error.kind() == io::ErrorKind::NotFound && !there_before => None,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(removed(path, &beside));
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(damaged(path, "it is not text"));
            }
            Err(error) => return Err(unusable(path, &error)),
        };
        Ok(Self {
            path: path.clone(),
            last,
            tried: None,
            least,
            lock,
        })
    }

    /// Begins the next epoch, durably.
    ///
    /// # Errors
    /// There is none left, or the file cannot be written. Then no epoch has begun.
    pub(super) fn begin(&mut self) -> Result<Grant, Failure> {
        let epoch = next_epoch(self.last, self.least).ok_or_else(|| self.none_left())?;
        self.check_that_it_is_ours()?;
        self.tried = Some(epoch);
        let new = sibling(&self.path, ".new");
        new_file::replace(&self.path, &new, write_epoch(epoch).as_bytes())
            .and_then(|()| self.mark())
            .map_err(|error| unusable(&self.path, &error))?;
        self.last = Some(epoch);
        let block = block_of(epoch);
        Ok(Grant {
            start: block.start,
            end: block.end,
            until: Instant::FAR_FUTURE,
        })
    }

    /// Why no epoch follows: the file has had all, or --at-least leaves none.
    fn none_left(&self) -> Failure {
        if next_epoch(self.last, 0).is_none() {
            return Failure::negative(
                format!(
                    "{} names the last epoch: all numbers are taken",
                    self.path.display()
                ),
                "start a new sequence with another --state FILE",
            );
        }
        let most = block_of(EPOCH_MAX).start;
        Failure::usage(
            format!(
                "--at-least {} is above {most}, the last number that a server with a file can begin with",
                self.least
            ),
            format!("use at most {most}"),
        )
    }

    /// Another server can begin once the lock file was removed. This one would give out its numbers a second time.
    fn check_that_it_is_ours(&self) -> Result<(), Failure> {
        let written = match fs::read_to_string(&self.path) {
            Ok(text) => {
                let read = read_epoch(&text);
                Some(read.map_err(|bad| damaged(&self.path, &bad.to_string()))?)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(unusable(&self.path, &error)),
        };
        // An attempt may have written the epoch, and failed afterwards.
        if written == self.last || written.is_some() && written == self.tried {
            return Ok(());
        }
        Err(Failure::usage(
            format!(
                "{} was changed by another process; no further numbers are given out",
                self.path.display()
            ),
            "stop all servers that use this file, and start one; never remove the .lock file of a \
             running server",
        ))
    }

    /// Writes into the lock file that a state was written. An empty lock file is left by a server that never began.
    fn mark(&self) -> io::Result<()> {
        if self.lock.metadata()?.len() > 0 {
            return Ok(());
        }
        (&self.lock).write_all(b"used\n")?;
        self.lock.sync_all()
    }
}

impl NumberSource for EpochFile {
    fn step(&mut self, missing: u64) -> StepOutcome {
        match missing {
            0 => StepOutcome::Wait(Instant::FAR_FUTURE),
            _ => self.begin().map_or_else(
                |failure| StepOutcome::Failing(failure.in_one_line()),
                StepOutcome::Granted,
            ),
        }
    }

    fn give_back(&mut self) {}
}

/// The path without symbolic links. The lock and the file's replacement stand beside the file itself, so that two names of one
/// file are one state.
fn resolved(path: &Path) -> Result<PathBuf, Failure> {
    use std::os::unix::fs::MetadataExt as _;
    let whole = match fs::canonicalize(path) {
        Ok(whole) => whole,
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(unusable(path, &error));
        }
        Err(error) if path.is_symlink() => return Err(unusable(path, &error)),
        Err(error) => {
            let name = path.file_name().ok_or_else(|| unusable(path, &error))?;
            let parent = path
                .parent()
                .filter(|parent| !parent.as_os_str().is_empty());
            let parent = fs::canonicalize(parent.unwrap_or(Path::new(".")));
            return Ok(parent.map_err(|error| unusable(path, &error))?.join(name));
        }
    };
    let names = fs::metadata(&whole).map_err(|error| unusable(path, &error))?;
    if names.is_file() && names.nlink() > 1 {
        return Err(Failure::usage(
            format!("{} has several names (hard links)", path.display()),
            "a sequencer replaces its file; give it a file with one name",
        ));
    }
    Ok(whole)
}

/// The path with something at its end.
fn sibling(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

fn lock(path: &Path, beside: &Path) -> Result<File, Failure> {
    let opened = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(beside);
    let file = opened.map_err(|error| unusable(beside, &error))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Failure::usage(
            format!("another sequencer uses {}", path.display()),
            "give each its own --state FILE; two servers of the same numbers need --group PEERS",
        )),
        Err(error) => Err(unusable(beside, &error.into())),
    }
}

fn unusable(path: &Path, error: &io::Error) -> Failure {
    Failure::usage(
        format!("{} cannot be used: {error}", path.display()),
        "name a file in a directory that this user may write, on a disk with room",
    )
}

fn damaged(path: &Path, why: &str) -> Failure {
    Failure::usage(
        format!(
            "{} is not the state of a sequencer: {why}; nothing was given out",
            path.display()
        ),
        format!(
            "put the file back; or remove it and {}.lock, and name a number above all that were given out: --at-least N",
            path.display()
        ),
    )
}

fn removed(path: &Path, beside: &Path) -> Failure {
    Failure::usage(
        format!(
            "{} is missing, but a sequencer has used it: without it numbers could be given out \
             twice",
            path.display()
        ),
        format!(
            "put the file back; or remove {}, and name a number above all that were given out: --at-least N",
            beside.display()
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("trine-epoch-{name}-{}", std::process::id()));
            fs::create_dir(&path).expect("a fresh directory");
            Self(path)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn refused(path: &Path) -> String {
        let refused = EpochFile::open(path, 0).map(drop).expect_err("refused");
        assert_eq!(refused.exit_status(), 2);
        refused.in_one_line()
    }

    /// The lock and the replacement stood beside the link, so two servers had one file, and each gave out the same numbers.
    #[test]
    fn two_names_of_one_file_are_one_state() {
        let directory = Directory::new("names");
        let (path, link) = (directory.0.join("state"), directory.0.join("link"));
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        assert!(refused(&link).contains("link"), "it leads nowhere yet");
        let mut file = EpochFile::open(&path, 0).expect("opened");
        file.begin().expect("begun");
        assert!(refused(&link).contains("another sequencer uses"));
        drop(file);
        let mut through = EpochFile::open(&link, 0).expect("opened");
        assert_eq!(through.begin().expect("begun").start, 1 << 40);
        drop(through);
        assert!(link.is_symlink());
        let mut file = EpochFile::open(&path, 0).expect("opened");
        assert_eq!(file.begin().expect("begun").start, 2 << 40);
        drop(file);
        fs::hard_link(&path, directory.0.join("hard")).expect("a second name");
        assert!(refused(&path).contains("several names"));
    }

    /// Its port was taken, for example. Every later start heard that the state was gone.
    #[test]
    fn a_server_that_never_began_leaves_nothing_that_is_missed() {
        let directory = Directory::new("never");
        let path = directory.0.join("state");
        drop(EpochFile::open(&path, 0).expect("opened"));
        let mut file = EpochFile::open(&path, 0).expect("opened again");
        file.begin().expect("begun");
        drop(file);
        fs::remove_file(&path).expect("removed");
        refused(&path);
    }

    #[test]
    fn each_start_has_an_epoch_of_its_own() {
        let directory = Directory::new("starts");
        let path = directory.0.join("state");
        for epoch in 0..3 {
            let mut file = EpochFile::open(&path, 0).expect("opened");
            assert!(refused(&path).contains("another sequencer uses"));
            let grant = file.begin().expect("begun");
            assert_eq!((grant.start, grant.end), (epoch << 40, (epoch + 1) << 40));
            // What is on disk is never behind what was granted.
            assert_eq!(
                read_epoch(&fs::read_to_string(&path).expect("written")),
                Ok(epoch)
            );
        }
        let mut file = EpochFile::open(&path, 0).expect("opened");
        file.begin().expect("one");
        assert_eq!(file.begin().expect("and another").start, 4 << 40);
    }

    #[test]
    fn a_damaged_or_removed_file_gives_out_nothing() {
        let directory = Directory::new("damage");
        let path = directory.0.join("state");
        let mut file = EpochFile::open(&path, 0).expect("opened");
        file.begin().expect("begun");
        drop(file);
        for bad in [
            &b""[..],
            b"epoch 7\n",
            b"\xff\xfe",
            b"trine sequencer 1\nepoch 99999999999\n",
        ] {
            fs::write(&path, bad).expect("written");
            let said = refused(&path);
            assert!(
                said.contains("not the state of a sequencer") && said.contains("--at-least"),
                "{said}"
            );
        }
        fs::remove_file(&path).expect("removed");
        assert!(refused(&path).contains("could be given out twice"));
        fs::create_dir(&path).expect("a directory");
        assert!(refused(&path).contains("cannot be used"));
    }

    /// It said that a file which was not there named the last epoch.
    #[test]
    fn a_least_number_that_leaves_no_epoch_is_what_is_wrong() {
        let directory = Directory::new("least");
        let path = directory.0.join("state");
        let most = block_of(EPOCH_MAX).start;
        let mut file = EpochFile::open(&path, most + 1).expect("opened");
        let refused = file.begin().expect_err("there is no such epoch");
        assert_eq!(refused.exit_status(), 2);
        let said = refused.in_one_line();
        assert!(
            said.contains("--at-least") && said.contains(&most.to_string()),
            "{said}"
        );
        assert!(!path.exists());
        drop(file);
        let mut file = EpochFile::open(&path, most).expect("opened");
        assert_eq!(file.begin().expect("the last epoch").start, most);
        let refused = file.begin().expect_err("none is left");
        assert!(refused.message().contains("names the last epoch"));
        assert_eq!(refused.exit_status(), 1);
    }

    /// Each server went on from the epoch that it had in memory, so the first one gave out the second one's numbers.
    #[test]
    fn a_server_whose_lock_file_was_removed_begins_no_epoch_of_another() {
        let directory = Directory::new("stolen");
        let path = directory.0.join("state");
        let mut first = EpochFile::open(&path, 0).expect("opened");
        first.begin().expect("begun");
        fs::remove_file(sibling(&path, ".lock")).expect("removed");
        let mut second = EpochFile::open(&path, 0).expect("nobody has the new lock");
        assert_eq!(second.begin().expect("begun").start, 1 << 40);
        assert!(
            matches!(first.step(1), StepOutcome::Failing(why) if why.contains("was changed by another process"))
        );
        assert_eq!(second.begin().expect("its own").start, 2 << 40);
        fs::remove_file(&path).expect("removed");
        assert!(second.begin().is_err());
    }

    #[test]
    fn an_epoch_that_cannot_be_written_has_not_begun() {
        let directory = Directory::new("full");
        let path = directory.0.join("state");
        let mut file = EpochFile::open(&path, 0).expect("opened");
        file.begin().expect("begun");
        // The name of the new file is taken by a directory.
        let taken = sibling(&path, ".new");
        fs::create_dir(&taken).expect("a directory");
        assert!(
            matches!(file.step(1), StepOutcome::Failing(why) if why.contains("cannot be used"))
        );
        fs::remove_dir(&taken).expect("removed");
        assert!(matches!(file.step(1), StepOutcome::Granted(grant) if grant.start == 1 << 40));
        assert!(matches!(file.step(0), StepOutcome::Wait(_)));
    }
}
