//! The kinds of fault that `trine chaos --faults` names.

use clap::ValueEnum;
use serde::Serialize;

/// The faults that can be asked for by name.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A replica is killed (SIGKILL) and started again.
    Kill,
    /// A replica is asked to end (SIGTERM) and started again.
    Restart,
    /// A replica is paused (SIGSTOP), then resumed (SIGCONT).
    Pause,
    /// A replica and the others do not hear each other; sometimes its clients do not reach it either.
    Partition,
    /// A replica is not heard by the others and hears them, or the other way round.
    OneWay,
    /// The packets from one replica to another are lost, doubled, overtaken and late.
    Lossy,
    /// The disk of a replica has no room left: the replica ends, and is started again (--log disk, root).
    DiskFull,
}

impl Kind {
    /// As it is typed.
    pub fn name(self) -> String {
        let value = self.to_possible_value();
        let value = value.expect("no fault is hidden");
        value.get_name().to_owned()
    }
}
