//! Writes pages to standard output. A reader that has gone or has stopped does not keep a command from giving its pin
//! back.

use std::io::{self, ErrorKind};

use trine_base::config::CLIENT_LOOK;
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::output::{has_room_within, unwritten, write_all};

/// A pipe that has room takes this many bytes without waiting for its reader.
const PIECE_BYTES: usize = 4096;

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

/// Writes a page of lines. A Ctrl-C ends that behind one of them, so that the error of a command has a line of its own.
pub(crate) fn print(page: &[u8]) -> Result<(), Unwritten> {
    let mut is_behind_line = true;
    for piece in pieces(page) {
        wait_for_room(is_behind_line)?;
        write_all(piece).map_err(|error| from_write(&error))?;
        is_behind_line = piece.ends_with(b"\n");
    }
    Ok(())
}

/// The page in pieces, which end with a line where one ends in them.
fn pieces(mut page: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let most = page.len().min(PIECE_BYTES);
        let line_end = page[..most].iter().rposition(|byte| *byte == b'\n');
        let (piece, rest) = page.split_at(line_end.map_or(most, |at| at + 1));
        page = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

fn wait_for_room(may_end: bool) -> Result<(), Failure> {
    while !has_room_within(CLIENT_LOOK) {
        if may_end {
            interrupt::check()?;
        }
    }
    Ok(())
}

fn from_write(error: &io::Error) -> Unwritten {
    match error.kind() {
        ErrorKind::BrokenPipe => Unwritten::Unread,
        _ => Unwritten::Failed(unwritten(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error of an interrupted `scan --json` stood in the middle of a line, and no program could read either.
    #[test]
    fn pieces_end_with_a_line_where_one_ends_in_them() {
        let line = |length: usize| [&vec![b'x'; length - 1][..], b"\n"].concat();
        let page = [line(1_000), line(3_000), line(9_000), line(100)].concat();
        let lengths: Vec<usize> = pieces(&page).map(<[u8]>::len).collect();
        assert_eq!(lengths, [4_000, 4_096, 4_096, 908]);
        assert_eq!(pieces(&page).collect::<Vec<_>>().concat(), page);
        assert_eq!(pieces(b"").count(), 0);
    }

    #[test]
    fn a_reader_that_has_gone_is_no_failure_and_a_full_disk_is_one() {
        let gone = io::Error::from(ErrorKind::BrokenPipe);
        assert!(matches!(from_write(&gone), Unwritten::Unread));
        let full = io::Error::from(ErrorKind::StorageFull);
        let Unwritten::Failed(failure) = from_write(&full) else {
            panic!("the user would believe that all was written");
        };
        assert_eq!(failure.exit_status(), 2);
    }
}
