//! The lines that a server (`serve`, `up`, `cache serve`) prints.
//!
//! Its output is best effort, because a server does not run in order to print. A closed pipe, a full disk or a stopped
//! terminal neither ends nor delays it.
//!
//! The answer of a command is another matter, see `output`. There a line that cannot be written is a failure.

use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime};

use rustix::io::Errno;
use rustix::process::getpgrp;
use rustix::termios::{LocalModes, tcgetattr, tcgetpgrp};
use serde::Serialize;
use serde_json::{Value, json};

use crate::bars::above_bars;
use crate::config::{ANNOUNCEMENTS_MAX, LAST_LINES_LIMIT, LOG_LINES_MAX};
use crate::document::{line_of, one_a_line, to_document};
use crate::failure::Failure;
use crate::lines::Lines;
use crate::words::printable;

/// The streams of this process, once it is a server.
static SERVER: OnceLock<Streams> = OnceLock::new();

/// Each line that this process writes is a JSON object, as those of its log are.
static IN_OBJECTS: AtomicBool = AtomicBool::new(false);

/// Nothing is told while that would get between a shell's prompt and what is typed behind it.
static SPARES_PROMPTS: AtomicBool = AtomicBool::new(false);

/// From now on each line that this process writes is a JSON object in the form of the log's: a reader of both streams parses
/// them all.
pub fn speak_in_objects() {
    IN_OBJECTS.store(true, Ordering::Relaxed);
    one_a_line();
    std::panic::set_hook(Box::new(|panic| {
        let line = object("ERROR", &panic.to_string(), "");
        // There is nobody left to tell that it failed.
        let _ = io::stderr().write_all(line.as_bytes());
    }));
}

/// See [`speak_in_objects`].
pub fn speaks_in_objects() -> bool {
    IN_OBJECTS.load(Ordering::Relaxed)
}

/// A line that is an object in the form of the log's.
pub fn object(level: &str, message: &str, hint: &str) -> String {
    let mut fields = json!({ "message": message });
    if !hint.is_empty() {
        fields["hint"] = hint.into();
    }
    let now = humantime::format_rfc3339_micros(SystemTime::now()).to_string();
    line_of(&json!({ "timestamp": now, "level": level, "fields": fields, "target": "trine" }))
}

/// One thread for each stream, so that a slow reader of one does not delay the other.
struct Streams {
    out: Lines,
    err: Lines,
}

/// Announces on standard output. A value of this type proves that the process is a server.
#[derive(Copy, Clone, Debug)]
pub struct Announcer {
    json: bool,
}

impl Announcer {
    /// Makes this process a server. From now on only two threads wait for standard output or standard error.
    pub fn start(json: bool) -> Result<Self, Failure> {
        let cannot =
            |error: io::Error| Failure::usage(format!("cannot start a thread: {error}"), "");
        let mut out = Announcements::default();
        let out = Lines::start("announcements", ANNOUNCEMENTS_MAX, move |line| {
            out.write(line)
        });
        let err = Lines::start("log", LOG_LINES_MAX, |line| {
            let stderr = io::stderr();
            match is_beside_bars(&stderr) {
                true => above_bars(|| write_raw(&stderr, line)),
                false => write_raw(&stderr, line),
            }
        });
        let streams = Streams {
            out: out.map_err(cannot)?,
            err: err.map_err(cannot)?,
        };
        let first = SERVER.set(streams).is_ok();
        assert!(first, "a process runs one server");
        Ok(Self { json })
    }

    /// From now on lines for people are left out while this process is in the background of their terminal. All has been told
    /// by then that its user waits for.
    pub fn keep_out_of_prompts(self) {
        SPARES_PROMPTS.store(true, Ordering::Relaxed);
    }

    /// A line for people; nothing in JSON form.
    pub fn line(self, text: impl Display) {
        match (self.json, speaks_in_objects()) {
            (true, _) => {}
            (false, _) if SPARES_PROMPTS.load(Ordering::Relaxed) && is_behind(&io::stdout()) => {}
            (false, true) => announce(object("INFO", &text.to_string(), "")),
            (false, false) => announce(printable(&format!("{text}\n")).into_owned()),
        }
    }

    /// The same for a change of role, which the log tells, too. Programs that read both streams as one get it once.
    pub fn line_of_role(self, text: impl Display) {
        let is_logged = tracing::enabled!(target: "role", tracing::Level::INFO);
        if !(is_logged && speaks_in_objects()) {
            self.line(text);
        }
    }

    /// An object that another process has written as a line. It goes where an event does.
    pub fn object(self, line: &Value) {
        match self.json {
            true => write_note(line_of(line)),
            false => announce(line_of(line)),
        }
    }

    /// Prints one event for programs, on its own line; prints nothing in text form.
    pub fn json_line(self, event: &Value) {
        if self.json {
            announce(line_of(event));
        }
    }

    /// Prints the document that programs wait for; prints nothing in text form. Standard output then holds nothing
    /// else.
    pub fn document(self, document: &impl Serialize) {
        if self.json {
            announce(to_document(document));
        }
    }

    /// Prints an event. It goes to standard output for people. In JSON form standard output holds one document, so the
    /// event goes to standard error.
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

/// Writes a server's line to standard output; does nothing in another process.
pub fn announce(text: String) {
    if let Some(server) = SERVER.get() {
        server.out.add(text.into_bytes());
    }
}

/// Writes a line to standard error, from any process. A failed write is no failure of the process, because no stream is
/// left to report it on. (`eprintln!` would panic.)
pub fn note(text: impl Display) {
    write_note(match speaks_in_objects() {
        true => object("INFO", &text.to_string(), ""),
        false => printable(&format!("{text}\n")).into_owned(),
    });
}

/// Writes a failure to standard error, from any process.
pub fn note_failure(failure: &Failure) {
    match speaks_in_objects() {
        true => write_note(object("ERROR", failure.message(), failure.hint())),
        false => note(failure),
    }
}

fn write_note(line: String) {
    match SERVER.get() {
        Some(server) => server.err.add(line.into_bytes()),
        None => drop(io::stderr().write_all(line.as_bytes())),
    }
}

/// The writer for a server's log. It goes to standard error, like the server's notes.
pub fn log_lines() -> Option<Lines> {
    SERVER.get().map(|server| server.err.clone())
}

/// Called at the end of the process. Lets the announced lines be written, but waits for no reader.
pub fn finish() {
    if let Some(server) = SERVER.get() {
        let until = Instant::now() + LAST_LINES_LIMIT;
        server.out.finish(until);
        server.err.finish(until);
    }
}

/// Whether text on this stream may stand beside a bar. Bars are on standard error, and only if that is a terminal. Any
/// other write takes no lock of the bars, so that a reader that has stopped holds up its own stream alone.
fn is_beside_bars(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && io::stderr().is_terminal()
}

/// Standard output, and whether the last write succeeded.
#[derive(Default)]
struct Announcements {
    failed: bool,
}

impl Announcements {
    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let stdout = io::stdout();
        let written = match is_beside_bars(&stdout) {
            true => above_bars(|| write_raw(&stdout, line)),
            false => write_raw(&stdout, line),
        };
        if let (Err(error), false) = (&written, self.failed) {
            tracing::warn!(%error, "standard output cannot be written; this process continues \
                 without it");
        }
        self.failed = written.is_err();
        written
    }
}

/// Writes all bytes to a stream of the process, past the library's buffer and lock. Unwritten bytes are lost, and the
/// next line does not retry them.
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

/// Whether this process runs in the background of a terminal: Ctrl-C there is for another one.
pub fn is_in_background() -> bool {
    is_behind(&io::stdin()) || is_behind(&io::stdout()) || is_behind(&io::stderr())
}

/// Whether the stream is a terminal that somebody uses with another process.
fn is_behind(stream: &impl AsFd) -> bool {
    // Without a terminal there is no group in front.
    tcgetpgrp(stream).is_ok_and(|foreground| foreground != getpgrp())
}

/// Whether writing to the stream would stop this process: it runs in the background of a terminal with `stty tostop`.
pub fn stops_writers(stream: &impl AsFd) -> bool {
    // A stream stops its writers only if it is a terminal of this session.
    let (Ok(modes), Ok(foreground)) = (tcgetattr(stream), tcgetpgrp(stream)) else {
        return false;
    };
    modes.local_modes.contains(LocalModes::TOSTOP) && foreground != getpgrp()
}
