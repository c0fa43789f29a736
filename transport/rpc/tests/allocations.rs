//! A process of its own, because its allocator counts: nothing may allocate between the start and the end of a long run.
//! The data path must not: every buffer comes from the pool, every queue has its memory from the start.

use trine_allocations::{Counting, allocations};
use trine_rpc::{Node, Rpc};
use trine_transport::backend::{
    Backend, MonotonicClock, RingBackend, RingConfig, RingRoute, RxBatch, RxPacket, TxBatch,
};
use trine_transport::buf::MsgBuf;
use trine_transport::time::{Duration, Instant};
use trine_transport::wire::{Connect, Features, Header, NO_SESSION, PacketType, Seed};
use trine_transport::{
    App, Completion, Config, CongestionConfig, CongestionControl, ConnectParams, Cx, Endpoint,
    Event, EventLoop, Identity, Reply, Request, SessionId,
};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Keeps requests of all sizes under way for ever, and echoes those of the other side.
#[derive(Default)]
struct Load {
    session: Option<SessionId>,
    completed: u64,
}

impl App<RingRoute> for Load {
    fn on_request(&mut self, cx: &mut Cx<'_, RingRoute>, request: Request<'_>) -> Reply {
        let mut response = cx
            .alloc(request.data.len())
            .expect("the pool is large enough");
        response.copy_from_slice(request.data);
        Reply::Now(response)
    }

    fn on_completion(&mut self, cx: &mut Cx<'_, RingRoute>, tag: u64, completion: Completion) {
        completion.result.expect("nothing is lost on the ring");
        self.completed += 1;
        self.issue(cx, tag, completion.request, completion.response);
    }

    fn on_event(&mut self, _: &mut Cx<'_, RingRoute>, event: Event<RingRoute>) {
        if let Event::Connected { session, .. } = event {
            self.session = Some(session);
        }
    }
}

impl Load {
    fn issue(&mut self, cx: &mut Cx<'_, RingRoute>, tag: u64, request: MsgBuf, response: MsgBuf) {
        let session = self.session.expect("connected");
        let deadline = tag
            .is_multiple_of(2)
            .then(|| cx.deadline(Duration::from_secs(60)));
        cx.enqueue_request(session, 1, request, response, tag, deadline)
            .expect("accepted");
    }
}

type Loop = EventLoop<RingBackend, MonotonicClock, Load>;

fn event_loop(backend: RingBackend, incarnation: u64) -> Loop {
    let congestion = CongestionConfig {
        control: CongestionControl::TimelyEcn,
        rate_limiter_bypass: false,
        ..CongestionConfig::default()
    };
    let config = Config {
        congestion,
        ..Config::default()
    };
    let identity = Identity {
        cluster: 1,
        incarnation,
    };
    EventLoop::new(
        backend,
        MonotonicClock,
        Load::default(),
        config,
        identity,
        incarnation,
    )
    .expect("a good configuration")
}

fn run(client: &mut Loop, server: &mut Loop, done: impl Fn(&Load) -> bool) {
    while !done(client.app()) {
        client.turn().expect("the ring works");
        server.turn().expect("the ring works");
    }
}

/// The count is the process's: one after the other.
#[test]
fn nothing_is_allocated_after_the_start() {
    the_raw_layer_allocates_nothing();
    a_typed_call_allocates_nothing();
    connects_from_forged_addresses_allocate_nothing();
}

fn the_raw_layer_allocates_nothing() {
    const WARM_UP: u64 = 20_000;
    const MEASURED: u64 = if cfg!(debug_assertions) {
        100_000
    } else {
        1_000_000
    };
    let (ours, theirs) = RingBackend::pair(RingConfig::default());
    let address = theirs.route();
    let (mut client, mut server) = (event_loop(ours, 1), event_loop(theirs, 2));
    client
        .with(|_, cx| cx.connect(address, ConnectParams::default()))
        .expect("room");
    run(&mut client, &mut server, |load| load.session.is_some());
    // More requests than slots, of one packet and of several.
    for tag in 0..20 {
        client.with(|load, cx| {
            let bytes = if tag % 5 == 4 { 10_000 } else { 32 };
            let (request, response) = cx
                .alloc(bytes)
                .zip(cx.alloc(bytes))
                .expect("the pool is large enough");
            load.issue(cx, tag, request, response);
        });
    }
    run(&mut client, &mut server, |load| load.completed >= WARM_UP);
    let before = allocations();
    run(&mut client, &mut server, |load| {
        load.completed >= WARM_UP + MEASURED
    });
    let allocations = allocations() - before;
    assert_eq!(allocations, 0, "allocations in {MEASURED} requests");
}

struct Increment;

impl Rpc for Increment {
    const KIND: u8 = 1;
    type Request = u64;
    type Response = u64;
}

/// Checks the claim of the typed layer's documentation. The two nodes and the caller are three
/// threads.
fn a_typed_call_allocates_nothing() {
    const WARM_UP: u64 = 2_000;
    const MEASURED: u64 = if cfg!(debug_assertions) {
        10_000
    } else {
        500_000
    };
    let (ours, theirs) = RingBackend::pair(RingConfig::default());
    let address = theirs.route();
    let _server = Node::builder(theirs)
        .handle::<Increment, _>(|number, _| number + 1)
        .start()
        .expect("a server");
    let client = Node::builder(ours).start().expect("a client");
    let allocations = pollster::block_on(async {
        let session = client.client().connect(address).await.expect("a session");
        let mut before = 0;
        for number in 0..WARM_UP + MEASURED {
            if number == WARM_UP {
                before = allocations();
            }
            let (first, second) = (
                session.call::<Increment>(&number),
                session.call::<Increment>(&(number + 1)),
            );
            assert_eq!(first.await, Ok(number + 1));
            // One in a hundred is given up.
            if number % 100 != 0 {
                assert_eq!(second.await, Ok(number + 2));
            }
        }
        allocations() - before
    });
    assert_eq!(allocations, 0, "allocations in {MEASURED} pairs of calls");
}

/// Each from another address, as a flood would have them: each gets its cookie, and nothing remembers it.
fn connects_from_forged_addresses_allocate_nothing() {
    const FLOOD: u32 = if cfg!(debug_assertions) {
        100_000
    } else {
        1_000_000
    };
    let (backend, _) = RingBackend::pair(RingConfig::default());
    let (caps, pool) = (backend.caps(), backend.pool().clone());
    let identity = Identity {
        cluster: 0,
        incarnation: 1,
    };
    let mut endpoint = Endpoint::<u32>::new(Config::default(), &caps, pool, identity, 1)
        .expect("a good configuration");
    let (mut load, mut tx) = (Idle, TxBatch::new());
    let mut answered = 0;
    let mut before = 0;
    for number in 0..FLOOD {
        if number == FLOOD / 100 {
            before = allocations();
        }
        let now = Instant::from_nanos(1_000_000_000 + u64::from(number) * 1_000);
        // Now and then the cookie is a guess.
        let body = connect(u64::from(number) + 1, u64::from(number % 3)).write();
        let head = Header::new(PacketType::Connect, NO_SESSION).write(Seed::NONE, None, &body);
        let mut bytes = [0; 256];
        bytes[..head.len()].copy_from_slice(&head);
        let len = head.len() + body.len();
        bytes[head.len()..len].copy_from_slice(&body);
        let packets = [RxPacket {
            bytes: &bytes[..len],
            route: number,
            ecn: false,
        }];
        endpoint.on_packets(now, &mut RxBatch::from_packets(&packets), &mut load);
        endpoint.on_timeout(now, &mut load);
        answered += endpoint.poll_transmit(now, &mut tx).count;
        tx.clear();
    }
    let allocations = allocations() - before;
    assert_eq!(allocations, 0, "allocations in {FLOOD} forged connects");
    assert_eq!(answered, FLOOD as usize, "a cookie for each");
    let stats = endpoint.stats();
    assert_eq!(stats.sessions_server, 0);
    assert!(stats.drops.cookie >= u64::from(FLOOD) / 2, "{stats:?}");
}

fn connect(nonce: u64, cookie: u64) -> Connect {
    Connect {
        client_session: 0,
        credits: 32,
        slots: 8,
        features: Features::NONE,
        mtu: 1472,
        nonce,
        cluster: 0,
        incarnation: 2,
        cookie,
    }
}

/// Serves no requests.
struct Idle;

impl App<u32> for Idle {
    fn on_request(&mut self, _: &mut Cx<'_, u32>, _: Request<'_>) -> Reply {
        Reply::Later
    }

    fn on_completion(&mut self, _: &mut Cx<'_, u32>, _: u64, _: Completion) {}
}
