//! One queue pair of an endpoint with the parts that belong to it alone: its sends, its receive ring, its recovery.

use std::sync::Arc;

use super::address::AddressHandles;
use super::channel::Channel;
use super::device::Device;
use super::memory::Registry;
use super::queue_pair::{Capacity, QueuePair};
use super::receive::ReceiveRing;
use super::send::SendQueue;
use super::{Immediates, VerbsConfig, VerbsError, VerbsStats};

/// Times a broken queue pair is restarted without a datagram received in between.
pub(super) const RESTARTS_MAX: u32 = 16;

/// A queue pair that sends and receives.
pub(super) struct QueuePairState {
    // The queue pair goes first: the device then uses none of the memory below any more.
    pub(super) pair: QueuePair,
    pub(super) send: SendQueue,
    pub(super) receive: ReceiveRing,
    capacity: Capacity,
    /// Restarts since the last datagram.
    restarts_in_vain: u32,
}

impl QueuePairState {
    /// `via` is the index of this queue pair among those of its endpoint.
    pub(super) fn new(
        device: &Arc<Device>,
        channel: &Arc<Channel>,
        config: &VerbsConfig,
        mtu: usize,
        via: u8,
        registry: &Registry,
    ) -> Result<Self, VerbsError> {
        let capacity = Capacity {
            sends: config.send_queue,
            receives: config.receive_queue,
            inline_bytes: config.inline_bytes,
            qkey: config.qkey,
            psn: 0,
        };
        let pair = QueuePair::new(device, channel, capacity)?;
        let send = SendQueue::new(device, config, pair.inline_bytes, via, registry)?;
        let receive = ReceiveRing::new(device, config, mtu, via, registry)?;
        Ok(Self {
            pair,
            send,
            receive,
            capacity,
            restarts_in_vain: 0,
        })
    }

    /// Fills the receive ring for the first time.
    pub(super) fn fill(&mut self, stats: &mut VerbsStats) {
        self.receive.post_free(&mut self.pair, stats);
    }

    /// Takes the datagrams that have arrived; returns their number. A broken queue pair is restarted, and the burst
    /// before the error is lost with it: a restart is rare, and packets may be lost.
    #[inline]
    pub(super) fn receive(
        &mut self,
        immediates: &mut Immediates,
        stats: &mut VerbsStats,
    ) -> Result<usize, Box<VerbsError>> {
        let count = self.receive.receive(&mut self.pair, immediates, stats);
        if self.receive.is_broken() || self.send.is_broken() {
            self.restart(stats)?;
            return Ok(0);
        }
        if count > 0 {
            self.restarts_in_vain = 0;
        }
        Ok(count)
    }

    /// Waits until the device has read all that was posted. A broken queue pair is reset at once: only then has the
    /// device forgotten the posted requests.
    pub(super) fn flush(&mut self, addresses: &mut AddressHandles, stats: &mut VerbsStats) {
        self.send.flush(&mut self.pair, addresses, stats);
        if self.send.is_broken() {
            // If that fails the queue pair stays broken, and the next receive says so.
            let _failed = self.restart(stats);
        }
    }

    /// Brings a broken queue pair back to work under the same number. Posted requests are lost, as on the wire; the
    /// sessions retransmit.
    #[cold]
    fn restart(&mut self, stats: &mut VerbsStats) -> Result<(), Box<VerbsError>> {
        self.restarts_in_vain += 1;
        stats.restarts += 1;
        if self.restarts_in_vain > RESTARTS_MAX {
            return Err(Box::new(VerbsError::QueuePairDead {
                number: self.pair.number(),
                restarts: RESTARTS_MAX,
            }));
        }
        self.pair.reset()?;
        self.send.on_reset(&mut self.pair);
        self.receive.on_reset(&mut self.pair);
        self.pair.start(self.capacity)?;
        self.receive.post_free(&mut self.pair, stats);
        Ok(())
    }
}
