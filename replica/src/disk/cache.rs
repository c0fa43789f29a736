//! A disk behind a cache, for tests. Bytes that a killed process has written are seen by the next one, and are gone
//! with the power unless they were synced. After a failed sync the cache calls its content written, as that of Linux
//! does.

use std::collections::{BTreeMap, BTreeSet};

use super::frame::SECTOR;
use super::memory::MemoryDisk;
use super::{Disk, DiskCause, DiskError};

/// A file: its content for processes, its content on the device, and the sectors that still have to
/// be written.
#[derive(Clone, Default, Debug)]
struct Inode {
    seen: Vec<u8>,
    plate: Vec<u8>,
    dirty: BTreeSet<usize>,
}

#[derive(Clone, Default, Debug)]
pub(super) struct CachedDisk {
    inodes: Vec<Inode>,
    seen: BTreeMap<String, usize>,
    plate: BTreeMap<String, usize>,
    /// Syncs that succeed before all others fail.
    pub(super) syncs_left: Option<usize>,
    /// Changes of any kind that come about before the process is killed.
    pub(super) changes_left: Option<usize>,
}

impl CachedDisk {
    /// Everything in `disk` is on the plate.
    pub(super) fn of(disk: &MemoryDisk) -> Self {
        let mut own = Self::default();
        for (name, bytes) in &disk.files {
            own.seen.insert(name.clone(), own.inodes.len());
            own.inodes.push(Inode {
                seen: bytes.clone(),
                plate: bytes.clone(),
                dirty: BTreeSet::new(),
            });
        }
        own.plate = own.seen.clone();
        own
    }

    /// The power fails and comes back.
    pub(super) fn after_power_loss(&self) -> MemoryDisk {
        let files = self.plate.iter();
        let files = files.map(|(name, &at)| (name.clone(), self.inodes[at].plate.clone()));
        MemoryDisk {
            files: files.collect(),
        }
    }

    /// The same, where the file system made each change of a name durable by itself, and the device wrote those sectors
    /// of `file` whose bits are in `landed`. No sync has asked for either, and none can forbid it.
    pub(super) fn after_power_loss_late(&self, file: &str, landed: u32) -> MemoryDisk {
        let content = |name: &str, inode: &Inode| {
            let mut plate = inode.plate.clone();
            for sector in inode.dirty.iter().filter(|_| name == file) {
                let range = sector * SECTOR..(sector + 1) * SECTOR;
                if landed >> sector & 1 == 1 && range.end <= plate.len() {
                    plate[range.clone()].copy_from_slice(&inode.seen[range]);
                }
            }
            plate
        };
        let files = self.seen.iter();
        let files = files.map(|(name, &at)| (name.clone(), content(name, &self.inodes[at])));
        MemoryDisk {
            files: files.collect(),
        }
    }

    fn inode(&mut self, name: &str) -> Result<&mut Inode, DiskError> {
        match self.seen.get(name) {
            Some(&at) => Ok(&mut self.inodes[at]),
            None => Err(failed("find", name)),
        }
    }

    fn change(&mut self, name: &str) -> Result<(), DiskError> {
        match &mut self.changes_left {
            Some(0) => return Err(failed("change", name)),
            Some(left) => *left -= 1,
            None => {}
        }
        Ok(())
    }

    fn may_sync(&mut self) -> bool {
        match &mut self.syncs_left {
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
            None => true,
        }
    }
}

fn failed(operation: &'static str, name: &str) -> DiskError {
    DiskError {
        operation,
        file: name.to_owned(),
        reason: "input/output error".to_owned(),
        cause: DiskCause::Device,
    }
}

impl Disk for CachedDisk {
    fn names(&mut self) -> Result<Vec<String>, DiskError> {
        Ok(self.seen.keys().cloned().collect())
    }

    fn size(&mut self, name: &str) -> Result<u64, DiskError> {
        Ok(self.inode(name)?.seen.len() as u64)
    }

    fn read(&mut self, name: &str, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        let from = offset as usize;
        let bytes = self.inode(name)?.seen.get(from..from + into.len());
        into.copy_from_slice(bytes.ok_or_else(|| failed("read", name))?);
        Ok(())
    }

    fn create(&mut self, name: &str, size: u64) -> Result<(), DiskError> {
        self.change(name)?;
        self.seen.insert(name.to_owned(), self.inodes.len());
        self.inodes.push(Inode {
            seen: vec![0; size as usize],
            ..Inode::default()
        });
        Ok(())
    }

    fn write(&mut self, name: &str, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.change(name)?;
        let inode = self.inode(name)?;
        let (from, end) = (offset as usize, offset as usize + bytes.len());
        let len = inode.seen.len().max(end);
        inode.seen.resize(len, 0);
        inode.seen[from..end].copy_from_slice(bytes);
        inode.dirty.extend(from / SECTOR..end.div_ceil(SECTOR));
        Ok(())
    }

    fn sync(&mut self, name: &str) -> Result<(), DiskError> {
        self.change(name)?;
        let works = self.may_sync();
        let inode = self.inode(name)?;
        let dirty = std::mem::take(&mut inode.dirty);
        if !works {
            return Err(failed("sync", name));
        }
        inode.plate.resize(inode.seen.len(), 0);
        for sector in dirty {
            let range = sector * SECTOR..inode.seen.len().min((sector + 1) * SECTOR);
            inode.plate[range.clone()].copy_from_slice(&inode.seen[range]);
        }
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), DiskError> {
        self.change(from)?;
        let inode = self.seen.remove(from).ok_or_else(|| failed("find", from))?;
        self.seen.insert(to.to_owned(), inode);
        Ok(())
    }

    fn remove(&mut self, name: &str) -> Result<(), DiskError> {
        self.change(name)?;
        let gone = self.seen.remove(name);
        gone.map(|_| ()).ok_or_else(|| failed("find", name))
    }

    fn sync_names(&mut self) -> Result<(), DiskError> {
        self.change("the directory")?;
        if !self.may_sync() {
            return Err(failed("sync", "the directory"));
        }
        self.plate = self.seen.clone();
        Ok(())
    }
}
