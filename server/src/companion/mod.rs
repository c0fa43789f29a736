//! The process beside a replica's, which tells the other replicas that this one has ended, however it has.
//!
//! It reads from a pipe whose other end only the replica's process has. The kernel closes that end when the last thread
//! of the process has ended, by a signal, for want of memory or by itself: nothing of it runs any more. Falcon calls such
//! a process a spy (Leners et al., "Detecting failures in distributed systems with the Falcon spy network", SOSP 2011).
//! What the notice means to a replica is in `replica/src/group/deaths.rs`.

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
use std::time::Duration;

use trine_base::endpoint::random_seed;
use trine_base::failure::Failure;
use trine_protocol::message::RunSecret;

pub use self::teller::run;

use self::line::Line;

/// The first argument of such a process; it is no command for users.
pub const COMMAND: &str = "tell-death";

/// The thread of the replica that runs, and the pipe. A panic of that thread is told before the process ends: that may
/// take a while, if its memory is large.
static PANIC: Mutex<Option<(ThreadId, File)>> = Mutex::new(None);

/// The companion of one run of a replica. Drop it after the replica: it then tells that this run is over.
pub struct Companion {
    secret: RunSecret,
    pipe: File,
    process: Option<Child>,
    told: Vec<SocketAddr>,
}

impl Companion {
    /// Starts one for the replica that this thread runs. The replicas that are told at the same time would hinder each
    /// other's elections, so each waits for `stagger` behind the one before it.
    ///
    /// # Errors
    /// The operating system starts no process, or gives no random numbers.
    pub fn start(stagger: Duration) -> Result<Self, Failure> {
        let cannot = |error: io::Error| {
            let text = format!("cannot start the process that tells of this one's end: {error}");
            Failure::usage(text, "")
        };
        let mut secret = [0; 16];
        secret[..8].copy_from_slice(&random_seed()?.to_le_bytes());
        secret[8..].copy_from_slice(&random_seed()?.to_le_bytes());
        let secret = RunSecret(secret);
        // The same program also where its file was replaced or removed since. It holds neither a terminal nor a directory.
        let mut process = Command::new("/proc/self/exe")
            .arg0("trine")
            .arg(COMMAND)
            .arg(format!("--of={}", std::process::id()))
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(cannot)?;
        let pipe = process.stdin.take().expect("its input is a pipe");
        let mut pipe = File::from(OwnedFd::from(pipe));
        let for_panic = pipe.try_clone().map_err(cannot)?;
        write_line(&mut pipe, &Line::Begin { secret, stagger }).map_err(cannot)?;
        tell_at_panic(thread::current().id(), for_panic);
        Ok(Self {
            secret,
            pipe,
            process: Some(process),
            told: Vec::new(),
        })
    }

    /// What it will tell.
    pub fn secret(&self) -> RunSecret {
        self.secret
    }

    /// These are to be told.
    pub fn follow(&mut self, others: Vec<SocketAddr>) {
        if others == self.told {
            return;
        }
        if let Err(error) = write_line(&mut self.pipe, &Line::To(others.clone())) {
            tracing::warn!(%error, "the process that tells of this one's end is gone");
        }
        self.told = others;
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        *PANIC.lock().unwrap_or_else(PoisonError::into_inner) = None;
        // Without this it knows when the process ends.
        let _ = write_line(&mut self.pipe, &Line::Gone);
        if let Some(mut process) = self.process.take() {
            // It ends by itself, in a while. Somebody has to take note, and if nobody can, nothing is lost but a place in
            // the table of processes.
            let reaper = thread::Builder::new().name("companion".into());
            let _ = reaper.spawn(move || process.wait());
        }
    }
}

fn write_line(pipe: &mut File, line: &Line) -> io::Result<()> {
    // In one write, which a reader sees whole.
    pipe.write_all(format!("{line}\n").as_bytes())
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
                let _ = write_line(pipe, &Line::Gone);
            }
            usual(info);
        }));
    });
}
