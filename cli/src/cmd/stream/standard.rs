//! How does a page get to standard output? A reader that has gone or has stopped does not keep a command from giving its pin
//! back.

use std::io::{self, ErrorKind};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::output::write_all;

/// A pipe that has room takes so many bytes without waiting for its reader.
const PIECE_BYTES: usize = 4096;
/// A wait for room looks at least this often whether the user wants to end it.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};

/// Why a page was not written.
pub(crate) enum Unwritten {
    /// That is a failure of the command.
    Failed(Failure),
    /// Nobody reads it any more, as in `trine scan | head -1`.
    Unread,
}

impl From<Failure> for Unwritten {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Writes a page.
pub(crate) fn print(page: &[u8]) -> Result<(), Unwritten> {
    for piece in page.chunks(PIECE_BYTES) {
        wait_for_room()?;
        write_all(piece).map_err(unwritten)?;
    }
    Ok(())
}

fn wait_for_room() -> Result<(), Failure> {
    let stdout = io::stdout();
    loop {
        let mut room = [PollFd::new(&stdout, PollFlags::OUT)];
        match poll(&mut room, Some(&LOOK)) {
            Ok(0) | Err(Errno::INTR) => interrupt::check()?,
            // Where that cannot be asked, the write says what is wrong.
            Ok(_) | Err(_) => return Ok(()),
        }
    }
}

fn unwritten(error: io::Error) -> Unwritten {
    if error.kind() == ErrorKind::BrokenPipe {
        return Unwritten::Unread;
    }
    Unwritten::Failed(Failure::usage(
        format!("cannot write the output: {error}"),
        "what was written so far is not all of it; make room, or write elsewhere",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_has_gone_is_no_failure_and_a_full_disk_is_one() {
        let gone = io::Error::from(ErrorKind::BrokenPipe);
        assert!(matches!(unwritten(gone), Unwritten::Unread));
        let full = io::Error::from(ErrorKind::StorageFull);
        let Unwritten::Failed(failure) = unwritten(full) else {
            panic!("the user would believe that all was written");
        };
        assert_eq!(failure.exit_status(), 2);
    }
}
