//! The client's end of a connection: unsignaled inline writes, of which one in sixteen asks for a completion, and READs
//! into a buffer of its own, which all do.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;

use ibverbs_sys as sys;

use super::connected_pair::{CompletionQueue, ConnectedPair, OtherEnd, PairConfig, PairPurpose};
use super::remote_memory::{RemoteMemory, SlotsOf};
use crate::backend::VerbsError;
use crate::backend::device::Device;
use crate::backend::error::ConnectionFault;
use crate::backend::memory::{Access, Registry};
use crate::config::SLOTS;
use crate::one_sided::{
    ANSWER_BYTES, Area, ConnectionOffer, Fetched, Grant, SLOT_BYTES, Slots, Written,
};
use crate::one_sided_path::OneSidedPath;
use crate::route::VerbsRoute;

/// Writes that the device may have in hand: eight sessions' worth.
const DEPTH: u64 = 64;
/// One write in so many asks for a completion.
const SIGNAL_INTERVAL: u64 = 16;
/// Completions taken in one poll.
const COMPLETIONS_MAX: usize = 16;
/// The first packet of every connection: each begins at RESET.
const FIRST_PSN: u32 = 0;
const SIGNALED: u32 = sys::ibv_send_flags::IBV_SEND_SIGNALED.0;
/// The bits of a work request's id that number the write; the queue pair's own number is above them.
const WRITE_BITS: u32 = 40;

const _: () = assert!(
    2 * SIGNAL_INTERVAL <= DEPTH,
    "completions come before the queue is full"
);

pub(super) struct ClientEnd {
    pair: ConnectedPair,
    /// Writes that the device took.
    posted: u64,
    /// Those before this number have completed.
    completed: u64,
    signaled: u64,
    /// The READs of which nobody was told that they have completed, in their order.
    reads: VecDeque<u64>,
    /// Where READs put the bytes: all slots of answers. It goes after the queue pair.
    buffer: Option<RemoteMemory>,
    /// The first completion with an error, or [`REFUSED`].
    failure: Option<u32>,
    /// Keeps the memory's protection domain.
    _device: Arc<Device>,
}

/// The device did not take a request.
const REFUSED: u32 = u32::MAX;

impl ClientEnd {
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
        registry: &Registry,
        path: OneSidedPath,
    ) -> Result<Self, VerbsError> {
        let shape = PairConfig {
            purpose: PairPurpose::Path(path),
            domain: device.domain(),
            sends: DEPTH as u32,
            inline_bytes: SLOT_BYTES as u32,
        };
        let pair = ConnectedPair::new(device, completions, shape)?;
        let buffer = match path {
            OneSidedPath::Herd => None,
            OneSidedPath::Rfp => {
                let domain = NonNull::new(device.domain()).expect("an open device has a domain");
                let memory =
                    RemoteMemory::new(domain, SLOTS * ANSWER_BYTES, Access::Local, registry)?;
                Some(memory)
            }
        };
        Ok(Self {
            pair,
            posted: 0,
            completed: 0,
            signaled: 0,
            reads: VecDeque::with_capacity(SLOTS),
            buffer,
            failure: None,
            _device: Arc::clone(device),
        })
    }

    pub(super) fn wish(&self) -> ConnectionOffer {
        ConnectionOffer {
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
        let element = sys::ibv_sge {
            addr: bytes.as_ptr().expose_provenance() as u64,
            length: bytes.len() as u32,
            lkey: 0,
        };
        let asks = (self.posted + 1).is_multiple_of(SIGNAL_INTERVAL);
        let mut flags = sys::ibv_send_flags::IBV_SEND_INLINE.0;
        if asks {
            flags |= SIGNALED;
        }
        let request = sys::ibv_send_wr {
            opcode: sys::ibv_wr_opcode::IBV_WR_RDMA_WRITE,
            send_flags: flags,
            ..to_area(&grant.requests, offset)
        };
        // SAFETY: the request is inline, and its element is `bytes`, alive during the call.
        let written = unsafe { self.post(request, element) };
        self.signaled += u64::from(asks && written == Written::Done);
        written
    }

    /// READs bytes from .. to of a slot, to the same place of the own buffer.
    #[inline]
    pub(super) fn fetch(
        &mut self,
        grant: &Grant,
        slot: usize,
        (from, to): (usize, usize),
    ) -> Written {
        assert!(
            slot < SLOTS && from < to && to <= ANSWER_BYTES && self.reads.len() < SLOTS,
            "a READ of bytes that a slot has, and no more READs than slots"
        );
        let place = slot * ANSWER_BYTES + from;
        let Some(buffer) = &self.buffer else {
            return Written::Broken;
        };
        let element = sys::ibv_sge {
            addr: buffer.address(place),
            length: (to - from) as u32,
            lkey: buffer.local_key(),
        };
        let request = sys::ibv_send_wr {
            opcode: sys::ibv_wr_opcode::IBV_WR_RDMA_READ,
            send_flags: SIGNALED,
            ..to_area(&grant.answers, place)
        };
        let number = self.posted;
        // SAFETY: a READ, into the buffer, which is registered and as old as this end. It has no references into it, and
        // is read by volatile loads once the READ has completed.
        let written = unsafe { self.post(request, element) };
        if written == Written::Done {
            self.reads.push_back(number);
        }
        written
    }

    /// # Safety
    ///
    /// As for [`ConnectedPair::post`].
    #[inline]
    unsafe fn post(&mut self, mut request: sys::ibv_send_wr, mut element: sys::ibv_sge) -> Written {
        if self.failure.is_some() {
            return Written::Broken;
        }
        if !self.has_room() {
            return Written::Full;
        }
        request.wr_id = u64::from(self.pair.number()) << WRITE_BITS | self.posted;
        request.sg_list = &raw mut element;
        request.num_sge = 1;
        // SAFETY: by the caller's promise.
        if !unsafe { self.pair.post(&mut request) } {
            self.failure = Some(REFUSED);
            return Written::Broken;
        }
        self.posted += 1;
        Written::Done
    }

    /// Whether the oldest READ has completed, or can no more, as far as completions were taken.
    #[inline]
    pub(super) fn has_fetched(&self) -> bool {
        let oldest = self.reads.front();
        self.failure.is_some() || oldest.is_some_and(|read| *read < self.completed)
    }

    /// What has become of the oldest READ, as far as completions were taken.
    #[inline]
    pub(super) fn fetched(&mut self) -> Fetched {
        if self.failure.is_some() {
            return Fetched::Broken;
        }
        if !self.has_fetched() {
            return Fetched::Pending;
        }
        self.reads.pop_front();
        Fetched::Done
    }

    pub(super) fn buffer(&self) -> Option<impl Slots> {
        self.buffer.as_ref().map(|memory| SlotsOf {
            memory,
            slot_bytes: ANSWER_BYTES,
        })
    }

    /// Why the queue pair does not work any more.
    pub(super) fn failure(&self) -> Option<ConnectionFault> {
        Some(ConnectionFault::of_status(self.failure?))
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
                match completion.error() {
                    None => {
                        end.completed = end.completed.max(write + 1);
                    }
                    Some((status, _)) => {
                        end.failure.get_or_insert(status);
                    }
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
        self.reads.clear();
        self.failure = None;
    }
}

fn to_area(area: &Area, offset: usize) -> sys::ibv_send_wr {
    let mut request = sys::ibv_send_wr::default();
    request.wr.rdma = sys::ibv_send_wr__bindgen_ty_2__bindgen_ty_1 {
        remote_addr: area.address.wrapping_add(offset as u64),
        rkey: area.rkey,
    };
    request
}
