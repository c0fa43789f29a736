//! Commands from standard input, line by line. Ctrl-C ends the wait for a missing line.

use std::fs::File;
use std::io::{self, BufRead, Read, StdinLock};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::config::SHELL_LINE_BYTES_MAX;
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::words::Splitter;

/// The interval at which a wait for input checks for an interruption.
const POLL_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// The size of standard input, if it is a file.
pub(super) fn size_of_input() -> Option<u64> {
    let input = File::from(io::stdin().as_fd().try_clone_to_owned().ok()?);
    let found = input.metadata().ok()?;
    found.is_file().then_some(found.len())
}

/// Standard input, which is read only when bytes are available.
pub(super) struct Input {
    stdin: StdinLock<'static>,
    /// The bytes that were read; those from `at` on were not returned yet.
    held: Vec<u8>,
    at: usize,
}

impl Input {
    pub(super) fn new() -> Self {
        Self {
            stdin: io::stdin().lock(),
            held: Vec::new(),
            at: 0,
        }
    }

    /// Waits until a read would not block; returns an error after a Ctrl-C.
    fn wait(&self) -> io::Result<()> {
        loop {
            if interrupt::interrupted() {
                return Err(io::Error::other("interrupted"));
            }
            let mut stdin = [PollFd::new(&self.stdin, PollFlags::IN)];
            match poll(&mut stdin, Some(&POLL_INTERVAL)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Read for Input {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut held = self.fill_buf()?;
        let read = held.read(into)?;
        self.consume(read);
        Ok(read)
    }
}

impl BufRead for Input {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at == self.held.len() {
            self.wait()?;
            self.at = 0;
            self.held.clear();
            self.held.extend_from_slice(self.stdin.fill_buf()?);
            self.stdin.consume(self.held.len());
        }
        Ok(&self.held[self.at..])
    }

    fn consume(&mut self, bytes: usize) {
        self.at += bytes;
    }
}

/// The next command, and how many lines it has: a line end in quotes does not end it. Nothing at the end of the input.
pub(super) fn read_command(input: &mut impl BufRead) -> Result<Option<(Vec<u8>, u64)>, Failure> {
    let Some(mut command) = read_line(input)? else {
        return Ok(None);
    };
    let (mut splitter, mut read, mut lines) = (Splitter::default(), 0, 1);
    loop {
        for &byte in &command[read..] {
            splitter.push(byte);
        }
        read = command.len();
        if splitter.open_quote().is_none() {
            return Ok(Some((command, lines)));
        }
        // Without a further line the quote has no end, and the parser says so.
        let Some(line) = read_line(input)? else {
            return Ok(Some((command, lines)));
        };
        command.push(b'\n');
        command.extend(line);
        lines += 1;
        if command.len() as u64 > SHELL_LINE_BYTES_MAX {
            return Err(too_long("the command"));
        }
    }
}

fn too_long(what: &str) -> Failure {
    let message = format!("{what} has more than {SHELL_LINE_BYTES_MAX} bytes");
    Failure::usage(message, "trine put KEY @FILE writes large values")
}

/// The next line without its end, see [`without_end`]; nothing at the end of the input.
pub(super) fn read_line(input: &mut impl BufRead) -> Result<Option<Vec<u8>>, Failure> {
    let mut line = Vec::new();
    let mut bounded = input.take(SHELL_LINE_BYTES_MAX + 1);
    let read = bounded
        .read_until(b'\n', &mut line)
        .map_err(|error| Failure::usage(format!("standard input cannot be read: {error}"), ""))?;
    if read as u64 > SHELL_LINE_BYTES_MAX {
        return Err(too_long("the line"));
    }
    Ok((read > 0).then(|| without_end(&line).to_vec()))
}

/// The line without its `\n`, and without a `\r` before that. Blanks stay: a backslash makes one a part of a word.
fn without_end(line: &[u8]) -> &[u8] {
    match line.strip_suffix(b"\n") {
        Some(line) => line.strip_suffix(b"\r").unwrap_or(line),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse;
    use super::*;

    /// Before: blanks at the end of a line were cut off. So `put k hello\ ` ended with a backslash, and was refused.
    #[test]
    fn an_escaped_blank_at_the_end_of_a_line_belongs_to_the_word() {
        let mut script: &[u8] =
            b"put k hello\\ \nput k hello\\ \r\nput k v \t\r\n\\status \n \t\n\nput k hello\\ ";
        for same in [
            &b"put k 'hello '"[..],
            b"put k 'hello '",
            b"put k v",
            b"\\status",
            b"",
            b"",
            b"put k 'hello '",
        ] {
            let line = read_line(&mut script).expect("it can be read");
            let line = line.expect("another line");
            let request = parse(&line, 0);
            assert!(request.is_ok(), "{request:?}");
            assert_eq!(request, parse(same, 0));
        }
        assert_eq!(read_line(&mut script), Ok(None));
    }
}
