//! A request to the fault injector and its answer: a line of JSON each, over a Unix socket.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde::Serialize;

/// A line is at most this long.
const LINE_BYTES_MAX: u64 = 256 << 10;
/// How long either side waits for the other one.
const LIMIT: Duration = Duration::from_secs(5);

/// Neither side waits longer than 5 s for the other one from here on.
pub fn set_limits(stream: &UnixStream) -> io::Result<()> {
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))
}

/// Sends a value as a line.
pub fn send(mut stream: &UnixStream, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// The other side's line, of at most 256 KiB.
pub fn receive(stream: &UnixStream) -> io::Result<String> {
    let mut line = String::new();
    BufReader::new(stream.take(LINE_BYTES_MAX)).read_line(&mut line)?;
    Ok(line)
}
