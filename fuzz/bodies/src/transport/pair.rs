//! Two endpoints on virtual time, over the public interface alone.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use trine_transport::backend::{Caps, RxBatch, RxPacket, TxBatch};
use trine_transport::buf::{MsgBuf, Pool, PoolConfig};
use trine_transport::keys::{KeyId, KeyRing, Keys, OwnKey, Psk, Stage};
use trine_transport::time::{Duration, Instant};
use trine_transport::{
    App, Completion, Config, ConnectParams, Cx, Endpoint, Event, Identity, Reply, Request,
    ResponseHandle, RpcError, SessionId,
};

pub(crate) struct Pair {
    pub(crate) now: Instant,
    /// The client, then the server. A node's route is its index.
    pub(crate) nodes: [Node; 2],
    /// Packets under way: to, from, bytes.
    pub(crate) wire: VecDeque<(usize, u32, Vec<u8>)>,
}

pub(crate) struct Node {
    pub(crate) endpoint: Endpoint<u32>,
    pub(crate) app: Counter,
    tx: TxBatch<u32>,
}

/// One key that both nodes hold and require.
fn keys(seed: u8) -> Keys {
    Keys {
        stage: Stage::Require,
        ring: Arc::new(OneKey),
        own: Some(OwnKey {
            id: KeyId::new(b"fuzz").expect("a short name"),
            psk: Psk::new([7; 32]),
        }),
        entropy: Arc::new(move || [seed; 32]),
        key_log: None,
    }
}

struct OneKey;

impl KeyRing for OneKey {
    fn find(&self, _: &KeyId) -> Option<Psk> {
        Some(Psk::new([7; 32]))
    }
}

/// Echoes immediately or later, counts executions by the request's first byte.
#[derive(Default)]
pub(crate) struct Counter {
    pub(crate) answers_later: bool,
    pub(crate) waiting: Vec<(ResponseHandle, MsgBuf)>,
    pub(crate) executed: BTreeMap<u8, u32>,
    pub(crate) completed: BTreeMap<u64, Result<(), RpcError>>,
    pub(crate) connected: Vec<SessionId>,
}

impl App<u32> for Counter {
    fn on_request(&mut self, cx: &mut Cx<'_, u32>, request: Request<'_>) -> Reply {
        let Some(mut response) = cx.alloc(request.data.len()) else {
            return Reply::Later;
        };
        response.copy_from_slice(request.data);
        if let Some(first) = request.data.first() {
            *self.executed.entry(*first).or_default() += 1;
        }
        if self.answers_later {
            self.waiting.push((request.handle, response));
            return Reply::Later;
        }
        Reply::Now(response)
    }

    fn on_completion(&mut self, _: &mut Cx<'_, u32>, tag: u64, completion: Completion) {
        let ended = self.completed.insert(tag, completion.result);
        assert!(ended.is_none(), "request {tag} ended twice");
        if completion.result.is_ok() {
            assert!(
                completion.response[..] == completion.request[..],
                "request {tag} got another's answer"
            );
        }
    }
}

impl Pair {
    /// Connected, nothing under way.
    pub(crate) fn connected() -> Self {
        Self::of([None, None])
    }

    /// The same, and sealed.
    pub(crate) fn sealed() -> Self {
        Self::of([Some(keys(1)), Some(keys(2))])
    }

    fn of([client, server]: [Option<Keys>; 2]) -> Self {
        let mut pair = Self {
            now: Instant::from_nanos(1_000_000_000),
            nodes: [Node::new(1, client), Node::new(2, server)],
            wire: VecDeque::new(),
        };
        pair.nodes[0]
            .endpoint
            .connect(pair.now, 1, ConnectParams::default())
            .expect("room");
        pair.settle(Duration::from_millis(1));
        assert_eq!(pair.nodes[0].app.connected.len(), 1);
        pair
    }

    /// Lets both endpoints send.
    pub(crate) fn turn(&mut self) {
        for (index, node) in self.nodes.iter_mut().enumerate() {
            for (to, bytes) in node.turn(self.now) {
                if to < 2 {
                    self.wire.push_back((to as usize, index as u32, bytes));
                }
            }
        }
    }

    /// Delivers the oldest packet under way.
    pub(crate) fn deliver(&mut self) {
        if let Some((to, from, bytes)) = self.wire.pop_front() {
            self.nodes[to].receive(self.now, from, &bytes);
        }
    }

    /// Lets time pass in steps of 100 us over a faultless network.
    pub(crate) fn settle(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            self.turn();
            while !self.wire.is_empty() {
                self.deliver();
                self.turn();
            }
            self.now += Duration::from_micros(100);
        }
    }
}

impl Node {
    fn new(seed: u64, keys: Option<Keys>) -> Self {
        let caps = Caps {
            mtu: 1472,
            rto_floor: Duration::from_millis(1),
            copies: true,
            rx_queue_packets: 4096,
            packet_is_dear: false,
        };
        let pool = Pool::new(PoolConfig::default());
        let identity = Identity {
            cluster: 0,
            incarnation: seed,
        };
        let config = Config {
            keys,
            ..Config::default()
        };
        let endpoint =
            Endpoint::new(config, &caps, pool, identity, seed).expect("a good configuration");
        Self {
            endpoint,
            app: Counter::default(),
            tx: TxBatch::new(),
        }
    }

    pub(crate) fn receive(&mut self, now: Instant, from: u32, bytes: &[u8]) {
        let packets = [RxPacket {
            bytes,
            route: from,
            ecn: false,
        }];
        self.endpoint
            .on_packets(now, &mut RxBatch::from_packets(&packets), &mut self.app);
    }

    fn turn(&mut self, now: Instant) -> Vec<(u32, Vec<u8>)> {
        self.endpoint.on_timeout(now, &mut self.app);
        while let Some(event) = self.endpoint.poll_event() {
            if let Event::Connected { session, .. } = event {
                self.app.connected.push(session);
            }
        }
        self.endpoint.poll_transmit(now, &mut self.tx);
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
