//! Descriptors that the disk keeps for itself. A replica whose log cannot open its next file ends, so others of the same
//! process that have taken all the rest must not bring that about.

use std::fs::File;
use std::io;
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;

/// Enough for what is open for a moment at the same time: a new segment, a snapshot, a directory, and one to be quick with.
const SPARE_MAX: usize = 4;

/// Open files that nobody reads.
static SPARE: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// Opens something. If the process has no descriptor left, one of the spare ones is given up for it, and taken back later.
pub(super) fn open<T>(mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match open() {
            Err(error) if is_out_of_them(&error) && give_one_up() => {}
            Err(error) => return Err(error),
            Ok(opened) => {
                keep_some();
                return Ok(opened);
            }
        }
    }
}

/// Whether the process has as many as it may have, or the system has.
fn is_out_of_them(error: &io::Error) -> bool {
    [Errno::MFILE, Errno::NFILE]
        .map(|errno| Some(errno.raw_os_error()))
        .contains(&error.raw_os_error())
}

fn give_one_up() -> bool {
    let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
    spare.pop().is_some()
}

/// Takes spare ones, as far as there are any.
fn keep_some() {
    let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
    while spare.len() < SPARE_MAX {
        // Each process may open it, and it is always there.
        let Ok(file) = File::open("/") else { return };
        spare.push(file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_opened_with_a_spare_descriptor_while_there_is_one() {
        let none_left = || io::Error::from_raw_os_error(Errno::MFILE.raw_os_error());
        open(|| Ok(())).expect("opened");
        let mut failures = SPARE_MAX;
        let opened = open(|| match failures {
            0 => Ok(()),
            _ => {
                failures -= 1;
                Err(none_left())
            }
        });
        // Other tests of this process may have taken some of them meanwhile.
        assert!(opened.is_ok() || failures > 0);
        let mut tries = 0;
        let refused = open(|| -> io::Result<()> {
            tries += 1;
            Err(none_left())
        });
        assert!(refused.is_err() && tries <= SPARE_MAX + 1, "{tries}");
        let mut tries = 0;
        let refused = open(|| -> io::Result<()> {
            tries += 1;
            Err(io::ErrorKind::NotFound.into())
        });
        assert!(refused.is_err() && tries == 1);
    }
}
