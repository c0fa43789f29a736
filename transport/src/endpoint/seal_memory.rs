//! Memory for sealing and opening packets.

use super::chains::Chains;
use crate::backend::{Route, TxBatch};
use crate::wire::{OpenedPackets, RunSealer};

/// Memory of the two steps, reused from packet to packet.
pub(super) struct SealMemory<R> {
    /// Packets that wait to be sealed.
    pub(super) unsealed: TxBatch<R>,
    pub(super) chains: Chains,
    pub(super) sealer: RunSealer,
    pub(super) opened: OpenedPackets,
}

impl<R: Route> SealMemory<R> {
    pub(super) fn new(tag_per_run: bool) -> Self {
        Self {
            unsealed: TxBatch::with_capacity(0),
            chains: Chains::new(),
            sealer: RunSealer::new(tag_per_run),
            opened: OpenedPackets::default(),
        }
    }
}
