//! The typed layer end to end: two nodes over rings, futures on executors that are not ours.

mod fork;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};

use futures_executor::ThreadPool;
use pollster::block_on;

use super::*;
use trine_transport::backend::{Backend, RingBackend, RingConfig, RingRoute};
use trine_transport::config::Config;
use trine_transport::session::{ConnectError, ConnectParams};
use trine_transport::time::Duration;

/// Adds 1.
struct Increment;

impl Rpc for Increment {
    const KIND: u8 = 1;
    type Request = u64;
    type Response = u64;
}

/// Comes back.
struct Echo;

impl Rpc for Echo {
    const KIND: u8 = 2;
    const RESPONSE_BYTES_MAX: usize = 1 << 20;
    type Request = Vec<u8>;
    type Response = Vec<u8>;
}

/// Answered when the test says so.
struct Deferred;

impl Rpc for Deferred {
    const KIND: u8 = 3;
    type Request = u64;
    type Response = u64;
}

/// The number of `Increment`, but with text for a request.
struct Confused;

impl Rpc for Confused {
    const KIND: u8 = 1;
    type Request = String;
    type Response = u64;
}

struct NodePair {
    session: Session<RingRoute>,
    client: Node<RingRoute>,
    server: Node<RingRoute>,
    held: mpsc::Receiver<Responder<Deferred, RingRoute>>,
    route: RingRoute,
}

fn pair() -> NodePair {
    pair_with(|builder| builder, |builder| builder)
}

type RingBuilder = Builder<RingBackend>;

fn pair_with(
    server: impl FnOnce(RingBuilder) -> RingBuilder,
    client: impl FnOnce(RingBuilder) -> RingBuilder,
) -> NodePair {
    let (ours, theirs) = RingBackend::pair(RingConfig::default());
    let route = theirs.route();
    let (keep, held) = mpsc::channel();
    let builder = Node::builder(theirs)
        .handle::<Increment, _>(|number, _| number + 1)
        .handle::<Echo, _>(|bytes, _| bytes)
        .handle_later::<Deferred, _>(move |_, _, responder| drop(keep.send(responder)));
    let server = server(builder).start().expect("a server");
    let client = client(Node::builder(ours)).start().expect("a client");
    let session = block_on(client.client().connect(route)).expect("a session");
    NodePair {
        session,
        client,
        server,
        held,
        route,
    }
}

/// Waits for a condition that another thread brings about.
fn wait_for(condition: impl Fn() -> bool) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !condition() {
        assert!(std::time::Instant::now() < end, "it takes for ever");
        std::thread::yield_now();
    }
}

#[test]
fn a_call_is_a_value_and_its_answer() {
    let pair = pair();
    assert_eq!(block_on(pair.session.call::<Increment>(&41)), Ok(42));
    let large = vec![7; 1 << 20];
    assert_eq!(block_on(pair.session.call::<Echo>(&large)), Ok(large));
    pair.client.stop().expect("nothing went wrong");
    pair.server.stop().expect("nothing went wrong");
}

#[test]
fn many_tasks_of_a_foreign_executor_share_a_session() {
    const TASKS: u64 = 200;
    let pair = pair();
    let pool = ThreadPool::builder()
        .pool_size(2)
        .create()
        .expect("threads");
    let (tell, told) = mpsc::channel();
    for task in 0..TASKS {
        let (session, tell) = (pair.session.clone(), tell.clone());
        pool.spawn_ok(async move {
            let mut number = task;
            for _ in 0..10 {
                number = session.call::<Increment>(&number).await.expect("an answer");
            }
            tell.send(number).expect("the test listens");
        });
    }
    let sum: u64 = told.iter().take(TASKS as usize).sum();
    assert_eq!(sum, (0..TASKS).map(|task| task + 10).sum());
}

#[test]
fn an_unknown_type_and_a_malformed_request_are_refused() {
    struct Unknown;
    impl Rpc for Unknown {
        const KIND: u8 = 200;
        type Request = ();
        type Response = ();
    }
    let pair = pair();
    let unknown = block_on(pair.session.call::<Unknown>(&()));
    assert_eq!(unknown, Err(CallError::Refused(CallRefusal::UnknownType)));
    let malformed = block_on(pair.session.call::<Confused>(&"12345".to_owned()));
    assert_eq!(malformed, Err(CallError::Refused(CallRefusal::BadRequest)));
}

#[test]
fn an_answer_of_another_type_or_without_room_is_told_apart() {
    struct Misread;
    impl Rpc for Misread {
        const KIND: u8 = 1;
        type Request = u64;
        type Response = [u8; 3];
    }
    struct Narrow;
    impl Rpc for Narrow {
        const KIND: u8 = 2;
        const RESPONSE_BYTES_MAX: usize = 10;
        type Request = Vec<u8>;
        type Response = Vec<u8>;
    }
    let pair = pair();
    let misread = block_on(pair.session.call::<Misread>(&1));
    assert!(matches!(misread, Err(CallError::BadResponse(_))));
    let narrow = block_on(pair.session.call::<Narrow>(&vec![1; 100_000]));
    assert_eq!(narrow, Err(CallError::ResponseTooLarge));
}

#[test]
fn a_responder_answers_from_any_thread_and_says_when_it_does_not() {
    let pair = pair();
    let (first, second) = (
        pair.session.call::<Deferred>(&1),
        pair.session.call::<Deferred>(&2),
    );
    let responder = pair.held.recv().expect("the first request");
    std::thread::spawn(move || responder.reply(&11))
        .join()
        .expect("no panic");
    drop(pair.held.recv().expect("the second request"));
    let answers = [block_on(first), block_on(second)];
    assert_eq!(answers, [Ok(11), Err(CallError::Unanswered)]);
}

#[test]
fn a_deadline_ends_a_call_and_the_late_answer_is_dropped() {
    let pair = pair();
    let late = pair
        .session
        .call_within::<Deferred>(&1, Duration::from_millis(5));
    assert_eq!(block_on(late), Err(CallError::DeadlineExceeded));
    // On a machine that stood still for so long it did not even run.
    pair.held
        .try_iter()
        .for_each(|responder| responder.reply(&1));
    assert_eq!(block_on(pair.session.call::<Increment>(&1)), Ok(2));
}

#[test]
fn a_dropped_call_gives_its_slot_to_the_next_one() {
    let pair = pair();
    let slots = Config::default().slots;
    for round in 0..3 {
        let calls: Vec<_> = (0..u64::from(slots))
            .map(|number| pair.session.call::<Deferred>(&number))
            .collect();
        let responders: Vec<_> = pair.held.iter().take(usize::from(slots)).collect();
        // Every slot is taken, and yet the next call comes through.
        drop(calls);
        assert_eq!(
            block_on(pair.session.call::<Increment>(&round)),
            Ok(round + 1)
        );
        responders
            .into_iter()
            .for_each(|responder| responder.reply(&0));
    }
    wait_for(|| pair.client.shared.calls.used() == 0);
}

#[test]
fn calls_beyond_the_limit_are_refused_and_later_ones_are_not() {
    let pair = pair_with(|server| server, |client| client.calls(2));
    let calls = [
        pair.session.call::<Deferred>(&1),
        pair.session.call::<Deferred>(&2),
    ];
    let third = block_on(pair.session.call::<Increment>(&1));
    assert_eq!(third, Err(CallError::NotSent(NotSent::TooManyCalls)));
    drop(calls);
    wait_for(|| pair.client.shared.calls.used() == 0);
    assert_eq!(block_on(pair.session.call::<Increment>(&1)), Ok(2));
}

#[test]
fn a_request_without_memory_is_not_sent() {
    struct Vast;
    impl Rpc for Vast {
        const KIND: u8 = 2;
        const RESPONSE_BYTES_MAX: usize = 8 << 20;
        type Request = Vec<u8>;
        type Response = Vec<u8>;
    }
    let pair = pair();
    let beyond = block_on(pair.session.call::<Vast>(&vec![0; (8 << 20) + 1]));
    assert_eq!(beyond, Err(CallError::NotSent(NotSent::RequestTooLarge)));
    // The ring's pool ends somewhere; each call holds 8 MiB of it.
    let mut calls = Vec::new();
    let refused = loop {
        let mut call = Box::pin(pair.session.call::<Vast>(&Vec::new()));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        if let std::task::Poll::Ready(Err(error)) = call.as_mut().poll(&mut context) {
            break error;
        }
        calls.push(call);
        assert!(calls.len() < 4_096, "memory without end");
    };
    assert_eq!(refused, CallError::NotSent(NotSent::NoMemory));
    drop(calls);
    wait_for(|| pair.client.shared.calls.used() == 0);
    assert_eq!(block_on(pair.session.call::<Increment>(&1)), Ok(2));
}

#[test]
fn the_last_handle_closes_the_session() {
    let pair = pair();
    let other = pair.session.clone();
    let waiting = pair.session.call::<Deferred>(&1);
    pair.held.recv().expect("it runs").reply(&5);
    assert_eq!(block_on(waiting), Ok(5));
    drop(pair.session);
    assert_eq!(block_on(other.call::<Increment>(&1)), Ok(2));
    drop(other);
    let server = pair.server.client();
    wait_for(|| block_on(server.stats()).expect("it runs").sessions_server == 0);
}

#[test]
fn a_server_that_goes_ends_the_calls_and_names_what_is_known() {
    let pair = pair();
    let running = pair.session.call::<Deferred>(&1);
    let _responder = pair.held.recv().expect("it runs");
    pair.server.stop().expect("nothing went wrong");
    assert_eq!(block_on(running), Err(CallError::OutcomeUnknown));
    let later = block_on(pair.session.call::<Increment>(&1));
    assert_eq!(later, Err(CallError::NotSent(NotSent::SessionOver)));
}

#[test]
fn a_client_that_stops_ends_its_calls() {
    let pair = pair();
    let running = pair.session.call::<Deferred>(&1);
    let _responder = pair.held.recv().expect("it runs");
    let handle = pair.client.client();
    pair.client.stop().expect("nothing went wrong");
    assert_eq!(block_on(running), Err(CallError::OutcomeUnknown));
    let later = block_on(pair.session.call::<Increment>(&1));
    assert_eq!(later, Err(CallError::NotSent(NotSent::Stopped)));
    let again = block_on(handle.connect(pair.route));
    assert!(matches!(again, Err(SessionError::Stopped)));
}

#[test]
fn a_panic_in_a_handler_ends_the_node_and_whoever_waits() {
    struct Bad;
    impl Rpc for Bad {
        const KIND: u8 = 9;
        type Request = ();
        type Response = ();
    }
    let (ours, theirs) = RingBackend::pair(RingConfig::default());
    let route = theirs.route();
    let mut builder = Node::builder(theirs);
    let own = builder.client();
    let server = builder
        .handle::<Bad, _>(|(), _| panic!("a planted panic"))
        .start()
        .expect("a server");
    let config = Config {
        failure_timeout: Duration::from_millis(100),
        keepalive_interval: Duration::from_millis(20),
        ..Config::default()
    };
    let client = Node::builder(ours)
        .config(config)
        .start()
        .expect("a client");
    let session = block_on(client.client().connect(route)).expect("a session");
    assert_eq!(
        block_on(session.call::<Bad>(&())),
        Err(CallError::OutcomeUnknown)
    );
    assert!(matches!(block_on(own.stats()), Err(SessionError::Stopped)));
    assert!(matches!(server.stop(), Err(NodeError::Panicked)));
}

#[test]
fn a_connect_fails_with_its_reason() {
    let (ours, nobody) = RingBackend::pair(RingConfig::default());
    let client = Node::builder(ours).start().expect("a client");
    let wishes = ConnectParams {
        timeout: Some(Duration::from_millis(20)),
        ..ConnectParams::default()
    };
    let failed = block_on(client.client().connect_with(nobody.route(), wishes));
    assert!(matches!(
        failed,
        Err(SessionError::Failed(ConnectError::TimedOut))
    ));
    let senseless = ConnectParams {
        slots: Some(0),
        ..ConnectParams::default()
    };
    let failed = block_on(client.client().connect_with(nobody.route(), senseless));
    assert!(matches!(failed, Err(SessionError::Refused(_))));
    // Taken back at any moment, a connect leaves nothing behind.
    drop(client.client().connect(nobody.route()));
    wait_for(|| client.shared.calls.used() == 0);
}

#[test]
fn worker_handlers_run_beside_the_event_loop() {
    struct Slow;
    impl Rpc for Slow {
        const KIND: u8 = 9;
        type Request = u64;
        type Response = u64;
    }
    let (allow, allowed) = mpsc::channel::<()>();
    let allowed = Mutex::new(allowed);
    let slow = move |number: u64| {
        allowed
            .lock()
            .expect("one thread")
            .recv()
            .expect("the test allows it");
        number * 2
    };
    let pair = pair_with(
        |server| server.handle_worker::<Slow, _>(slow),
        |client| client,
    );
    let slow = pair.session.call::<Slow>(&21);
    // The worker cannot end before the test says so.
    assert_eq!(block_on(pair.session.call::<Increment>(&1)), Ok(2));
    allow.send(()).expect("it waits");
    assert_eq!(block_on(slow), Ok(42));
}

/// The request came back as one of an unknown type: a caller that took the server at its word never
/// tried again.
#[test]
fn a_worker_request_without_memory_for_its_copy_is_refused_as_overloaded() {
    struct Long;
    impl Rpc for Long {
        const KIND: u8 = 9;
        type Request = Vec<u8>;
        type Response = u64;
    }
    const CLASS: usize = 8 << 20;
    let (ours, theirs) = RingBackend::pair(RingConfig::default());
    let (pool, route) = (theirs.pool().clone(), theirs.route());
    let small = pool.alloc(1).expect("memory");
    let mut large: Vec<_> = std::iter::from_fn(|| pool.alloc(CLASS)).collect();
    // Room for the request on its arrival, not for the worker's copy; and for a status.
    large.pop();
    drop(small);
    let _server = Node::builder(theirs)
        .handle_worker::<Long, _>(|bytes| bytes.len() as u64)
        .start()
        .expect("a server");
    let client = Node::builder(ours).start().expect("a client");
    let session = block_on(client.client().connect(route)).expect("a session");
    let request = vec![7; CLASS - 8];
    let refused = block_on(session.call::<Long>(&request));
    assert_eq!(refused, Err(CallError::Refused(CallRefusal::Overloaded)));
    large.clear();
    assert_eq!(
        block_on(session.call::<Long>(&request)),
        Ok(request.len() as u64)
    );
}

/// The deadline wrapped around, and the call ended at once as one whose time is over.
#[test]
fn a_call_may_have_all_the_time_there_is() {
    let pair = pair();
    let call = pair.session.call_within::<Increment>(&41, Duration::MAX);
    assert_eq!(block_on(call), Ok(42));
}

/// Sums the answers of another server: the paper's nested RPC.
struct Nested;

impl Rpc for Nested {
    const KIND: u8 = 9;
    type Request = u64;
    type Response = Result<u64, String>;
}

#[test]
fn an_async_handler_calls_another_server_and_answers_later() {
    let back = pair();
    let outgoing = back.session.clone();
    let nested = move |number: u64, _: Caller| {
        let outgoing = outgoing.clone();
        async move {
            let mut sum = 0;
            for part in 0..number {
                let one = outgoing.call::<Increment>(&part).await;
                sum += one.map_err(|error| error.to_string())?;
            }
            Ok(sum)
        }
    };
    let front = pair_with(
        |server| server.handle_async::<Nested, _, _>(nested),
        |client| client,
    );
    assert_eq!(block_on(front.session.call::<Nested>(&100)), Ok(Ok(5_050)));
}

#[test]
fn a_node_may_call_from_its_own_handlers() {
    let (ours, theirs) = RingBackend::pair(RingConfig::default());
    let (front_route, back_route) = (ours.route(), theirs.route());
    let back = Node::builder(theirs)
        .handle::<Increment, _>(|number, _| number + 1)
        .start()
        .expect("a server");
    let session: Arc<OnceLock<Session<RingRoute>>> = Arc::default();
    let known = Arc::clone(&session);
    let front = Node::builder(ours)
        .handle_async::<Nested, _, _>(move |number, _| {
            let session = known.get().cloned();
            async move {
                let session = session.ok_or("no session yet")?;
                let call = session.call::<Increment>(&number);
                call.await.map_err(|error| error.to_string())
            }
        })
        .start()
        .expect("a server that is a client");
    let opened = block_on(front.client().connect(back_route)).expect("a session");
    assert!(session.set(opened).is_ok());
    // The one that is called calls back: both are both.
    let to_front = block_on(back.client().connect(front_route)).expect("a session");
    assert_eq!(block_on(to_front.call::<Nested>(&41)), Ok(Ok(42)));
}

#[test]
fn async_handlers_beyond_their_limit_are_refused_as_overloaded() {
    let started = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&started);
    let endless = move |_: u64, _: Caller| {
        count.fetch_add(1, Ordering::SeqCst);
        std::future::pending()
    };
    let pair = pair_with(
        |server| server.handle_async::<Nested, _, _>(endless).tasks(2),
        |client| client,
    );
    let endless = [
        pair.session.call::<Nested>(&1),
        pair.session.call::<Nested>(&2),
    ];
    wait_for(|| started.load(Ordering::SeqCst) == 2);
    let third = block_on(pair.session.call::<Nested>(&3));
    assert_eq!(third, Err(CallError::Refused(CallRefusal::Overloaded)));
    drop(endless);
}

#[test]
fn two_handlers_of_one_type_are_a_mistake_that_is_told() {
    let (backend, _) = RingBackend::pair(RingConfig::default());
    let twice = Node::builder(backend)
        .handle::<Increment, _>(|number, _| number)
        .handle_worker::<Confused, _>(|_| 0)
        .start();
    assert!(matches!(twice, Err(StartError::KindTwice(1))));
}

#[test]
fn settings_that_contradict_themselves_are_told() {
    let (backend, _) = RingBackend::pair(RingConfig::default());
    let config = Config {
        credits: 0,
        ..Config::default()
    };
    assert!(backend.pool().alloc(1).is_some());
    let start = Node::builder(backend).config(config).start();
    assert!(matches!(start, Err(StartError::Config(_))));
}
