//! Sends: unsignaled but for one in an interval, inline where they fit, one doorbell a batch.

use std::sync::Arc;

use ibverbs_sys as sys;

use super::VerbsRoute;
use super::address::{AddressHandles, Handle};
use super::device::Device;
use super::memory::{Registered, Registry};
use super::queue_pair::QueuePair;
use super::{OneSidedConfig, VerbsConfig, VerbsError, VerbsStats};
use crate::immediate::{IMMEDIATE_BYTES, Immediate, gathered_lines, inline_lines};
use crate::one_sided::ANSWER_BYTES;
use crate::one_sided_path::OneSidedPath;
use trine_transport::backend::{TxBatch, TxItem};
use trine_transport::buf::BodyRef;

/// Work requests in one list.
const LIST_MAX: usize = 64;
/// Bytes of a head that does not go inline: the longest header and copied body, whole cache lines. Sealed packets are
/// heads as a whole.
const HEAD_BYTES: usize =
    (TxBatch::<VerbsRoute>::HEADER_MAX + TxBatch::<VerbsRoute>::COPY_MAX).next_multiple_of(64);
/// The lower bits of the stamp in front of a body, for the number of the request; the queue pair is above them.
const STAMP_BITS: u32 = 56;
const STAMP_MASK: u64 = (1 << STAMP_BITS) - 1;
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
    /// Linked and pointing to their elements once and for all: see [`SendQueue::link`].
    list: Box<[SendRequest; LIST_MAX]>,
    heads: Registered,
    /// Bytes of the place of a head.
    head_bytes: usize,
    depth: u64,
    signal_interval: u32,
    /// Requests until the next one that asks for a completion, 1 for this one.
    until_signal: u32,
    inline_bytes: usize,
    /// See [`VerbsConfig::header_in_front`].
    header_in_front: bool,
    /// Which of the endpoint's queue pairs this is: part of the stamps in front of bodies.
    via: u8,
    /// Described in `requests`, not handed to the device yet; less than a list between two calls.
    pending: usize,
    list_max: usize,
    posted: u64,
    /// Requests before this number have completed.
    completed: u64,
    /// A completion reported an error: the queue pair needs a restart.
    broken: bool,
}

/// What is to be sent.
pub(super) struct Packet<'a> {
    pub(super) address: Handle,
    pub(super) item: TxItem<'a, VerbsRoute>,
    /// Only in packets without a body of their own.
    pub(super) immediate: Immediate,
}

/// A work request of the list. Its request's constant parts are written by [`SendQueue::link`].
#[derive(Copy, Clone, Default)]
struct SendRequest {
    request: sys::ibv_send_wr,
    /// Head and body.
    elements: [sys::ibv_sge; 2],
}

// SAFETY: the pointers in `list` point into `list`, which is on the heap and moves along; those to heads and bodies are
// written and used within one call.
unsafe impl Send for SendQueue {}

impl SendRequest {
    /// Makes the inline request carry an immediate.
    #[inline(never)]
    fn put_immediate(&mut self, immediate: Immediate, stats: &mut VerbsStats) {
        let Some(bytes) = immediate.bytes() else {
            return;
        };
        self.request.opcode = sys::ibv_wr_opcode::IBV_WR_SEND_WITH_IMM;
        self.request.__bindgen_anon_1.imm_data = u32::from_ne_bytes(bytes);
        if let Immediate::First(_) = immediate {
            let payload = &mut self.elements[0];
            payload.addr += IMMEDIATE_BYTES as u64;
            payload.length -= IMMEDIATE_BYTES as u32;
            self.request.num_sge = i32::from(payload.length > 0);
            stats.sends_shrunk += 1;
            stats.sends_header_only += u64::from(payload.length == 0);
        }
    }
}

impl SendQueue {
    pub(super) fn new(
        device: &Arc<Device>,
        config: &VerbsConfig,
        inline_bytes: usize,
        via: u8,
        registry: &Registry,
    ) -> Result<Self, VerbsError> {
        let depth = config.send_queue as usize;
        let is_rfp = |one_sided: OneSidedConfig| one_sided.path == OneSidedPath::Rfp;
        let head_bytes = if config.sealed {
            config.mtu.next_multiple_of(64).max(HEAD_BYTES)
        } else if config.one_sided.is_some_and(is_rfp) {
            // Answers that a client did not fetch are sent from a copy.
            ANSWER_BYTES.max(HEAD_BYTES)
        } else {
            HEAD_BYTES
        };
        let mut queue = Self {
            list: Box::new([SendRequest::default(); LIST_MAX]),
            heads: Registered::new(device, depth * head_bytes, registry)?,
            head_bytes,
            depth: depth as u64,
            signal_interval: config.signal_interval,
            until_signal: config.signal_interval,
            inline_bytes: inline_bytes.min(config.inline_bytes as usize),
            header_in_front: config.header_in_front,
            via,
            pending: 0,
            list_max: if config.doorbell_batching {
                LIST_MAX
            } else {
                1
            },
            posted: 0,
            completed: 0,
            broken: false,
        };
        queue.link();
        Ok(queue)
    }

    /// Writes the fields that are the same in all requests. Each leads to the next place of the list; the last of those
    /// that are posted is cut off for that call.
    fn link(&mut self) {
        let first = self.list.as_mut_ptr();
        for index in 0..LIST_MAX {
            let next = if index + 1 == LIST_MAX {
                std::ptr::null_mut()
            } else {
                // SAFETY: `index + 1` is less than the length of the list.
                let next = unsafe { first.add(index + 1) };
                // SAFETY: the pointer is to a live slot; nothing is read.
                unsafe { &raw mut (*next).request }
            };
            // SAFETY: `index` is less than the length of the list.
            let slot = unsafe { first.add(index) };
            // SAFETY: the pointer is to a live slot; nothing is read.
            let elements = unsafe { &raw mut (*slot).elements };
            // SAFETY: as above; nothing else refers to the slot.
            let request = unsafe { &mut (*slot).request };
            request.sg_list = elements.cast();
            request.next = next;
        }
    }

    /// True after a send completed with an error.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Adds a packet to the list, and hands the list over if it is full. Its head stays where it is, in the batch, and
    /// its body in the core's buffer, until [`SendQueue::post`].
    #[inline]
    pub(super) fn add(
        &mut self,
        pair: &mut QueuePair,
        packet: &Packet<'_>,
        stats: &mut VerbsStats,
    ) {
        self.describe(self.pending, packet, stats);
        self.pending += 1;
        if self.pending == self.list_max {
            self.post(pair, stats);
        }
    }

    /// Fills in the work request at `index` of the list, which will have the number `posted + index`.
    #[inline]
    fn describe(&mut self, index: usize, packet: &Packet<'_>, stats: &mut VerbsStats) {
        let number = self.posted + index as u64;
        let item = &packet.item;
        let mut flags = 0;
        self.until_signal -= 1;
        if self.until_signal == 0 {
            flags |= sys::ibv_send_flags::IBV_SEND_SIGNALED.0;
            stats.sends_signaled += 1;
            self.until_signal = self.signal_interval;
        }
        if item.body.is_none() && item.head.len() <= self.inline_bytes {
            flags |= self.describe_inline(index, item.head, packet.immediate, stats);
        } else {
            self.describe_gathered(index, number, item, stats);
        }
        let request = &mut self.list[index].request;
        request.wr_id = number;
        request.send_flags = flags;
        request.wr.ud = sys::ibv_send_wr__bindgen_ty_2__bindgen_ty_3 {
            ah: packet.address.as_ptr(),
            remote_qpn: item.route.queue_pair,
            remote_qkey: item.route.qkey,
        };
    }

    /// The bytes in the work request itself, the first four perhaps in its header; the flags that this needs.
    #[inline(always)]
    fn describe_inline(
        &mut self,
        index: usize,
        packet: &[u8],
        immediate: Immediate,
        stats: &mut VerbsStats,
    ) -> u32 {
        let slot = &mut self.list[index];
        stats.sends_inline += 1;
        slot.elements[0] = sys::ibv_sge {
            addr: packet.as_ptr().expose_provenance() as u64,
            length: packet.len() as u32,
            lkey: 0,
        };
        slot.request.opcode = sys::ibv_wr_opcode::IBV_WR_SEND;
        slot.request.num_sge = 1;
        if immediate != Immediate::None {
            slot.put_immediate(immediate, stats);
        }
        let payload = slot.elements[0].length as usize;
        stats.send_lines += inline_lines(payload);
        sys::ibv_send_flags::IBV_SEND_INLINE.0
    }

    /// The bytes where the device fetches them: in one part if the header can go in front of the body.
    #[inline]
    fn describe_gathered(
        &mut self,
        index: usize,
        number: u64,
        item: &TxItem<'_, VerbsRoute>,
        stats: &mut VerbsStats,
    ) {
        let in_front = item
            .body
            .and_then(|body| self.put_in_front(body, item.head, number));
        let (head, body) = match (in_front, item.body) {
            (Some(whole), _) => (whole, None),
            (None, body) => (self.stage(index, number, item.head), body),
        };
        let slot = &mut self.list[index];
        slot.request.opcode = sys::ibv_wr_opcode::IBV_WR_SEND;
        slot.elements[0] = head;
        slot.request.num_sge = 1;
        if let Some(body) = body {
            slot.elements[1] = sys::ibv_sge {
                addr: body.as_ptr().expose_provenance() as u64,
                length: body.len() as u32,
                lkey: body.region().key,
            };
            slot.request.num_sge = 2;
        }
        let parts = slot.request.num_sge as u64;
        stats.sends_gathered += parts;
        stats.send_lines += gathered_lines(parts);
    }

    /// Writes a header in front of its body; where both are. `None` if there is no room, or the device may still read the
    /// header that is in it: a retransmission soon after the first transmission.
    ///
    /// A stamp of another queue pair is no obstacle. The body's message then belongs to another session than before, and
    /// the core hands out memory again only when no send refers to it (`Backend::flush`).
    fn put_in_front(&self, body: &BodyRef, header: &[u8], number: u64) -> Option<sys::ibv_sge> {
        let room = body.header_room().filter(|_| self.header_in_front)?;
        let stamp = room.stamp();
        let is_own = stamp >> STAMP_BITS == u64::from(self.via);
        // A stamp is one more than the number of the request, so that new memory has none.
        if is_own && stamp & STAMP_MASK > self.completed & STAMP_MASK {
            return None;
        }
        let stamp = u64::from(self.via) << STAMP_BITS | (number + 1) & STAMP_MASK;
        let start = room.write(header, stamp)?;
        Some(sys::ibv_sge {
            addr: start.expose_provenance() as u64,
            length: (header.len() + body.len()) as u32,
            lkey: body.region().key,
        })
    }

    /// Copies a head to where the device can read it; where it is. Waits for nothing: `post` makes
    /// sure of room before it hands requests over, but the place must be free already now.
    fn stage(&mut self, index: usize, number: u64, head: &[u8]) -> sys::ibv_sge {
        debug_assert!(
            index as u64 + self.posted == number,
            "a request's number is its place in the list"
        );
        assert!(
            head.len() <= self.head_bytes,
            "the batch bounds heads, and sealed packets need `VerbsConfig::sealed`"
        );
        let place = (number % self.depth) as usize * self.head_bytes;
        // SAFETY: `place + head_bytes` lies within the `depth * head_bytes` bytes.
        let target = unsafe { self.heads.region.base.add(place) };
        // SAFETY: `head` fits; the device does not read this place: `ensure_room` held for a whole
        // list when the last list was posted, so request `number - depth` has completed.
        unsafe {
            target
                .as_ptr()
                .copy_from_nonoverlapping(head.as_ptr(), head.len())
        };
        sys::ibv_sge {
            addr: target.as_ptr().expose_provenance() as u64,
            length: head.len() as u32,
            lkey: self.heads.region.key,
        }
    }

    /// Hands the list over with one doorbell, then makes room for the next one.
    #[inline]
    pub(super) fn post(&mut self, pair: &mut QueuePair, stats: &mut VerbsStats) {
        let count = std::mem::take(&mut self.pending);
        if count == 0 {
            return;
        }
        let last = &mut self.list[count - 1].request;
        let next = std::mem::replace(&mut last.next, std::ptr::null_mut());
        // SAFETY: heads are staged in registered memory for `depth` requests or inline and alive in
        // the batch; bodies lie in the pool's registered memory, which outlives the queue pair.
        let taken = unsafe { pair.post_sends(&mut self.list[0].request, count) };
        self.list[count - 1].request.next = next;
        stats.sends += taken as u64;
        stats.sends_refused += (count - taken) as u64;
        stats.send_doorbells += 1;
        self.posted += taken as u64;
        self.broken |= taken < count;
        self.ensure_room(pair, stats);
    }

    /// Waits until a whole list fits, so that staging it touches nothing the device still reads.
    #[inline]
    fn ensure_room(&mut self, pair: &mut QueuePair, stats: &mut VerbsStats) {
        if !self.has_room() {
            self.make_room(pair, stats);
        }
    }

    #[inline]
    fn has_room(&self) -> bool {
        self.posted - self.completed + LIST_MAX as u64 <= self.depth
    }

    #[inline(never)]
    fn make_room(&mut self, pair: &mut QueuePair, stats: &mut VerbsStats) {
        for _ in 0..POLLS_MAX {
            if self.has_room() || self.broken {
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
        self.post(pair, stats);
        if self.posted == self.completed || self.broken {
            return;
        }
        let Some((own, handle)) = addresses.own(pair.number()) else {
            self.broken = true;
            return;
        };
        let packet = Packet {
            address: handle,
            item: TxItem {
                route: own,
                head: &[0],
                body: None,
                datagram_max: 0,
            },
            immediate: Immediate::None,
        };
        self.describe(0, &packet, stats);
        let signaled = sys::ibv_send_flags::IBV_SEND_SIGNALED.0;
        let request = &mut self.list[0].request;
        stats.sends_signaled += u64::from(request.send_flags & signaled == 0);
        request.send_flags |= signaled;
        self.pending = 1;
        self.post(pair, stats);
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
