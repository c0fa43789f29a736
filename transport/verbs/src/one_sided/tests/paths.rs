//! Requests over slots: what goes which way, and that nothing is lost, doubled or mixed up when writes are.

use std::rc::Rc;

use super::super::Written;
use super::world::{Shared, TestBackend, World};
use crate::route::VerbsRoute;
use trine_transport::keys::Keys;
use trine_transport::time::Duration;
use trine_transport::{
    App, Completion, Config, ConnectParams, Cx, Event, EventLoop, Identity, Reply, Request,
    SessionId,
};

/// Turns until a test is given up.
pub(super) const TURNS: usize = 2_000_000;

/// Echoes requests; counts what it is told.
#[derive(Default)]
pub(super) struct Echo {
    pub(super) sessions: Vec<SessionId>,
    pub(super) served: u64,
    pub(super) answered: usize,
    pub(super) failed: usize,
    pub(super) down: usize,
}

impl App<VerbsRoute> for Echo {
    fn on_request(&mut self, cx: &mut Cx<'_, VerbsRoute>, request: Request<'_>) -> Reply {
        self.served += 1;
        let mut response = cx.alloc(request.data.len()).unwrap();
        response.copy_from_slice(request.data);
        Reply::Now(response)
    }

    fn on_completion(&mut self, _: &mut Cx<'_, VerbsRoute>, _: u64, completion: Completion) {
        match completion.result {
            Ok(()) => {
                assert_eq!(completion.request[..], completion.response[..]);
                self.answered += 1;
            }
            Err(_) => self.failed += 1,
        }
    }

    fn on_event(&mut self, _: &mut Cx<'_, VerbsRoute>, event: Event<VerbsRoute>) {
        match event {
            Event::Connected { session, .. } => self.sessions.push(session),
            Event::Down { .. } => self.down += 1,
            Event::Accepted { .. } => {}
            Event::ConnectFailed { reason, .. } => panic!("{reason:?}"),
        }
    }
}

pub(super) type Loop = EventLoop<TestBackend, Shared, Echo>;

pub(super) fn event_loop(world: &Rc<World>, backend: TestBackend) -> Loop {
    event_loop_with(world, backend, None)
}

/// `keys`: sessions are sealed.
pub(super) fn event_loop_with(world: &Rc<World>, backend: TestBackend, keys: Option<Keys>) -> Loop {
    let config = Config {
        keys,
        credits: 8,
        spin: Duration::from_micros(4),
        overcommit: true,
        ..Config::default()
    };
    let incarnation = u64::from(backend.route().queue_pair);
    let identity = Identity {
        cluster: 0,
        incarnation,
    };
    let clock = Shared(Rc::clone(world));
    EventLoop::new(
        backend,
        clock,
        Echo::default(),
        config,
        identity,
        incarnation,
    )
    .unwrap()
}

/// Client 1 with four connections and server 2 with `incoming`.
fn pair(incoming: usize) -> (Rc<World>, Loop, Loop) {
    let world = World::new();
    let client = event_loop(&world, TestBackend::new(&world, 1, 4, 0));
    let server = event_loop(&world, TestBackend::new(&world, 2, 0, incoming));
    (world, client, server)
}

pub(super) fn step(world: &World, client: &mut Loop, server: &mut Loop) {
    client.turn().unwrap();
    server.turn().unwrap();
    world.pass_time(Duration::from_micros(2));
}

pub(super) fn run(
    world: &World,
    client: &mut Loop,
    server: &mut Loop,
    done: impl Fn(&Echo) -> bool,
) {
    for _ in 0..TURNS {
        if done(client.app()) {
            return;
        }
        step(world, client, server);
    }
    panic!(
        "answered {}, failed {}",
        client.app().answered,
        client.app().failed
    );
}

pub(super) fn connect(world: &World, client: &mut Loop, server: &mut Loop) -> SessionId {
    let (to, before) = (server.backend().route(), client.app().sessions.len());
    client
        .with(|_, cx| cx.connect(to, ConnectParams::default()))
        .unwrap();
    run(world, client, server, |app| app.sessions.len() > before);
    client.app().sessions[before]
}

pub(super) fn enqueue(client: &mut Loop, session: SessionId, bytes: usize, count: usize) {
    for tag in 0..count {
        let now = client.now();
        let pool = client.endpoint().pool();
        let (mut request, response) = (pool.alloc(bytes).unwrap(), pool.alloc(bytes).unwrap());
        for (at, byte) in request.iter_mut().enumerate() {
            *byte = (at + tag) as u8;
        }
        client
            .endpoint_mut()
            .enqueue_request(now, session, 1, request, response, tag as u64, None)
            .unwrap();
    }
}

/// Makes `count` requests and waits for their answers.
pub(super) fn call(
    world: &World,
    client: &mut Loop,
    server: &mut Loop,
    session: SessionId,
    count: usize,
) {
    let answered = client.app().answered + count;
    enqueue(client, session, 32, count);
    run(world, client, server, |app| app.answered == answered);
}

/// The server has nothing to do and sleeps.
pub(super) fn sleep(world: &World, server: &mut Loop) {
    world.pass_time(Duration::from_micros(6));
    server.turn().unwrap();
    let waits = server.stats().sleeps;
    server.pause(None).unwrap();
    assert_eq!(server.stats().sleeps, waits + 1);
}

pub(super) fn writes(client: &Loop) -> u64 {
    client.backend().one_sided.as_ref().unwrap().counts().writes
}

pub(super) fn read(server: &Loop) -> u64 {
    server
        .backend()
        .one_sided
        .as_ref()
        .unwrap()
        .counts()
        .slots
        .packets
}

pub(super) fn datagrams(world: &World, to: u32) -> u64 {
    world.datagrams.borrow().get(&to).copied().unwrap_or(0)
}

#[test]
fn requests_of_one_packet_are_written_and_all_others_are_datagrams() {
    let (world, mut client, mut server) = pair(4);
    let session = connect(&world, &mut client, &mut server);
    let (to_client, to_server) = (datagrams(&world, 1), datagrams(&world, 2));
    call(&world, &mut client, &mut server, session, 500);
    assert_eq!((writes(&client), read(&server)), (500, 500));
    assert_eq!(datagrams(&world, 1) - to_client, 500, "an answer each");
    assert_eq!(datagrams(&world, 2), to_server, "and nothing to receive");
    // 209 bytes and more do not fit beside header and slot.
    for (bytes, written) in [(208, 1), (232, 1), (233, 0), (3_000, 0)] {
        let before = writes(&client);
        let answered = client.app().answered + 1;
        enqueue(&mut client, session, bytes, 1);
        run(&world, &mut client, &mut server, |app| {
            app.answered == answered
        });
        assert_eq!(writes(&client) - before, written, "{bytes}");
    }
    assert_eq!(server.app().served, 504);
}

#[test]
fn a_request_costs_at_most_two_lines_where_nothing_is_lost() {
    let (world, mut client, mut server) = pair(4);
    let session = connect(&world, &mut client, &mut server);
    let lines = |server: &Loop| {
        server
            .backend()
            .one_sided
            .as_ref()
            .unwrap()
            .counts()
            .slots
            .lines
    };
    // A burst is read in one poll, which ends with one look more.
    for bytes in [8, 24] {
        let (before, answered) = (lines(&server), client.app().answered + 8);
        enqueue(&mut client, session, bytes, 8);
        client.turn().unwrap();
        server.turn().unwrap();
        run(&world, &mut client, &mut server, |app| {
            app.answered == answered
        });
        let looked = lines(&server) - before;
        println!("{bytes} B: {looked} lines for 8 requests");
        assert!(looked <= 16 + 16, "{looked}: and sixteen empty polls");
    }
}

#[test]
fn loss_and_torn_slots_cost_retransmissions_and_nothing_else() {
    let world = World::new();
    let client = TestBackend::new(&world, 1, 4, 0).tearing(7);
    let mut client = event_loop(&world, client);
    let mut server = event_loop(&world, TestBackend::new(&world, 2, 0, 4));
    let session = connect(&world, &mut client, &mut server);
    world.loss.set(50);
    for _ in 0..40 {
        call(&world, &mut client, &mut server, session, 50);
    }
    assert_eq!((client.app().failed, client.app().down), (0, 0));
    assert_eq!(server.app().served, 2_000, "each once");
    let counts = server.backend().one_sided.as_ref().unwrap().counts();
    assert!(
        counts.slots.torn > 0 && counts.slots.scans > 0,
        "{counts:?}"
    );
    assert!(
        counts.slots.packets > 1_000,
        "the path stays in use: {counts:?}"
    );
}

#[test]
fn a_server_that_sleeps_is_woken_by_a_datagram_and_then_written_to() {
    let (world, mut client, mut server) = pair(4);
    let session = connect(&world, &mut client, &mut server);
    call(&world, &mut client, &mut server, session, 20);
    for _ in 0..3 {
        sleep(&world, &mut server);
        // The notice.
        client.turn().unwrap();
        let (before, to_server) = (writes(&client), datagrams(&world, 2));
        call(&world, &mut client, &mut server, session, 1);
        assert_eq!(writes(&client), before, "a write would not wake it");
        assert_eq!(datagrams(&world, 2) - to_server, 1);
        call(&world, &mut client, &mut server, session, 5);
        assert_eq!(writes(&client) - before, 5, "it is awake");
    }
    // A second sleep without an answer in between needs no second notice.
    let to_client = datagrams(&world, 1);
    sleep(&world, &mut server);
    sleep(&world, &mut server);
    assert_eq!(datagrams(&world, 1) - to_client, 1);
}

#[test]
fn a_write_that_crosses_the_notice_of_sleep_is_found() {
    let (world, mut client, mut server) = pair(4);
    let session = connect(&world, &mut client, &mut server);
    call(&world, &mut client, &mut server, session, 20);
    world.holds_writes.set(true);
    let answered = client.app().answered + 1;
    enqueue(&mut client, session, 32, 1);
    client.turn().unwrap();
    sleep(&world, &mut server);
    world.deliver();
    let to_server = datagrams(&world, 2);
    // The client reads the notice, and that its write is not among those that were read.
    client.turn().unwrap();
    assert_eq!(
        datagrams(&world, 2) - to_server,
        1,
        "it tells the server to look"
    );
    server.turn().unwrap();
    client.turn().unwrap();
    assert_eq!(client.app().answered, answered, "before any timeout");
}

#[test]
fn a_connection_that_carries_nothing_costs_time_and_no_request() {
    let (world, mut client, mut server) = pair(4);
    let session = connect(&world, &mut client, &mut server);
    world.is_deaf.set(true);
    call(&world, &mut client, &mut server, session, 100);
    assert_eq!((client.app().failed, client.app().down), (0, 0));
    let wasted = writes(&client);
    call(&world, &mut client, &mut server, session, 100);
    assert_eq!(writes(&client), wasted, "it rests");
    // It is tried again after the rest, and works.
    world.is_deaf.set(false);
    for _ in 0..20 {
        world.pass_time(Duration::from_millis(100));
        step(&world, &mut client, &mut server);
        step(&world, &mut client, &mut server);
    }
    let before = read(&server);
    call(&world, &mut client, &mut server, session, 100);
    assert!(read(&server) - before >= 90, "{}", read(&server) - before);
}

#[test]
fn more_sessions_than_connections_use_datagrams_until_one_is_free() {
    let (world, mut client, mut server) = pair(2);
    let sessions: Vec<SessionId> = (0..3)
        .map(|_| connect(&world, &mut client, &mut server))
        .collect();
    let mut before = read(&server);
    for (session, expected) in sessions.iter().zip([10, 10, 0]) {
        call(&world, &mut client, &mut server, *session, 10);
        assert_eq!(read(&server) - before, expected);
        before = read(&server);
    }
    client.with(|_, cx| cx.disconnect(sessions[0]));
    run(&world, &mut client, &mut server, |app| app.down == 1);
    // It is made ready in a while, not on the way of a packet.
    for _ in 0..20 {
        world.pass_time(Duration::from_millis(1));
        step(&world, &mut client, &mut server);
    }
    let fourth = connect(&world, &mut client, &mut server);
    let before = read(&server);
    call(&world, &mut client, &mut server, fourth, 10);
    assert_eq!(read(&server) - before, 10);
    call(&world, &mut client, &mut server, sessions[2], 10);
    assert_eq!(server.app().served, 50);
}

#[test]
fn an_end_that_does_not_know_this_path_is_reached_by_datagrams() {
    for old_is_server in [true, false] {
        let world = World::new();
        let (client, server) = (
            TestBackend::new(&world, 1, 4, 4),
            TestBackend::new(&world, 2, 4, 4),
        );
        let (client, server) = if old_is_server {
            (client, server.without_connections())
        } else {
            (client.without_connections(), server)
        };
        let (mut client, mut server) = (event_loop(&world, client), event_loop(&world, server));
        let session = connect(&world, &mut client, &mut server);
        call(&world, &mut client, &mut server, session, 50);
        assert_eq!(server.app().served, 50);
        for end in [&client, &server] {
            let open = end
                .backend()
                .one_sided
                .as_ref()
                .map(|one_sided| one_sided.open());
            assert!(matches!(open, None | Some((0, 0))), "{open:?}");
        }
    }
}

#[test]
fn a_device_that_refuses_a_connection_leaves_its_session_with_datagrams() {
    for server_refuses in [true, false] {
        let world = World::new();
        let client = TestBackend::new(&world, 1, 4, 0).refusing(!server_refuses);
        let server = TestBackend::new(&world, 2, 0, 4).refusing(server_refuses);
        let (mut client, mut server) = (event_loop(&world, client), event_loop(&world, server));
        let session = connect(&world, &mut client, &mut server);
        call(&world, &mut client, &mut server, session, 50);
        assert_eq!((server.app().served, read(&server)), (50, 0));
    }
}

#[test]
fn a_device_that_takes_no_write_is_asked_again_unless_its_queue_pair_is_broken() {
    for (verdict, written_after) in [(Written::Full, 20), (Written::Broken, 0)] {
        let (world, mut client, mut server) = pair(4);
        let session = connect(&world, &mut client, &mut server);
        world.verdict.set(verdict);
        call(&world, &mut client, &mut server, session, 20);
        assert_eq!(read(&server), 0, "all of them were datagrams");
        world.verdict.set(Written::Done);
        call(&world, &mut client, &mut server, session, 20);
        assert_eq!(read(&server), written_after, "{verdict:?}");
        assert_eq!((client.app().failed, client.app().down), (0, 0));
    }
}

/// Only its own region can be written by a client, with anything. Here somebody writes into all of them all the time.
#[test]
fn whatever_is_written_into_regions_changes_no_answer() {
    let (world, mut client, mut server) = pair(4);
    answers_stay_the_same_while_somebody_scribbles(&world, &mut client, &mut server);
}

/// Somebody writes into all regions all the time, and each request is still answered once, with its own answer.
pub(super) fn answers_stay_the_same_while_somebody_scribbles(
    world: &World,
    client: &mut Loop,
    server: &mut Loop,
) {
    let sessions = [0, 1].map(|_| connect(world, client, server));
    for round in 1..=60 {
        for session in sessions {
            enqueue(client, session, 32, 8);
        }
        for _ in 0..TURNS {
            if client.app().answered == round * 16 {
                break;
            }
            world.scribble();
            step(world, client, server);
        }
        assert_eq!(client.app().answered, round * 16);
    }
    assert_eq!((client.app().failed, client.app().down), (0, 0));
    assert_eq!(server.app().served, 60 * 16, "each once");
}

#[test]
fn a_client_that_vanished_gives_its_connection_back() {
    let (world, mut client, mut server) = pair(1);
    let session = connect(&world, &mut client, &mut server);
    call(&world, &mut client, &mut server, session, 1);
    drop(client);
    let open = |server: &Loop| server.backend().one_sided.as_ref().unwrap().open().1;
    assert_eq!(open(&server), 1);
    for _ in 0..300 {
        world.pass_time(Duration::from_millis(100));
        server.turn().unwrap();
    }
    assert_eq!(open(&server), 0);
    let mut other = event_loop(&world, TestBackend::new(&world, 3, 4, 0));
    let session = connect(&world, &mut other, &mut server);
    let before = read(&server);
    call(&world, &mut other, &mut server, session, 10);
    assert_eq!(read(&server) - before, 10);
}
