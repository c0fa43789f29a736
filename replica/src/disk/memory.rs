//! A disk in memory, for tests and the fuzzer: nothing is ever lost on it by itself.

use std::collections::BTreeMap;

use super::{Disk, DiskCause, DiskError};

/// Files by name.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct MemoryDisk {
    /// Name and content.
    pub(crate) files: BTreeMap<String, Vec<u8>>,
}

impl MemoryDisk {
    fn file(&mut self, name: &str) -> Result<&mut Vec<u8>, DiskError> {
        self.files.get_mut(name).ok_or_else(|| missing(name))
    }
}

fn missing(name: &str) -> DiskError {
    DiskError {
        operation: "find",
        file: name.to_owned(),
        reason: "it is not there, or too short".to_owned(),
        cause: DiskCause::Device,
    }
}

impl Disk for MemoryDisk {
    fn names(&mut self) -> Result<Vec<String>, DiskError> {
        Ok(self.files.keys().cloned().collect())
    }

    fn size(&mut self, name: &str) -> Result<u64, DiskError> {
        Ok(self.file(name)?.len() as u64)
    }

    fn read(&mut self, name: &str, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        let from = offset as usize;
        let bytes = self.file(name)?.get(from..from + into.len());
        into.copy_from_slice(bytes.ok_or_else(|| missing(name))?);
        Ok(())
    }

    fn create(&mut self, name: &str, size: u64) -> Result<(), DiskError> {
        self.files.insert(name.to_owned(), vec![0; size as usize]);
        Ok(())
    }

    fn write(&mut self, name: &str, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let file = self.file(name)?;
        let end = offset as usize + bytes.len();
        if file.len() < end {
            file.resize(end, 0);
        }
        file[offset as usize..end].copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self, name: &str) -> Result<(), DiskError> {
        self.file(name).map(|_| ())
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), DiskError> {
        let file = self.files.remove(from).ok_or_else(|| missing(from))?;
        self.files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&mut self, name: &str) -> Result<(), DiskError> {
        self.files
            .remove(name)
            .map(|_| ())
            .ok_or_else(|| missing(name))
    }

    fn sync_names(&mut self) -> Result<(), DiskError> {
        Ok(())
    }
}
