//! The archive itself is a compressed tar file.

use flate2::Compression;
use flate2::write::GzEncoder;

use super::gather::ArchiveFile;

/// Returns the archive: the list of contents and every available part, in a directory with the bundle's name.
pub(super) fn pack(name: &str, seconds: u64, contents: &str, parts: &[ArchiveFile]) -> Vec<u8> {
    let fill = || {
        let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
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
        archive.into_inner()?.finish()
    };
    fill().expect("memory takes all bytes, and our names are short")
}
