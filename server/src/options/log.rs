//! Where a replica keeps its log.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use clap::ValueEnum;

use trine_base::failure::Failure;

/// How a replica stores its log.
#[derive(Clone, Debug, Args)]
pub struct LogArguments {
    /// Where the log is kept: in memory (a restarted replica joins as a new one) or on disk (it resumes with its
    /// state). With disk, a write is acknowledged once it is in the log on disk.
    #[arg(long, default_value = "memory", value_enum)]
    pub log: LogMode,
    /// With --log disk: the data directory, which belongs to one replica of one group. trine up and trine chaos create
    /// a directory per replica in it.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// With --log disk: when a write counts as durable.
    #[arg(long, default_value = "batch", value_enum)]
    pub fsync: FsyncMode,
}

/// Where the log is.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogMode {
    /// In DRAM.
    Memory,
    /// In files.
    Disk,
}

/// When a write to the log counts as durable.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum FsyncMode {
    /// Each write is synced by itself.
    Each,
    /// One sync for all writes that arrived during the last one.
    Batch,
    /// Data is synced only at a clean shutdown; after any other exit, the replica counts as having lost its memory.
    None,
}

impl LogArguments {
    /// Whether the options fit together. A log on disk needs a directory, and a user who gives a directory expects the
    /// data there.
    pub fn check(&self) -> Result<(), Failure> {
        match &self.data_dir {
            Some(path) if self.log == LogMode::Memory => Err(Failure::usage(
                format!(
                    "--data-dir {} means nothing while the log is in memory",
                    path.display()
                ),
                "add --log disk to keep the data there, or leave --data-dir out",
            )),
            None if self.log == LogMode::Disk => Err(Failure::usage(
                "the log is to be on disk, and no directory is given for it",
                "name one with --data-dir DIR, or leave --log disk out",
            )),
            _ => Ok(()),
        }
    }

    /// The directory, in disk mode.
    pub fn directory(&self) -> Option<&PathBuf> {
        self.data_dir.as_ref().filter(|_| self.log == LogMode::Disk)
    }

    /// The same settings, as options of `trine serve` for each node.
    pub fn as_serve_args(&self) -> Vec<OsString> {
        let Some(directory) = self.directory() else {
            return Vec::new();
        };
        let fsync = match self.fsync {
            FsyncMode::Each => "each",
            FsyncMode::Batch => "batch",
            FsyncMode::None => "none",
        };
        let own = directory.join("replica-{node_id}");
        let words = ["--log", "disk", "--fsync", fsync, "--rejoin", "--data-dir"];
        let mut args: Vec<OsString> = words.map(OsString::from).into();
        args.push(own.into());
        args
    }
}
