//! Two hosts with a narrow link between them: writers of 64 KiB fill it, and somebody else has small requests. What queues
//! there is what congestion control is for.
//!
//! The hosts are network namespaces, and the ends of the traffic are processes of this program in them. Without root or
//! without `tc` the tests are left out; with `TRINE_NEED_SANDBOX=1` they fail then.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use trine_testnet::Hosts;
use trine_transport::backend::{MonotonicClock, UdpBackend, UdpConfig};
use trine_transport::time::{Clock, Duration, Instant};
use trine_transport::{
    App, Completion, Config, CongestionControl, ConnectParams, Cx, Event, EventLoop, Identity,
    Reply, Request, SessionId,
};

const PORT: u16 = 7_700;
const BULK_SESSIONS: usize = 3;
/// Requests of 64 KiB that each of them has under way.
const BULK_REQUESTS: u64 = 4;
const BULK_BYTES: usize = 64 << 10;
const SMALL_BYTES: usize = 128;
const SMALL_EVERY: Duration = Duration::from_millis(2);
const WARM_UP: Duration = Duration::from_millis(500);
const MEASURED: Duration = Duration::from_millis(2_500);

/// Answers everything with a few bytes.
struct Sink;

impl App<SocketAddr> for Sink {
    fn on_request(&mut self, cx: &mut Cx<'_, SocketAddr>, _: Request<'_>) -> Reply {
        cx.alloc(16).map_or(Reply::Later, Reply::Now)
    }

    fn on_completion(&mut self, _: &mut Cx<'_, SocketAddr>, _: u64, _: Completion) {}
}

/// Sends a request for each that is answered, or one now and then.
struct Source {
    bytes: usize,
    repeats: bool,
    sessions: Vec<SessionId>,
    completed: u64,
}

impl Source {
    fn send(bytes: usize, session: SessionId, tag: u64, cx: &mut Cx<'_, SocketAddr>) {
        let buffers = cx.alloc(bytes).zip(cx.alloc(16));
        let (request, response) = buffers.expect("memory");
        cx.enqueue_request(session, 1, request, response, tag, None)
            .unwrap_or_else(|refused| panic!("{:?}", refused.reason));
    }
}

impl App<SocketAddr> for Source {
    fn on_request(&mut self, _: &mut Cx<'_, SocketAddr>, _: Request<'_>) -> Reply {
        Reply::Later
    }

    fn on_completion(&mut self, cx: &mut Cx<'_, SocketAddr>, tag: u64, completion: Completion) {
        completion.result.expect("nobody dies here");
        self.completed += 1;
        if self.repeats {
            Self::send(self.bytes, self.sessions[tag as usize], tag, cx);
        }
    }

    fn on_event(&mut self, _: &mut Cx<'_, SocketAddr>, event: Event<SocketAddr>) {
        match event {
            Event::Connected { session, .. } => self.sessions.push(session),
            other => panic!("unexpected: {other:?}"),
        }
    }
}

/// An endpoint as replicas have it.
fn event_loop<A: App<SocketAddr>>(
    at: SocketAddr,
    control: CongestionControl,
    app: A,
) -> EventLoop<UdpBackend, MonotonicClock, A> {
    let backend = UdpBackend::bind(at, &UdpConfig::default()).expect("a socket");
    let mut config = Config {
        credits: 64,
        slots: 64,
        overcommit: true,
        ..Config::default()
    };
    config.congestion.control = control;
    let incarnation = MonotonicClock.now().as_nanos();
    let identity = Identity {
        cluster: 0,
        incarnation,
    };
    EventLoop::new(backend, MonotonicClock, app, config, identity, incarnation).expect("good")
}

type Writer = EventLoop<UdpBackend, MonotonicClock, Source>;

fn writer(
    from: SocketAddr,
    to: SocketAddr,
    control: CongestionControl,
    sessions: usize,
    bytes: usize,
    repeats: bool,
) -> Writer {
    let source = Source {
        bytes,
        repeats,
        sessions: Vec::new(),
        completed: 0,
    };
    let mut writer = event_loop(from, control, source);
    for _ in 0..sessions {
        let connect =
            |_: &mut Source, cx: &mut Cx<'_, SocketAddr>| cx.connect(to, ConnectParams::default());
        writer.with(connect).expect("room");
    }
    let deadline = writer.now() + Duration::from_secs(10);
    let stands = writer
        .run_until(Some(deadline), |app| app.sessions.len() == sessions)
        .expect("a socket");
    assert!(stands, "no session with {to}");
    writer
}

/// Megabits a second of the large requests until the small ones are over.
fn write_bulk(
    from: SocketAddr,
    to: SocketAddr,
    control: CongestionControl,
    over: &AtomicBool,
) -> u64 {
    let mut writer = writer(from, to, control, BULK_SESSIONS, BULK_BYTES, true);
    let sessions = writer.app().sessions.clone();
    writer.with(|_, cx| {
        for (place, session) in sessions.iter().enumerate() {
            for _ in 0..BULK_REQUESTS {
                Source::send(BULK_BYTES, *session, place as u64, cx);
            }
        }
    });
    let warm = writer.now() + WARM_UP;
    writer.run_until(Some(warm), |_| false).expect("a socket");
    let (began, before) = (writer.now(), writer.app().completed);
    let next = |now: Instant| now + Duration::from_millis(50);
    while !over.load(Ordering::Relaxed) {
        let until = next(writer.now());
        writer.run_until(Some(until), |_| false).expect("a socket");
    }
    let bits = (writer.app().completed - before) * 8 * BULK_BYTES as u64;
    bits / (writer.now() - began).as_micros().max(1)
}

/// The median of the small requests' times, in microseconds.
fn write_small(from: SocketAddr, to: SocketAddr, control: CongestionControl) -> u64 {
    let mut writer = writer(from, to, control, 1, SMALL_BYTES, false);
    let session = writer.app().sessions[0];
    let begins = writer.now() + WARM_UP;
    writer.run_until(Some(begins), |_| false).expect("a socket");
    let (ends, mut times) = (begins + MEASURED, Vec::new());
    while writer.now() < ends {
        let (start, before) = (MonotonicClock.now(), writer.app().completed);
        writer.with(|_, cx| Source::send(SMALL_BYTES, session, 0, cx));
        writer
            .run_until(None, |app| app.completed > before)
            .expect("a socket");
        times.push((MonotonicClock.now() - start).as_micros());
        let pause = Some(start + SMALL_EVERY);
        writer.run_until(pause, |_| false).expect("a socket");
    }
    times.sort_unstable();
    times[times.len() / 2]
}

/// Not a test of its own: one end of the traffic, in a process and a namespace of its own.
#[test]
#[ignore = "the others start it"]
fn one_end() {
    let word = |name: &str| std::env::var(name).expect("the others start it");
    let address = |name: &str| word(name).parse::<SocketAddr>().expect("an address");
    let control: CongestionControl = word("SHAPED_CONTROL").parse().expect("a control");
    if word("SHAPED_END") == "server" {
        let mut server = event_loop(address("SHAPED_SERVER"), control, Sink);
        println!("serving");
        server.run_until(None, |_| false).expect("a socket");
        return;
    }
    let (from, to) = (address("SHAPED_CLIENT"), address("SHAPED_SERVER"));
    let over = AtomicBool::new(false);
    let is_idle = word("SHAPED_END") == "idle";
    let (bulk, small) = std::thread::scope(|scope| {
        let bulk = (!is_idle).then(|| scope.spawn(|| write_bulk(from, to, control, &over)));
        let small = write_small(from, to, control);
        over.store(true, Ordering::Relaxed);
        (
            bulk.map_or(0, |bulk| bulk.join().expect("it only writes")),
            small,
        )
    });
    println!("result {bulk} {small}");
}

/// What one run gave.
#[derive(Copy, Clone, Debug)]
struct Run {
    bulk_megabits: u64,
    small_us: u64,
}

/// A host for each end, and a port towards the server that is narrower than the rest.
struct Link {
    hosts: Hosts,
}

/// Ends a process of ours when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Link {
    fn of(megabits: u32) -> Result<Self, String> {
        let hosts = Hosts::bridged(&[1_500; 2])?;
        hosts.shape(1, megabits, 4 << 20)?;
        Ok(Self { hosts })
    }

    fn end(&self, host: usize, end: &str, control: CongestionControl) -> Command {
        let program = std::env::current_exe().expect("this program");
        let mut command = self.hosts.command(host, program);
        let address = |host: usize, port: u16| {
            SocketAddr::new(self.hosts.address(host, false), port).to_string()
        };
        command
            .args(["--exact", "shaped::one_end", "--ignored", "--nocapture"])
            .env("SHAPED_END", end)
            .env("SHAPED_CONTROL", control.name())
            .env("SHAPED_CLIENT", address(0, 0))
            .env("SHAPED_SERVER", address(1, PORT));
        command
    }

    fn run(&self, end: &str, control: CongestionControl) -> Run {
        let mut server = self.end(1, "server", control);
        let _server = Running(server.stdout(Stdio::null()).spawn().expect("a server"));
        let output = self.end(0, end, control).output().expect("a client");
        let text = String::from_utf8_lossy(&output.stdout);
        let result = text.lines().find_map(|line| line.split("result ").nth(1));
        let mut numbers = result
            .unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)))
            .split(' ')
            .map(|number| number.parse().expect("a number"));
        let mut next = || numbers.next().expect("two numbers");
        Run {
            bulk_megabits: next(),
            small_us: next(),
        }
    }
}

/// Two programs that want a processor each.
struct Burners {
    _running: Vec<Running>,
}

impl Burners {
    fn start(count: usize) -> Self {
        let burn = |_| {
            let mut shell = Command::new("sh");
            Running(
                shell
                    .args(["-c", "while :; do :; done"])
                    .spawn()
                    .expect("sh"),
            )
        };
        Self {
            _running: (0..count).map(burn).collect(),
        }
    }
}

/// Runs with and without control, and prints both.
fn compare(megabits: u32, burners: usize) -> Option<[Run; 3]> {
    let link = match Link::of(megabits) {
        Ok(link) => link,
        Err(why) => {
            let is_needed = std::env::var("TRINE_NEED_SANDBOX").is_ok_and(|value| value == "1");
            assert!(!is_needed, "{why}, but TRINE_NEED_SANDBOX=1");
            eprintln!("skipped: {why}");
            return None;
        }
    };
    let burning = Burners::start(burners);
    let idle = link.run("idle", CongestionControl::Off);
    let off = link.run("client", CongestionControl::Off);
    let with = link.run("client", CongestionControl::Delay);
    drop(burning);
    println!("{megabits} Mbit/s, {burners} burners: idle {idle:?}, off {off:?}, delay {with:?}");
    Some([idle, off, with])
}

/// Whether control did what it is for: most of what goes through without it, and half of the queue at most.
fn is_well([idle, off, with]: [Run; 3]) -> bool {
    let queued = |run: Run| run.small_us.saturating_sub(idle.small_us);
    with.bulk_megabits * 10 >= off.bulk_megabits * 7 && queued(with) * 2 <= queued(off)
}

/// Other load on the machine looks like queues, and spoils a run now and then. Control that does nothing, or too much,
/// spoils each.
fn check(megabits: u32, burners: usize) {
    for _ in 0..5 {
        match compare(megabits, burners) {
            Some(runs) if !is_well(runs) => {}
            _ => return,
        }
    }
    panic!("none of five runs at {megabits} Mbit/s with {burners} burners was well");
}

#[test]
fn a_shaped_link_is_used_without_a_long_queue() {
    check(300, 0);
}

#[test]
fn a_shaped_link_is_used_where_processors_are_busy() {
    check(300, 2);
}

#[test]
#[ignore = "measures beside other load; figures in BENCHMARKS.md"]
fn the_table_of_shaped_links() {
    for (megabits, burners) in [(100, 0), (300, 0), (1_000, 0), (300, 2), (1_000, 2)] {
        compare(megabits, burners);
    }
}
