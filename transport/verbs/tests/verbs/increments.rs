//! Increments over lossy paths: each happens once, and in an order that all clients can agree on.
//!
//! A counter is incremented by several sessions, eight requests of each under way. Its answers are the new values. A history of
//! increments is linearizable if and only if the values are 1, 2, 3 .. and an increment that began after another one had
//! ended has the larger value. So nothing that was acknowledged is lost, and nothing happens twice.

use trine_transport::backend::{Direction, Faults, Faulty, MonotonicClock};
use trine_transport::time::{Clock, Duration, Instant};
use trine_transport::{
    App, Completion, Config, ConnectParams, Cx, Event, EventLoop, Identity, Reply, Request,
    SessionId,
};
use trine_verbs::{OneSidedConfig, OneSidedPath, VerbsBackend, VerbsConfig, VerbsRoute};

use super::{BOUND, open};

const SESSIONS: usize = 4;
const IN_FLIGHT: usize = 8;
const INCREMENTS: usize = 2_000;
/// Turns of the client from one pause of the server to the next.
const PAUSE_INTERVAL: u64 = 700;
/// Longer than it takes until slow answers are asked for.
const PAUSE: Duration = Duration::from_millis(20);

/// An increment: its times of call and answer, as turns of the client, and the value.
#[derive(Copy, Clone, Default, Debug)]
struct Increment {
    called: u64,
    answered: u64,
    value: u64,
}

/// Server and client.
#[derive(Default)]
struct Counter {
    value: u64,
    turn: u64,
    sessions: Vec<SessionId>,
    history: Vec<Increment>,
    ended: usize,
    /// Sessions that may have another request.
    free: Vec<SessionId>,
    of_tag: Vec<SessionId>,
}

impl App<VerbsRoute> for Counter {
    fn on_request(&mut self, cx: &mut Cx<'_, VerbsRoute>, _: Request<'_>) -> Reply {
        self.value += 1;
        let mut response = cx.alloc(8).unwrap();
        response.copy_from_slice(&self.value.to_le_bytes());
        Reply::Now(response)
    }

    fn on_completion(&mut self, _: &mut Cx<'_, VerbsRoute>, tag: u64, completion: Completion) {
        completion.result.expect("loss costs no request");
        let value = completion.response[..].try_into().expect("eight bytes");
        let increment = &mut self.history[tag as usize];
        assert_eq!(increment.answered, 0, "one answer");
        increment.answered = self.turn;
        increment.value = u64::from_le_bytes(value);
        self.ended += 1;
        self.free.push(self.of_tag[tag as usize]);
    }

    fn on_event(&mut self, _: &mut Cx<'_, VerbsRoute>, event: Event<VerbsRoute>) {
        match event {
            Event::Connected { session, .. } => self.sessions.push(session),
            Event::Accepted { .. } => {}
            Event::Down { .. } => panic!("loss ends no session"),
            Event::ConnectFailed { reason, .. } => panic!("{reason:?}"),
        }
    }
}

type Loop = EventLoop<Faulty<VerbsBackend, MonotonicClock>, MonotonicClock, Counter>;

fn event_loop(backend: VerbsBackend, incarnation: u64) -> Loop {
    let backend = Faulty::new(backend, MonotonicClock, 40 + incarnation);
    let loss = Faults {
        loss: "1%".parse().unwrap(),
        ..Faults::default()
    };
    backend.handle().set(Direction::Outbound, loss);
    let config = Config {
        overcommit: true,
        credits: 8,
        failure_timeout: Duration::from_secs(30),
        ..Config::default()
    };
    let identity = Identity {
        cluster: 0,
        incarnation,
    };
    let app = Counter::default();
    EventLoop::new(backend, MonotonicClock, app, config, identity, incarnation).unwrap()
}

fn endpoint(path: OneSidedPath, outgoing: u16, incoming: u16) -> VerbsBackend {
    open(&VerbsConfig {
        one_sided: Some(OneSidedConfig {
            path,
            outgoing,
            incoming,
            tear_interval: 50,
            ..OneSidedConfig::default()
        }),
        ..VerbsConfig::default()
    })
}

/// Turns the client, and the server unless it pauses.
fn step(client: &mut Loop, server: &mut Loop, paused_until: &mut Instant) {
    client.app_mut().turn += 1;
    client.turn().unwrap();
    let now = MonotonicClock.now();
    if client.app().turn.is_multiple_of(PAUSE_INTERVAL) {
        *paused_until = now + PAUSE;
    }
    if now >= *paused_until {
        server.turn().unwrap();
    }
}

/// Calls one increment on each session that may have another request.
fn call(client: &mut Loop) {
    for session in std::mem::take(&mut client.app_mut().free) {
        let tag = client.app().history.len();
        if tag == INCREMENTS {
            return;
        }
        let pool = client.endpoint().pool();
        let (request, response) = (pool.alloc(16).unwrap(), pool.alloc(8).unwrap());
        let (now, turn) = (client.now(), client.app().turn);
        client.app_mut().of_tag.push(session);
        client.app_mut().history.push(Increment {
            called: turn,
            ..Increment::default()
        });
        let endpoint = client.endpoint_mut();
        endpoint
            .enqueue_request(now, session, 1, request, response, tag as u64, None)
            .unwrap();
    }
}

/// See the head of this file.
fn judge(mut history: Vec<Increment>) {
    history.sort_unstable_by_key(|increment| increment.value);
    let values: Vec<u64> = history.iter().map(|increment| increment.value).collect();
    assert!(
        values.iter().copied().eq(1..=history.len() as u64),
        "each value once: {values:?}"
    );
    // The latest call of those with smaller values: none may end before it.
    let mut latest_call = 0;
    for increment in &history {
        assert!(
            increment.answered >= latest_call,
            "{increment:?} had ended before one with a smaller value began"
        );
        latest_call = latest_call.max(increment.called);
    }
}

#[test]
fn a_value_that_comes_twice_or_before_its_time_is_found() {
    let [first, second, twice, late] =
        [(1, 5, 1), (2, 3, 2), (4, 6, 2), (4, 6, 1)].map(|(called, answered, value)| Increment {
            called,
            answered,
            value,
        });
    judge(vec![second, first]);
    for wrong in [vec![first, second, twice], vec![second, late], vec![second]] {
        assert!(std::panic::catch_unwind(|| judge(wrong)).is_err());
    }
}

#[test]
fn increments_with_one_percent_loss_are_linearizable_and_none_is_lost() {
    for path in [OneSidedPath::Herd, OneSidedPath::Rfp] {
        let (client, server) = (endpoint(path, 8, 0), endpoint(path, 0, 8));
        let to = server.route();
        let (mut client, mut server) = (event_loop(client, 1), event_loop(server, 2));
        let deadline = MonotonicClock.now() + BOUND;
        for _ in 0..SESSIONS {
            let now = MonotonicClock.now();
            let params = ConnectParams::default();
            client.endpoint_mut().connect(now, to, params).unwrap();
        }
        let mut paused_until = Instant::ZERO;
        while client.app().sessions.len() < SESSIONS {
            step(&mut client, &mut server, &mut paused_until);
            assert!(MonotonicClock.now() < deadline);
        }
        let sessions = client.app().sessions.clone();
        client.app_mut().free = sessions.repeat(IN_FLIGHT);
        while client.app().ended < INCREMENTS {
            call(&mut client);
            step(&mut client, &mut server, &mut paused_until);
            assert!(
                MonotonicClock.now() < deadline,
                "{} ended",
                client.app().ended
            );
        }
        let (of_client, of_server) = (client.backend().inner(), server.backend().inner());
        let (of_client, of_server) = (of_client.verbs_stats(), of_server.verbs_stats());
        println!(
            "{}: {INCREMENTS} increments, {} requests from slots, {} answers fetched, {} times asked for as datagrams, {} \
             slots torn, {} retransmissions",
            path.name(),
            of_server.slot_packets,
            of_client.answers_fetched,
            of_client.replies_asked,
            of_server.slots_torn,
            client.endpoint().stats().retransmissions
        );
        judge(std::mem::take(&mut client.app_mut().history));
        assert_eq!(server.app().value, INCREMENTS as u64);
        assert!(of_server.slot_packets > 200, "{of_server:?}");
        assert!(
            path == OneSidedPath::Herd || of_client.answers_fetched > 200,
            "{of_client:?}"
        );
    }
}
