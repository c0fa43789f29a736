//! Progress of reading a data directory.

use super::{Disk, DiskError, DiskStage};

/// How much has been read of the files that are read whole.
pub(super) struct Reading {
    done: u64,
    total: u64,
}

impl Reading {
    pub(super) fn of<'a>(
        disk: &mut impl Disk,
        mut files: impl Iterator<Item = &'a String>,
    ) -> Result<Self, DiskError> {
        let total = files.try_fold(0, |sum, file| Ok(sum + disk.size(file)?))?;
        Ok(Self { done: 0, total })
    }

    /// So many bytes more were read, and their records were taken in.
    pub(super) fn on_read(&mut self, disk: &mut impl Disk, bytes: u64) -> Result<(), DiskError> {
        self.done += bytes;
        disk.at(DiskStage::Reading, self.done, self.total)
    }
}
