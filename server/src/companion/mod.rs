//! The process beside a replica's, which tells the other replicas that this one has ended, however it has.
//!
//! The replica's thread holds a mutex that the companion waits for. The kernel marks the mutex when that thread has ended,
//! by a signal, for want of memory or by itself: it answers nothing any more. The companion also reads from a pipe whose
//! other end only the replica's process has. By the pipe it learns whom to tell, and the end of a process whose mutex it
//! could not wait for. Other threads of the replica's process may run a moment longer, so none of them may answer clients out
//! of the replica's state or on its lease. Falcon calls such a process a spy (Leners et al., "Detecting failures in distributed systems with the Falcon spy network", SOSP 2011).
//! `replica/src/group/deaths.rs` says what the notice means to a replica.

mod life_lock;
mod line;
mod teller;

use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::panic;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, Once, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use rustix::io::{Errno, ioctl_fionbio};
use trine_base::endpoint::random_seed;
use trine_base::failure::Failure;
use trine_protocol::message::RunSecret;

pub use self::teller::run;

use self::life_lock::LifeLock;
use self::line::CompanionMessage;

/// The first argument of such a process; it is no command for users.
pub const COMMAND: &str = "tell-death";
/// How often in a row a companion that has ended is replaced.
const RESTARTS_MAX: u32 = 3;
/// After so long one more restart is allowed, up to [`RESTARTS_MAX`]. A replica runs for years, and a stray signal or want of
/// memory now and then must not use the restarts up. One that ends again and again costs a process each quarter of an hour.
const RESTART_EVERY: Duration = Duration::from_secs(15 * 60);
/// Bytes that a pipe takes at once or not at all (`PIPE_BUF`): more than the longest list of successors has.
const PIPE_WRITE_BYTES: usize = 4096;

/// The thread of the replica that runs, and the pipe. A panic of that thread is told before the process ends: that may
/// take a while, if its memory is large.
static PANIC: Mutex<Option<(ThreadId, File)>> = Mutex::new(None);

/// The companion of one run of a replica. Drop it after the replica: it then tells that this run is over.
pub struct Companion {
    secret: RunSecret,
    stagger: Duration,
    /// Held by the replica's thread, so this stays on it. Without it the end is known once the process's memory is freed.
    life_lock: Option<LifeLock>,
    process: Process,
    notified: Vec<SocketAddr>,
    restarts: Restarts,
    /// It has ended with no restart left, and the log says so.
    is_given_up: bool,
}

/// How many restarts are left, which grows with time.
struct Restarts {
    left: u32,
    /// When one more was allowed last, or when the first of a full number was used.
    since: Instant,
}

impl Restarts {
    fn new(now: Instant) -> Self {
        Self {
            left: RESTARTS_MAX,
            since: now,
        }
    }

    /// Uses one, if there is one.
    fn take(&mut self, now: Instant) -> bool {
        while self.left < RESTARTS_MAX && now.saturating_duration_since(self.since) >= RESTART_EVERY
        {
            self.left += 1;
            self.since += RESTART_EVERY;
        }
        if self.left == RESTARTS_MAX {
            self.since = now;
        }
        assert!(self.left <= RESTARTS_MAX, "time earns no more than that");
        let has_one = self.left > 0;
        self.left = self.left.saturating_sub(1);
        has_one
    }
}

/// The process, and the pipe to it.
struct Process {
    child: Child,
    pipe: File,
}

impl Companion {
    /// Starts one for the replica that this thread runs. The replicas that are told at the same time would hinder each
    /// other's elections, so each waits for `stagger` behind the one before it.
    ///
    /// # Errors
    /// The operating system starts no process, or gives no random numbers.
    pub fn start(stagger: Duration) -> Result<Self, Failure> {
        let mut secret = [0; 16];
        secret[..8].copy_from_slice(&random_seed()?.to_le_bytes());
        secret[8..].copy_from_slice(&random_seed()?.to_le_bytes());
        let secret = RunSecret(secret);
        let warn = |error: &io::Error| tracing::warn!(%error, "this process's end will be told once its memory is freed");
        let life_lock = LifeLock::new().inspect_err(warn).ok();
        let process = Process::start(secret, stagger, life_lock.as_ref()).map_err(|error| {
            let text = format!("cannot start the process that tells of this one's end: {error}");
            Failure::usage(text, "")
        })?;
        Ok(Self {
            secret,
            stagger,
            life_lock,
            process,
            notified: Vec::new(),
            restarts: Restarts::new(Instant::now()),
            is_given_up: false,
        })
    }

    /// The secret of this run, which the process will tell.
    pub fn secret(&self) -> RunSecret {
        self.secret
    }

    /// These are to be told, in this order. Replaces the process if it has ended. To be called now and then.
    pub fn attend(&mut self, successors: Vec<SocketAddr>) {
        self.attend_at(Instant::now(), successors);
    }

    fn attend_at(&mut self, now: Instant, successors: Vec<SocketAddr>) {
        let has_ended = self.process.has_ended();
        if has_ended && !self.restart(now) {
            return;
        }
        if successors == self.notified && !has_ended {
            return;
        }
        // If it cannot be written the process has ended: the next call replaces it.
        let _ = write_line(
            &mut self.process.pipe,
            &CompanionMessage::To(successors.clone()),
        );
        self.notified = successors;
    }

    /// Whether there is a new process.
    fn restart(&mut self, now: Instant) -> bool {
        if !self.restarts.take(now) {
            self.give_up();
            return false;
        }
        self.is_given_up = false;
        let left = self.restarts.left;
        match Process::start(self.secret, self.stagger, self.life_lock.as_ref()) {
            Ok(process) => {
                tracing::warn!(
                    left,
                    "the process that tells of this one's end had ended: there is a new one"
                );
                self.process = process;
                true
            }
            Err(error) => {
                tracing::warn!(left, %error, "cannot start the process that tells of this one's end again");
                false
            }
        }
    }

    /// Says once what it means that there is no such process for now.
    fn give_up(&mut self) {
        if self.is_given_up {
            return;
        }
        self.is_given_up = true;
        tracing::warn!(
            restarts = RESTARTS_MAX,
            minutes = RESTART_EVERY.as_secs() / 60,
            "the process that tells of this one's end has ended again and again, and gets a successor only in some minutes. \
             If this replica dies before while it leads, the others elect another leader only after an election timeout. \
             Find out what ends it (a signal, want of memory)"
        );
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        *PANIC.lock().unwrap_or_else(PoisonError::into_inner) = None;
        // Without this it knows when the process ends.
        let _ = write_line(&mut self.process.pipe, &CompanionMessage::Gone);
    }
}

impl Process {
    fn start(
        secret: RunSecret,
        stagger: Duration,
        life_lock: Option<&LifeLock>,
    ) -> io::Result<Self> {
        let memory = life_lock.map(LifeLock::descriptor).transpose()?;
        // The same program also where its file was replaced or removed since. It holds neither a terminal nor a directory.
        let mut child = Command::new("/proc/self/exe")
            .arg0("trine")
            .arg(COMMAND)
            .arg(format!("--of={}", std::process::id()))
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(memory.map_or_else(Stdio::null, Stdio::from))
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let pipe = child.stdin.take().expect("its input is a pipe");
        let mut process = Self {
            child,
            pipe: File::from(OwnedFd::from(pipe)),
        };
        // The replica never waits for it. A line is shorter than what a pipe takes at once.
        ioctl_fionbio(&process.pipe, true)?;
        write_line(
            &mut process.pipe,
            &CompanionMessage::Begin { secret, stagger },
        )?;
        tell_at_panic(thread::current().id(), process.pipe.try_clone()?);
        Ok(process)
    }

    /// Whether it has. One that is taken for ended loses its pipe, and takes that for the replica's end.
    fn has_ended(&mut self) -> bool {
        match self.child.try_wait() {
            Ok(status) => status.is_some(),
            // Another thread has waited for it.
            Err(error) => error.raw_os_error() == Some(Errno::CHILD.raw_os_error()),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.has_ended() {
            return;
        }
        // It ends by itself, in a while, and its parent has to take note then.
        let pid = self.child.id();
        let reaper = thread::Builder::new().name("companion".into());
        let _ = reaper.spawn(move || reap(pid));
    }
}

/// Waits for the end of a child.
fn reap(pid: u32) {
    use rustix::process::{Pid, WaitOptions, waitpid};
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    // Without such a child there is nothing to wait for.
    let _ = waitpid(pid, WaitOptions::empty());
}

fn write_line(pipe: &mut File, line: &CompanionMessage) -> io::Result<()> {
    // In one write, which a reader sees whole.
    let text = format!("{line}\n");
    assert!(text.len() <= PIPE_WRITE_BYTES, "a pipe takes it at once");
    pipe.write_all(text.as_bytes())
}

/// Lets the thread tell of its end as it panics. Others may panic too; then this thread may still run.
fn tell_at_panic(replica: ThreadId, pipe: File) {
    static HOOK: Once = Once::new();
    *PANIC.lock().unwrap_or_else(PoisonError::into_inner) = Some((replica, pipe));
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if let Ok(mut known) = PANIC.try_lock()
                && let Some((replica, pipe)) = &mut *known
                && thread::current().id() == *replica
            {
                let _ = write_line(pipe, &CompanionMessage::Gone);
            }
            usual(info);
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After the last restart the replica went on without a companion, and no line of the log said so.
    #[test]
    fn a_companion_that_ends_again_and_again_is_given_up() {
        let start = Instant::now();
        // The companions of a test are its own program, which ends at once: it does not know their arguments.
        let mut child = Command::new("true").stdin(Stdio::piped()).spawn().unwrap();
        let pipe = File::from(OwnedFd::from(child.stdin.take().unwrap()));
        let mut companion = Companion {
            secret: RunSecret([7; 16]),
            stagger: Duration::ZERO,
            life_lock: None,
            process: Process { child, pipe },
            notified: Vec::new(),
            restarts: Restarts::new(start),
            is_given_up: false,
        };
        let mut ends_at = |now: Instant| {
            companion.process.child.wait().unwrap();
            companion.attend_at(now, Vec::new());
            (companion.restarts.left, companion.is_given_up)
        };
        let soon = start + Duration::from_secs(1);
        for left in (0..RESTARTS_MAX).rev() {
            assert_eq!(ends_at(soon), (left, false), "there may be one more");
        }
        assert_eq!(ends_at(soon), (0, true));
        assert_eq!(ends_at(soon), (0, true));
        assert_eq!(ends_at(soon + RESTART_EVERY / 2), (0, true));
        // It was given up for the rest of the replica's life.
        assert_eq!(ends_at(soon + RESTART_EVERY), (0, false), "one more");
        assert_eq!(ends_at(soon + RESTART_EVERY), (0, true));
        let much_later = soon + RESTART_EVERY * 100;
        assert_eq!(ends_at(much_later), (RESTARTS_MAX - 1, false), "never more");
    }
}
