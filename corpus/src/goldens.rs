//! Goldens: the files of earlier releases, which `packaging/goldens` had their programs write (docs/versions.md).

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

/// Bytes of a file in which each bit is flipped.
pub const FLIPPED_BYTES: usize = 1024;

/// What one release has left.
#[derive(Debug)]
pub struct Golden {
    /// Its directory.
    pub path: PathBuf,
    /// `contents.json`: what each file must show.
    pub contents: Value,
}

/// The goldens of all releases, in the order of their names.
///
/// # Panics
///
/// If there are none, or if one cannot be read: a test of nothing would pass.
#[must_use]
pub fn goldens() -> Vec<Golden> {
    let directory = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../compat"));
    let entries =
        fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a directory entry").path())
        .filter(|path| path.is_dir())
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} is empty", directory.display());
    let golden = |path: PathBuf| {
        let text = read(&path.join("contents.json"));
        let contents = serde_json::from_slice(&text).expect("contents.json is JSON");
        Golden { path, contents }
    };
    paths.into_iter().map(golden).collect()
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

impl Golden {
    /// The files of one kind, such as `directories`, each with what it must show.
    ///
    /// # Panics
    ///
    /// If there are none.
    #[must_use]
    pub fn files(&self, kind: &str) -> &Map<String, Value> {
        let files = self.contents[kind].as_object();
        files
            .filter(|files| !files.is_empty())
            .unwrap_or_else(|| panic!("{}: no {kind}", self.path.display()))
    }

    /// A file as it is.
    ///
    /// # Panics
    ///
    /// If it cannot be read.
    #[must_use]
    pub fn bytes(&self, name: &str) -> Vec<u8> {
        read(&self.path.join(name))
    }

    /// The content of a `.gz` file.
    ///
    /// # Panics
    ///
    /// If it cannot be read.
    #[must_use]
    pub fn unzipped(&self, name: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(&*self.bytes(name))
            .read_to_end(&mut bytes)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        bytes
    }

    /// The files of a data directory by name, out of its archive.
    ///
    /// # Panics
    ///
    /// If it cannot be read.
    #[must_use]
    pub fn directory(&self, name: &str) -> BTreeMap<String, Vec<u8>> {
        let bytes = self.unzipped(name);
        let mut archive = tar::Archive::new(&*bytes);
        let mut files = BTreeMap::new();
        for entry in archive.entries().expect("an archive") {
            let mut entry = entry.expect("a file of an archive");
            let path = entry.path().expect("a name").display().to_string();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).expect("a whole file");
            files.insert(path, content);
        }
        assert!(!files.is_empty(), "{name} is empty");
        files
    }
}

/// Calls `check` with each bit of the first [`FLIPPED_BYTES`] flipped, one at a time; returns how many there were.
pub fn flip_each_bit(bytes: &mut [u8], mut check: impl FnMut(&mut [u8], usize)) -> usize {
    let bits = bytes.len().min(FLIPPED_BYTES) * 8;
    for bit in 0..bits {
        bytes[bit / 8] ^= 1 << (bit % 8);
        check(bytes, bit);
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    bits
}
