//! Fills a disk completely, and frees it again.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::Path;

use trine_base::failure::Failure;

const PIECE: usize = 64 << 10;
/// A disk that takes more than this is not the small one of the run.
const BYTES_MAX: usize = 1 << 30;

/// Writes `filler` until there is no room left.
pub(super) fn fill(filler: &Path) -> Result<(), Failure> {
    let cannot = |error: std::io::Error| {
        Failure::usage(format!("cannot write {}: {error}", filler.display()), "")
    };
    let mut file = File::create(filler).map_err(cannot)?;
    let mut piece = PIECE;
    let mut written = 0;
    // The last bytes are filled as well, because a log writes little at a time.
    while piece > 0 && written < BYTES_MAX {
        match file.write_all(&vec![0; piece]) {
            Ok(()) => written += piece,
            Err(error) if error.kind() == ErrorKind::StorageFull => piece /= 2,
            Err(error) => return Err(cannot(error)),
        }
    }
    match written < BYTES_MAX {
        true => Ok(()),
        false => Err(Failure::usage(
            format!("{} does not lie on a small disk", filler.display()),
            "",
        )),
    }
}

/// Removes the filler.
pub(super) fn free(filler: &Path) -> Result<(), Failure> {
    std::fs::remove_file(filler)
        .map_err(|error| Failure::usage(format!("cannot remove {}: {error}", filler.display()), ""))
}
