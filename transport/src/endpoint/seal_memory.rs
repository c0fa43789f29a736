//! Memory for sealing and opening packets.

use crate::backend::{Route, TxBatch};
use crate::wire::{Opened, RunSealer};

/// Memory of the two steps, reused from packet to packet.
pub(super) struct SealMemory<R> {
    /// Packets that wait to be sealed.
    pub(super) unsealed: TxBatch<R>,
    pub(super) sealer: RunSealer,
    pub(super) opened: Opened,
}

impl<R: Route> SealMemory<R> {
    pub(super) fn new() -> Self {
        Self {
            unsealed: TxBatch::with_capacity(0),
            sealer: RunSealer::default(),
            opened: Opened::default(),
        }
    }
}
