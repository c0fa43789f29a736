//! Disk mode: a replica's promises survive its process (`DURABILITY.md` has format, rules and runbook).
//!
//! The replica stays free of I/O. It asks for [`Write`]s, and hears of each that it is durable through
//! `Replica::on_written`; whatever depends on a write leaves only then. A [`Writer`] turns batches of them into files
//! of a [`Disk`]. That is a directory of the operating system ([`Directory`], served by [`WriterThread`]), or the
//! simulator's. [`open`] reads the files back, and says what was lost, if anything was.

#[cfg(test)]
mod cache;
mod descriptors;
mod directory;
mod error;
mod frame;
mod identity;
mod leftovers;
mod memory;
mod names;
mod open;
mod reading;
mod record;
mod recover;
mod recovering;
mod replay;
mod segment;
mod snapshot_file;
mod spare;
mod thread;
mod unfinished;
pub(crate) mod write;
mod writer;

pub use directory::{Directory, make_directory};
pub use error::{DiskCause, DiskError, LostMemory, OpenError};
pub use leftovers::{LeftoverError, SetAside, files_set_aside, remove_set_aside};
#[doc(hidden)]
pub use open::fuzz_open;
pub use open::{OpenOptions, Opened, lift_quarantine, open, open_without_memory};
pub use recover::{RecoverError, Recovered, recover};
pub use replay::Restored;
pub use thread::{WriterEnd, WriterThread};
pub use unfinished::{Unused, first_obstacle, leave_empty, take_back_restore, unused};
pub use write::{Write, WriteQueue};
pub use writer::Writer;

pub use trine_protocol::status::Fsync;

pub(crate) use identity::Identity;
#[cfg(test)]
pub(crate) use memory::MemoryDisk;
pub(crate) use names::first_file;
pub(crate) use record::Record;
pub(crate) use recover::begin_group;
pub(crate) use snapshot_file::{Loaded, SnapshotHead, begin_piece, end_piece, middle_piece};

/// The stage of long work on a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskStage {
    /// The files are read: bytes.
    Reading,
    /// Entries of the log are applied: entries.
    Applying,
    /// The state is written: bytes, of which the total is an estimate.
    Writing,
}

/// A flat directory of files. A write may be lost, in whole sectors, until the file was synced; a name may be lost
/// until the names were.
pub trait Disk {
    /// The names of all files.
    ///
    /// # Errors
    /// As the device says; so with all of these.
    fn names(&mut self) -> Result<Vec<String>, DiskError>;

    /// The size of a file.
    ///
    /// # Errors The file's size cannot be read.
    fn size(&mut self, name: &str) -> Result<u64, DiskError>;

    /// Receives the progress of long work on the files, for example to print it, and may refuse to go on with it.
    ///
    /// # Errors The work has to end here; it leaves the same files as an end at any other moment.
    fn at(&mut self, step: DiskStage, done: u64, total: u64) -> Result<(), DiskError> {
        let _ = (step, done, total);
        Ok(())
    }

    /// Fills `into` from `offset` on; the file has that many bytes.
    ///
    /// # Errors
    /// The file is shorter, or the device fails.
    fn read(&mut self, name: &str, offset: u64, into: &mut [u8]) -> Result<(), DiskError>;

    /// Makes a file of `size` zeros whose room is taken at once; an older one of that name is replaced.
    ///
    /// # Errors
    /// The disk is full, or the device fails.
    fn create(&mut self, name: &str, size: u64) -> Result<(), DiskError>;

    /// Says that a file of `size` zeros will be created before long, so that it can be made ahead.
    fn prepare(&mut self, size: u64) {
        let _ = size;
    }

    /// Writes at `offset`; the file grows if it has to.
    ///
    /// # Errors
    /// The disk is full, or the device fails.
    fn write(&mut self, name: &str, offset: u64, bytes: &[u8]) -> Result<(), DiskError>;

    /// Makes what was written to a file durable. After an error the durable part is unknown: the process has to end.
    ///
    /// # Errors
    /// The device fails.
    fn sync(&mut self, name: &str) -> Result<(), DiskError>;

    /// Gives a file another name; a file of that name is replaced.
    ///
    /// # Errors
    /// The device fails.
    fn rename(&mut self, from: &str, to: &str) -> Result<(), DiskError>;

    /// Removes a file.
    ///
    /// # Errors
    /// The device fails.
    fn remove(&mut self, name: &str) -> Result<(), DiskError>;

    /// Makes the creation, renaming and removal of files durable.
    ///
    /// # Errors
    /// The device fails.
    fn sync_names(&mut self) -> Result<(), DiskError>;
}

#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod mark_tests;
#[cfg(test)]
pub(crate) mod tests;
