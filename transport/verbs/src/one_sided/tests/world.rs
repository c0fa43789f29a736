//! The network of these tests: queues of datagrams, and regions that others write.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use super::super::{
    ANSWER_BYTES, Area, ConnectionOffer, Fetched, Grant, HEAD_BYTES, NOTICE_BYTES, OneSided,
    OneSidedDevice, PathFailure, PathSettings, SLOT_BYTES, Sending, Slots, Written,
};
use crate::config::SLOTS;
use crate::one_sided_path::OneSidedPath;
use crate::route::VerbsRoute;
use trine_transport::backend::{
    Backend, BackendError, BackendStats, Caps, RxBatch, RxPacket, RxSlot, TxBatch, Wake, Waker,
};
use trine_transport::buf::{Pool, PoolConfig};
use trine_transport::prng::Prng;
use trine_transport::time::{Clock, Duration, Instant};

/// Datagrams with their senders.
type Inbox = VecDeque<(VerbsRoute, Vec<u8>)>;

/// All that endpoints share.
pub(super) struct World {
    pub(super) now: Cell<Instant>,
    inboxes: RefCell<BTreeMap<u32, Inbox>>,
    /// Regions by rkey.
    regions: RefCell<BTreeMap<u32, Vec<u8>>>,
    rkeys: Cell<u32>,
    prng: RefCell<Prng>,
    /// Of a thousand writes, and of a thousand datagrams, so many are lost.
    pub(super) loss: Cell<u64>,
    /// No write arrives.
    pub(super) is_deaf: Cell<bool>,
    /// What devices say to a write.
    pub(super) verdict: Cell<Written>,
    /// Writes do not arrive until [`World::deliver`].
    pub(super) holds_writes: Cell<bool>,
    held: RefCell<Vec<(u32, usize, Vec<u8>)>>,
    /// What devices say of a READ that a region could answer.
    pub(super) read_verdict: Cell<Fetched>,
    /// The most READs that a connection has had under way.
    pub(super) most_reads: Cell<usize>,
    /// Datagrams sent, by receiver.
    pub(super) datagrams: RefCell<BTreeMap<u32, u64>>,
}

impl World {
    pub(super) fn new() -> Rc<Self> {
        Rc::new(Self {
            now: Cell::new(Instant::from_nanos(1_000_000_000)),
            inboxes: RefCell::default(),
            regions: RefCell::default(),
            rkeys: Cell::new(100),
            prng: RefCell::new(Prng::new(7)),
            loss: Cell::new(0),
            is_deaf: Cell::new(false),
            verdict: Cell::new(Written::Done),
            holds_writes: Cell::new(false),
            held: RefCell::default(),
            read_verdict: Cell::new(Fetched::Done),
            most_reads: Cell::new(0),
            datagrams: RefCell::default(),
        })
    }

    pub(super) fn pass_time(&self, time: Duration) {
        self.now.set(self.now.get() + time);
    }

    fn is_lost(&self) -> bool {
        self.prng.borrow_mut().below(1_000) < self.loss.get()
    }

    fn send(&self, from: VerbsRoute, to: u32, bytes: Vec<u8>) {
        *self.datagrams.borrow_mut().entry(to).or_default() += 1;
        if !self.is_lost()
            && let Some(inbox) = self.inboxes.borrow_mut().get_mut(&to)
        {
            inbox.push_back((from, bytes));
        }
    }

    fn register(&self, slot_bytes: usize) -> u32 {
        self.rkeys.set(self.rkeys.get() + 1);
        let region = vec![0; SLOTS * slot_bytes];
        self.regions.borrow_mut().insert(self.rkeys.get(), region);
        self.rkeys.get()
    }

    /// Writes as a device does: nothing happens if no region has the key.
    fn write(&self, rkey: u32, offset: usize, bytes: &[u8]) {
        if let Some(region) = self.regions.borrow_mut().get_mut(&rkey) {
            region[offset..offset + bytes.len()].copy_from_slice(bytes);
        }
    }

    /// Reads as a device does: `None` if no region has the key, or the place is not in it.
    fn read(&self, area: &Area, offset: usize, bytes: usize) -> Option<Vec<u8>> {
        let regions = self.regions.borrow();
        let start = usize::try_from(area.address).ok()? + offset;
        let read = regions.get(&area.rkey)?.get(start..start + bytes)?;
        Some(read.to_vec())
    }

    /// The held writes arrive.
    pub(super) fn deliver(&self) {
        self.holds_writes.set(false);
        for (rkey, offset, bytes) in self.held.take() {
            self.write(rkey, offset, &bytes);
        }
    }

    /// Somebody writes anything over all regions.
    pub(super) fn scribble(&self) {
        let mut prng = self.prng.borrow_mut();
        for region in self.regions.borrow_mut().values_mut() {
            let slot_bytes = region.len() / SLOTS;
            for slot in region.chunks_mut(slot_bytes) {
                if prng.below(2) == 0 {
                    prng.fill(slot);
                } else {
                    // Good lengths and sequences, so that the checksum has to decide.
                    let (sequence, len) = (prng.below(200) as u32, prng.below(300) as u16);
                    slot[..4].copy_from_slice(&sequence.to_le_bytes());
                    slot[4..6].copy_from_slice(&len.to_le_bytes());
                }
            }
        }
    }
}

impl Clock for Shared {
    fn now(&self) -> Instant {
        self.0.now.get()
    }
}

/// A clock that is the world's.
#[derive(Clone)]
pub(super) struct Shared(pub(super) Rc<World>);

/// Queue pairs and regions of one endpoint.
pub(super) struct Memory {
    world: Rc<World>,
    /// Those of requests and of answers.
    rkeys: Vec<[u32; 2]>,
    /// Whether the server's ends are connected.
    listens: Vec<bool>,
    /// What READs of the client's ends have brought, and the results of those that are under way.
    buffers: Vec<(Vec<u8>, VecDeque<Fetched>)>,
    refuses: bool,
}

impl Memory {
    fn keys(world: &World) -> [u32; 2] {
        [SLOT_BYTES, ANSWER_BYTES].map(|slot_bytes| world.register(slot_bytes))
    }
}

impl OneSidedDevice for Memory {
    fn wish(&self, number: usize) -> ConnectionOffer {
        ConnectionOffer {
            queue_pair: number as u32,
            psn: 0,
        }
    }

    fn connect(&mut self, _number: usize, _route: &VerbsRoute, _grant: &Grant) -> bool {
        !self.refuses
    }

    fn write(&mut self, _number: usize, grant: &Grant, offset: usize, bytes: &[u8]) -> Written {
        if self.world.verdict.get() != Written::Done {
            return self.world.verdict.get();
        }
        if self.world.is_deaf.get() || self.world.is_lost() {
            return Written::Done;
        }
        if self.world.holds_writes.get() {
            let write = (grant.requests.rkey, offset, bytes.to_vec());
            self.world.held.borrow_mut().push(write);
        } else {
            self.world.write(grant.requests.rkey, offset, bytes);
        }
        Written::Done
    }

    fn fetch(
        &mut self,
        number: usize,
        grant: &Grant,
        slot: usize,
        (from, to): (usize, usize),
    ) -> Written {
        let (buffer, results) = &mut self.buffers[number];
        assert!(results.len() < SLOTS, "no more READs than slots");
        let place = slot * ANSWER_BYTES + from;
        let read = self.world.read(&grant.answers, place, to - from);
        results.push_back(match read {
            Some(read) => {
                buffer[place..place + to - from].copy_from_slice(&read);
                Fetched::Done
            }
            None => Fetched::Broken,
        });
        let most_reads = self.world.most_reads.get().max(results.len());
        self.world.most_reads.set(most_reads);
        Written::Done
    }

    fn fetched(&mut self, number: usize) -> Fetched {
        let results = &mut self.buffers[number].1;
        let verdict = match results.front() {
            Some(Fetched::Done) => self.world.read_verdict.get(),
            Some(other) => *other,
            None => Fetched::Pending,
        };
        if verdict == Fetched::Done {
            results.pop_front();
        }
        verdict
    }

    fn fetch_buffer(&self, number: usize) -> impl Slots {
        Buffer(&self.buffers[number].0)
    }

    fn renew_outgoing(&mut self, number: usize) -> bool {
        self.buffers[number].1.clear();
        true
    }

    fn grant(&self, number: usize) -> Grant {
        let [requests, answers] = self.rkeys[number].map(|rkey| Area { address: 0, rkey });
        Grant {
            queue_pair: number as u32,
            requests,
            answers,
        }
    }

    fn listen(&mut self, number: usize, _route: &VerbsRoute, _wish: &ConnectionOffer) -> bool {
        assert!(!self.listens[number], "it is reset before it is used again");
        self.listens[number] = !self.refuses;
        !self.refuses
    }

    fn slots(&self, number: usize) -> impl Slots {
        Region(Rc::clone(&self.world), self.rkeys[number][0], SLOT_BYTES)
    }

    fn answers(&self, number: usize) -> impl Slots {
        Region(Rc::clone(&self.world), self.rkeys[number][1], ANSWER_BYTES)
    }

    fn put_answer(&mut self, number: usize, offset: usize, bytes: &[u8]) {
        assert!(offset.is_multiple_of(8), "whole words");
        self.world.write(self.rkeys[number][1], offset, bytes);
    }

    fn renew_incoming(&mut self, number: usize) -> bool {
        for rkey in self.rkeys[number] {
            self.world.regions.borrow_mut().remove(&rkey);
        }
        self.rkeys[number] = Self::keys(&self.world);
        self.listens[number] = false;
        true
    }
}

/// A region by its key, and the bytes of its slots.
struct Region(Rc<World>, u32, usize);

struct Buffer<'a>(&'a [u8]);

impl Slots for Buffer<'_> {
    fn head(&self, slot: usize) -> [u8; HEAD_BYTES] {
        *self.0[slot * ANSWER_BYTES..].first_chunk().unwrap()
    }

    fn copy(&self, slot: usize, out: &mut [u8]) {
        out.copy_from_slice(&self.0[slot * ANSWER_BYTES..][..out.len()]);
    }
}

impl Slots for Region {
    fn head(&self, slot: usize) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        self.copy(slot, &mut head);
        head
    }

    fn copy(&self, slot: usize, out: &mut [u8]) {
        let regions = self.0.regions.borrow();
        out.copy_from_slice(&regions[&self.1][slot * self.2..][..out.len()]);
    }
}

/// An endpoint's backend: what `VerbsBackend` does with this path, without the device.
pub(super) struct TestBackend {
    world: Rc<World>,
    route: VerbsRoute,
    /// `None`: a release that does not know this path.
    pub(super) one_sided: Option<OneSided<Memory>>,
    pool: Pool,
    memory: Vec<u8>,
    slots: Vec<RxSlot<VerbsRoute>>,
    pub(super) waits: u64,
    pub(super) failures: Vec<PathFailure>,
}

impl TestBackend {
    /// `outgoing` and `incoming` connections of the path herd.
    pub(super) fn new(
        world: &Rc<World>,
        queue_pair: u32,
        outgoing: usize,
        incoming: usize,
    ) -> Self {
        let settings = PathSettings {
            path: OneSidedPath::Herd,
            outgoing,
            incoming,
            ..PathSettings::default()
        };
        Self::with(world, queue_pair, settings)
    }

    pub(super) fn with(world: &Rc<World>, queue_pair: u32, settings: PathSettings) -> Self {
        let PathSettings {
            outgoing, incoming, ..
        } = settings;
        world
            .inboxes
            .borrow_mut()
            .insert(queue_pair, VecDeque::new());
        let device = Memory {
            world: Rc::clone(world),
            rkeys: (0..incoming).map(|_| Memory::keys(world)).collect(),
            buffers: vec![(vec![0; SLOTS * ANSWER_BYTES], VecDeque::new()); outgoing],
            listens: vec![false; incoming],
            refuses: false,
        };
        Self {
            world: Rc::clone(world),
            route: VerbsRoute {
                queue_pair,
                ..VerbsRoute::nowhere()
            },
            one_sided: Some(OneSided::new(device, settings)),
            pool: Pool::new(PoolConfig::default()),
            memory: Vec::new(),
            slots: Vec::new(),
            waits: 0,
            failures: Vec::new(),
        }
    }

    pub(super) fn tearing(self, interval: u32) -> Self {
        let one_sided = self.one_sided.map(|one_sided| one_sided.tearing(interval));
        Self { one_sided, ..self }
    }

    /// Its device refuses to connect queue pairs.
    pub(super) fn refusing(mut self, refuses: bool) -> Self {
        let one_sided = self.one_sided.as_mut();
        one_sided
            .expect("only an old release has none")
            .device
            .refuses = refuses;
        self
    }

    pub(super) fn without_connections(self) -> Self {
        Self {
            one_sided: None,
            ..self
        }
    }

    pub(super) fn route(&self) -> VerbsRoute {
        self.route
    }

    fn send_notices(&mut self) {
        while let Some((to, notice)) = self.one_sided.as_mut().and_then(OneSided::poll_notice) {
            let notice: [u8; NOTICE_BYTES] = notice;
            self.world.send(self.route, to.queue_pair, notice.to_vec());
        }
        let Some(one_sided) = &mut self.one_sided else {
            return;
        };
        let mut answer = [0; ANSWER_BYTES];
        while let Some((to, packet)) = one_sided.poll_unfetched(&mut answer) {
            let bytes = answer[packet].to_vec();
            self.world.send(self.route, to.queue_pair, bytes);
        }
        self.failures.extend(one_sided.take_failure());
        assert!(!one_sided.has_to_say(), "all of it was said");
    }
}

impl Backend for TestBackend {
    type Route = VerbsRoute;

    fn caps(&self) -> Caps {
        Caps {
            mtu: 1024,
            rto_floor: Duration::from_micros(50),
            copies: true,
            rx_queue_packets: 65_536,
            packet_is_dear: false,
        }
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn rx_burst(&mut self) -> Result<RxBatch<'_, VerbsRoute>, BackendError> {
        let now = self.world.now.get();
        if let Some(one_sided) = &mut self.one_sided
            && one_sided.poll(now) > 0
        {
            self.send_notices();
            return Ok(self.one_sided.as_ref().expect("it has just polled").burst());
        }
        self.memory.clear();
        self.slots.clear();
        loop {
            let mut inboxes = self.world.inboxes.borrow_mut();
            let arrived = inboxes
                .get_mut(&self.route.queue_pair)
                .and_then(VecDeque::pop_front);
            drop(inboxes);
            let Some((route, bytes)) = arrived else { break };
            let mut packet = RxPacket {
                bytes: &bytes,
                route,
                ecn: false,
            };
            if let Some(one_sided) = &mut self.one_sided
                && !one_sided.on_datagram(now, &mut packet)
            {
                continue;
            }
            self.slots.push(RxSlot {
                start: self.memory.len() as u32,
                len: packet.bytes.len() as u32,
                route,
                ecn: false,
            });
            self.memory.extend_from_slice(packet.bytes);
        }
        self.send_notices();
        Ok(RxBatch::from_slots(&self.memory, &self.slots))
    }

    fn tx_burst(&mut self, tx: &mut TxBatch<VerbsRoute>) -> Result<(), BackendError> {
        let now = self.world.now.get();
        for item in tx.iter() {
            let mut bytes = Vec::new();
            item.copy_to(&mut bytes);
            match self
                .one_sided
                .as_mut()
                .map(|one_sided| one_sided.on_send(now, &item))
            {
                Some(Sending::Written | Sending::Left) => continue,
                Some(Sending::WithTerms(terms)) => bytes.extend_from_slice(&terms),
                Some(Sending::Datagram) | None => {}
            }
            self.world.send(self.route, item.route.queue_pair, bytes);
        }
        tx.clear();
        Ok(())
    }

    fn flush(&mut self) {}

    /// Nothing waits here: the tests pass the time.
    fn wait(&mut self, _timeout: Option<Duration>) -> Result<(), BackendError> {
        let now = self.world.now.get();
        if self.one_sided.as_mut().is_some_and(|it| it.must_poll(now)) {
            return Ok(());
        }
        self.waits += 1;
        if let Some(one_sided) = &mut self.one_sided {
            one_sided.on_sleep();
        }
        self.send_notices();
        if let Some(one_sided) = &mut self.one_sided {
            one_sided.has_arrived(now);
        }
        Ok(())
    }

    fn waker(&self) -> Waker {
        struct Nobody;
        impl Wake for Nobody {
            fn wake(&self) {}
        }
        Waker::new(Arc::new(Nobody))
    }

    fn stats(&self) -> BackendStats {
        BackendStats::default()
    }
}
