//! What a node tells about its links.

use std::net::SocketAddr;

use trine_protocol::endpoint_config;
use trine_protocol::message::{
    AdminCommand, AdminReply, AdminRequest, AdminStatus, ClusterId, Encode, Incarnation, NodeId,
    kind,
};
use trine_transport::backend::{RingBackend, RingRoute};
use trine_transport::event_loop::EventLoop;
use trine_transport::time::{Clock, Duration};
use trine_transport::{
    App, Completion, ConnectParams, Cx, Event, Holder, Identity, Reply, Request, SessionId,
};

use super::world::World;
use crate::support::{ManualClock, STRANGERS_PORT};

/// Sends one admin command until it is done.
struct Operator(AdminRequest, Option<SessionId>);

impl Operator {
    fn send(&self, cx: &mut Cx<'_, RingRoute>) {
        let session = self.1.expect("it is connected");
        let bytes = self.0.encode_to_vec();
        let mut request = cx.alloc(bytes.len()).expect("a buffer");
        request.copy_from_slice(&bytes);
        let response = cx.alloc(512).expect("a buffer");
        cx.enqueue_request(session, kind::ADMIN, request, response, 0, None)
            .expect("room in the session");
    }
}

impl App<RingRoute> for Operator {
    fn on_request(&mut self, _cx: &mut Cx<'_, RingRoute>, _request: Request<'_>) -> Reply {
        unreachable!("nobody asks it")
    }

    fn on_completion(&mut self, cx: &mut Cx<'_, RingRoute>, _tag: u64, completion: Completion) {
        completion.result.expect("the leader is there");
        let reply = AdminReply::decode(&completion.response).expect("an answer");
        match reply.status {
            AdminStatus::Done => {}
            AdminStatus::InProgress => self.send(cx),
            other => panic!("{other:?}: {}", reply.text),
        }
    }

    fn on_event(&mut self, cx: &mut Cx<'_, RingRoute>, event: Event<RingRoute>) {
        let Event::Connected { session, .. } = event else {
            panic!("the leader is there all the while: {event:?}");
        };
        self.1 = Some(session);
        self.send(cx);
    }
}

/// An endpoint that sends `command` to a node.
fn operator(
    world: &World,
    wire: RingBackend,
    node_id: usize,
    command: AdminRequest,
) -> EventLoop<RingBackend, ManualClock, Operator> {
    let (clock, nobody) = (world.clock.clone(), Identity::default());
    let mut operator = EventLoop::new(
        wire,
        clock,
        Operator(command, None),
        endpoint_config(),
        nobody,
        7,
    )
    .expect("a sound configuration");
    operator.with(|_, cx| {
        cx.connect(RingRoute(node_id as u16), ConnectParams::default())
            .expect("room for a session")
    });
    operator
}

/// Tells the leader of one address after the other for a member, and answers at each of them.
struct Namer {
    of: NodeId,
    session: Option<SessionId>,
    named: u16,
    /// Sessions that the leader has opened: one for each address that it asks at.
    accepted: usize,
}

impl Namer {
    fn name_next(&mut self, cx: &mut Cx<'_, RingRoute>) {
        let address = SocketAddr::from(([127, 0, 0, 1], STRANGERS_PORT + self.named));
        self.named += 1;
        let command = AdminRequest {
            command: AdminCommand::Replace,
            node_id: self.of,
            incarnation: Incarnation::NONE,
            cluster: ClusterId::NONE,
            address: Some(address),
        };
        Operator(command, self.session).send(cx);
    }
}

impl App<RingRoute> for Namer {
    fn on_request(&mut self, cx: &mut Cx<'_, RingRoute>, _request: Request<'_>) -> Reply {
        Reply::Now(cx.alloc(0).expect("a buffer"))
    }

    fn on_completion(&mut self, _cx: &mut Cx<'_, RingRoute>, _tag: u64, completion: Completion) {
        let reply = AdminReply::decode(&completion.response).expect("an answer");
        assert_eq!(reply.status, AdminStatus::InProgress, "{}", reply.text);
    }

    fn on_event(&mut self, _cx: &mut Cx<'_, RingRoute>, event: Event<RingRoute>) {
        match event {
            Event::Connected { session, .. } => self.session = Some(session),
            Event::Accepted { .. } => self.accepted += 1,
            Event::ConnectFailed { .. } | Event::Down { .. } => {}
        }
    }

    fn holder(&self, _route: &RingRoute) -> Holder {
        Holder::Privileged
    }
}

/// An operator without a key can name more addresses than a replica has links, and run an endpoint at each of them. Their
/// sessions stayed for good, and a replica that came later was never sent anything.
#[test]
fn links_to_strangers_give_way_when_all_places_are_taken() {
    let (mut world, spare) = World::with_spare(9);
    let leader = world.run_until_led();
    // The places of a member that is missed are asked often.
    let of = (leader + 1) % 3;
    world.paused[of] = true;
    world.run_for(Duration::from_secs(3));
    let namer = Namer {
        of: NodeId(of as u32),
        session: None,
        named: 0,
        accepted: 0,
    };
    let (clock, nobody) = (world.clock.clone(), Identity::default());
    let mut namer: EventLoop<_, ManualClock, _> =
        EventLoop::new(spare, clock, namer, endpoint_config(), nobody, 7).expect("sound");
    namer.with(|_, cx| {
        cx.connect(RingRoute(leader as u16), ConnectParams::default())
            .expect("room for a session")
    });
    world.run_until(Duration::from_secs(1), "the namer's session", |_| {
        namer.turn().expect("rings do not fail");
        namer.app().session.is_some()
    });
    // As many at a time as a replica remembers, and time to ask at each.
    for _ in 0..9 {
        for _ in 0..16 {
            namer.with(|namer, cx| namer.name_next(cx));
        }
        let end = world.clock.now() + Duration::from_secs(7);
        while world.clock.now() < end {
            namer.turn().expect("rings do not fail");
            world.step();
        }
    }
    let accepted = namer.app().accepted;
    assert!(
        accepted >= 140,
        "only {accepted} of 144 addresses were asked"
    );
    assert_eq!(world.leader(), Some(leader));
}

/// The state of the links for consensus that a node shows: to whom, whether it is idle, whether it has a round trip.
fn links(world: &mut World, node_id: usize) -> Vec<(SocketAddr, bool, bool)> {
    let links = world.status(node_id).links;
    let raft = links.iter().filter(|link| link.class == "raft");
    raft.map(|link| {
        assert_eq!(link.rtt_ns.is_some(), link.rtt_ns_min.is_some());
        (link.address, link.idle, link.rtt_ns.is_some())
    })
    .collect()
}

/// `trine status` showed the sessions of a former leader, and those to removed members, as up with the round trips of
/// long ago.
#[test]
fn links_that_nobody_uses_show_no_round_trip_and_those_to_removed_members_do_not_show() {
    let (mut world, spare) = World::with_spare(9);
    let old = world.run_until_led();
    world.run_for(Duration::from_millis(100));
    let of_a_leader = links(&mut world, old);
    assert_eq!(of_a_leader.len(), 2);
    assert!(of_a_leader.iter().all(|&(_, idle, timed)| timed && !idle));

    world.paused[old] = true;
    world.run_until(Duration::from_secs(5), "another leader", |world| {
        world.leader().is_some()
    });
    world.paused[old] = false;
    world.run_for(Duration::from_secs(3));
    let leader = world.run_until_led();
    assert_ne!(leader, old);
    let of_a_leader = links(&mut world, leader);
    assert!(of_a_leader.iter().all(|&(_, idle, timed)| timed && !idle));
    let former = links(&mut world, old);
    assert!(!former.is_empty() && former.iter().all(|&(_, idle, timed)| idle && !timed));

    let removed = world.status(old).replica.address;
    let command = AdminRequest {
        command: AdminCommand::Remove,
        node_id: NodeId(old as u32),
        incarnation: Incarnation::NONE,
        cluster: ClusterId::NONE,
        address: None,
    };
    let mut operator = operator(&world, spare, leader, command);
    world.run_until(Duration::from_secs(5), "two members", |world| {
        operator.turn().expect("rings do not fail");
        world.status(leader).replica.members.len() == 2
    });
    let rest = links(&mut world, leader);
    assert!(rest.len() == 1 && rest[0].0 != removed, "{rest:?}");
}
