//! A network of endpoints in one thread: virtual time, seeded faults, an application that counts.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::backend::{Caps, RxBatch, RxPacket, TxBatch};
use crate::buf::{MsgBuf, Pool, PoolConfig};
use crate::keys::{KeyId, KeyRing, Keys, OwnKey, Psk, Stage};
use crate::prng::{Prng, Ratio};
use crate::time::{Duration, Instant};
use crate::wire::{PacketType, split_first};
use crate::{
    App, Completion, Config, ConnectParams, Cx, Endpoint, Event, Holder, Identity, Reply, Request,
    ResponseHandle, RpcError, SessionId,
};

/// The network's faults on packets.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Faults {
    pub(crate) loss: Ratio,
    pub(crate) duplication: Ratio,
    pub(crate) reorder: Ratio,
    pub(crate) corruption: Ratio,
    pub(crate) delay: Duration,
    /// A reordered packet comes up to this much later.
    pub(crate) reorder_by: Duration,
}

impl Faults {
    pub(crate) const NONE: Self = Self {
        loss: Ratio::ZERO,
        duplication: Ratio::ZERO,
        reorder: Ratio::ZERO,
        corruption: Ratio::ZERO,
        delay: Duration::from_micros(10),
        reorder_by: Duration::from_micros(100),
    };
}

/// Endpoints and the packets between them. A node's route is its index.
pub(crate) struct Net {
    pub(crate) now: Instant,
    pub(crate) nodes: Vec<Node>,
    pub(crate) faults: Faults,
    pub(crate) prng: Prng,
    /// Packets under way by arrival time and order of sending: (to, from, bytes).
    under_way: BTreeMap<(Instant, u64), (u32, u32, Vec<u8>)>,
    sent: u64,
    /// All packets to this node go through one slow link.
    pub(crate) bottleneck: Option<Bottleneck>,
    /// Packets to this node that are longer vanish.
    pub(crate) narrow: Option<(u32, usize)>,
    /// The keys of all nodes.
    pub(crate) keys: Option<Keys>,
    /// This node sends the first packet of each request, and none of the others.
    pub(crate) finishes_nothing: Option<u32>,
    /// Every wire packet that was sent: (from, to, bytes), while recording.
    pub(crate) recorded: Option<Vec<(u32, u32, Vec<u8>)>>,
}

/// A switch port: a first-in, first-out queue in front of a link.
#[derive(Default)]
pub(crate) struct Bottleneck {
    pub(crate) to: u32,
    pub(crate) bytes_per_second: u64,
    pub(crate) buffer_bytes: u64,
    free_at: Instant,
    pub(crate) bytes: u64,
    pub(crate) dropped: u64,
    /// How long each packet waited.
    pub(crate) waits: Vec<Duration>,
}

impl Bottleneck {
    pub(crate) fn new(to: u32, bytes_per_second: u64, buffer_bytes: u64) -> Self {
        Self {
            to,
            bytes_per_second,
            buffer_bytes,
            ..Self::default()
        }
    }

    /// When a packet that reaches the port at `at` has left it; `None` if the buffer is full.
    fn pass(&mut self, at: Instant, bytes: usize) -> Option<Instant> {
        let wait = self.free_at.saturating_since(at);
        if wait.as_nanos() * self.bytes_per_second / 1_000_000_000 > self.buffer_bytes {
            self.dropped += 1;
            return None;
        }
        self.waits.push(wait);
        self.bytes += bytes as u64;
        let span = bytes as u64 * 1_000_000_000 / self.bytes_per_second;
        self.free_at = self.free_at.max(at) + Duration::from_nanos(span);
        Some(self.free_at)
    }
}

pub(crate) struct Node {
    pub(crate) endpoint: Endpoint<u32>,
    pub(crate) app: TestApp,
    /// It neither sends nor receives.
    pub(crate) is_dead: bool,
    /// Checks every session after every step; with a hundred sessions that takes most of the time.
    pub(crate) checks_invariants: bool,
    tx: TxBatch<u32>,
}

/// How the test handler answers.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Manner {
    /// With the request's own bytes.
    Echo,
    /// With this many bytes that follow from the request's first.
    Sized(usize),
    /// Answers only after the test says so; then like `Echo`.
    Later,
}

/// A request that is over.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Done {
    pub(crate) tag: u64,
    pub(crate) result: Result<(), RpcError>,
    pub(crate) response: Vec<u8>,
}

impl Done {
    /// One that was answered with the pattern of its tag.
    pub(crate) fn with(tag: u64, bytes: usize) -> Self {
        Self {
            tag,
            result: Ok(()),
            response: pattern(tag, bytes),
        }
    }
}

/// Echoes, counts executions by the request's first eight bytes, keeps completions and events.
pub(crate) struct TestApp {
    pub(crate) manner: Manner,
    pub(crate) executed: BTreeMap<u64, u32>,
    pub(crate) waiting: Vec<(ResponseHandle, MsgBuf)>,
    pub(crate) completions: Vec<Done>,
    pub(crate) events: Vec<Event<u32>>,
    pub(crate) deadlines: Vec<Option<Instant>>,
    /// Whom sessions from a node are counted for.
    pub(crate) holder: fn(u32) -> Holder,
    /// The keys that open sessions.
    pub(crate) admits: fn(&KeyId) -> bool,
    /// This session is ended when a request completes.
    pub(crate) ends: Option<SessionId>,
}

impl App<u32> for TestApp {
    fn on_request(&mut self, cx: &mut Cx<'_, u32>, request: Request<'_>) -> Reply {
        let id = request
            .data
            .first_chunk()
            .map_or(0, |bytes| u64::from_le_bytes(*bytes));
        *self.executed.entry(id).or_default() += 1;
        self.deadlines.push(request.deadline);
        let bytes = match self.manner {
            Manner::Sized(bytes) => bytes,
            Manner::Echo | Manner::Later => request.data.len(),
        };
        let mut response = cx.alloc(bytes).expect("the test pool is large enough");
        match self.manner {
            Manner::Sized(_) => response.copy_from_slice(&pattern(id, bytes)),
            Manner::Echo | Manner::Later => response.copy_from_slice(request.data),
        }
        if self.manner == Manner::Later {
            self.waiting.push((request.handle, response));
            return Reply::Later;
        }
        Reply::Now(response)
    }

    fn holder(&self, node: &u32) -> Holder {
        (self.holder)(*node)
    }

    fn admits(&self, key: &KeyId) -> bool {
        (self.admits)(key)
    }

    fn on_completion(&mut self, cx: &mut Cx<'_, u32>, tag: u64, completion: Completion) {
        if let Some(session) = self.ends.take() {
            cx.disconnect(session);
        }
        self.completions.push(Done {
            tag,
            result: completion.result,
            response: completion.response.to_vec(),
        });
    }
}

/// A key that every node has and knows.
pub(crate) fn one_key(stage: Stage) -> Keys {
    let own = key(b"everybody", 7);
    Keys {
        stage,
        ring: Arc::new(Ring(vec![own.clone()])),
        own: Some(own),
        entropy: Arc::new(|| [9; 32]),
        key_log: None,
    }
}

pub(crate) fn key(name: &[u8], byte: u8) -> OwnKey {
    OwnKey {
        id: KeyId::new(name).expect("a short name"),
        psk: Psk::new([byte; 32]),
    }
}

/// The keys that a server knows.
pub(crate) struct Ring(pub(crate) Vec<OwnKey>);

impl KeyRing for Ring {
    fn find(&self, key: &KeyId) -> Option<Psk> {
        let found = self.0.iter().find(|own| own.id == *key)?;
        Some(found.psk.clone())
    }
}

/// Bytes that follow from an id.
pub(crate) fn pattern(id: u64, bytes: usize) -> Vec<u8> {
    let mut out = vec![0; bytes];
    Prng::new(id).fill(&mut out);
    if let Some(first) = out.first_chunk_mut() {
        *first = id.to_le_bytes();
    }
    out
}

pub(crate) fn caps() -> Caps {
    Caps {
        mtu: 1472,
        rto_floor: Duration::from_millis(1),
        copies: true,
        rx_queue_packets: 4096,
        packet_is_dear: false,
    }
}

impl Net {
    pub(crate) fn new(seed: u64, nodes: usize, config: &Config) -> Self {
        Self::with_caps(seed, nodes, config, caps())
    }

    pub(crate) fn with_caps(seed: u64, nodes: usize, config: &Config, caps: Caps) -> Self {
        let mut net = Self {
            now: Instant::from_nanos(1_000_000_000),
            nodes: Vec::new(),
            faults: Faults::NONE,
            prng: Prng::new(seed),
            under_way: BTreeMap::new(),
            sent: 0,
            bottleneck: None,
            narrow: None,
            keys: None,
            finishes_nothing: None,
            recorded: None,
        };
        for index in 0..nodes {
            let identity = Identity {
                cluster: 0,
                incarnation: index as u64 + 1,
            };
            net.add(config, caps, identity);
        }
        net
    }

    /// Endpoints whose sessions are all sealed, by one key.
    pub(crate) fn sealed(seed: u64, nodes: usize, config: &Config) -> Self {
        let mut net = Self::new(seed, 0, config);
        net.keys = Some(one_key(Stage::Require));
        for index in 0..nodes {
            let identity = Identity {
                cluster: 0,
                incarnation: index as u64 + 1,
            };
            net.add(config, caps(), identity);
        }
        net
    }

    /// Adds a node; its route is the index.
    pub(crate) fn add(&mut self, config: &Config, caps: Caps, identity: Identity) -> usize {
        let seed = self.prng.next_u64();
        self.nodes.push(Node::new(config, caps, identity, seed));
        let node = self.nodes.len() - 1;
        self.set_keys(node);
        node
    }

    /// Gives a new node the keys of the network.
    fn set_keys(&mut self, node: usize) {
        if let Some(mut keys) = self.keys.clone() {
            let mut seed = [0; 32];
            self.prng.fill(&mut seed);
            keys.entropy = Arc::new(move || seed);
            self.nodes[node].endpoint.set_keys(keys);
        }
    }

    /// A node's process dies and a new one takes its address.
    pub(crate) fn restart(&mut self, node: usize, config: &Config) {
        let seed = self.prng.next_u64();
        self.nodes[node] = Node::new(
            config,
            caps(),
            Identity {
                cluster: 0,
                incarnation: seed,
            },
            seed,
        );
        self.set_keys(node);
    }

    pub(crate) fn connect(&mut self, from: usize, to: usize) -> SessionId {
        let now = self.now;
        self.nodes[from]
            .endpoint
            .connect(now, to as u32, ConnectParams::default())
            .expect("there is room")
    }

    /// Connects and waits for it.
    pub(crate) fn connected(&mut self, from: usize, to: usize) -> SessionId {
        let session = self.connect(from, to);
        let stands = |net: &Self| {
            net.nodes[from]
                .app
                .events
                .iter()
                .any(|e| matches!(e, Event::Connected { session: s, .. } if *s == session))
        };
        assert!(
            self.run_until(Duration::from_secs(5), stands),
            "no session: {:?}",
            self.nodes[from].app.events
        );
        session
    }

    /// Enqueues a request of this size whose id is `tag`, with room for as large a response.
    pub(crate) fn request(
        &mut self,
        from: usize,
        session: SessionId,
        tag: u64,
        bytes: usize,
    ) -> crate::RequestId {
        self.request_for(from, session, tag, bytes, bytes, None)
    }

    pub(crate) fn request_for(
        &mut self,
        from: usize,
        session: SessionId,
        tag: u64,
        bytes: usize,
        response_bytes: usize,
        deadline: Option<Instant>,
    ) -> crate::RequestId {
        let node = &mut self.nodes[from].endpoint;
        let mut request = node
            .pool()
            .alloc(bytes)
            .expect("the test pool is large enough");
        request.copy_from_slice(&pattern(tag, bytes));
        let response = node
            .pool()
            .alloc(response_bytes)
            .expect("the test pool is large enough");
        node.enqueue_request(self.now, session, 7, request, response, tag, deadline)
            .expect("accepted")
    }

    /// Lets time pass until `done` holds; false if it does not within `limit`.
    pub(crate) fn run_until(&mut self, limit: Duration, done: impl Fn(&Self) -> bool) -> bool {
        let end = self.now + limit;
        loop {
            self.settle();
            if done(self) {
                return true;
            }
            let next = self.next_moment();
            if next > end {
                self.now = end;
                self.settle();
                return done(self);
            }
            self.now = self.now.max(next);
        }
    }

    pub(crate) fn run_for(&mut self, span: Duration) {
        self.run_until(span, |_| false);
    }

    /// Hands bytes to a node as if they had come from `from`.
    pub(crate) fn inject(&mut self, to: usize, from: u32, bytes: &[u8]) {
        let now = self.now;
        self.nodes[to].receive(now, from, bytes);
    }

    /// Answers everything that a `Later` handler has kept.
    pub(crate) fn answer_all(&mut self, node: usize) {
        let now = self.now;
        let node = &mut self.nodes[node];
        for (handle, response) in std::mem::take(&mut node.app.waiting) {
            let _ = node.endpoint.enqueue_response(now, handle, response);
        }
    }

    fn next_moment(&self) -> Instant {
        let arrival = self
            .under_way
            .keys()
            .next()
            .map_or(Instant::FAR_FUTURE, |(at, _)| *at);
        self.nodes
            .iter()
            .filter(|node| !node.is_dead)
            .filter_map(|node| node.endpoint.next_timeout())
            .fold(arrival, Instant::min)
    }

    /// Does everything that can be done at this moment.
    fn settle(&mut self) {
        for turn in 0.. {
            assert!(turn < 100_000, "the endpoints never come to rest");
            let arrived = self.deliver();
            let sent = self.turn();
            if arrived + sent == 0 && self.next_moment() > self.now {
                // As event loops do in front of a sleep.
                let now = self.now;
                for node in self.nodes.iter_mut().filter(|node| !node.is_dead) {
                    node.endpoint.settle_timers(now);
                }
                return;
            }
        }
    }

    fn deliver(&mut self) -> usize {
        let later = self.under_way.split_off(&(self.now, u64::MAX));
        let arrived = std::mem::replace(&mut self.under_way, later);
        let count = arrived.len();
        for (to, from, bytes) in arrived.into_values() {
            let now = self.now;
            if let Some(node) = self.nodes.get_mut(to as usize).filter(|node| !node.is_dead) {
                node.receive(now, from, &bytes);
            }
        }
        count
    }

    fn turn(&mut self) -> usize {
        let mut count = 0;
        let nodes = self.nodes.len();
        for index in 0..nodes {
            let node = &self.nodes[index];
            let due = node.endpoint.next_timeout().unwrap_or(Instant::FAR_FUTURE);
            if node.is_dead || due > self.now {
                continue;
            }
            for (to, bytes) in self.nodes[index].turn(self.now) {
                count += 1;
                if let Some(recorded) = &mut self.recorded
                    && (to as usize) < nodes
                {
                    recorded.push((index as u32, to, bytes.clone()));
                }
                self.send(index as u32, to, bytes);
            }
        }
        count
    }

    fn send(&mut self, from: u32, to: u32, mut bytes: Vec<u8>) {
        let faults = self.faults;
        let copies = 1 + usize::from(self.prng.chance(faults.duplication));
        if self.prng.chance(faults.loss) {
            return;
        }
        if self
            .narrow
            .is_some_and(|(node, most)| node == to && bytes.len() > most)
        {
            return;
        }
        if self.finishes_nothing == Some(from) && is_later_part(&bytes) {
            return;
        }
        for _ in 0..copies {
            let mut at = self.now + faults.delay;
            if self.prng.chance(faults.reorder) {
                at += Duration::from_nanos(self.prng.below(faults.reorder_by.as_nanos() + 1));
            }
            if self.prng.chance(faults.corruption) {
                let place = self.prng.below(bytes.len() as u64 * 8);
                bytes[place as usize / 8] ^= 1 << (place % 8);
            }
            if let Some(port) = self.bottleneck.as_mut().filter(|port| port.to == to) {
                let Some(passed) = port.pass(at, bytes.len()) else {
                    continue;
                };
                at = passed;
            }
            self.sent += 1;
            self.under_way
                .insert((at, self.sent), (to, from, bytes.clone()));
        }
    }
}

/// A part of a request or, asked for, of a response that is not its first.
fn is_later_part(bytes: &[u8]) -> bool {
    split_first(bytes).is_ok_and(|(packet, _)| {
        let header = packet.header;
        header.packet_number > 0
            && matches!(
                header.packet_type,
                PacketType::Request | PacketType::RequestForResponse
            )
    })
}

impl Node {
    pub(crate) fn new(config: &Config, caps: Caps, identity: Identity, seed: u64) -> Self {
        let pool = Pool::new(PoolConfig::default());
        let app = TestApp {
            manner: Manner::Echo,
            executed: BTreeMap::new(),
            waiting: Vec::new(),
            completions: Vec::new(),
            events: Vec::new(),
            deadlines: Vec::new(),
            holder: |_| Holder::Shared,
            admits: |_| true,
            ends: None,
        };
        let endpoint = Endpoint::new(config.clone(), &caps, pool, identity, seed)
            .expect("a good configuration");
        Self {
            endpoint,
            app,
            is_dead: false,
            checks_invariants: true,
            tx: TxBatch::new(),
        }
    }

    pub(crate) fn receive(&mut self, now: Instant, from: u32, bytes: &[u8]) {
        self.receive_unchecked(now, from, bytes);
        if self.checks_invariants {
            self.endpoint.check_invariants();
        }
    }

    pub(crate) fn turn(&mut self, now: Instant) -> Vec<(u32, Vec<u8>)> {
        let packets = self.turn_unchecked(now);
        if self.checks_invariants {
            self.endpoint.check_invariants();
        }
        packets
    }

    /// Without the check of every session.
    pub(crate) fn receive_unchecked(&mut self, now: Instant, from: u32, bytes: &[u8]) {
        let packets = [RxPacket {
            bytes,
            route: from,
            ecn: false,
        }];
        self.endpoint
            .on_packets(now, &mut RxBatch::from_packets(&packets), &mut self.app);
    }

    pub(crate) fn turn_unchecked(&mut self, now: Instant) -> Vec<(u32, Vec<u8>)> {
        self.endpoint.on_timeout(now, &mut self.app);
        while let Some(event) = self.endpoint.poll_event() {
            self.app.events.push(event);
        }
        let transmit = self.endpoint.poll_transmit(now, &mut self.tx);
        if transmit.flush_first {
            self.endpoint.on_tx_flushed();
        }
        let packets = self.tx.iter().map(|item| {
            let mut bytes = Vec::new();
            item.copy_to(&mut bytes);
            (item.route, bytes)
        });
        let packets = packets.collect();
        self.tx.clear();
        packets
    }
}
