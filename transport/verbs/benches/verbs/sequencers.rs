//! The cost of a number by sessions, by datagrams of four bytes (Spec-S0), and by FETCH_ADD.
//!
//! Both ends are in one thread. Work requests, their cache lines and doorbells are those of both ends together, as ConnectX
//! devices lay them out. Packets are counted by the device. Bytes are those of InfiniBand, all headers and checksums included.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use trine_sequencer::speculative::{AnswerEffect, Answerer, ClientEnd, ServerEnd, ServerPath};
use trine_sequencer::wire::{ANSWER_BYTES_MAX, Answer, Keeping, NEXT, next_request};
use trine_sequencer::{Denial, Dispatch, Gate, Grant, Need, Supply};
use trine_transport::backend::{Backend, BackendError, MonotonicClock, Route};
use trine_transport::time::{Duration as Span, Instant as Moment};
use trine_transport::{
    App, Completion, Config, ConnectParams, Cx, Event, EventLoop, Holder, Identity, Reply, Request,
    SessionId,
};
use trine_verbs::{CounterServer, VerbsBackend, VerbsConfig, VerbsRoute, VerbsStats};

use crate::open;

const NUMBERS: u64 = 20_000;
const WARM_UP: u64 = 100;
const TIME_MAX: Duration = Duration::from_secs(60);
/// Longer than the machine stands still.
const PATIENCE: Span = Span::from_secs(10);

/// A datagram on InfiniBand, besides its payload: local and base transport header, datagram header, both checksums.
const DATAGRAM_BYTES: u64 = 8 + 12 + 8 + 4 + 2;
/// FETCH_ADD and its answer: the same without the datagram header, and 28 bytes more; 4 and 8 more.
const FETCH_ADD_BYTES: u64 = (8 + 12 + 28 + 4 + 2) + (8 + 12 + 4 + 8 + 4 + 2);

/// What the numbers of a run have cost, all together.
#[derive(Copy, Clone, Debug, Default)]
struct Cost {
    requests: u64,
    lines: u64,
    doorbells: u64,
    receives: u64,
    packets: u64,
    bytes: u64,
    seconds: f64,
}

/// A way to numbers.
trait Source {
    /// Goes on with as many requests under way as there may be; how many numbers have come.
    fn turn(&mut self) -> u64;

    /// Costs so far, but for packets and time.
    fn cost(&self) -> Cost;
}

pub(crate) fn run() {
    println!("\n{NUMBERS} numbers; for each of them, both ends together:");
    println!(
        "{:<26} {:>8} {:>6} {:>9} {:>8} {:>8} {:>6} {:>10}",
        "", "requests", "lines", "doorbells", "receives", "packets", "bytes", "numbers/s"
    );
    for window in [1, 8] {
        let sessions = measure(&mut Sessions::new(window));
        let four_bytes = measure(&mut FourBytes::new(window));
        let fetch_add = measure(&mut FetchAdd::new(window as u64));
        show(&format!("sessions, window {window}"), &sessions);
        show(&format!("four bytes, window {window}"), &four_bytes);
        show(&format!("FETCH_ADD, window {window}"), &fetch_add);
        // One number in 256 begins with a zero, and does not travel in the header.
        let lines = four_bytes.lines as f64 / NUMBERS as f64;
        assert!((2.0..2.01).contains(&lines), "{lines} lines by four bytes");
        assert_eq!(sessions.lines, 4 * NUMBERS);
        assert_eq!(fetch_add.lines, NUMBERS);
        assert!(four_bytes.bytes < fetch_add.bytes && fetch_add.bytes < sessions.bytes);
        assert_eq!(four_bytes.packets, 2 * NUMBERS);
    }
}

fn show(name: &str, cost: &Cost) {
    let each = |count: u64| format!("{:.2}", count as f64 / NUMBERS as f64);
    println!(
        "{name:<26} {:>8} {:>6} {:>9} {:>8} {:>8} {:>6} {:>10.0}",
        each(cost.requests),
        each(cost.lines),
        each(cost.doorbells),
        each(cost.receives),
        each(cost.packets),
        each(cost.bytes),
        NUMBERS as f64 / cost.seconds
    );
}

fn measure(source: &mut impl Source) -> Cost {
    take(source, WARM_UP);
    let (before, packets, start) = (source.cost(), sent_packets(), Instant::now());
    let taken = take(source, NUMBERS);
    let after = source.cost();
    // The last turn may bring more than was asked for.
    let of_numbers = |count: u64| count * NUMBERS / taken;
    Cost {
        requests: of_numbers(after.requests - before.requests),
        lines: of_numbers(after.lines - before.lines),
        doorbells: of_numbers(after.doorbells - before.doorbells),
        receives: of_numbers(after.receives - before.receives),
        packets: of_numbers(sent_packets() - packets),
        bytes: of_numbers(after.bytes - before.bytes),
        seconds: start.elapsed().as_secs_f64() * NUMBERS as f64 / taken as f64,
    }
}

fn take(source: &mut impl Source, numbers: u64) -> u64 {
    let (mut taken, start) = (0, Instant::now());
    while taken < numbers {
        taken += source.turn();
        assert!(start.elapsed() < TIME_MAX, "{taken} of {numbers} came");
    }
    taken
}

/// Packets that all devices of this machine have sent.
fn sent_packets() -> u64 {
    let devices = fs::read_dir("/sys/class/infiniband").expect("an RDMA device");
    let sent = |device: fs::DirEntry| {
        let file = device.path().join("ports/1/hw_counters/sent_pkts");
        let text = fs::read_to_string(file).ok()?;
        text.trim().parse::<u64>().ok()
    };
    devices.filter_map(|device| sent(device.ok()?)).sum()
}

fn of_datagrams(stats: &VerbsStats, bytes: u64) -> Cost {
    Cost {
        requests: stats.sends,
        lines: stats.send_lines,
        doorbells: stats.send_doorbells,
        receives: stats.receives,
        bytes: stats.sends * DATAGRAM_BYTES + bytes,
        ..Cost::default()
    }
}

fn both(client: &VerbsBackend, server: &VerbsBackend) -> Cost {
    let of = |end: &VerbsBackend| of_datagrams(&end.verbs_stats(), end.stats().tx_bytes);
    let (one, other) = (of(client), of(server));
    Cost {
        requests: one.requests + other.requests,
        lines: one.lines + other.lines,
        doorbells: one.doorbells + other.doorbells,
        receives: one.receives + other.receives,
        bytes: one.bytes + other.bytes,
        ..Cost::default()
    }
}

fn supply() -> Arc<Supply> {
    let supply = Arc::new(Supply::new(0));
    supply.add(&Grant {
        start: 0,
        end: u64::MAX,
        until: Moment::FAR_FUTURE,
    });
    supply
}

/// Datagrams of four bytes.
struct FourBytes<O> {
    client: ClientEnd<VerbsBackend, MonotonicClock, O>,
    server: ServerEnd<VerbsBackend, MonotonicClock>,
    window: usize,
}

type Opened = Result<ServerPath<VerbsBackend>, BackendError>;

impl FourBytes<Box<dyn FnMut() -> Opened>> {
    fn new(window: usize) -> Self {
        let server = open(&VerbsConfig::default());
        let route = server.route();
        let ways: Box<dyn FnMut() -> Opened> = Box::new(move || {
            Ok(ServerPath {
                backend: open(&VerbsConfig::default()),
                route,
                keep: None,
            })
        });
        let answerer = Answerer::new(supply(), MonotonicClock);
        Self {
            client: ClientEnd::new(ways, MonotonicClock, 0, PATIENCE).expect("a way"),
            server: ServerEnd::new(server, answerer, MonotonicClock, Box::new(|| ())),
            window,
        }
    }
}

impl<O: FnMut() -> Opened> Source for FourBytes<O> {
    fn turn(&mut self) -> u64 {
        let mut came = 0;
        let wanted = self.window - self.client.under_way();
        self.client.ask(wanted).expect("a working device");
        self.server.turn().expect("a working device");
        let told = |told| came += u64::from(matches!(told, AnswerEffect::Number(..)));
        self.client.turn(told).expect("a working device");
        came
    }

    fn cost(&self) -> Cost {
        assert_eq!(self.client.ways(), 1, "nothing is lost");
        both(self.client.backend(), &self.server.backend)
    }
}

/// The sequencer's own protocol.
struct Sessions {
    client: EventLoop<VerbsBackend, MonotonicClock, Asker>,
    server: EventLoop<VerbsBackend, MonotonicClock, Dispatch<MonotonicClock, Everybody>>,
    window: usize,
}

#[derive(Default)]
struct Asker {
    session: Option<SessionId>,
    under_way: usize,
    came: u64,
}

impl<R: Route> App<R> for Asker {
    fn on_request(&mut self, _: &mut Cx<'_, R>, _: Request<'_>) -> Reply {
        unreachable!("nobody asks a client")
    }

    fn on_completion(&mut self, _: &mut Cx<'_, R>, _: u64, completion: Completion) {
        let answer = Answer::decode(&completion.response);
        assert!(matches!(answer, Some(Answer::First(_))), "{answer:?}");
        self.under_way -= 1;
        self.came += 1;
    }

    fn on_event(&mut self, _: &mut Cx<'_, R>, event: Event<R>) {
        if let Event::Connected { session, .. } = event {
            self.session = Some(session);
        }
    }
}

struct Everybody;

impl Gate<VerbsRoute> for Everybody {
    fn check(&self, _: &mut Cx<'_, VerbsRoute>, _: SessionId, _: Need) -> Result<(), Denial> {
        Ok(())
    }

    fn holder(&self, _: &VerbsRoute) -> Holder {
        Holder::Shared
    }
}

fn event_loop<A: App<VerbsRoute>>(
    app: A,
    incarnation: u64,
) -> EventLoop<VerbsBackend, MonotonicClock, A> {
    let identity = Identity {
        cluster: 0,
        incarnation,
    };
    let backend = open(&VerbsConfig::default());
    EventLoop::new(
        backend,
        MonotonicClock,
        app,
        Config::default(),
        identity,
        incarnation,
    )
    .expect("a sound configuration")
}

impl Sessions {
    fn new(window: usize) -> Self {
        let call = Box::new(|| ());
        let dispatch = Dispatch::new(supply(), Keeping::File, MonotonicClock, Everybody, call);
        let (mut client, server) = (event_loop(Asker::default(), 1), event_loop(dispatch, 2));
        let route = server.backend().route();
        client
            .with(|_, cx| cx.connect(route, ConnectParams::default()))
            .expect("room for a session");
        Self {
            client,
            server,
            window,
        }
    }
}

impl Source for Sessions {
    fn turn(&mut self) -> u64 {
        let window = self.window;
        self.client.with(|app, cx| {
            let Some(session) = app.session else { return };
            while app.under_way < window {
                let bytes = next_request(1);
                let (Some(mut request), Some(response)) =
                    (cx.alloc(bytes.len()), cx.alloc(ANSWER_BYTES_MAX))
                else {
                    return;
                };
                request.copy_from_slice(&bytes);
                cx.enqueue_request(session, NEXT, request, response, 0, None)
                    .expect("room for a request");
                app.under_way += 1;
            }
        });
        self.server.turn().expect("a working device");
        self.client.turn().expect("a working device");
        std::mem::take(&mut self.client.app_mut().came)
    }

    fn cost(&self) -> Cost {
        both(self.client.backend(), self.server.backend())
    }
}

/// Atomic operations on a counter.
struct FetchAdd {
    _server: CounterServer,
    client: trine_verbs::CounterClient,
    window: u64,
    posted: u64,
    came: u64,
}

impl FetchAdd {
    fn new(window: u64) -> Self {
        let config = VerbsConfig::default();
        let server = CounterServer::open(&config, 0..1 << 40);
        let mut server = server.unwrap_or_else(|error| panic!("{error}"));
        Self {
            client: server.connect(&config).expect("a connection"),
            _server: server,
            window,
            posted: 0,
            came: 0,
        }
    }
}

impl Source for FetchAdd {
    fn turn(&mut self) -> u64 {
        while self.posted - self.came < self.window && self.client.ask(1) {
            self.posted += 1;
        }
        let came = self.client.poll().expect("a working device").is_some();
        self.came += u64::from(came);
        u64::from(came)
    }

    /// A FETCH_ADD is a work request with a doorbell of its own: 16 bytes of control, of the remote address, of the
    /// operands, and of the place for the result. That is a line. The server posts nothing.
    fn cost(&self) -> Cost {
        Cost {
            requests: self.posted,
            lines: self.posted,
            doorbells: self.posted,
            bytes: self.posted * FETCH_ADD_BYTES,
            ..Cost::default()
        }
    }
}
