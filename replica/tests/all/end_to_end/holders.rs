//! Whom a replica counts callers for: members for themselves, all others by their address. An address that registers
//! client after client leaves entries for those of others.

use std::collections::BTreeMap;

use trine_protocol::endpoint_config;
use trine_protocol::message::{ClientReply, ClientRequest, ClientStatus, Encode, Operation, kind};
use trine_replica::ReplicaConfig;
use trine_replica::config::SessionLimits;
use trine_transport::backend::RingRoute;
use trine_transport::event_loop::EventLoop;
use trine_transport::time::Duration;
use trine_transport::{
    App, Completion, ConnectParams, Cx, Event, Holder, Identity, Reply, Request,
};

use super::world::{REPLICAS, World};

/// Session entries of the group.
const ENTRIES: u32 = 64;

/// Registers one client after the other.
#[derive(Default)]
struct Registering {
    registered: u64,
    answers: BTreeMap<u8, u32>,
}

impl Registering {
    fn register(&mut self, cx: &mut Cx<'_, RingRoute>, session: trine_transport::SessionId) {
        self.registered += 1;
        let request = ClientRequest {
            client: self.registered,
            ..ClientRequest::bare(Operation::Register)
        }
        .encode_to_vec();
        let mut buffer = cx.alloc(request.len()).expect("a buffer");
        buffer.copy_from_slice(&request);
        let response = cx.alloc(512).expect("a buffer");
        cx.enqueue_request(session, kind::CLIENT, buffer, response, 0, None)
            .expect("room in the session");
    }
}

impl App<RingRoute> for Registering {
    fn on_request(&mut self, _cx: &mut Cx<'_, RingRoute>, _request: Request<'_>) -> Reply {
        unreachable!("nobody asks it")
    }

    fn on_completion(&mut self, _cx: &mut Cx<'_, RingRoute>, _tag: u64, completion: Completion) {
        completion.result.expect("an answer");
        let reply = ClientReply::decode(&completion.response).expect("an answer");
        *self.answers.entry(reply.status.to_wire()).or_default() += 1;
    }

    fn on_event(&mut self, cx: &mut Cx<'_, RingRoute>, event: Event<RingRoute>) {
        if let Event::Connected { session, .. } = event {
            (0..ENTRIES).for_each(|_| self.register(cx, session));
        }
    }
}

#[test]
fn an_address_that_registers_all_it_can_leaves_room_for_others() {
    let config = ReplicaConfig {
        session_limits: SessionLimits {
            count_max: ENTRIES,
            ..SessionLimits::default()
        },
        ..ReplicaConfig::default()
    };
    let (mut world, spare) = World::configured(11, config);
    let leader = world.run_until_led();
    let node = world.nodes[leader].as_ref().expect("it is alive");
    let member = RingRoute((leader as u16 + 1) % REPLICAS);
    assert_eq!(node.app().holder(&member), Holder::Privileged);
    let stranger = Holder::Address(u64::from(REPLICAS));
    assert_eq!(node.app().holder(&RingRoute(REPLICAS)), stranger);

    let mut stranger = EventLoop::new(
        spare,
        world.clock.clone(),
        Registering::default(),
        endpoint_config(),
        Identity::default(),
        5,
    )
    .expect("a sound configuration");
    stranger.with(|_, cx| {
        cx.connect(RingRoute(leader as u16), ConnectParams::default())
            .expect("room for a session")
    });
    let all = |answers: &BTreeMap<u8, u32>| answers.values().sum::<u32>() == ENTRIES;
    world.run_until(Duration::from_secs(5), "an answer to each", |_| {
        stranger.turn().expect("rings do not fail");
        all(&stranger.app().answers)
    });
    let answers = &stranger.app().answers;
    let taken = answers[&(ClientStatus::Ok.to_wire())];
    assert_eq!(taken, ENTRIES / 4 * 3);
    assert_eq!(
        answers[&(ClientStatus::SessionShareTaken.to_wire())],
        ENTRIES - taken
    );
    let client = world.open();
    world.put(client, b"k", b"v");
    let status = world.status(leader).replica;
    assert_eq!(
        u64::from(ENTRIES - taken),
        status.counters.registrations_refused
    );
    assert_eq!(status.sessions.refused, 0);
}
