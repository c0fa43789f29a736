//! Children by `fork`, and scripts that can be executed at once; for tests alone.
//!
//! ```
//! use std::time::Duration;
//!
//! let child = trine_child::fork(|| Err("it is tired".to_owned()));
//! assert_eq!(child.join(Duration::from_secs(20)), Err("it is tired".to_owned()));
//! ```

#![allow(unsafe_code)]

use std::any::Any;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// A child of this process. Killed when dropped before its end.
#[derive(Debug)]
pub struct Child {
    /// Zero once it was waited for.
    pid: libc::pid_t,
    result: PipeReader,
}

/// Which of the two processes a [`split`] has returned in.
#[derive(Debug)]
pub enum Side {
    /// The process that was there before.
    Parent(Child),
    /// Its copy, which ends by [`ResultPipe::end`].
    Child(ResultPipe),
}

/// The pipe by which a child tells its parent its result.
#[derive(Debug)]
pub struct ResultPipe(PipeWriter);

/// Ends a text: the pipe may stay open longer, in children that other threads have made meanwhile.
const END: u8 = 0;
/// What a child says that has nothing to complain about.
const DONE: &str = "done";

/// Writes a program that a shell executes: `text` is what comes behind `#!/bin/sh`. Another process writes it. This one must
/// not: a child that another thread makes meanwhile inherits the open file, and nobody can execute a file that is open for
/// writing.
///
/// # Panics
///
/// If it cannot be written.
pub fn script(path: &Path, text: &str) {
    const WRITE: &str = "printf '#!/bin/sh\\n%s\\n' \"$2\" >\"$1\" && chmod 755 \"$1\"";
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", WRITE, "sh"]).arg(path).arg(text);
    let status = shell.status().expect("a shell");
    assert!(status.success(), "{} was not written", path.display());
}

/// Runs `act` in a child. That has a copy of this process's memory and its descriptors, and one thread: locks that other
/// threads of this process hold stay locked there. It runs no destructors at its end.
///
/// # Panics
///
/// If the system makes no process.
pub fn fork(act: impl FnOnce() -> Result<(), String>) -> Child {
    match split() {
        Side::Parent(child) => child,
        Side::Child(report) => {
            let result = catch_unwind(AssertUnwindSafe(act));
            report.end(result.unwrap_or_else(|panic| Err(text_of(&*panic))))
        }
    }
}

/// Forks, and returns in both processes.
///
/// # Panics
///
/// If the system makes no process.
pub fn split() -> Side {
    let (result, report) = std::io::pipe().expect("a pipe");
    // SAFETY: no pointers. The child has one thread. What it does beyond calls that are safe after a fork is use the heap,
    // which the C library keeps usable there. Everything else that may hang there ends with the parent's patience.
    match unsafe { libc::fork() } {
        0 => Side::Child(ResultPipe(report)),
        pid if pid > 0 => Side::Parent(Child { pid, result }),
        _ => panic!("no process: {}", std::io::Error::last_os_error()),
    }
}

impl ResultPipe {
    /// Ends this process and tells its parent.
    pub fn end(mut self, result: Result<(), String>) -> ! {
        let text = result.err().unwrap_or_else(|| DONE.to_owned());
        let told = self.0.write_all(text.as_bytes());
        let told = told.and_then(|()| self.0.write_all(&[END]));
        // SAFETY: ends the process at once, without anything that its parent would do once more.
        unsafe { libc::_exit(i32::from(told.is_err())) }
    }
}

impl Child {
    /// Waits for its end. An error is what the child complains of, or that it said nothing.
    ///
    /// # Errors
    ///
    /// The child's complaint, or how it died.
    pub fn join(mut self, within: Duration) -> Result<(), String> {
        let text = self.text(Instant::now() + within);
        self.end();
        match text?.as_str() {
            DONE => Ok(()),
            complaint => Err(complaint.to_owned()),
        }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    fn text(&mut self, until: Instant) -> Result<String, String> {
        let mut bytes = Vec::new();
        while self.is_readable(until) {
            let mut some = [0; 4096];
            let count = self.result.read(&mut some).map_err(|e| e.to_string())?;
            bytes.extend_from_slice(&some[..count]);
            if bytes.last() == Some(&END) {
                bytes.pop();
                return Ok(String::from_utf8_lossy(&bytes).into_owned());
            }
            if count == 0 {
                return Err("the child died without a word".to_owned());
            }
        }
        Err("the child hangs".to_owned())
    }

    fn is_readable(&self, until: Instant) -> bool {
        let left = until.saturating_duration_since(Instant::now());
        let mut pipe = libc::pollfd {
            fd: self.result.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let millis = i32::try_from(left.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: one live element.
        unsafe { libc::poll(&raw mut pipe, 1, millis) > 0 }
    }

    /// Kills it, if it is still there, and forgets it.
    fn end(&mut self) {
        let pid = std::mem::take(&mut self.pid);
        if pid != 0 {
            // SAFETY: no pointers. The id is of a child that was not waited for, so no other process has it.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            // SAFETY: the null pointer asks for no status.
            unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.end();
    }
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without words").to_owned()
}
