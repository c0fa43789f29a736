//! Sends: unsignaled but for one in an interval, inline where they fit, one doorbell a batch.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use ibverbs_sys as sys;

use super::address::AddressHandles;
use super::device::Device;
use super::memory::Registered;
use super::queue_pair::QueuePair;
use super::route::VerbsRoute;
use super::{VerbsConfig, VerbsError, VerbsStats};
use crate::backend::{TxBatch, TxItem};

/// Work requests in one list.
const LIST_MAX: usize = 64;
/// Bytes of a head that does not go inline: the longest header and copied body, whole cache lines.
const HEAD_BYTES_MAX: usize =
    (TxBatch::<VerbsRoute>::HEADER_MAX + TxBatch::<VerbsRoute>::COPY_MAX).next_multiple_of(64);
/// Completions taken in one poll.
const COMPLETIONS_MAX: usize = 16;
/// Polls without a completion until a wait for the device is given up.
const POLLS_MAX: u32 = 10_000_000;

/// The send half of a queue pair.
///
/// Work requests are numbered; the number is the request's id, and request `n` stages its head in
/// place `n % depth`. At most `depth` are between `completed` and `posted`, so a place is never
/// written while the device may still read it.
pub(super) struct SendQueue {
    requests: Vec<sys::ibv_send_wr>,
    /// Two entries a request: head and body. Never grows, so the requests can point into it.
    elements: Vec<[sys::ibv_sge; 2]>,
    heads: Registered,
    depth: u64,
    signal_interval: u64,
    doorbell_batching: bool,
    inline_bytes: usize,
    posted: u64,
    /// Requests before this number have completed.
    completed: u64,
    /// A completion reported an error: the queue pair needs a restart.
    broken: bool,
}

// SAFETY: the pointers in `requests` and `elements` are written and used within one call.
unsafe impl Send for SendQueue {}

impl SendQueue {
    pub(super) fn new(
        device: &Arc<Device>,
        config: &VerbsConfig,
        inline_bytes: usize,
        registrations: &AtomicU64,
    ) -> Result<Self, VerbsError> {
        let depth = config.send_queue as usize;
        Ok(Self {
            requests: vec![sys::ibv_send_wr::default(); LIST_MAX],
            elements: vec![[sys::ibv_sge::default(); 2]; LIST_MAX],
            heads: Registered::new(device, depth * HEAD_BYTES_MAX, registrations)?,
            depth: depth as u64,
            signal_interval: u64::from(config.signal_interval),
            doorbell_batching: config.doorbell_batching,
            inline_bytes: inline_bytes.min(config.inline_bytes as usize),
            posted: 0,
            completed: 0,
            broken: false,
        })
    }

    /// True after a send completed with an error.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Posts the whole batch. The memory of referred bodies stays as long as the core's buffers do.
    pub(super) fn send(
        &mut self,
        pair: &mut QueuePair,
        addresses: &mut AddressHandles,
        tx: &TxBatch<VerbsRoute>,
        stats: &mut VerbsStats,
    ) {
        let list_max = if self.doorbell_batching { LIST_MAX } else { 1 };
        let mut count = 0;
        for item in tx.iter() {
            if addresses.is_full() && !addresses.has(&item.route) {
                self.post(pair, count, stats);
                count = 0;
                self.flush(pair, addresses, stats);
            }
            // No handle: the device cannot reach this place, as if the packet were lost.
            let Some(address) = addresses.get(&item.route) else {
                stats.sends_refused += 1;
                continue;
            };
            self.describe(count, address, &item);
            count += 1;
            if count == list_max {
                self.post(pair, count, stats);
                count = 0;
            }
        }
        self.post(pair, count, stats);
    }

    /// Fills in the work request at `index` of the list, which will have the number `posted + index`.
    fn describe(&mut self, index: usize, address: *mut sys::ibv_ah, item: &TxItem<'_, VerbsRoute>) {
        let number = self.posted + index as u64;
        let goes_inline = item.body.is_none() && item.head.len() <= self.inline_bytes;
        let signaled = (number + 1).is_multiple_of(self.signal_interval);
        let head = if goes_inline {
            (item.head.as_ptr().expose_provenance() as u64, 0)
        } else {
            (self.stage(index, number, item.head), self.heads.region.key)
        };
        let element = |(addr, lkey), length: usize| sys::ibv_sge {
            addr,
            length: length as u32,
            lkey,
        };
        self.elements[index][0] = element(head, item.head.len());
        if let Some(body) = item.body {
            let at = body.as_ptr().expose_provenance() as u64;
            self.elements[index][1] = element((at, body.region().key), body.len());
        }
        let flags = sys::ibv_send_flags(0)
            | if goes_inline {
                sys::ibv_send_flags::IBV_SEND_INLINE
            } else {
                sys::ibv_send_flags(0)
            }
            | if signaled {
                sys::ibv_send_flags::IBV_SEND_SIGNALED
            } else {
                sys::ibv_send_flags(0)
            };
        let request = &mut self.requests[index];
        request.wr_id = number;
        request.next = std::ptr::null_mut();
        request.sg_list = self.elements[index].as_mut_ptr();
        request.num_sge = 1 + i32::from(item.body.is_some());
        request.opcode = sys::ibv_wr_opcode::IBV_WR_SEND;
        request.send_flags = flags.0;
        request.wr.ud = sys::ibv_send_wr__bindgen_ty_2__bindgen_ty_3 {
            ah: address,
            remote_qpn: item.route.queue_pair,
            remote_qkey: item.route.qkey,
        };
    }

    /// Copies a head to where the device can read it; its address. Waits for nothing: `post` makes
    /// sure of room before it hands requests over, but the place must be free already now.
    fn stage(&mut self, index: usize, number: u64, head: &[u8]) -> u64 {
        debug_assert!(
            index as u64 + self.posted == number,
            "a request's number is its place in the list"
        );
        assert!(head.len() <= HEAD_BYTES_MAX, "the batch bounds heads");
        let place = (number % self.depth) as usize * HEAD_BYTES_MAX;
        // SAFETY: `place + HEAD_BYTES_MAX` lies within the `depth * HEAD_BYTES_MAX` bytes.
        let target = unsafe { self.heads.region.base.add(place) };
        // SAFETY: `head` fits; the device does not read this place: `ensure_room` held for a whole
        // list when the last list was posted, so request `number - depth` has completed.
        unsafe {
            target
                .as_ptr()
                .copy_from_nonoverlapping(head.as_ptr(), head.len())
        };
        target.as_ptr().expose_provenance() as u64
    }

    /// Hands the first `count` requests over with one doorbell, then makes room for the next list.
    fn post(&mut self, pair: &mut QueuePair, count: usize, stats: &mut VerbsStats) {
        if count == 0 {
            return;
        }
        let first = self.requests.as_mut_ptr();
        for index in 1..count {
            // SAFETY: `index` is less than `count`, which is at most the length of `requests`.
            let next = unsafe { first.add(index) };
            self.requests[index - 1].next = next;
        }
        for request in &self.requests[..count] {
            let has = |flag: sys::ibv_send_flags| u64::from(request.send_flags & flag.0 != 0);
            stats.sends_signaled += has(sys::ibv_send_flags::IBV_SEND_SIGNALED);
            stats.sends_inline += has(sys::ibv_send_flags::IBV_SEND_INLINE);
        }
        // SAFETY: heads are staged in registered memory for `depth` requests or inline and alive in
        // the batch; bodies lie in the pool's registered memory, which outlives the queue pair.
        let taken = unsafe { pair.post_sends(&mut self.requests[0], count) };
        stats.sends += taken as u64;
        stats.sends_refused += (count - taken) as u64;
        stats.send_doorbells += 1;
        self.posted += taken as u64;
        self.broken |= taken < count;
        self.ensure_room(pair, stats);
    }

    /// Waits until a whole list fits, so that staging it touches nothing the device still reads.
    fn ensure_room(&mut self, pair: &mut QueuePair, stats: &mut VerbsStats) {
        let list = LIST_MAX as u64;
        for _ in 0..POLLS_MAX {
            if self.posted - self.completed + list <= self.depth || self.broken {
                return;
            }
            self.take_completions(pair, stats);
        }
        self.broken = true;
    }

    fn take_completions(&mut self, pair: &mut QueuePair, stats: &mut VerbsStats) {
        let mut completions = [sys::ibv_wc::default(); COMPLETIONS_MAX];
        let count = pair.poll_sends(&mut completions);
        for completion in &completions[..count] {
            if completion.is_valid() {
                self.completed = self.completed.max(completion.wr_id() + 1);
            } else {
                stats.sends_failed += 1;
                self.broken = true;
            }
        }
    }

    /// Waits until the device has read everything posted: sends complete in order, so the
    /// completion of one more says so. That one goes to this queue pair itself under a key it does
    /// not accept, and is dropped there.
    pub(super) fn flush(
        &mut self,
        pair: &mut QueuePair,
        addresses: &mut AddressHandles,
        stats: &mut VerbsStats,
    ) {
        if self.posted == self.completed || self.broken {
            return;
        }
        let Some((own, handle)) = addresses.own(pair.number()) else {
            self.broken = true;
            return;
        };
        let head = [0u8];
        self.describe(
            0,
            handle,
            &TxItem {
                route: own,
                head: &head,
                body: None,
            },
        );
        self.requests[0].send_flags |= sys::ibv_send_flags::IBV_SEND_SIGNALED.0;
        self.post(pair, 1, stats);
        stats.flushes += 1;
        let last = self.posted;
        for _ in 0..POLLS_MAX {
            if self.completed >= last || self.broken {
                return;
            }
            self.take_completions(pair, stats);
        }
        self.broken = true;
    }

    /// The queue pair was reset: the device has forgotten whatever was posted.
    pub(super) fn on_reset(&mut self, pair: &mut QueuePair) {
        let mut completions = [sys::ibv_wc::default(); COMPLETIONS_MAX];
        // Bounded by the queue's capacity: nothing posts meanwhile.
        while pair.poll_sends(&mut completions) > 0 {}
        self.completed = self.posted;
        self.broken = false;
    }
}
