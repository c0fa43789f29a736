//! The receive ring: always full, re-posted in batches, read in place.

use std::sync::Arc;

use ibverbs_sys as sys;

use super::VerbsRoute;
use super::device::Device;
use super::memory::{Registered, Registry};
use super::queue_pair::QueuePair;
use super::{Immediates, VerbsConfig, VerbsError, VerbsStats};
use crate::immediate::{IMMEDIATE_BYTES, gains};
use crate::route::GRH_BYTES;
use trine_transport::backend::{RxBatch, RxPacket};

/// Datagrams taken in one burst.
const BURST_MAX: usize = 32;

/// Receive memory, its work requests, and the burst that is being read.
///
/// The places are a ring, because receives complete in the order in which they were posted. The posted ones, which the
/// device may write, are from `take_at` up to `post_at`. After them are `free` free ones. The rest, the last `held`,
/// are those of `burst` (the core reads them).
pub(super) struct ReceiveRing {
    // Holds slices of `memory`, so it is declared before it. Cleared before any of its places is
    // re-posted.
    burst: Vec<RxPacket<'static, VerbsRoute>>,
    /// Places of `burst`, and of completions that brought no datagram.
    held: usize,
    free: usize,
    /// The next place to be given to the device.
    post_at: usize,
    /// The place that completes next.
    take_at: usize,
    /// Taken off the completion queue by a poll before sleeping, not handed out yet.
    early: usize,
    completions: Box<[sys::ibv_wc; BURST_MAX]>,
    /// A work request a place, linked to that of the next place, with its element: written once.
    requests: Box<[sys::ibv_recv_wr]>,
    _elements: Box<[sys::ibv_sge]>,
    memory: Registered,
    stride: usize,
    /// Places are given back to the device when this many are free.
    batch: usize,
    qkey: u32,
    /// See [`VerbsRoute::via`].
    via: u8,
    /// A completion reported an error: the queue pair needs a restart.
    broken: bool,
}

// SAFETY: the slices in `burst` point into `memory`, the pointers in `requests` to `requests` and `_elements`: all three
// are on the heap and move along.
unsafe impl Send for ReceiveRing {}

impl ReceiveRing {
    pub(super) fn new(
        device: &Arc<Device>,
        config: &VerbsConfig,
        mtu: usize,
        via: u8,
        registry: &Registry,
    ) -> Result<Self, VerbsError> {
        let places = config.receive_queue as usize;
        let stride = (GRH_BYTES + mtu).next_multiple_of(64);
        let memory = Registered::new(device, places * stride, registry)?;
        let mut elements: Box<[_]> = (0..places)
            .map(|place| sys::ibv_sge {
                addr: place_in(&memory, place * stride, stride).expose_provenance() as u64,
                length: stride as u32,
                lkey: memory.region.key,
            })
            .collect();
        Ok(Self {
            burst: Vec::with_capacity(BURST_MAX),
            held: 0,
            free: places,
            post_at: 0,
            take_at: 0,
            early: 0,
            completions: Box::new([sys::ibv_wc::default(); BURST_MAX]),
            requests: linked(&mut elements),
            _elements: elements,
            memory,
            stride,
            batch: config.receive_batch as usize,
            qkey: config.qkey,
            via,
            broken: false,
        })
    }

    /// True after a receive completed with an error, or the device refused a place.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Releases the burst before, then takes the datagrams that have arrived; returns their number.
    #[inline]
    pub(super) fn receive(
        &mut self,
        pair: &mut QueuePair,
        immediates: &mut Immediates,
        stats: &mut VerbsStats,
    ) -> usize {
        self.release();
        if self.free >= self.batch {
            self.post_free(pair, stats);
        }
        let count = match std::mem::take(&mut self.early) {
            0 => pair.poll_receives(&mut self.completions[..]),
            early => early,
        };
        if count == 0 {
            return 0;
        }
        self.held = count;
        for completion in &self.completions[..count] {
            let place = self.take_at;
            assert!(
                completion.wr_id() == place as u64,
                "receives complete in the order in which they were posted"
            );
            self.take_at = if place + 1 == self.requests.len() {
                0
            } else {
                place + 1
            };
            let bytes = completion.len();
            if !completion.is_valid() || bytes < GRH_BYTES || bytes > self.stride {
                self.broken |= !completion.is_valid();
                continue;
            }
            let start = place_in(&self.memory, place * self.stride, self.stride);
            // SAFETY: the device has completed this place with `bytes` bytes (bounded above), and it is
            // not posted again before `release` has cleared `burst`; `memory` lives as long as `burst`,
            // and `burst()` shortens the lifetime to that of a borrow of `self`.
            let datagram: &'static [u8] = unsafe { std::slice::from_raw_parts(start, bytes) };
            stats.received_bytes += (bytes - GRH_BYTES) as u64;
            let mut packet = packet(completion, datagram, self.qkey, self.via);
            let has_immediate = completion.wc_flags.0 & sys::ibv_wc_flags::IBV_WC_WITH_IMM.0 != 0;
            if has_immediate {
                stats.receives_header_only += u64::from(packet.bytes.is_empty());
                let first = completion.imm_data.to_ne_bytes();
                if let Some(first) = immediates.on_immediate(&packet.route, first) {
                    stats.received_bytes += IMMEDIATE_BYTES as u64;
                    packet.bytes = with_front(datagram, start, first);
                }
            } else if gains(packet.bytes.len()) {
                immediates.on_plain(&packet.route);
            }
            self.burst.push(packet);
        }
        let received = self.burst.len();
        stats.receives += received as u64;
        stats.receives_failed += (count - received) as u64;
        received
    }

    /// The burst that the last `receive` took.
    pub(super) fn burst(&self) -> RxBatch<'_, VerbsRoute> {
        RxBatch::from_packets(&self.burst)
    }

    /// Checks whether something has arrived, without losing it.
    pub(super) fn peek(&mut self, pair: &mut QueuePair) -> bool {
        if self.early == 0 {
            // The burst before has been read: the event loop sleeps between turns only.
            self.release();
            self.early = pair.poll_receives(&mut self.completions[..]);
        }
        self.early > 0
    }

    /// Gives every free place to the device, with one doorbell; with a doorbell each if nothing is to be batched.
    pub(super) fn post_free(&mut self, pair: &mut QueuePair, stats: &mut VerbsStats) {
        let list_max = if self.batch == 1 { 1 } else { self.free };
        while self.free > 0 && !self.broken {
            self.post_list(pair, list_max, stats);
        }
    }

    fn post_list(&mut self, pair: &mut QueuePair, count: usize, stats: &mut VerbsStats) {
        let places = self.requests.len();
        let last = (self.post_at + count - 1) % places;
        let next = std::mem::replace(&mut self.requests[last].next, std::ptr::null_mut());
        // SAFETY: the places are in registered memory and free, so no other code uses them until
        // their completion; `memory` outlives the queue pair.
        let taken = unsafe { pair.post_receives(&mut self.requests[self.post_at], count) };
        self.requests[last].next = next;
        stats.receives_posted += taken as u64;
        stats.receive_doorbells += 1;
        self.broken |= taken < count;
        self.free -= taken;
        self.post_at = (self.post_at + taken) % places;
    }

    /// The queue pair was reset: every place is free again.
    pub(super) fn on_reset(&mut self, pair: &mut QueuePair) {
        self.release();
        self.early = 0;
        // Bounded by the queue's capacity: nothing is posted meanwhile.
        while pair.poll_receives(&mut self.completions[..]) > 0 {}
        self.free = self.requests.len();
        self.post_at = 0;
        self.take_at = 0;
        self.broken = false;
    }

    /// The burst has no reader any more: its places are free.
    #[inline]
    fn release(&mut self) {
        self.burst.clear();
        self.free += std::mem::take(&mut self.held);
    }
}

/// Puts the packet's first bytes in front of its payload, over the end of the route header. Nobody reads that any more:
/// the sender's address is known.
fn with_front(
    datagram: &'static [u8],
    start: *mut u8,
    first: [u8; IMMEDIATE_BYTES],
) -> &'static [u8] {
    let (front, length) = (GRH_BYTES - IMMEDIATE_BYTES, datagram.len());
    // SAFETY: `start` is where the datagram begins, which is longer than a route header.
    let packet = unsafe { start.add(front) };
    // SAFETY: the four bytes are inside of the datagram. `datagram`, and the packet cut from it, are not used any more:
    // the caller replaces them by what is returned.
    unsafe { packet.copy_from_nonoverlapping(first.as_ptr(), IMMEDIATE_BYTES) };
    // SAFETY: as for the datagram, whose last bytes these are.
    unsafe { std::slice::from_raw_parts(packet, length - front) }
}

/// A datagram with the global route header in front, or with the room for one.
#[inline]
fn packet(
    completion: &sys::ibv_wc,
    datagram: &'static [u8],
    qkey: u32,
    via: u8,
) -> RxPacket<'static, VerbsRoute> {
    let (header, payload) = datagram
        .split_first_chunk::<GRH_BYTES>()
        .expect("whoever completes a receive has checked its length");
    let has_header = completion.wc_flags.0 & sys::ibv_wc_flags::IBV_WC_GRH.0 != 0;
    let sender = has_header.then_some(header);
    RxPacket {
        bytes: payload,
        route: VerbsRoute::of_sender(sender, completion.slid, completion.src_qp, qkey, via),
        ecn: false,
    }
}

/// Work requests for these elements, each leading to the next and the last to the first: a list of them is cut off while
/// it is posted.
fn linked(elements: &mut [sys::ibv_sge]) -> Box<[sys::ibv_recv_wr]> {
    let mut requests = vec![sys::ibv_recv_wr::default(); elements.len()].into_boxed_slice();
    let first = requests.as_mut_ptr();
    for place in 0..elements.len() {
        let next = (place + 1) % elements.len();
        // SAFETY: `place` is less than the number of requests.
        let request = unsafe { first.add(place) };
        // SAFETY: it points to a live request, and nothing else refers to it.
        let request = unsafe { &mut *request };
        request.wr_id = place as u64;
        // SAFETY: so is `next`.
        request.next = unsafe { first.add(next) };
        request.sg_list = &raw mut elements[place];
        request.num_sge = 1;
    }
    requests
}

/// The address of `bytes` bytes at `offset`.
#[inline]
fn place_in(memory: &Registered, offset: usize, bytes: usize) -> *mut u8 {
    debug_assert!(
        offset + bytes <= memory.region.len,
        "a place beyond the ring"
    );
    // SAFETY: places are numbered below the count that the memory was made for, so the offset lies inside of it.
    unsafe { memory.region.base.add(offset) }.as_ptr()
}
