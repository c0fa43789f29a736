//! More requests than a replica lets wait: those beyond are told to come back, and none is forgotten.

use std::collections::HashMap;

use trine_kvstore::Command;
use trine_protocol::endpoint_config;
use trine_protocol::message::{
    BATCH_ITEMS_MAX, BatchItems, BatchWriter, ClientReply, ClientRequest, ClientStatus, Encode,
    Operation, kind,
};
use trine_replica::ReplicaConfig;
use trine_replica::node::WAITING_REQUESTS_MAX;
use trine_transport::backend::RingRoute;
use trine_transport::event_loop::EventLoop;
use trine_transport::time::Duration;
use trine_transport::{
    App, Completion, ConnectParams, Cx, Event, Identity, Reply, Request, SessionId,
};

use super::world::World;

/// Batches that a session carries at a time.
const SLOTS: usize = 64;
/// Requests beyond the bound.
const BEYOND: usize = 2 * SLOTS * BATCH_ITEMS_MAX;
const BATCHES: usize = (WAITING_REQUESTS_MAX + BEYOND) / BATCH_ITEMS_MAX;

/// Sends as many batches of reads as fit into its sessions, and counts how their requests end.
struct Flood {
    batch: Vec<u8>,
    sessions: Vec<(SessionId, usize)>,
    sent: usize,
    answers: HashMap<ClientStatus, usize>,
}

impl App<RingRoute> for Flood {
    fn on_request(&mut self, _cx: &mut Cx<'_, RingRoute>, _request: Request<'_>) -> Reply {
        unreachable!("nobody asks it")
    }

    fn on_completion(&mut self, _cx: &mut Cx<'_, RingRoute>, _tag: u64, completion: Completion) {
        completion.result.expect("an answer to each batch");
        let items = BatchItems::decode(&completion.response).expect("a batch of answers");
        assert_eq!(items.len(), BATCH_ITEMS_MAX);
        for item in items {
            let status = ClientReply::decode(item).expect("an answer").status;
            *self.answers.entry(status).or_default() += 1;
        }
    }

    fn on_event(&mut self, _cx: &mut Cx<'_, RingRoute>, event: Event<RingRoute>) {
        match event {
            Event::Connected { session, .. } => self.sessions.push((session, 0)),
            other => panic!("the leader is there all the while: {other:?}"),
        }
    }

    fn on_turn(&mut self, cx: &mut Cx<'_, RingRoute>) {
        for (session, sent) in &mut self.sessions {
            while *sent < SLOTS && self.sent < BATCHES {
                let mut request = cx.alloc(self.batch.len()).expect("a buffer");
                request.copy_from_slice(&self.batch);
                let response = cx.alloc(8 << 10).expect("a buffer");
                let enqueued =
                    cx.enqueue_request(*session, kind::CLIENT_BATCH, request, response, 0, None);
                enqueued.expect("room in the session");
                *sent += 1;
                self.sent += 1;
            }
        }
    }
}

/// A batch of linearizable reads, which wait for a quorum.
fn batch_of_reads() -> Vec<u8> {
    let mut command = Vec::new();
    Command::Get { key: b"k" }.encode(&mut command);
    let read = ClientRequest {
        command: &command,
        ..ClientRequest::bare(Operation::ReadLinearizable)
    };
    let read = read.encode_to_vec();
    let mut bytes = vec![0; 8 << 10];
    let mut writer = BatchWriter::new(&mut bytes);
    (0..BATCH_ITEMS_MAX).for_each(|_| writer.push(&read));
    let len = writer.finish();
    bytes.truncate(len);
    bytes
}

#[test]
fn requests_beyond_the_bound_are_told_to_come_back() {
    // The replica's own bounds would be met before the node's.
    let config = ReplicaConfig {
        pending_requests_max: usize::MAX,
        pending_bytes_max: 1 << 30,
        ..ReplicaConfig::default()
    };
    let (mut world, spare) = World::configured(31, config);
    let leader = world.run_until_led();
    world.run_for(Duration::from_millis(50));
    let app = Flood {
        batch: batch_of_reads(),
        sessions: Vec::new(),
        sent: 0,
        answers: HashMap::new(),
    };
    let nobody = Identity::default();
    let clock = world.clock.clone();
    let mut flood = EventLoop::new(spare, clock, app, endpoint_config(), nobody, 7).unwrap();
    flood.with(|_, cx| {
        for _ in 0..BATCHES / SLOTS {
            let connecting = cx.connect(RingRoute(leader as u16), ConnectParams::default());
            connecting.expect("room for a session");
        }
    });
    // Without followers no read can be confirmed: all of them wait.
    for node_id in (0..3).filter(|&node_id| node_id != leader) {
        world.paused[node_id] = true;
    }
    let refused =
        |flood: &EventLoop<_, _, Flood>| flood.app().answers.get(&ClientStatus::Busy).copied();
    world.run_until(
        Duration::from_millis(100),
        "requests beyond the bound",
        |_| {
            flood.turn().expect("rings do not fail");
            refused(&flood).unwrap_or_default() >= BEYOND
        },
    );
    assert_eq!(flood.app().sent, BATCHES);
    assert_eq!(refused(&flood), Some(BEYOND), "no more than that");
    let stats = world.nodes[leader]
        .as_ref()
        .expect("alive")
        .app()
        .node
        .stats();
    assert_eq!(stats.overloaded, BEYOND as u64);
    // The leader finds out that it has no followers, and says so to all that wait.
    world.run_until(Duration::from_secs(2), "the other answers", |_| {
        flood.turn().expect("rings do not fail");
        flood.app().answers.values().sum::<usize>() == BATCHES * BATCH_ITEMS_MAX
    });
    let ended = flood.app().answers.get(&ClientStatus::NotLeader);
    assert_eq!(ended, Some(&WAITING_REQUESTS_MAX));
}
