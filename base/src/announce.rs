//! How does a server (`serve`, `up`, `cache serve`) speak? Best effort: what it says is not why it runs. Nobody has to read
//! it, and a closed pipe, a full disk or a terminal that stands still neither ends nor delays it.
//!
//! What a command answers is another matter, see `output`: there a line that cannot be written is a failure.

use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::time::Instant;

use rustix::io::Errno;
use rustix::process::getpgrp;
use rustix::termios::{LocalModes, tcgetattr, tcgetpgrp};
use serde::Serialize;
use serde_json::Value;

use crate::bars::above_bars;
use crate::config::{ANNOUNCEMENTS_MAX, LAST_LINES_LIMIT, LOG_LINES_MAX};
use crate::document::to_document;
use crate::failure::Failure;
use crate::lines::Lines;

/// The streams of this process, once it is a server.
static SERVER: OnceLock<Streams> = OnceLock::new();

/// A thread each, so that neither waits for who reads the other.
struct Streams {
    out: Lines,
    err: Lines,
}

/// Announces on standard output. Whoever has one knows that this process is a server.
#[derive(Copy, Clone, Debug)]
pub struct Announcer {
    json: bool,
}

impl Announcer {
    /// Makes this process a server: from now on no thread of it but two waits for standard output or standard error.
    pub fn start(json: bool) -> Result<Self, Failure> {
        let cannot =
            |error: io::Error| Failure::usage(format!("cannot start a thread: {error}"), "");
        let mut out = Announcements::default();
        let out = Lines::start("announcements", ANNOUNCEMENTS_MAX, move |line| {
            out.write(line)
        });
        let err = Lines::start("log", LOG_LINES_MAX, |line| {
            above_bars(|| write_raw(&io::stderr(), line))
        });
        let streams = Streams {
            out: out.map_err(cannot)?,
            err: err.map_err(cannot)?,
        };
        let first = SERVER.set(streams).is_ok();
        assert!(first, "a process runs one server");
        Ok(Self { json })
    }

    /// A line for people; nothing in JSON form.
    pub fn line(self, text: impl Display) {
        if !self.json {
            announce(format!("{text}\n"));
        }
    }

    /// One event for programs, on a line of its own; nothing in text form.
    pub fn json_line(self, event: &Value) {
        if self.json {
            announce(format!("{event}\n"));
        }
    }

    /// What programs wait for; nothing in text form. Standard output holds nothing else then.
    pub fn document(self, document: &impl Serialize) {
        if self.json {
            announce(to_document(document));
        }
    }

    /// An event: on standard output for people. In JSON form that holds one document, so it goes to standard error.
    pub fn event(self, text: impl Display) {
        match self.json {
            true => note(text),
            false => self.line(text),
        }
    }
}

/// Whether this process is a server.
pub fn is_server() -> bool {
    SERVER.get().is_some()
}

/// What a server says for standard output; nothing from another process.
pub fn announce(text: String) {
    if let Some(server) = SERVER.get() {
        server.out.add(text.into_bytes());
    }
}

/// A line for standard error, from any process. One that cannot be written is no failure: there is nobody to tell.
/// (`eprintln!` would panic.)
pub fn note(text: impl Display) {
    let line = format!("{text}\n");
    match SERVER.get() {
        Some(server) => server.err.add(line.into_bytes()),
        None => drop(io::stderr().write_all(line.as_bytes())),
    }
}

/// Where a server's log goes: to standard error, like its notes.
pub fn log_lines() -> Option<Lines> {
    SERVER.get().map(|server| server.err.clone())
}

/// At the end of the process: lets what a server has said be written, but waits for no reader.
pub fn finish() {
    if let Some(server) = SERVER.get() {
        let until = Instant::now() + LAST_LINES_LIMIT;
        server.out.finish(until);
        server.err.finish(until);
    }
}

/// Standard output, and whether it could be written last.
#[derive(Default)]
struct Announcements {
    failed: bool,
}

impl Announcements {
    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let stdout = io::stdout();
        // A bar is on the same terminal, or else not in the way: nothing then waits for this stream.
        let written = match stdout.is_terminal() {
            true => above_bars(|| write_raw(&stdout, line)),
            false => write_raw(&stdout, line),
        };
        if let (Err(error), false) = (&written, self.failed) {
            tracing::warn!(%error, "standard output cannot be written; this process goes on without it");
        }
        self.failed = written.is_err();
        written
    }
}

/// Writes all of it to a stream of the process, past the buffer and the lock that it has in the library: what was not
/// written is lost, and not tried again with the next line.
fn write_raw(stream: &impl AsFd, mut bytes: &[u8]) -> io::Result<()> {
    if stops_writers(stream) {
        return Err(io::Error::new(
            ErrorKind::ResourceBusy,
            "the terminal stops background processes that write",
        ));
    }
    while !bytes.is_empty() {
        match rustix::io::write(stream, bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Whether writing to the stream would stop this process: it runs in the background of a terminal with `stty tostop`.
pub fn stops_writers(stream: &impl AsFd) -> bool {
    // No terminal, or none of this session, stops anybody.
    let (Ok(modes), Ok(foreground)) = (tcgetattr(stream), tcgetpgrp(stream)) else {
        return false;
    };
    modes.local_modes.contains(LocalModes::TOSTOP) && foreground != getpgrp()
}
