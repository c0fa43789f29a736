//! The time of one write at the leader, by stage: the end of a reply to a request that has asked for it.

use serde::{Deserialize, Serialize};

use super::codec::{DecodeError, Reader, Writer};

/// Bytes of a [`LeaderTiming`].
pub const TIMING_SIZE: usize = 16;

/// The stages of a write at the leader, in nanoseconds and in their order. A stage of more than 4 seconds is stored as
/// the largest 32-bit number.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct LeaderTiming {
    /// From its arrival until the entry that it rides in was proposed.
    pub queue_ns: u32,
    /// Until the entry was in the leader's log, and on its way to the followers.
    pub append_ns: u32,
    /// Until the leader knew that a quorum has it.
    pub quorum_ns: u32,
    /// Until it was applied and its answer was there.
    pub apply_ns: u32,
}

impl LeaderTiming {
    /// The stages by name.
    #[must_use]
    pub const fn stages(&self) -> [(&'static str, u32); 4] {
        [
            ("queue", self.queue_ns),
            ("append", self.append_ns),
            ("quorum", self.quorum_ns),
            ("apply", self.apply_ns),
        ]
    }

    /// All stages together.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.stages().iter().map(|&(_, ns)| u64::from(ns)).sum()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let timing = Self {
            queue_ns: reader.u32()?,
            append_ns: reader.u32()?,
            quorum_ns: reader.u32()?,
            apply_ns: reader.u32()?,
        };
        reader.finish()?;
        Ok(timing)
    }

    pub(super) fn encode(&self, out: &mut Writer<'_>) {
        for (_, ns) in self.stages() {
            out.u32(ns);
        }
    }
}
