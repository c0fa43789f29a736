//! The receive ring: always full, re-posted in batches, read in place.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use ibverbs_sys as sys;

use super::device::Device;
use super::memory::Registered;
use super::queue_pair::QueuePair;
use super::route::{GRH_BYTES, VerbsRoute};
use super::{VerbsConfig, VerbsError, VerbsStats};
use crate::backend::{RxBatch, RxPacket};

/// Datagrams taken in one burst.
const BURST_MAX: usize = 32;
/// Places are given back to the device when this many are free: one doorbell for all of them.
const REPOST_BATCH: usize = 16;

/// Receive memory, its work requests, and the burst that is being read.
///
/// Every place is in exactly one of three states: posted (the device may write it), in `burst`
/// (the core reads it), or in `free`.
pub(super) struct ReceiveRing {
    // Holds slices of `memory`; stands before it. Cleared before any of its places is re-posted.
    burst: Vec<RxPacket<'static, VerbsRoute>>,
    /// Places of `burst`.
    burst_places: Vec<u32>,
    free: Vec<u32>,
    /// Taken off the completion queue by a look before sleeping, not handed out yet.
    early: usize,
    completions: Vec<sys::ibv_wc>,
    requests: Vec<sys::ibv_recv_wr>,
    elements: Vec<sys::ibv_sge>,
    memory: Registered,
    stride: usize,
    qkey: u32,
    /// A completion reported an error: the queue pair needs a restart.
    broken: bool,
}

// SAFETY: the slices in `burst` point into `memory`, which moves along; the pointers in `requests`
// are written and used within one call.
unsafe impl Send for ReceiveRing {}

impl ReceiveRing {
    pub(super) fn new(
        device: &Arc<Device>,
        config: &VerbsConfig,
        mtu: usize,
        registrations: &AtomicU64,
    ) -> Result<Self, VerbsError> {
        let places = config.receive_queue as usize;
        let stride = (GRH_BYTES + mtu).next_multiple_of(64);
        Ok(Self {
            burst: Vec::with_capacity(BURST_MAX),
            burst_places: Vec::with_capacity(BURST_MAX),
            free: (0..config.receive_queue).collect(),
            early: 0,
            completions: vec![sys::ibv_wc::default(); BURST_MAX],
            requests: vec![sys::ibv_recv_wr::default(); places],
            elements: vec![sys::ibv_sge::default(); places],
            memory: Registered::new(device, places * stride, registrations)?,
            stride,
            qkey: config.qkey,
            broken: false,
        })
    }

    /// True after a receive completed with an error, or the device refused a place.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Releases the burst before, then takes what has arrived.
    pub(super) fn receive(&mut self, pair: &mut QueuePair, stats: &mut VerbsStats) {
        self.release();
        if self.free.len() >= REPOST_BATCH {
            self.post_free(pair, stats);
        }
        let count = match std::mem::take(&mut self.early) {
            0 => pair.poll_receives(&mut self.completions),
            early => early,
        };
        for index in 0..count {
            let completion = self.completions[index];
            self.take(&completion, stats);
        }
    }

    /// The burst that the last `receive` took.
    pub(super) fn burst(&self) -> RxBatch<'_, VerbsRoute> {
        RxBatch::from_packets(&self.burst)
    }

    /// Looks whether something has arrived, without losing it.
    pub(super) fn peek(&mut self, pair: &mut QueuePair) -> bool {
        if self.early == 0 {
            // The burst before has been read: the event loop sleeps between turns only.
            self.early = pair.poll_receives(&mut self.completions);
        }
        self.early > 0
    }

    /// Gives every free place to the device, with one doorbell.
    pub(super) fn post_free(&mut self, pair: &mut QueuePair, stats: &mut VerbsStats) {
        let count = self.free.len();
        if count == 0 {
            return;
        }
        let first = self.requests.as_mut_ptr();
        for index in 0..count {
            let place = self.free[index];
            self.elements[index] = sys::ibv_sge {
                addr: self.place(place).expose_provenance() as u64,
                length: self.stride as u32,
                lkey: self.memory.region.key,
            };
            let next = if index + 1 == count {
                std::ptr::null_mut()
            } else {
                // SAFETY: `index + 1` is less than `count`, at most the length of `requests`.
                unsafe { first.add(index + 1) }
            };
            let request = &mut self.requests[index];
            request.wr_id = u64::from(place);
            request.next = next;
            request.sg_list = &raw mut self.elements[index];
            request.num_sge = 1;
        }
        // SAFETY: the places are in registered memory and free, so nobody else uses them until
        // their completion; `memory` outlives the queue pair.
        let taken = unsafe { pair.post_receives(&mut self.requests[0], count) };
        stats.receives_posted += taken as u64;
        stats.receive_doorbells += 1;
        self.broken |= taken < count;
        self.free.drain(..taken);
    }

    /// The queue pair was reset: every place is free again.
    pub(super) fn on_reset(&mut self, pair: &mut QueuePair) {
        self.release();
        self.early = 0;
        // Bounded by the queue's capacity: nothing is posted meanwhile.
        while pair.poll_receives(&mut self.completions) > 0 {}
        self.free.clear();
        self.free.extend(0..self.requests.len() as u32);
        self.broken = false;
    }

    fn release(&mut self) {
        self.burst.clear();
        self.free.append(&mut self.burst_places);
    }

    fn take(&mut self, completion: &sys::ibv_wc, stats: &mut VerbsStats) {
        let place = completion.wr_id() as u32;
        assert!(
            (place as usize) < self.requests.len(),
            "a completion for a place that was never posted"
        );
        let bytes = completion.len();
        if !completion.is_valid() || bytes < GRH_BYTES || bytes > self.stride {
            stats.receives_failed += 1;
            self.broken |= !completion.is_valid();
            self.free.push(place);
            return;
        }
        let start = self.place(place);
        // SAFETY: the device has completed this place with `bytes` bytes (bounded above), and it is
        // not posted again before `release` has cleared `burst`; `memory` lives as long as `burst`,
        // and `burst()` shortens the lifetime to that of a borrow of `self`.
        let datagram: &'static [u8] = unsafe { std::slice::from_raw_parts(start, bytes) };
        let (header, payload) = datagram
            .split_first_chunk::<GRH_BYTES>()
            .expect("checked above");
        let has_header = completion.wc_flags.0 & sys::ibv_wc_flags::IBV_WC_GRH.0 != 0;
        let route = VerbsRoute::of_sender(
            has_header.then_some(header),
            completion.slid,
            completion.src_qp,
            self.qkey,
        );
        stats.receives += 1;
        self.burst.push(RxPacket {
            bytes: payload,
            route,
            ecn: false,
        });
        self.burst_places.push(place);
    }

    fn place(&self, place: u32) -> *mut u8 {
        let offset = place as usize * self.stride;
        debug_assert!(
            offset + self.stride <= self.memory.region.len,
            "a place beyond the ring"
        );
        // SAFETY: `place` is less than the number of places, so the offset lies in the memory.
        unsafe { self.memory.region.base.add(offset) }.as_ptr()
    }
}
