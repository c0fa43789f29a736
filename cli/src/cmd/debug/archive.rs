//! The archive itself is a compressed tar file that only its owner can read.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::gather::Part;
use trine_base::failure::Failure;

/// Creates the file; an existing file is left alone.
pub(super) fn create(path: &Path) -> Result<File, Failure> {
    let mut options = OpenOptions::new();
    let opened = options.write(true).create_new(true).mode(0o600).open(path);
    opened.map_err(|error| cannot(path, &error))
}

/// Writes the list of contents and every available part, in a directory with the bundle's name.
pub(super) fn write(
    file: File,
    path: &Path,
    name: &str,
    seconds: u64,
    contents: &str,
    parts: &[Part],
) -> Result<(), Failure> {
    let fill = || {
        let mut archive = tar::Builder::new(GzEncoder::new(file, Compression::default()));
        let mut add = |file: &str, bytes: &[u8]| {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o600);
            header.set_mtime(seconds);
            archive.append_data(&mut header, format!("{name}/{file}"), bytes)
        };
        add("CONTENTS.txt", contents.as_bytes())?;
        for part in parts {
            if let Ok(bytes) = &part.bytes {
                add(&part.file, bytes)?;
            }
        }
        archive.into_inner()?.finish()?.flush()
    };
    fill().map_err(|error| cannot(path, &error))
}

fn cannot(path: &Path, error: &io::Error) -> Failure {
    let message = format!("cannot write {}: {error}", path.display());
    Failure::usage(message, "name another file with --out")
}
