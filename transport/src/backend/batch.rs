//! Packets on their way between core and backend.
//!
//! Small packets are copied into the batch, header and body side by side, so that several of them
//! for one route are already one datagram. Large bodies stay in their message buffer; the batch
//! holds a [`BodyRef`].

use std::ops::Range;

use super::Route;
use crate::buf::{BodyRef, MsgBuf};
use crate::time::{Duration, Instant};

/// Datagrams that arrived; borrows the backend, whose next `rx_burst` releases them.
///
/// An iterator of [`RxPacket`]s. One item is one datagram, which may hold several wire packets one
/// after the other; the core splits them.
#[derive(Clone, Debug)]
pub struct RxBatch<'a, R> {
    source: PacketStorage<'a, R>,
    next: usize,
}

#[derive(Clone, Debug)]
enum PacketStorage<'a, R> {
    Packets(&'a [RxPacket<'a, R>]),
    Slots {
        memory: &'a [u8],
        slots: &'a [RxSlot<R>],
        /// See [`RxBatch::with_arrivals`]. A thin pointer: a batch is handed on at each poll, also an empty one.
        arrivals: Option<&'a Vec<u64>>,
    },
}

/// One datagram.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RxPacket<'a, R> {
    /// The datagram's payload.
    pub bytes: &'a [u8],
    /// Its source; an answer goes there.
    pub route: R,
    /// The network marked congestion on its way (ECN "congestion experienced").
    pub ecn: bool,
}

/// Where a datagram lies in a backend's receive memory.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RxSlot<R> {
    /// Offset of the first payload byte.
    pub start: u32,
    /// Payload bytes.
    pub len: u32,
    /// Its source.
    pub route: R,
    /// The congestion mark.
    pub ecn: bool,
}

/// When the network delivered a packet, if that is known (not 0) and likely; otherwise now. It may be a little after
/// `now`, which was read before the packets were taken in. A wall clock that was set in between is no reason to believe
/// anything.
pub(crate) fn likely_arrival(arrived_ns: u64, now: Instant) -> Instant {
    match now.as_nanos().abs_diff(arrived_ns) <= ARRIVED_WITHIN.as_nanos() && arrived_ns > 0 {
        true => Instant::from_nanos(arrived_ns),
        false => now,
    }
}

/// No program comes so late to its packets that it says something about the path.
const ARRIVED_WITHIN: Duration = Duration::from_secs(1);

impl<'a, R: Route> RxBatch<'a, R> {
    /// A batch of packets that lie anywhere.
    #[must_use]
    pub const fn from_packets(packets: &'a [RxPacket<'a, R>]) -> Self {
        Self {
            source: PacketStorage::Packets(packets),
            next: 0,
        }
    }

    /// A batch of packets that lie in one receive memory.
    #[must_use]
    pub const fn from_slots(memory: &'a [u8], slots: &'a [RxSlot<R>]) -> Self {
        Self {
            source: PacketStorage::Slots {
                memory,
                slots,
                arrivals: None,
            },
            next: 0,
        }
    }

    /// A batch without packets.
    #[must_use]
    pub const fn empty() -> Self {
        Self {
            source: PacketStorage::Packets(&[]),
            next: 0,
        }
    }

    /// A batch like [`RxBatch::from_slots`], with the times at which the network delivered the datagrams, in the terms of
    /// [`MonotonicClock`](super::MonotonicClock): the program comes later where processors are busy. 0, and an end too early:
    /// nobody looked. They are beside the packets because only few programs look, and the others shall not pay.
    #[must_use]
    pub const fn with_arrivals(
        memory: &'a [u8],
        slots: &'a [RxSlot<R>],
        arrivals: &'a Vec<u64>,
    ) -> Self {
        Self {
            source: PacketStorage::Slots {
                memory,
                slots,
                arrivals: Some(arrivals),
            },
            next: 0,
        }
    }

    /// The arrivals of the datagrams that are left.
    pub(crate) fn arrivals(&self) -> &'a [u64] {
        match self.source {
            PacketStorage::Slots {
                arrivals: Some(arrivals),
                ..
            } => arrivals.get(self.next..).unwrap_or_default(),
            PacketStorage::Packets(_) | PacketStorage::Slots { arrivals: None, .. } => &[],
        }
    }

    /// True if no datagram is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'a, R: Route> Iterator for RxBatch<'a, R> {
    type Item = RxPacket<'a, R>;

    #[inline]
    fn next(&mut self) -> Option<RxPacket<'a, R>> {
        let packet = match &self.source {
            PacketStorage::Packets(packets) => *packets.get(self.next)?,
            PacketStorage::Slots { memory, slots, .. } => {
                let slot = slots.get(self.next)?;
                let start = slot.start as usize;
                let bytes = &memory[start..start + slot.len as usize];
                RxPacket {
                    bytes,
                    route: slot.route,
                    ecn: slot.ecn,
                }
            }
        };
        self.next += 1;
        Some(packet)
    }

    /// The source is read once, not once a packet.
    #[inline]
    fn fold<B, F: FnMut(B, Self::Item) -> B>(self, init: B, mut f: F) -> B {
        match self.source {
            PacketStorage::Packets(packets) => packets[self.next..].iter().copied().fold(init, f),
            PacketStorage::Slots { memory, slots, .. } => {
                slots[self.next..].iter().fold(init, |all, slot| {
                    let start = slot.start as usize;
                    let packet = RxPacket {
                        bytes: &memory[start..start + slot.len as usize],
                        route: slot.route,
                        ecn: slot.ecn,
                    };
                    f(all, packet)
                })
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let total = match &self.source {
            PacketStorage::Packets(packets) => packets.len(),
            PacketStorage::Slots { slots, .. } => slots.len(),
        };
        (total - self.next, Some(total - self.next))
    }
}

impl<R: Route> ExactSizeIterator for RxBatch<'_, R> {}

/// The bytes that follow a packet's header on the wire.
#[derive(Debug)]
pub enum Body<'a> {
    /// Nothing.
    None,
    /// These bytes, copied; at most [`TxBatch::COPY_MAX`].
    Bytes(&'a [u8]),
    /// This part of a message; copied if it is short, otherwise referred to.
    Message(&'a MsgBuf, Range<usize>),
}

/// Wire packets that wait to be sent in one burst.
///
/// Reused from turn to turn: after `tx_burst` it is empty and keeps its memory. While it is not
/// empty it may hold [`BodyRef`]s, so message buffers in it must not be written.
#[derive(Debug)]
pub struct TxBatch<R> {
    items: Vec<BatchItem<R>>,
    /// Header and copied body of all items, in order, without gaps: `used` bytes.
    copied: Vec<u8>,
    used: usize,
    /// The bodies that were not copied, in order.
    bodies: Vec<BodyRef>,
    items_max: usize,
    /// See [`TxBatch::capacity`].
    capacity: usize,
}

/// No reference count and no `Drop`: the batch is emptied without reading its items.
#[derive(Debug)]
struct BatchItem<R> {
    route: R,
    start: u32,
    copied_len: u32,
    /// Index among the bodies, or `COPIED`.
    body: u32,
    /// See [`TxItem::datagram_max`].
    datagram_max: u16,
}

/// The packet lies in the batch with all of its bytes.
const COPIED: u32 = u32::MAX;

/// Longest header.
const HEADER_MAX: usize = 48;
/// Longest body that is copied.
const COPY_MAX: usize = 256;
/// The place of a packet that is written straight into the batch.
pub(crate) const PACKET_ROOM: usize = HEADER_MAX + COPY_MAX;

/// One wire packet of a [`TxBatch`]: `head`, then `body`.
#[derive(Copy, Clone, Debug)]
pub struct TxItem<'a, R> {
    /// Where it goes.
    pub route: R,
    /// The header, followed by the body if that was copied. Lies directly after the previous
    /// item's head.
    pub head: &'a [u8],
    /// The body if it was not copied.
    pub body: Option<&'a BodyRef>,
    /// Bytes of a datagram that this packet may share with others: the largest packet of its session, because the path
    /// carries no more for certain. A longer packet, and one with 0 here, goes alone.
    pub datagram_max: usize,
}

/// The datagrams of a packet that belongs to no session are limited by the backend alone.
const ANY_DATAGRAM: u16 = u16::MAX;

impl<R: Route> TxBatch<R> {
    /// Wire packets that fit into one batch by default.
    pub const ITEMS_DEFAULT: usize = 64;
    /// Longest header.
    pub const HEADER_MAX: usize = HEADER_MAX;
    /// Longest body that is copied instead of referred to.
    pub const COPY_MAX: usize = COPY_MAX;

    /// A batch of [`TxBatch::ITEMS_DEFAULT`] packets.
    #[must_use]
    pub fn new() -> Self {
        Self::with_capacity(Self::ITEMS_DEFAULT)
    }

    /// A batch of at most `items` packets.
    #[must_use]
    pub fn with_capacity(items: usize) -> Self {
        Self {
            items: Vec::with_capacity(items),
            copied: vec![0; items * PACKET_ROOM],
            used: 0,
            bodies: Vec::with_capacity(items),
            items_max: items,
            capacity: items,
        }
    }

    /// Adds a wire packet, whose datagram the backend alone limits.
    ///
    /// # Panics
    ///
    /// If the batch is full, the header longer than [`TxBatch::HEADER_MAX`], `Body::Bytes` longer
    /// than [`TxBatch::COPY_MAX`] or a message's range outside its length.
    pub fn push(&mut self, route: R, header: &[u8], body: Body<'_>) {
        self.push_within(route, header, body, ANY_DATAGRAM);
    }

    /// The same, with the packet's own limit: see [`TxItem::datagram_max`].
    pub(crate) fn push_within(
        &mut self,
        route: R,
        header: &[u8],
        body: Body<'_>,
        datagram_max: u16,
    ) {
        assert!(
            header.len() <= Self::HEADER_MAX,
            "a header longer than the batch allows"
        );
        let (copied, shared) = match body {
            Body::None => (&[][..], None),
            Body::Bytes(bytes) => (bytes, None),
            Body::Message(message, range) if range.len() <= Self::COPY_MAX => {
                (&message[range], None)
            }
            Body::Message(message, range) => (&[][..], Some(message.share(range))),
        };
        assert!(
            copied.len() <= Self::COPY_MAX,
            "a body too long to be copied"
        );
        let len = header.len() + copied.len();
        let room = self.next_room();
        room[..header.len()].copy_from_slice(header);
        room[header.len()..len].copy_from_slice(copied);
        self.add(route, len, shared, datagram_max);
    }

    /// Where the next packet goes that is added by [`TxBatch::push_written`].
    ///
    /// # Panics
    ///
    /// If the batch is full.
    #[inline(always)]
    pub(crate) fn next_room(&mut self) -> &mut [u8; PACKET_ROOM] {
        assert!(!self.is_full(), "push into a full transmit batch");
        let room = self.copied[self.used..].first_chunk_mut();
        room.expect("every item has its room")
    }

    /// Adds the packet of `len` bytes that has been written into the [`TxBatch::next_room`].
    #[inline(always)]
    pub(crate) fn push_written(&mut self, route: R, len: usize, datagram_max: u16) {
        self.add(route, len, None, datagram_max);
    }

    /// Adds a packet of another batch; a body that is referred to stays so.
    ///
    /// # Panics
    ///
    /// If the batch is full.
    pub(crate) fn push_item(&mut self, item: &TxItem<'_, R>) {
        self.room_for(item.head.len()).copy_from_slice(item.head);
        // It was made from 16 bits.
        let datagram_max = item.datagram_max as u16;
        self.add(
            item.route,
            item.head.len(),
            item.body.cloned(),
            datagram_max,
        );
    }

    #[inline(always)]
    fn add(&mut self, route: R, copied_len: usize, body: Option<BodyRef>, datagram_max: u16) {
        let body = body.map_or(COPIED, |body| {
            self.bodies.push(body);
            self.bodies.len() as u32 - 1
        });
        self.items.push(BatchItem {
            route,
            start: self.used as u32,
            copied_len: copied_len as u32,
            body,
            datagram_max,
        });
        self.used += copied_len;
    }

    /// Packets in the batch.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// True if there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// True if no further packet fits.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.items.len() == self.items_max
    }

    /// Packets that the empty batch takes.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Until it is cleared, the batch takes `items` packets fewer.
    pub(crate) fn leave_room(&mut self, items: usize) {
        self.items_max = self.capacity.saturating_sub(items);
    }

    /// Where a packet of `len` bytes, of any size, can be written that is added by [`TxBatch::push_room`]. Memory for long
    /// packets is taken with the first of them, and kept.
    ///
    /// # Panics
    ///
    /// If the batch is full.
    pub(crate) fn room_for(&mut self, len: usize) -> &mut [u8] {
        assert!(!self.is_full(), "push into a full transmit batch");
        // The other packets keep their room.
        let needed = self.used + len + (self.capacity - self.items.len()) * PACKET_ROOM;
        if self.copied.len() < needed {
            self.copied.resize(needed, 0);
        }
        &mut self.copied[self.used..self.used + len]
    }

    /// Adds the packet of `len` bytes that has been written into the [`TxBatch::room_for`] it.
    pub(crate) fn push_room(&mut self, route: R, len: usize, datagram_max: u16) {
        self.add(route, len, None, datagram_max);
    }

    /// Packets that still fit.
    #[must_use]
    pub fn room(&self) -> usize {
        self.items_max - self.items.len()
    }

    /// The packets, in the order in which they were added.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = TxItem<'_, R>> {
        self.items.iter().map(|item| self.view(item))
    }

    /// The packet at `index`.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<TxItem<'_, R>> {
        self.items.get(index).map(|item| self.view(item))
    }

    /// Forgets all packets; the batch keeps its memory.
    pub fn clear(&mut self) {
        self.items.clear();
        self.bodies.clear();
        self.items_max = self.capacity;
        self.used = 0;
    }

    /// The items from `first` on that have one route and lie in the batch with all of their bytes:
    /// these bytes, and each packet's place in them. `None` if the first item is not of that kind.
    pub(crate) fn copied_run(&self, first: usize) -> Option<CopiedRun<'_, R>> {
        let items = self.items.get(first..)?;
        let route = items.first()?.route;
        let is_copied = |item: &&BatchItem<R>| item.body == COPIED && item.route == route;
        let count = items.iter().take_while(is_copied).count();
        let items = &items[..count];
        let (start, last) = (items.first()?.start, items.last()?);
        let end = last.start + last.copied_len;
        Some(CopiedRun {
            bytes: &self.copied[start as usize..end as usize],
            start,
            items,
        })
    }

    #[inline]
    fn view<'a>(&'a self, item: &'a BatchItem<R>) -> TxItem<'a, R> {
        let start = item.start as usize;
        let head = &self.copied[start..start + item.copied_len as usize];
        TxItem {
            route: item.route,
            head,
            body: self.bodies.get(item.body as usize),
            datagram_max: usize::from(item.datagram_max),
        }
    }
}

/// Neighbours in a [`TxBatch`] that are contiguous in memory and go to one peer.
pub(crate) struct CopiedRun<'a, R> {
    pub(crate) bytes: &'a [u8],
    start: u32,
    items: &'a [BatchItem<R>],
}

impl<R> CopiedRun<'_, R> {
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// Offset in `bytes` and length of each packet.
    pub(crate) fn places(&self) -> impl ExactSizeIterator<Item = (u32, u32)> {
        self.items
            .iter()
            .map(|item| (item.start - self.start, item.copied_len))
    }
}

impl<R: Route> Default for TxBatch<R> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R: Route> TxItem<'_, R> {
    /// Bytes of the packet on the wire.
    #[must_use]
    pub fn len(&self) -> usize {
        self.head.len() + self.body.map_or(0, |body| body.len())
    }

    /// True for a packet without a single byte, which the core never makes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends the whole packet to `out`.
    pub fn copy_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.head);
        if let Some(body) = self.body {
            out.extend_from_slice(body);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wall clock that is set while a packet lies here, and a backend with another clock, change nothing.
    #[test]
    fn only_a_likely_arrival_is_believed() {
        let second = 1_000_000_000;
        let now = Instant::from_nanos(100 * second);
        let arrival = |arrived_ns| likely_arrival(arrived_ns, now).as_nanos();
        assert_eq!(arrival(0), 100 * second, "nobody looked");
        assert_eq!(arrival(100 * second - 3_000), 100 * second - 3_000);
        let later = 100 * second + 3_000;
        assert_eq!(arrival(later), later, "after the clock was read");
        assert_eq!(arrival(98 * second), 100 * second);
        assert_eq!(arrival(u64::MAX), 100 * second);
        let just_booted = Instant::from_nanos(second / 2);
        assert_eq!(likely_arrival(0, just_booted), just_booted);
    }

    #[test]
    fn arrivals_keep_step_with_the_packets() {
        let slot = |start| RxSlot {
            start,
            len: 1,
            route: 0,
            ecn: false,
        };
        let (slots, arrivals) = ([slot(0), slot(1), slot(2)], vec![7, 8]);
        let mut batch = RxBatch::with_arrivals(b"abc", &slots, &arrivals);
        assert_eq!(batch.arrivals(), [7, 8]);
        batch.next();
        assert_eq!(batch.arrivals(), [8]);
        batch.nth(1);
        assert_eq!(batch.arrivals(), [0; 0]);
    }
}
