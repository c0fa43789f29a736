//! A backend around another one that loses, duplicates, reorders, delays and corrupts packets.
//!
//! Every decision is drawn per wire packet from one seeded generator. Packets that are held back
//! are copied, so nothing here refers to a message buffer longer than the inner backend does.
//! While no rule is set, batches pass through untouched.

mod rules;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

pub use rules::{Direction, FaultCounts, FaultHandle, Faults, ParseFaultsError, REORDER_HOLD};

use self::rules::{FaultCounters, Rules};
use super::{
    Backend, BackendError, BackendStats, Body, Caps, PacketSizes, RxBatch, RxPacket, RxSlot,
    TxBatch, TxItem, Waker,
};
use crate::buf::{MsgBuf, Pool};
use crate::prng::Prng;
use crate::time::{Clock, Duration, Instant};
use crate::wire;

/// Packets held back in each direction at most; more are lost and counted as overflowed.
const HELD_MAX: usize = 65_536;

/// See the module's description.
pub struct Faulty<B: Backend, C> {
    inner: B,
    clock: C,
    prng: Prng,
    handle: FaultHandle<B::Route>,
    /// The rules as of `version`.
    rules: Rules<B::Route>,
    version: u64,
    outbound: DelayedPackets<B::Route>,
    inbound: DelayedPackets<B::Route>,
    tx: TxBatch<B::Route>,
    /// Copies that `tx`, or a device that reads them itself, still refers to.
    in_tx: Vec<MsgBuf>,
    /// Received packets that go up in this turn; `slots` point into `memory`.
    memory: Vec<u8>,
    slots: Vec<RxSlot<B::Route>>,
}

/// Packets of one direction that wait for their time, or for another one to pass them.
struct DelayedPackets<R> {
    /// Delayed packets, earliest first; equal times in the order in which they were held.
    delayed: BinaryHeap<Reverse<HeldPacket<R>>>,
    /// Packets that wait to be overtaken, all for the same span, so the first is due first.
    reordered: VecDeque<HeldPacket<R>>,
    sequence: u64,
}

struct HeldPacket<R> {
    due: Instant,
    sequence: u64,
    route: R,
    ecn: bool,
    bytes: MsgBuf,
}

/// The faults drawn for one packet.
#[derive(Copy, Clone, Default)]
struct Fate {
    lost: bool,
    duplicated: bool,
    reordered: bool,
    corrupted: bool,
    delay: Option<Duration>,
}

impl<B: Backend, C: Clock> Faulty<B, C> {
    /// Wraps `inner`. `seed` fixes all decisions; without rules nothing goes wrong.
    #[must_use]
    pub fn new(inner: B, clock: C, seed: u64) -> Self {
        let handle = FaultHandle::new();
        let rules = handle.shared().rules();
        Self {
            inner,
            clock,
            prng: Prng::new(seed),
            version: handle.shared().version(),
            handle,
            rules,
            outbound: DelayedPackets::new(),
            inbound: DelayedPackets::new(),
            tx: TxBatch::new(),
            in_tx: Vec::new(),
            memory: Vec::new(),
            slots: Vec::new(),
        }
    }

    /// The handle that changes the faults and reads their counts.
    #[must_use]
    pub fn handle(&self) -> FaultHandle<B::Route> {
        self.handle.clone()
    }

    /// The wrapped backend.
    #[must_use]
    pub fn inner(&self) -> &B {
        &self.inner
    }

    /// Ends the faults; packets that are held back are lost.
    #[must_use]
    pub fn into_inner(self) -> B {
        self.inner
    }

    fn refresh_rules(&mut self) {
        let version = self.handle.shared().version();
        if version != self.version {
            self.version = version;
            self.rules = self.handle.shared().rules();
        }
    }

    /// Sends packets that have been held back long enough.
    fn release_outbound(&mut self, now: Instant) -> Result<(), BackendError> {
        while let Some(held) = self.outbound.pop_due(now) {
            self.send(held.route, held.bytes)?;
        }
        self.flush_tx()
    }

    fn send_item(&mut self, now: Instant, item: &TxItem<'_, B::Route>) -> Result<(), BackendError> {
        let faults = self.rules.of(item.route, Direction::Outbound);
        if faults.is_none() {
            return self.forward(item);
        }
        let counters = self.handle.shared().counters(Direction::Outbound);
        let fate = Fate::draw(&faults, &mut self.prng, counters);
        if fate.lost {
            return Ok(());
        }
        for _copy in 0..fate.copies() {
            if fate.is_untouched() {
                self.forward(item)?;
            } else if !self.send_changed(now, item, fate)? {
                let counters = self.handle.shared().counters(Direction::Outbound);
                FaultCounters::count(&counters.overflowed);
            }
        }
        if !fate.reordered {
            while let Some(held) = self.outbound.pop_overtaken(item.route) {
                self.send(held.route, held.bytes)?;
            }
        }
        Ok(())
    }

    /// Sends or holds a copy of the packet; false if there is no room for it.
    fn send_changed(
        &mut self,
        now: Instant,
        item: &TxItem<'_, B::Route>,
        fate: Fate,
    ) -> Result<bool, BackendError> {
        let Some(mut bytes) = self.inner.pool().alloc(item.len()) else {
            return Ok(false);
        };
        bytes[..item.head.len()].copy_from_slice(item.head);
        if let Some(body) = item.body {
            bytes[item.head.len()..].copy_from_slice(body);
        }
        fate.corrupt(&mut bytes, &mut self.prng);
        if fate.is_held() {
            return Ok(self.outbound.hold(now, fate, item.route, false, bytes));
        }
        self.send(item.route, bytes)?;
        Ok(true)
    }

    fn forward(&mut self, item: &TxItem<'_, B::Route>) -> Result<(), BackendError> {
        if self.tx.is_full() {
            self.flush_tx()?;
        }
        self.tx.push_item(item);
        Ok(())
    }

    fn send(&mut self, route: B::Route, bytes: MsgBuf) -> Result<(), BackendError> {
        if self.tx.is_full() {
            self.flush_tx()?;
        }
        // Which session it is of is not known here, so it shares no datagram.
        let body = Body::Message(&bytes, 0..bytes.len());
        self.tx.push_within(route, &[], body, 0);
        self.in_tx.push(bytes);
        Ok(())
    }

    fn flush_tx(&mut self) -> Result<(), BackendError> {
        if self.tx.is_empty() {
            return Ok(());
        }
        let sent = self.inner.tx_burst(&mut self.tx);
        if !self.inner.caps().copies {
            // These copies get no answer, and the answer to one packet proves nothing about its
            // duplicate.
            self.inner.flush();
        }
        self.in_tx.clear();
        sent
    }

    /// Receives through the rules: every wire packet becomes a datagram of its own.
    fn receive(&mut self, now: Instant) -> Result<(), BackendError> {
        self.memory.clear();
        self.slots.clear();
        let mut incoming = ReceiveSide {
            now,
            pool: self.inner.pool().clone(),
            counters: self.handle.shared().counters(Direction::Inbound),
            prng: &mut self.prng,
            held: &mut self.inbound,
            memory: &mut self.memory,
            slots: &mut self.slots,
        };
        while let Some(held) = incoming.held.pop_due(now) {
            incoming.deliver(held.route, held.ecn, &held.bytes);
        }
        for datagram in self.inner.rx_burst()? {
            let faults = self.rules.of(datagram.route, Direction::Inbound);
            if faults.is_none() {
                incoming.deliver(datagram.route, datagram.ecn, datagram.bytes);
                continue;
            }
            let mut rest = datagram.bytes;
            while let Some(bytes) = split_packet(&mut rest) {
                incoming.pass(&faults, RxPacket { bytes, ..datagram });
            }
        }
        Ok(())
    }
}

/// Takes the next wire packet off a datagram; other content stays whole.
fn split_packet<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    if rest.is_empty() {
        return None;
    }
    let datagram = *rest;
    let behind = wire::split_first(datagram).map_or(&[][..], |(_, behind)| behind);
    *rest = behind;
    Some(&datagram[..datagram.len() - behind.len()])
}

/// The receiving side while a batch of the inner backend is borrowed.
struct ReceiveSide<'a, R> {
    now: Instant,
    pool: Pool,
    counters: &'a FaultCounters,
    prng: &'a mut Prng,
    held: &'a mut DelayedPackets<R>,
    memory: &'a mut Vec<u8>,
    slots: &'a mut Vec<RxSlot<R>>,
}

impl<R: super::Route> ReceiveSide<'_, R> {
    /// Lets a packet meet its fate.
    fn pass(&mut self, faults: &Faults, packet: RxPacket<'_, R>) {
        let fate = Fate::draw(faults, self.prng, self.counters);
        if fate.lost {
            return;
        }
        for _copy in 0..fate.copies() {
            if fate.is_untouched() {
                self.deliver(packet.route, packet.ecn, packet.bytes);
            } else if !self.pass_changed(fate, packet) {
                FaultCounters::count(&self.counters.overflowed);
            }
        }
        if !fate.reordered {
            while let Some(held) = self.held.pop_overtaken(packet.route) {
                self.deliver(held.route, held.ecn, &held.bytes);
            }
        }
    }

    /// Delivers or holds a copy of the packet; false if there is no room for it.
    fn pass_changed(&mut self, fate: Fate, packet: RxPacket<'_, R>) -> bool {
        let Some(mut bytes) = self.pool.alloc(packet.bytes.len()) else {
            return false;
        };
        bytes.copy_from_slice(packet.bytes);
        fate.corrupt(&mut bytes, self.prng);
        if fate.is_held() {
            return self
                .held
                .hold(self.now, fate, packet.route, packet.ecn, bytes);
        }
        self.deliver(packet.route, packet.ecn, &bytes);
        true
    }

    /// Puts a packet down for the core.
    fn deliver(&mut self, route: R, ecn: bool, bytes: &[u8]) {
        let start = self.memory.len() as u32;
        self.memory.extend_from_slice(bytes);
        self.slots.push(RxSlot {
            start,
            len: bytes.len() as u32,
            route,
            ecn,
        });
    }
}

impl Fate {
    /// Draws the same number of random values for any result, and counts the faults that fired.
    fn draw(faults: &Faults, prng: &mut Prng, counters: &FaultCounters) -> Self {
        let mut fate = Self {
            lost: prng.chance(faults.loss),
            duplicated: prng.chance(faults.duplicate),
            reordered: prng.chance(faults.reorder),
            corrupted: prng.chance(faults.corrupt),
            delay: None,
        };
        let drawn = prng.next_u64();
        if let Some((least, most)) = faults.delay {
            let width = (most - least).as_nanos().saturating_add(1);
            fate.delay = Some(least + Duration::from_nanos(drawn % width));
        }
        FaultCounters::count(&counters.packets);
        if fate.lost {
            FaultCounters::count(&counters.lost);
            return fate;
        }
        for (fired, counter) in [
            (fate.duplicated, &counters.duplicated),
            (fate.reordered, &counters.reordered),
            (fate.corrupted, &counters.corrupted),
            (fate.delay.is_some(), &counters.delayed),
        ] {
            if fired {
                FaultCounters::count(counter);
            }
        }
        fate
    }

    fn copies(self) -> usize {
        1 + usize::from(self.duplicated)
    }

    fn is_untouched(self) -> bool {
        !self.is_held() && !self.corrupted
    }

    fn is_held(self) -> bool {
        self.reordered || self.delay.is_some()
    }

    fn corrupt(self, bytes: &mut [u8], prng: &mut Prng) {
        if self.corrupted && !bytes.is_empty() {
            let bit = prng.below(bytes.len() as u64 * 8) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

impl<R: super::Route> DelayedPackets<R> {
    fn new() -> Self {
        Self {
            delayed: BinaryHeap::new(),
            reordered: VecDeque::new(),
            sequence: 0,
        }
    }

    fn is_empty(&self) -> bool {
        self.delayed.is_empty() && self.reordered.is_empty()
    }

    /// Holds a packet back as its fate says; false if there is no room.
    fn hold(&mut self, now: Instant, fate: Fate, route: R, ecn: bool, bytes: MsgBuf) -> bool {
        if self.delayed.len() + self.reordered.len() >= HELD_MAX {
            return false;
        }
        self.sequence += 1;
        let due = now + fate.delay.unwrap_or(REORDER_HOLD);
        let held = HeldPacket {
            due,
            sequence: self.sequence,
            route,
            ecn,
            bytes,
        };
        match fate.delay {
            Some(_) => self.delayed.push(Reverse(held)),
            None => self.reordered.push_back(held),
        }
        true
    }

    fn next_due(&self) -> Option<Instant> {
        let delayed = self.delayed.peek().map(|held| held.0.due);
        let reordered = self.reordered.front().map(|held| held.due);
        delayed.into_iter().chain(reordered).min()
    }

    fn pop_due(&mut self, now: Instant) -> Option<HeldPacket<R>> {
        if self.delayed.peek().is_some_and(|held| held.0.due <= now) {
            return self.delayed.pop().map(|held| held.0);
        }
        self.reordered.pop_front_if(|held| held.due <= now)
    }

    /// A packet of the route that was waiting to be overtaken.
    fn pop_overtaken(&mut self, route: R) -> Option<HeldPacket<R>> {
        let index = self.reordered.iter().position(|held| held.route == route)?;
        self.reordered.remove(index)
    }
}

impl<R> PartialEq for HeldPacket<R> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<R> Eq for HeldPacket<R> {}

impl<R> PartialOrd for HeldPacket<R> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<R> Ord for HeldPacket<R> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.sequence).cmp(&(other.due, other.sequence))
    }
}

impl<B: Backend, C: Clock> Backend for Faulty<B, C> {
    type Route = B::Route;

    fn caps(&self) -> Caps {
        self.inner.caps()
    }

    fn packet_sizes(&self) -> PacketSizes<B::Route> {
        self.inner.packet_sizes()
    }

    fn pool(&self) -> &Pool {
        self.inner.pool()
    }

    fn rx_burst(&mut self) -> Result<RxBatch<'_, B::Route>, BackendError> {
        self.refresh_rules();
        let quiet = self.outbound.is_empty() && self.inbound.is_empty();
        if quiet && self.rules.are_none(Direction::Inbound) {
            return self.inner.rx_burst();
        }
        let now = self.clock.now();
        self.release_outbound(now)?;
        self.receive(now)?;
        Ok(RxBatch::from_slots(&self.memory, &self.slots))
    }

    fn tx_burst(&mut self, tx: &mut TxBatch<B::Route>) -> Result<(), BackendError> {
        self.refresh_rules();
        if self.outbound.is_empty() && self.rules.are_none(Direction::Outbound) {
            return self.inner.tx_burst(tx);
        }
        let now = self.clock.now();
        self.release_outbound(now)?;
        for item in tx.iter() {
            self.send_item(now, &item)?;
        }
        self.flush_tx()?;
        tx.clear();
        Ok(())
    }

    fn flush(&mut self) {
        self.inner.flush();
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Result<(), BackendError> {
        let dues = [self.outbound.next_due(), self.inbound.next_due()];
        let Some(due) = dues.into_iter().flatten().min() else {
            return self.inner.wait(timeout);
        };
        let held = due.saturating_since(self.clock.now());
        self.inner
            .wait(Some(timeout.map_or(held, |timeout| timeout.min(held))))
    }

    fn watch(&mut self, descriptor: std::os::fd::OwnedFd) -> bool {
        self.inner.watch(descriptor)
    }

    fn note_arrivals(&mut self, on: bool) {
        self.inner.note_arrivals(on);
    }

    fn abandon(&mut self) {
        self.inner.abandon();
    }

    fn waker(&self) -> Waker {
        self.inner.waker()
    }

    fn stats(&self) -> BackendStats {
        self.inner.stats()
    }
}

impl<B: Backend + std::fmt::Debug, C> std::fmt::Debug for Faulty<B, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Faulty({:?})", self.inner)
    }
}

#[cfg(test)]
mod tests;
