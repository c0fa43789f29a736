//! The next segment, made ahead of its use by a thread of its own: a file of zeros that were written, and synced.
//!
//! Room that was only reserved becomes content with the first write to it. That changes the file system's own books, so
//! each sync of the log would wait for the journal too. Where zeros were written before, a sync writes the record and
//! nothing else.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use super::descriptors;

/// Its name until it is used: like everything unfinished it is removed at the next start.
pub(super) const SPARE: &str = "spare.tmp";
/// Zeros that are written and synced at a time, so that a sync of the log waits behind no more than that.
const STEP_BYTES: usize = 1 << 20;

/// The files hold every value of the store, so only their owner reads them.
pub(super) const FILE_MODE: u32 = 0o600;

/// A file that is being made, or is ready.
#[derive(Debug)]
pub(super) struct Spare {
    size: u64,
    path: PathBuf,
    given_up: Arc<AtomicBool>,
    /// Some until it is taken or dropped.
    thread: Option<JoinHandle<io::Result<File>>>,
}

impl Spare {
    /// Begins one in `directory`; nothing if there is no thread for it.
    pub(super) fn begin(directory: &Path, size: u64) -> Option<Self> {
        let path = directory.join(SPARE);
        let given_up = Arc::new(AtomicBool::new(false));
        let (file, stop) = (path.clone(), Arc::clone(&given_up));
        let thread = std::thread::Builder::new()
            .name("trine-spare".to_owned())
            .spawn(move || make(&file, size, &stop))
            .ok()?;
        Some(Self {
            size,
            path,
            given_up,
            thread: Some(thread),
        })
    }

    /// The size that it has, or is going to have.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// The file under the name `to`, if it is ready. Otherwise it is given up, and leaves nothing.
    pub(super) fn take(mut self, to: &Path) -> Option<File> {
        if !self.is_ready() {
            return None;
        }
        let file = self.thread.take()?.join().ok()?.ok()?;
        std::fs::rename(&self.path, to).ok()?;
        Some(file)
    }

    fn is_ready(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        self.given_up.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The outcome does not matter: it is removed here, or by the next start.
            let _ = thread.join();
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn make(path: &Path, size: u64, given_up: &AtomicBool) -> io::Result<File> {
    let made = written(path, size, |file| {
        if given_up.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        file.sync_data()
    });
    if made.is_err() {
        // The room that it has is needed elsewhere, now that there is too little.
        let _ = std::fs::remove_file(path);
    }
    made
}

fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(true).read(true).write(true);
    options.mode(FILE_MODE);
    descriptors::open(|| options.open(path))
}

/// A file whose room is taken, whatever its old content; it reads as zeros.
pub(super) fn reserve(path: &Path, size: u64) -> io::Result<File> {
    let file = create(path)?;
    if !take_room(&file, size)? {
        write_zeros(&file, size, |_| Ok(()))?;
    }
    Ok(file)
}

/// Takes room for `size` bytes of zeros. False if the file system only takes room for what is written.
fn take_room(file: &File, size: u64) -> io::Result<bool> {
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::{Errno, retry_on_intr};
    if size == 0 {
        return Ok(true);
    }
    match retry_on_intr(|| fallocate(file, FallocateFlags::empty(), 0, size)) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
        taken => taken.map(|()| true).map_err(Into::into),
    }
}

/// A file of `size` zeros that were written; `after_step` comes after each part of them. Room is taken first, so that a
/// full disk is found before anything is written.
pub(super) fn written(
    path: &Path,
    size: u64,
    mut after_step: impl FnMut(&File) -> io::Result<()>,
) -> io::Result<File> {
    let file = create(path)?;
    take_room(&file, size)?;
    write_zeros(&file, size, &mut after_step)?;
    Ok(file)
}

fn write_zeros(
    file: &File,
    size: u64,
    mut after_step: impl FnMut(&File) -> io::Result<()>,
) -> io::Result<()> {
    let zeros = vec![0; STEP_BYTES.min(usize::try_from(size).unwrap_or(STEP_BYTES))];
    let mut at = 0;
    while at < size {
        let len = (size - at).min(zeros.len() as u64);
        file.write_all_at(&zeros[..len as usize], at)?;
        at += len;
        after_step(file)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Directory, Disk};

    /// A directory of its own, removed at the end.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let own = format!("trine-spare-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(own);
            drop(std::fs::remove_dir_all(&path));
            std::fs::create_dir(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            drop(std::fs::remove_dir_all(&self.0));
        }
    }

    #[test]
    fn a_spare_that_is_ready_is_the_next_file() {
        let place = Place::new("ready");
        let spare = Spare::begin(&place.0, 3 << 20).unwrap();
        while !spare.is_ready() {
            std::thread::yield_now();
        }
        let to = place.0.join("segment");
        let file = spare.take(&to).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 3 << 20);
        assert!(std::fs::read(&to).unwrap().iter().all(|&byte| byte == 0));
        assert!(!place.0.join(SPARE).exists());
    }

    #[test]
    fn a_spare_that_is_late_or_unused_leaves_nothing() {
        let place = Place::new("late");
        let spare = Spare::begin(&place.0, 1 << 30).unwrap();
        assert!(spare.take(&place.0.join("segment")).is_none());
        drop(Spare::begin(&place.0, 1 << 20));
        assert_eq!(std::fs::read_dir(&place.0).unwrap().count(), 0);
    }

    /// A spare for which there was no room kept what it had got, and the segment that was asked for found even less.
    #[test]
    fn a_spare_without_room_leaves_nothing() {
        let place = Place::new("full");
        let spare = Spare::begin(&place.0, 1 << 60).unwrap();
        while !spare.is_ready() {
            std::thread::yield_now();
        }
        assert_eq!(std::fs::read_dir(&place.0).unwrap().count(), 0);
        assert!(spare.take(&place.0.join("segment")).is_none());
    }

    #[test]
    fn a_file_of_another_size_leaves_the_spare_alone() {
        let place = Place::new("size");
        let mut directory = Directory::lock(&place.0).unwrap();
        directory.prepare(1 << 20);
        directory.create("identity", 100).unwrap();
        assert_eq!(directory.size("identity").unwrap(), 100);
        directory.create("segment", 1 << 20).unwrap();
        assert!(!place.0.join(SPARE).exists());
    }

    /// Whether or not the spare is ready in time, the file that comes has its size and holds zeros alone.
    #[test]
    fn files_are_zeros_with_and_without_a_spare() {
        let place = Place::new("directory");
        let mut directory = Directory::lock(&place.0).unwrap();
        let size = 256 << 10;
        for round in 0..20 {
            let name = format!("file-{}", round % 3);
            directory.create(&name, size).unwrap();
            if round % 2 == 0 {
                directory.prepare(size);
            }
            let mut found = vec![1; size as usize];
            directory.read(&name, 0, &mut found).unwrap();
            assert!(found.iter().all(|&byte| byte == 0));
            assert_eq!(directory.size(&name).unwrap(), size);
            directory.write(&name, 512, &[7; 4_096]).unwrap();
        }
    }
}
