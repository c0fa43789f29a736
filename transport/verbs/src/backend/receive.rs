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
            // SAFETY: the device has completed this place with `bytes` bytes (bounded above), and it is not posted again
            // before `release` has cleared `burst`. So nobody writes it, and the reference ends with this statement.
            let header: &[u8; GRH_BYTES] = unsafe { &*start.cast() };
            let route = sender(completion, header, self.qkey, self.via);
            let front = front_of(completion, &route, bytes - GRH_BYTES, immediates, stats);
            // SAFETY: as above, and nothing refers to the header any more. `memory` lives as long as `burst`, and
            // `burst()` shortens the lifetime to that of a borrow of `self`.
            let packet: &'static [u8] = unsafe { packet_at(start, bytes, front) };
            stats.received_bytes += packet.len() as u64;
            self.burst.push(RxPacket {
                bytes: packet,
                route,
                ecn: false,
            });
        }
        let received = self.burst.len();
        stats.receives += received as u64;
        stats.receives_failed += (count - received) as u64;
        received
    }

    /// Leaves out of the burst what `keep` does not want, which may also shorten packets.
    pub(super) fn retain(
        &mut self,
        keep: impl FnMut(&mut RxPacket<'static, VerbsRoute>) -> bool,
    ) -> usize {
        self.burst.retain_mut(keep);
        self.burst.len()
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

/// The packet's first bytes, if the sender put them into the immediate. `payload` is the length of the others.
#[inline]
fn front_of(
    completion: &sys::ibv_wc,
    route: &VerbsRoute,
    payload: usize,
    immediates: &mut Immediates,
    stats: &mut VerbsStats,
) -> Option<[u8; IMMEDIATE_BYTES]> {
    if completion.wc_flags.0 & sys::ibv_wc_flags::IBV_WC_WITH_IMM.0 != 0 {
        stats.receives_header_only += u64::from(payload == 0);
        return immediates.on_immediate(route, completion.imm_data.to_ne_bytes());
    }
    if gains(payload) {
        immediates.on_plain(route);
    }
    None
}

/// The packet in the datagram of `bytes` bytes at `start`. Its first bytes may have come apart: they are put in front of
/// the payload, over the end of the route header. Nobody reads that any more, because the sender's address is known.
///
/// # Safety
///
/// The datagram is at least as long as a route header. Until the packet is not used any more nobody else writes it, and
/// nobody refers to it now.
#[inline]
unsafe fn packet_at(
    start: *mut u8,
    bytes: usize,
    front: Option<[u8; IMMEDIATE_BYTES]>,
) -> &'static [u8] {
    let in_front = front.map_or(0, |first| first.len());
    // SAFETY: the place lies in the route header or directly behind it, so inside of the datagram.
    let packet = unsafe { start.add(GRH_BYTES - in_front) };
    if let Some(first) = front {
        // SAFETY: the bytes are the last of the route header, and by the caller's promise nobody refers to them.
        unsafe { packet.copy_from_nonoverlapping(first.as_ptr(), first.len()) };
    }
    // SAFETY: these are the datagram's last bytes, which the caller keeps unchanged.
    unsafe { std::slice::from_raw_parts(packet, bytes - GRH_BYTES + in_front) }
}

/// Who sent a datagram with the global route header in front, or with the room for one.
#[inline]
fn sender(completion: &sys::ibv_wc, header: &[u8; GRH_BYTES], qkey: u32, via: u8) -> VerbsRoute {
    let has_header = completion.wc_flags.0 & sys::ibv_wc_flags::IBV_WC_GRH.0 != 0;
    let header = has_header.then_some(header);
    VerbsRoute::of_sender(header, completion.slid, completion.src_qp, qkey, via)
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
