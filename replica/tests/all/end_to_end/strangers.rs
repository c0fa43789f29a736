//! Appends that come ahead of one that never comes, from sessions of unknown senders.

use std::sync::atomic::Ordering;

use trine_protocol::endpoint_config;
use trine_protocol::message::{
    AppendFrame, ClusterId, Encode, GroupId, Incarnation, PeerHeader, kind,
};
use trine_transport::backend::{RingBackend, RingRoute};
use trine_transport::event_loop::EventLoop;
use trine_transport::time::Duration;
use trine_transport::{
    App, Completion, ConnectParams, Cx, Event, Identity, Reply, Request, SessionId,
};

use super::world::World;
use crate::support::ManualClock;

/// Appends that a session carries at a time.
const SLOTS: usize = 64;
/// The node that is sent the appends.
const TARGET: usize = 1;

/// Sends appends 5 to 68 of a stream over each of its sessions.
struct Stranger {
    header: PeerHeader,
    sent: usize,
    answered: usize,
}

impl Stranger {
    fn send(&mut self, cx: &mut Cx<'_, RingRoute>, session: SessionId) {
        for sequence in (5..).take(SLOTS) {
            let frame = AppendFrame {
                header: self.header,
                stream: 1,
                sequence,
                message: &[0xff; 16],
            }
            .encode_to_vec();
            let mut request = cx.alloc(frame.len()).expect("a buffer");
            request.copy_from_slice(&frame);
            let response = cx.alloc(512).expect("a buffer");
            cx.enqueue_request(session, kind::APPEND, request, response, 0, None)
                .expect("room in the session");
            self.sent += 1;
        }
    }
}

impl App<RingRoute> for Stranger {
    fn on_request(&mut self, _cx: &mut Cx<'_, RingRoute>, _request: Request<'_>) -> Reply {
        unreachable!("nobody asks it")
    }

    fn on_completion(&mut self, _cx: &mut Cx<'_, RingRoute>, _tag: u64, completion: Completion) {
        completion
            .result
            .expect("the replica is there all the while");
        self.answered += 1;
    }

    fn on_event(&mut self, cx: &mut Cx<'_, RingRoute>, event: Event<RingRoute>) {
        match event {
            Event::Connected { session, .. } => self.send(cx, session),
            other => panic!("the replica is there all the while: {other:?}"),
        }
    }
}

/// The header that a member would write in front of its appends to [`TARGET`]: STATUS tells it to
/// any client.
fn honest(world: &mut World, from: usize) -> PeerHeader {
    let number = |text: &str| u64::from_str_radix(text, 16).expect("status prints hexadecimal");
    let [sender, receiver] = [from, TARGET].map(|node_id| world.status(node_id).replica);
    PeerHeader {
        state_version: 0,
        cluster: ClusterId(number(sender.cluster.as_deref().expect("it has begun"))),
        group: GroupId(0),
        from: Incarnation(number(&sender.incarnation)),
        to: Incarnation(number(&receiver.incarnation)),
    }
}

/// Sends appends with `header` over so many sessions, and returns how many were sent and answered within 50 ms.
fn flood(world: &mut World, spare: RingBackend, header: PeerHeader, sessions: usize) -> [usize; 2] {
    let app = Stranger {
        header,
        sent: 0,
        answered: 0,
    };
    let (clock, nobody) = (world.clock.clone(), Identity::default());
    let mut stranger: EventLoop<_, ManualClock, _> =
        EventLoop::new(spare, clock, app, endpoint_config(), nobody, 7).expect("sound");
    stranger.with(|_, cx| {
        for _ in 0..sessions {
            let connecting = cx.connect(RingRoute(TARGET as u16), ConnectParams::default());
            connecting.expect("room for a session");
        }
    });
    let all = sessions * SLOTS;
    world.run_until(Duration::from_secs(1), "the appends", |_| {
        stranger.turn().expect("rings do not fail");
        stranger.app().sent == all
    });
    for _ in 0..1_000 {
        stranger.turn().expect("rings do not fail");
        world.step();
    }
    [stranger.app().sent, stranger.app().answered]
}

fn appends_early(world: &World) -> u64 {
    let node = world.nodes[TARGET].as_ref().expect("alive");
    node.app().node.stats().appends_early
}

/// Found by review: an append that came ahead of an earlier one was kept before its sender was checked. An unknown
/// sender's 2,048 sessions, each with appends 5 to 68 and never the first, took the room of all requests that wait.
/// From then on every vote and heartbeat of a real member was answered with nothing.
#[test]
fn the_appends_of_an_unknown_sender_do_not_wait() {
    for change in [
        |header: &mut PeerHeader| header.cluster = ClusterId(4711),
        |header: &mut PeerHeader| header.group = GroupId(1),
        |header: &mut PeerHeader| header.from = Incarnation(4711),
        |header: &mut PeerHeader| header.to = Incarnation(4711),
    ] {
        let (mut world, spare) = World::with_spare(41);
        world.spare_is_trusted.store(true, Ordering::Relaxed);
        world.run_until_led();
        world.run_for(Duration::from_millis(50));
        let mut header = honest(&mut world, 0);
        change(&mut header);
        let [sent, answered] = flood(&mut world, spare, header, 3);
        assert_eq!(answered, sent, "all of {header:?} are answered at once");
        assert_eq!(appends_early(&world), 0, "{header:?}");
    }
}

/// The same from an unknown address, with a member named as the sender, which any process can do.
#[test]
fn the_appends_from_an_unknown_address_in_a_members_name_do_not_wait() {
    let (mut world, spare) = World::with_spare(41);
    world.run_until_led();
    world.run_for(Duration::from_millis(50));
    let header = honest(&mut world, 0);
    let [sent, answered] = flood(&mut world, spare, header, 3);
    assert_eq!(answered, sent, "all are answered at once");
    assert_eq!(appends_early(&world), 0);
    let refused = world
        .status(TARGET)
        .replica
        .counters
        .messages_unknown_address;
    assert_eq!(refused, sent as u64);
}

/// From a member's address: waiting requests were bounded by session, and a process at that address can open any number
/// of sessions.
#[test]
fn the_appends_that_wait_are_bounded_over_all_sessions() {
    const SESSIONS: usize = 72;
    const ALL_MAX: usize = 4096;
    let (mut world, spare) = World::with_spare(42);
    world.spare_is_trusted.store(true, Ordering::Relaxed);
    world.run_until_led();
    world.run_for(Duration::from_millis(50));
    let header = honest(&mut world, 0);
    let [sent, answered] = flood(&mut world, spare, header, SESSIONS);
    assert_eq!([sent, answered], [SESSIONS * SLOTS; 2]);
    let node = world.nodes[TARGET].as_ref().expect("alive");
    let waiting = node.app().node.appends_waiting();
    assert!((1..=ALL_MAX).contains(&waiting), "{waiting} of {sent} wait");
}

/// Appends are no longer counted when their session has ended: the leader's find room again.
#[test]
fn sessions_that_end_make_room_for_appends_that_wait() {
    let (mut world, spare) = World::with_spare(43);
    world.spare_is_trusted.store(true, Ordering::Relaxed);
    world.run_until_led();
    world.run_for(Duration::from_millis(50));
    assert_ne!(world.leader(), Some(TARGET), "it is sent appends");
    let header = honest(&mut world, 0);
    flood(&mut world, spare, header, 72);
    world.reset_sessions(TARGET);
    world.run_for(Duration::from_millis(200));
    world.set_faults("reorder=30%,delay=0ms..5ms");
    let before = appends_early(&world);
    let client = world.open();
    for round in 0..100_u32 {
        world.put(client, b"key", &round.to_le_bytes());
    }
    assert!(appends_early(&world) > before, "appends wait again");
}
