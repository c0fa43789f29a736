//! The client's end of a connection: unsignaled inline writes, of which one in sixteen asks for a completion.

use std::sync::Arc;

use ibverbs_sys as sys;

use super::connected_pair::{CompletionQueue, ConnectedPair, OtherEnd, Shape};
use crate::backend::VerbsError;
use crate::backend::device::Device;
use crate::herd::{Grant, SLOT_BYTES, Wish, Written};
use crate::route::VerbsRoute;

/// Writes that the device may have in hand: eight sessions' worth.
const DEPTH: u64 = 64;
/// One write in so many asks for a completion.
const SIGNAL_INTERVAL: u64 = 16;
/// Completions taken in one poll.
const COMPLETIONS_MAX: usize = 16;
/// The first packet of every connection: each begins at RESET.
const FIRST_PSN: u32 = 0;
/// The bits of a work request's id that number the write; the queue pair's own number is above them.
const WRITE_BITS: u32 = 40;

const _: () = assert!(
    2 * SIGNAL_INTERVAL <= DEPTH,
    "completions come before the queue is full"
);

pub(super) struct OutgoingEnd {
    pair: ConnectedPair,
    /// Writes that the device took.
    posted: u64,
    /// Those before this number have completed.
    completed: u64,
    signaled: u64,
    is_broken: bool,
}

impl OutgoingEnd {
    /// A queue that has room for all that `count` ends can leave in it, an error each included.
    pub(super) fn completions(
        device: &Arc<Device>,
        count: u16,
    ) -> Result<CompletionQueue, VerbsError> {
        let ends = usize::from(count).max(1);
        CompletionQueue::new(device, ends * DEPTH as usize)
    }

    pub(super) fn new(
        device: &Arc<Device>,
        completions: &CompletionQueue,
    ) -> Result<Self, VerbsError> {
        let shape = Shape {
            domain: device.domain(),
            sends: DEPTH as u32,
            inline_bytes: SLOT_BYTES as u32,
        };
        Ok(Self {
            pair: ConnectedPair::new(device, completions, shape)?,
            posted: 0,
            completed: 0,
            signaled: 0,
            is_broken: false,
        })
    }

    pub(super) fn wish(&self) -> Wish {
        Wish {
            queue_pair: self.pair.number(),
            psn: FIRST_PSN,
        }
    }

    pub(super) fn signaled(&self) -> u64 {
        self.signaled
    }

    pub(super) fn connect(&self, route: &VerbsRoute, grant: &Grant) -> Result<(), VerbsError> {
        let other = OtherEnd {
            route,
            queue_pair: grant.queue_pair,
            psn: FIRST_PSN,
        };
        self.pair.receive_from(other)?;
        self.pair.send_from(FIRST_PSN)
    }

    pub(super) fn fail(&self) -> Result<(), VerbsError> {
        self.pair.fail()
    }

    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.posted - self.completed < DEPTH
    }

    /// The device copies the bytes before this returns.
    #[inline]
    pub(super) fn write(&mut self, grant: &Grant, offset: usize, bytes: &[u8]) -> Written {
        if self.is_broken {
            return Written::Broken;
        }
        if !self.has_room() {
            return Written::Full;
        }
        let mut element = sys::ibv_sge {
            addr: bytes.as_ptr().expose_provenance() as u64,
            length: bytes.len() as u32,
            lkey: 0,
        };
        let asks = (self.posted + 1).is_multiple_of(SIGNAL_INTERVAL);
        let mut flags = sys::ibv_send_flags::IBV_SEND_INLINE.0;
        if asks {
            flags |= sys::ibv_send_flags::IBV_SEND_SIGNALED.0;
        }
        let mut request = sys::ibv_send_wr {
            wr_id: u64::from(self.pair.number()) << WRITE_BITS | self.posted,
            sg_list: &raw mut element,
            num_sge: 1,
            opcode: sys::ibv_wr_opcode::IBV_WR_RDMA_WRITE,
            send_flags: flags,
            ..Default::default()
        };
        request.wr.rdma = sys::ibv_send_wr__bindgen_ty_2__bindgen_ty_1 {
            remote_addr: grant.address.wrapping_add(offset as u64),
            rkey: grant.rkey,
        };
        // SAFETY: the request is inline, and its element is `bytes`, alive during the call.
        if !unsafe { self.pair.post(&mut request) } {
            self.is_broken = true;
            return Written::Broken;
        }
        self.posted += 1;
        self.signaled += u64::from(asks);
        Written::Done
    }

    /// Hands completions to the ends that they belong to. Bounded by the queue: nothing is posted meanwhile.
    pub(super) fn take_completions(ends: &mut [Self], completions: &CompletionQueue) {
        let mut taken = [sys::ibv_wc::default(); COMPLETIONS_MAX];
        loop {
            let count = completions.poll(&mut taken);
            for completion in &taken[..count] {
                let number = completion.wr_id() >> WRITE_BITS;
                let write = completion.wr_id() & ((1 << WRITE_BITS) - 1);
                let is_its = |end: &&mut Self| u64::from(end.pair.number()) == number;
                let Some(end) = ends.iter_mut().find(is_its) else {
                    continue;
                };
                if completion.is_valid() {
                    end.completed = end.completed.max(write + 1);
                } else {
                    end.is_broken = true;
                }
            }
            if count < taken.len() {
                return;
            }
        }
    }

    pub(super) fn reset(&self) -> Result<(), VerbsError> {
        self.pair.reset()
    }

    /// The device has no write of this end any more.
    pub(super) fn forget(&mut self) {
        self.completed = self.posted;
        self.is_broken = false;
    }
}
