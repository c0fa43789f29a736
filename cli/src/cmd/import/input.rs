//! The lines of an import, which are read twice unless bad ones may be left out. Ctrl-C ends the wait for missing ones.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use trine_base::failure::Failure;
use trine_base::interrupt;

/// The most bytes of a line: those of the largest key and value, if JSON escapes each of their bytes.
const LINE_BYTES_MAX: u64 = 8 << 20;
/// The interval at which a wait for input checks for an interruption.
const LOOK_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// Where the lines come from.
pub(super) struct Input {
    name: String,
    file: File,
    /// Where its first line begins, if it can be read again from there.
    start: Option<u64>,
}

impl Input {
    /// The file of this name, or standard input.
    pub(super) fn open(path: Option<&Path>) -> Result<Self, Failure> {
        let path = path.filter(|path| *path != Path::new("-"));
        let name = path.map_or("standard input".to_owned(), |path| {
            path.display().to_string()
        });
        let opened = match path {
            Some(path) => File::open(path),
            None => io::stdin().as_fd().try_clone_to_owned().map(File::from),
        };
        let failed = |error| cannot_read(&name, &error);
        let mut file = opened.map_err(failed)?;
        // A pipe and a terminal have no position.
        let is_file = file.metadata().map_err(failed)?.is_file();
        let start = match is_file {
            true => Some(file.stream_position().map_err(failed)?),
            false => None,
        };
        Ok(Self { name, file, start })
    }

    /// The lines, as they come.
    pub(super) fn lines_once(self) -> Lines {
        Lines::of(self.name, self.file, None)
    }

    /// The lines, which are kept to be read again.
    pub(super) fn lines_first(&mut self) -> Result<Lines, Failure> {
        if self.start.is_none() {
            self.file = keep(&self.file, &self.name)?;
            self.start = Some(0);
        }
        self.lines(None)
    }

    /// The same lines again; so many are expected.
    pub(super) fn lines_again(&mut self, expected: u64) -> Result<Lines, Failure> {
        self.lines(Some(expected))
    }

    fn lines(&mut self, expected: Option<u64>) -> Result<Lines, Failure> {
        let start = SeekFrom::Start(self.start.unwrap_or(0));
        let cloned = self.file.seek(start).and_then(|_| self.file.try_clone());
        let file = cloned.map_err(|error| cannot_read(&self.name, &error))?;
        Ok(Lines::of(self.name.clone(), file, expected))
    }
}

/// Copies a stream into a file without a name, which nobody else can read.
fn keep(from: &File, name: &str) -> Result<File, Failure> {
    let directory = std::env::temp_dir();
    let path = directory.join(format!("trine-import-{}", std::process::id()));
    let failed = |error: &io::Error| {
        Failure::usage(
            format!("cannot keep {name} in {}: {error}", directory.display()),
            "name a file instead of a pipe, or another directory with TMPDIR",
        )
    };
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path);
    let mut kept = opened.map_err(|error| failed(&error))?;
    std::fs::remove_file(&path).map_err(|error| failed(&error))?;
    let mut piece = vec![0; 256 * 1024];
    let mut from = Patient(from);
    loop {
        match from.read(&mut piece) {
            Ok(0) => return Ok(kept),
            Ok(count) => kept
                .write_all(&piece[..count])
                .map_err(|error| failed(&error))?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(not_read(name, &error)),
        }
    }
}

/// A file that is read only when a read would not block. After a Ctrl-C it gives an error, also where nothing comes.
struct Patient<F>(F);

impl<F: AsFd> Patient<F> {
    fn wait(&self) -> io::Result<()> {
        loop {
            if interrupt::interrupted() {
                // No `ErrorKind::Interrupted`: readers repeat a read that ends with it.
                return Err(io::Error::other("interrupted"));
            }
            let mut file = [PollFd::new(&self.0, PollFlags::IN)];
            match poll(&mut file, Some(&LOOK_INTERVAL)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl<F: AsFd + Read> Read for Patient<F> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.wait()?;
        self.0.read(into)
    }
}

/// The lines of a file that are not empty, counted from 1.
pub(super) struct Lines {
    name: String,
    file: BufReader<Patient<File>>,
    number: u64,
    expected: Option<u64>,
}

impl Lines {
    fn of(name: String, file: File, expected: Option<u64>) -> Self {
        Self {
            name,
            file: BufReader::with_capacity(256 * 1024, Patient(file)),
            number: 0,
            expected,
        }
    }

    /// The number of the last line.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// How many lines there are, if that is known.
    pub(super) fn expected(&self) -> Option<u64> {
        self.expected
    }

    /// The next line that is not empty.
    pub(super) fn next(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        loop {
            let mut line = Vec::new();
            let mut limited = self.file.by_ref().take(LINE_BYTES_MAX);
            match limited.read_until(b'\n', &mut line) {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                Err(error) => return Err(not_read(&self.name, &error)),
            }
            self.number += 1;
            if line.len() as u64 == LINE_BYTES_MAX && line.last() != Some(&b'\n') {
                let number = self.number;
                let message = format!("line {number} has more than {LINE_BYTES_MAX} bytes");
                return Err(Failure::negative(message, "is this a trine export?"));
            }
            if !line.trim_ascii().is_empty() {
                return Ok(Some(line));
            }
        }
    }
}

/// Why a read has failed: the user's Ctrl-C, or the file.
fn not_read(name: &str, error: &io::Error) -> Failure {
    match interrupt::check() {
        Err(interrupted) => interrupted,
        Ok(()) => cannot_read(name, error),
    }
}

fn cannot_read(name: &str, error: &io::Error) -> Failure {
    Failure::usage(format!("cannot read {name}: {error}"), "")
}
