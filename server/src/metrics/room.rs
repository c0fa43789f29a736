//! Free room on the file system of the data directory.

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How long an answer waits for the file system. One that hangs, as NFS does, says nothing for as long as it does.
const PATIENCE: Duration = Duration::from_millis(500);

/// The room of a file system, in bytes.
#[derive(Copy, Clone, Debug)]
pub(super) struct Room {
    /// What this user may still take of it.
    pub(super) free: u64,
    /// All of it.
    pub(super) size: u64,
}

/// Asks for the room of a directory. Never more than one thread waits for the file system.
pub(super) struct RoomProbe {
    directory: PathBuf,
    state: Arc<(Mutex<ProbeState>, Condvar)>,
}

#[derive(Default)]
struct ProbeState {
    is_asking: bool,
    /// Counts the answers.
    answers: u64,
    room: Option<Room>,
}

impl RoomProbe {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            state: Arc::default(),
        }
    }

    /// The room at this moment; none if the file system does not say it soon.
    pub(super) fn ask(&self) -> Option<Room> {
        let (state, changed) = &*self.state;
        let mut now = state.lock().unwrap_or_else(PoisonError::into_inner);
        let before = now.answers;
        if !now.is_asking {
            let (directory, shared) = (self.directory.clone(), Arc::clone(&self.state));
            let thread = std::thread::Builder::new().name("room".into());
            let started = thread.spawn(move || {
                let room = room_of(&directory);
                let (state, changed) = &*shared;
                let mut now = state.lock().unwrap_or_else(PoisonError::into_inner);
                assert!(now.is_asking, "one thread asks at a time");
                (now.is_asking, now.answers, now.room) = (false, now.answers + 1, room);
                changed.notify_all();
            });
            now.is_asking = started.is_ok();
        }
        let is_open = |now: &mut ProbeState| now.answers == before && now.is_asking;
        let waited = changed.wait_timeout_while(now, PATIENCE, is_open);
        let (now, _) = waited.unwrap_or_else(PoisonError::into_inner);
        now.room.filter(|_| now.answers != before)
    }
}

fn room_of(directory: &std::path::Path) -> Option<Room> {
    let about = rustix::fs::statvfs(directory).ok()?;
    Some(Room {
        free: about.f_bavail.saturating_mul(about.f_frsize),
        size: about.f_blocks.saturating_mul(about.f_frsize),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_room_and_what_is_not_there_has_none() {
        let here = RoomProbe::new(std::env::temp_dir());
        for _ in 0..2 {
            let room = here.ask().expect("known");
            assert!(room.size > 0 && room.free <= room.size, "{room:?}");
        }
        let missing = std::env::temp_dir().join("trine-no-such-directory");
        assert!(RoomProbe::new(missing).ask().is_none());
    }

    #[test]
    fn a_file_system_that_hangs_is_asked_once() {
        let asker = RoomProbe::new(std::env::temp_dir());
        asker.state.0.lock().expect("no panic").is_asking = true;
        assert!(asker.ask().is_none());
        let state = asker.state.0.lock().expect("no panic");
        assert!(state.is_asking && state.answers == 0);
    }
}
