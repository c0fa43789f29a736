//! A program of its own, because `.ci/verbs` runs it inside the test machine: the verbs backend on a real RDMA device.
//!
//! Two queue pairs on one device, both turned by the test's thread. Nothing here depends on how
//! fast the device is; bounds are counts of turns, generous ones.

#[path = "verbs/herd.rs"]
mod herd;
#[path = "verbs/increments.rs"]
mod increments;
#[path = "verbs/numbers.rs"]
mod numbers;
#[path = "verbs/rfp.rs"]
mod rfp;

use trine_transport::backend::{Backend, Body, Direction, Faults, Faulty, MonotonicClock, TxBatch};
use trine_transport::time::{Clock, Duration};
use trine_transport::{
    App, Completion, Config, ConnectParams, Cx, DownReason, Event, EventLoop, Identity, Reply,
    Request, SessionId,
};
use trine_verbs::{VerbsAddress, VerbsBackend, VerbsConfig, VerbsError, VerbsRoute};

const BOUND: Duration = Duration::from_secs(60);

fn open(config: &VerbsConfig) -> VerbsBackend {
    VerbsBackend::open(config).expect("the machine has an active RDMA device")
}

/// Polls until `count` datagrams came; returns their content and sources.
fn receive(backend: &mut VerbsBackend, count: usize) -> Vec<(Vec<u8>, VerbsRoute)> {
    let deadline = MonotonicClock.now() + BOUND;
    let mut received = Vec::new();
    while received.len() < count {
        let burst = backend.rx_burst().unwrap();
        received.extend(burst.map(|packet| (packet.bytes.to_vec(), packet.route)));
        assert!(
            MonotonicClock.now() < deadline,
            "{} of {count} datagrams came",
            received.len()
        );
    }
    received
}

fn send_one(backend: &mut VerbsBackend, to: VerbsRoute, bytes: &[u8]) {
    let mut batch = TxBatch::new();
    let (head, body) = bytes.split_at(bytes.len().min(24));
    batch.push(to, head, Body::Bytes(body));
    backend.tx_burst(&mut batch).unwrap();
}

#[test]
fn a_datagram_arrives_and_its_sender_is_known_by_its_announced_route() {
    let (mut a, mut b) = (open(&VerbsConfig::default()), open(&VerbsConfig::default()));
    send_one(&mut a, b.route(), b"hello");
    assert_eq!(receive(&mut b, 1), [(b"hello".to_vec(), a.route())]);
    assert_eq!(
        VerbsAddress::from_bytes(&a.address().to_bytes()).map(|a| b.route_to(&a, 0)),
        Some(a.route())
    );
}

#[test]
fn every_length_up_to_the_mtu_arrives_inline_or_not_with_or_without_a_body() {
    let (mut a, mut b) = (open(&VerbsConfig::default()), open(&VerbsConfig::default()));
    let mtu = a.caps().mtu;
    assert!(mtu >= 1024, "active MTU {mtu}");
    let header = [9u8; 24];
    for body_bytes in [0, 1, 200, 232, 233, 256, 257, 1000, mtu - header.len()] {
        let mut message = a.pool().alloc(body_bytes).unwrap();
        message
            .iter_mut()
            .enumerate()
            .for_each(|(at, byte)| *byte = at as u8);
        let mut batch = TxBatch::new();
        batch.push(b.route(), &header, Body::Message(&message, 0..body_bytes));
        a.tx_burst(&mut batch).unwrap();
        let received = receive(&mut b, 1);
        assert_eq!(received[0].0[..24], header, "{body_bytes}");
        assert_eq!(received[0].0[24..], message[..], "{body_bytes}");
    }
}

#[test]
fn sends_are_unsignaled_but_for_one_in_an_interval_and_share_a_doorbell() {
    let (mut a, mut b) = (open(&VerbsConfig::default()), open(&VerbsConfig::default()));
    let registrations = a.verbs_stats().registrations;
    for round in 0..40u8 {
        let mut batch = TxBatch::new();
        for _ in 0..32 {
            batch.push(b.route(), &[round; 48], Body::None);
        }
        a.tx_burst(&mut batch).unwrap();
        receive(&mut b, 32);
    }
    let (sent, received) = (a.verbs_stats(), b.verbs_stats());
    assert_eq!(sent.sends, 40 * 32);
    assert_eq!(sent.send_doorbells, 40, "a doorbell a batch");
    assert_eq!(sent.sends_inline, sent.sends);
    assert!(sent.sends_signaled * 16 <= sent.sends, "{sent:?}");
    assert_eq!(received.receives, sent.sends);
    assert!(
        received.receive_doorbells * 16 <= received.receives_posted,
        "{received:?}"
    );
    assert_eq!(
        sent.registrations, registrations,
        "no registration after the start"
    );
}

#[test]
fn each_guideline_can_be_switched_off() {
    let plain = VerbsConfig {
        inline_bytes: 0,
        signal_interval: 1,
        doorbell_batching: false,
        ..VerbsConfig::default()
    };
    let (mut a, mut b) = (open(&plain), open(&plain));
    for round in 0..40u8 {
        let mut batch = TxBatch::new();
        for _ in 0..16 {
            batch.push(b.route(), &[round; 48], Body::None);
        }
        a.tx_burst(&mut batch).unwrap();
        receive(&mut b, 16);
    }
    let stats = a.verbs_stats();
    assert_eq!(
        (
            stats.sends_inline,
            stats.sends_signaled,
            stats.send_doorbells
        ),
        (0, stats.sends, stats.sends)
    );
}

/// Sends `packet` and returns what arrived.
fn pass(from: &mut VerbsBackend, to: &mut VerbsBackend, packet: &[u8]) -> Vec<u8> {
    send_one(from, to.route(), packet);
    receive(to, 1).swap_remove(0).0
}

#[test]
fn a_header_goes_in_front_of_its_body_and_the_device_fetches_one_part() {
    let apart = VerbsConfig {
        header_in_front: false,
        ..VerbsConfig::default()
    };
    for (config, parts) in [(VerbsConfig::default(), 1), (apart, 2)] {
        let (mut a, mut b) = (open(&config), open(&VerbsConfig::default()));
        for body_bytes in [257, 1000, a.caps().mtu - 32] {
            let before = a.verbs_stats();
            let mut message = a.pool().alloc(body_bytes).unwrap();
            message.fill(body_bytes as u8);
            let mut batch = TxBatch::new();
            batch.push(b.route(), &[9; 32], Body::Message(&message, 0..body_bytes));
            a.tx_burst(&mut batch).unwrap();
            let whole = [vec![9; 32], message.to_vec()].concat();
            assert_eq!(receive(&mut b, 1)[0].0, whole, "{body_bytes}");
            let gathered = a.verbs_stats().sends_gathered - before.sends_gathered;
            assert_eq!(gathered, parts, "{body_bytes}");
        }
    }
}

/// The device may still read the header of the first transmission, so that a second one may not be written over it.
#[test]
fn a_header_in_front_is_not_written_over_before_the_device_has_read_it() {
    let (mut a, mut b) = (open(&VerbsConfig::default()), open(&VerbsConfig::default()));
    let mut message = a.pool().alloc(1000).unwrap();
    message.fill(5);
    let mut batch = TxBatch::new();
    for header in 1..=3u8 {
        batch.push(b.route(), &[header; 24], Body::Message(&message, 0..1000));
    }
    // A later packet of a message has no room in front.
    batch.push(b.route(), &[4; 24], Body::Message(&message, 500..1000));
    a.tx_burst(&mut batch).unwrap();
    let headers: Vec<u8> = receive(&mut b, 4)
        .iter()
        .map(|(packet, _)| packet[0])
        .collect();
    assert_eq!(headers, [1, 2, 3, 4]);
    assert_eq!(a.verbs_stats().sends_gathered, 1 + 2 + 2 + 2);
    a.flush();
    batch.push(b.route(), &[5; 24], Body::Message(&message, 0..1000));
    a.tx_burst(&mut batch).unwrap();
    assert_eq!(receive(&mut b, 1)[0].0[..24], [5; 24]);
    assert_eq!(a.verbs_stats().sends_gathered, 7 + 1, "after the flush");
}

#[test]
fn immediates_carry_four_bytes_once_both_ends_know_that_they_may() {
    let (mut a, mut b) = (open(&VerbsConfig::default()), open(&VerbsConfig::default()));
    let packet: Vec<u8> = (1..=64).collect();
    assert_eq!(pass(&mut a, &mut b, &packet), packet);
    assert_eq!(a.verbs_stats().sends_shrunk, 0, "nothing is known yet");
    assert_eq!(pass(&mut b, &mut a, b"any"), b"any");
    let before = a.verbs_stats();
    assert_eq!(pass(&mut a, &mut b, &packet), packet);
    let after = a.verbs_stats();
    assert_eq!(after.sends_shrunk - before.sends_shrunk, 1);
    assert_eq!(after.send_lines - before.send_lines, 2, "and not three");
    // Four bytes are a header alone.
    assert_eq!(pass(&mut a, &mut b, b"four"), b"four");
    assert_eq!(a.verbs_stats().sends_header_only, 1);
    assert_eq!(a.verbs_stats().send_lines - after.send_lines, 1);
    assert_eq!(b.verbs_stats().receives_header_only, 1);
}

#[test]
fn an_end_without_immediates_is_sent_whole_packets() {
    let off = VerbsConfig {
        immediates: false,
        ..VerbsConfig::default()
    };
    let (mut a, mut b) = (open(&VerbsConfig::default()), open(&off));
    let packet: Vec<u8> = (1..=64).collect();
    for _ in 0..3 {
        assert_eq!(pass(&mut a, &mut b, &packet), packet);
        assert_eq!(pass(&mut b, &mut a, &packet), packet);
    }
    assert_eq!(
        a.verbs_stats().sends_shrunk + b.verbs_stats().sends_shrunk,
        0
    );
}

/// The machine of the tests has no huge pages until somebody reserves them.
#[test]
fn huge_pages_are_refused_with_a_hint_where_there_are_none_and_used_where_there_are() {
    let huge = VerbsConfig {
        huge_pages: true,
        ..VerbsConfig::default()
    };
    let reserve = |pages: &str| std::fs::write("/proc/sys/vm/nr_hugepages", pages);
    reserve("0").expect("the test runs as root");
    let refused = VerbsBackend::open(&huge).err().expect("no huge pages");
    assert!(matches!(refused, VerbsError::HugePages { .. }), "{refused}");
    reserve("32").expect("the test runs as root");
    let (mut a, small) = (open(&huge), open(&VerbsConfig::default()));
    let pages = |backend: &VerbsBackend| backend.verbs_stats().registered_pages;
    assert!(
        pages(&a) * 3 < pages(&small),
        "{} {}",
        pages(&a),
        pages(&small)
    );
    let mut b = open(&huge);
    assert_eq!(pass(&mut a, &mut b, b"hello"), b"hello");
    drop((a, b));
    reserve("0").expect("the test runs as root");
}

#[test]
fn a_flush_returns_once_the_device_has_read_everything() {
    let (mut a, mut b) = (open(&VerbsConfig::default()), open(&VerbsConfig::default()));
    for round in 0..3u8 {
        let mut message = a.pool().alloc(1000).unwrap();
        message.fill(round);
        let mut batch = TxBatch::new();
        batch.push(b.route(), &[1; 24], Body::Message(&message, 0..1000));
        a.tx_burst(&mut batch).unwrap();
        a.flush();
        // Overwritten at once: the old content must arrive.
        message.fill(0xee);
        assert_eq!(receive(&mut b, 1)[0].0[24..], [round; 1000]);
    }
    assert_eq!(a.verbs_stats().flushes, 3);
    assert_eq!(
        b.verbs_stats().receives,
        3,
        "the flush itself reaches nobody"
    );
}

/// A flush that found the queue pair broken returned at once. The core gave the memory back
/// although the device had not forgotten the sends that referred to it.
#[test]
fn a_flush_of_a_broken_queue_pair_makes_the_device_forget_what_was_posted() {
    let (mut a, mut b) = (open(&VerbsConfig::default()), open(&VerbsConfig::default()));
    a.fail_queue_pair().unwrap();
    for _ in 0..32 {
        send_one(&mut a, b.route(), b"lost");
    }
    a.flush();
    assert!(a.verbs_stats().restarts >= 1, "{:?}", a.verbs_stats());
    send_one(&mut a, b.route(), b"after");
    assert_eq!(receive(&mut b, 1)[0].0, b"after");
}

#[test]
fn a_full_receive_ring_loses_datagrams_and_recovers() {
    let small = VerbsConfig {
        receive_queue: 64,
        ..VerbsConfig::default()
    };
    let (mut a, mut b) = (open(&VerbsConfig::default()), open(&small));
    for _ in 0..8 {
        let mut batch = TxBatch::new();
        for _ in 0..32 {
            batch.push(b.route(), b"flood", Body::None);
        }
        a.tx_burst(&mut batch).unwrap();
    }
    a.flush();
    receive(&mut b, 48);
    // Whatever was lost, the ring is given back to the device and the next ones come through.
    let deadline = MonotonicClock.now() + BOUND;
    loop {
        send_one(&mut a, b.route(), b"after");
        if b.rx_burst().unwrap().any(|packet| packet.bytes == b"after") {
            break;
        }
        assert!(
            MonotonicClock.now() < deadline,
            "the ring stays empty: {:?}",
            b.verbs_stats()
        );
    }
    assert!(b.verbs_stats().receives < 8 * 32 + 1_000_000);
}

#[test]
fn a_wrong_key_and_a_dead_queue_pair_are_silence() {
    let (mut a, mut b) = (open(&VerbsConfig::default()), open(&VerbsConfig::default()));
    send_one(
        &mut a,
        VerbsRoute {
            qkey: 0x1234,
            ..b.route()
        },
        b"wrong key",
    );
    let gone = open(&VerbsConfig::default());
    let nobody = gone.route();
    drop(gone);
    send_one(&mut a, nobody, b"nobody");
    send_one(&mut a, b.route(), b"right");
    assert_eq!(receive(&mut b, 1)[0].0, b"right");
    assert_eq!(a.verbs_stats().restarts, 0);
}

#[test]
fn waiting_ends_with_a_datagram_a_waker_or_the_timeout() {
    let (mut a, mut b) = (open(&VerbsConfig::default()), open(&VerbsConfig::default()));
    let start = MonotonicClock.now();
    b.wait(Some(Duration::from_millis(30))).unwrap();
    assert!(MonotonicClock.now() - start >= Duration::from_millis(30));
    b.waker().wake();
    b.wait(None).unwrap();
    for _ in 0..3 {
        send_one(&mut a, b.route(), b"wake up");
        b.wait(None).unwrap();
        assert_eq!(receive(&mut b, 1).len(), 1);
    }
}

#[test]
fn a_device_port_or_gid_that_does_not_exist_is_named_with_its_hint() {
    let failure =
        |config: VerbsConfig| VerbsBackend::open(&config).err().expect("it must not open");
    let no_device = failure(VerbsConfig {
        device: Some("mlx5_77".to_owned()),
        ..VerbsConfig::default()
    });
    assert!(
        matches!(&no_device, VerbsError::NoSuchDevice { available, .. } if !available.is_empty()),
        "{no_device}"
    );
    let no_port = failure(VerbsConfig {
        port: 9,
        ..VerbsConfig::default()
    });
    assert!(
        matches!(no_port, VerbsError::NoSuchPort { port: 9, .. }),
        "{no_port}"
    );
    let no_gid = failure(VerbsConfig {
        gid_index: Some(200),
        ..VerbsConfig::default()
    });
    assert!(
        matches!(
            no_gid,
            VerbsError::NoSuchGid {
                index: Some(200),
                ..
            }
        ),
        "{no_gid}"
    );
}

fn with_queue_pairs(queue_pairs: u8) -> VerbsConfig {
    VerbsConfig {
        queue_pairs,
        ..VerbsConfig::default()
    }
}

/// The address as its peers learn it.
fn announced(backend: &VerbsBackend) -> VerbsAddress {
    VerbsAddress::from_bytes(&backend.address().to_bytes()).expect("a sound address")
}

#[test]
fn an_endpoint_of_several_queue_pairs_uses_all_of_them() {
    let (mut a, mut b) = (open(&with_queue_pairs(2)), open(&with_queue_pairs(4)));
    let (to_a, to_b) = (announced(&a), announced(&b));
    assert_eq!((to_a.queue_pairs().len(), to_b.queue_pairs().len()), (2, 4));
    let mut batch = TxBatch::new();
    for choice in 0..8u8 {
        batch.push(a.route_to(&to_b, choice.into()), &[choice; 32], Body::None);
    }
    a.tx_burst(&mut batch).unwrap();
    assert_eq!(
        a.verbs_stats().send_doorbells,
        2,
        "a doorbell a queue pair and batch"
    );
    let mut received = receive(&mut b, 8);
    received.sort_by_key(|(bytes, _)| bytes[0]);
    for (choice, (bytes, route)) in (0..8u8).zip(&received) {
        assert_eq!(bytes[..], [choice; 32]);
        let came_in = usize::from(route.via);
        assert_eq!(came_in, usize::from(choice) % 4);
        let sender = to_a.queue_pairs()[usize::from(choice) % 2];
        assert_eq!(route.queue_pair, sender, "an answer finds its way back");
        // A reply comes in where the first packet left.
        send_one(&mut b, *route, bytes);
        assert_eq!(
            receive(&mut a, 1),
            [(bytes.clone(), a.route_to(&to_b, choice.into()))]
        );
    }
}

#[test]
fn sessions_spread_over_the_queue_pairs_and_stay_where_they_are() {
    let (a, b) = (open(&with_queue_pairs(4)), open(&with_queue_pairs(4)));
    let to_b = announced(&b);
    let routes: Vec<VerbsRoute> = (0..8).map(|choice| a.route_to(&to_b, choice)).collect();
    let (mut client, mut server) = (event_loop(a, 1, 8), event_loop(b, 2, 8));
    let sessions: Vec<SessionId> = routes
        .into_iter()
        .map(|route| connect(&mut client, &mut server, route))
        .collect();
    for session in &sessions {
        enqueue(&mut client, *session, 32, 50);
        enqueue(&mut client, *session, 20_000, 2);
    }
    run(&mut client, &mut server, |app| app.answered == 8 * 52);
    assert_eq!(client.app().failed, 0);
    for stats in [client.endpoint().stats(), server.endpoint().stats()] {
        assert_eq!(stats.drops.wrong_route, 0, "no packet changed its way");
    }
}

#[test]
fn several_queue_pairs_break_restart_and_sleep_together() {
    let (mut a, mut b) = (open(&with_queue_pairs(3)), open(&with_queue_pairs(3)));
    let to_b = announced(&b);
    b.fail_queue_pair().unwrap();
    let deadline = MonotonicClock.now() + BOUND;
    while b.verbs_stats().restarts < 3 {
        assert!(b.rx_burst().unwrap().is_empty());
        assert!(MonotonicClock.now() < deadline, "{:?}", b.verbs_stats());
    }
    for choice in 0..6 {
        let route = a.route_to(&to_b, choice);
        send_one(&mut a, route, b"wake up");
        b.wait(None).unwrap();
        assert_eq!(receive(&mut b, 1)[0].0, b"wake up");
    }
}

/// Breaks the queue pair again as soon as it is restarted.
#[test]
fn a_queue_pair_that_breaks_again_and_again_is_given_up_with_cause_and_hint() {
    let mut backend = open(&VerbsConfig::default());
    let deadline = MonotonicClock.now() + BOUND;
    let error = loop {
        backend.fail_queue_pair().unwrap();
        if let Err(error) = backend.rx_burst() {
            break error.to_string();
        }
        assert!(MonotonicClock.now() < deadline, "it is never given up");
    };
    let number = backend.route().queue_pair.to_string();
    for words in [&number, "error state", "dmesg", "start this process anew"] {
        assert!(error.contains(words), "{error}");
    }
}

/// Echoes requests; counts what it is told.
#[derive(Default)]
struct Echo {
    session: Option<SessionId>,
    answered: usize,
    failed: usize,
    down: Vec<DownReason>,
}

impl<R: trine_transport::backend::Route> App<R> for Echo {
    fn on_request(&mut self, cx: &mut Cx<'_, R>, request: Request<'_>) -> Reply {
        let mut response = cx.alloc(request.data.len()).unwrap();
        response.copy_from_slice(request.data);
        Reply::Now(response)
    }

    fn on_completion(&mut self, _cx: &mut Cx<'_, R>, _tag: u64, completion: Completion) {
        match completion.result {
            Ok(()) => {
                assert_eq!(completion.request[..], completion.response[..]);
                self.answered += 1;
            }
            Err(_) => self.failed += 1,
        }
    }

    fn on_event(&mut self, _cx: &mut Cx<'_, R>, event: Event<R>) {
        match event {
            Event::Connected { session, .. } => self.session = Some(session),
            Event::Down { reason, .. } => self.down.push(reason),
            Event::Accepted { .. } => {}
            Event::ConnectFailed { reason, .. } => panic!("{reason:?}"),
        }
    }
}

type Loop<B> = EventLoop<B, MonotonicClock, Echo>;
type LossyLoop = Loop<Faulty<VerbsBackend, MonotonicClock>>;

fn event_loop<B: Backend>(backend: B, incarnation: u64, sessions: usize) -> Loop<B> {
    impatient(backend, incarnation, sessions, Duration::from_secs(20))
}

/// As `event_loop`, for peers that are given up after `failure_timeout`.
fn impatient<B: Backend>(
    backend: B,
    incarnation: u64,
    sessions: usize,
    failure_timeout: Duration,
) -> Loop<B> {
    configured(backend, incarnation, |config| Config {
        sessions,
        failure_timeout,
        ..config
    })
}

/// As `event_loop`, with these settings.
fn configured<B: Backend>(backend: B, incarnation: u64, set: impl Fn(Config) -> Config) -> Loop<B> {
    let config = set(Config {
        overcommit: true,
        ..Config::default()
    });
    let identity = Identity {
        cluster: 0,
        incarnation,
    };
    EventLoop::new(
        backend,
        MonotonicClock,
        Echo::default(),
        config,
        identity,
        incarnation,
    )
    .unwrap()
}

/// Turns both until `done`.
fn run<B: Backend>(
    client: &mut Loop<B>,
    server: &mut Loop<B>,
    mut done: impl FnMut(&Echo) -> bool,
) {
    let deadline = MonotonicClock.now() + BOUND;
    while !done(client.app()) {
        client.turn().unwrap();
        server.turn().unwrap();
        assert!(
            MonotonicClock.now() < deadline,
            "answered {}",
            client.app().answered
        );
    }
}

fn enqueue<B: Backend>(client: &mut Loop<B>, session: SessionId, bytes: usize, count: usize) {
    for tag in 0..count {
        let now = client.now();
        let mut request = client.endpoint().pool().alloc(bytes).unwrap();
        request
            .iter_mut()
            .enumerate()
            .for_each(|(at, byte)| *byte = (at + tag) as u8);
        let response = client.endpoint().pool().alloc(bytes).unwrap();
        client
            .endpoint_mut()
            .enqueue_request(now, session, 1, request, response, tag as u64, None)
            .unwrap();
    }
}

fn connect<B: Backend>(client: &mut Loop<B>, server: &mut Loop<B>, to: B::Route) -> SessionId {
    let now = MonotonicClock.now();
    client.app_mut().session = None;
    client
        .endpoint_mut()
        .connect(now, to, ConnectParams::default())
        .unwrap();
    run(client, server, |app| app.session.is_some());
    client.app().session.unwrap()
}

#[test]
fn rpcs_of_one_packet_and_of_many_are_answered() {
    let (a, b) = (open(&VerbsConfig::default()), open(&VerbsConfig::default()));
    let to = b.route();
    let (mut client, mut server) = (event_loop(a, 1, 8), event_loop(b, 2, 8));
    let session = connect(&mut client, &mut server, to);
    enqueue(&mut client, session, 32, 200);
    run(&mut client, &mut server, |app| app.answered == 200);
    for bytes in [4_000, 100_000, 1 << 20] {
        let before = client.app().answered;
        enqueue(&mut client, session, bytes, 2);
        run(&mut client, &mut server, |app| app.answered == before + 2);
    }
    assert_eq!(client.app().failed, 0);
}

#[test]
fn a_small_rpc_is_one_send_and_one_receive_a_side() {
    let (a, b) = (open(&VerbsConfig::default()), open(&VerbsConfig::default()));
    let to = b.route();
    let (mut client, mut server) = (event_loop(a, 1, 8), event_loop(b, 2, 8));
    let session = connect(&mut client, &mut server, to);
    enqueue(&mut client, session, 32, 1000);
    run(&mut client, &mut server, |app| app.answered == 1000);
    let before = (
        client.backend().verbs_stats(),
        server.backend().verbs_stats(),
    );
    let retransmissions = client.endpoint().stats().retransmissions;
    enqueue(&mut client, session, 32, 1000);
    run(&mut client, &mut server, |app| app.answered == 2000);
    let after = (
        client.backend().verbs_stats(),
        server.backend().verbs_stats(),
    );
    // A slow machine may retransmit; that many packets more are allowed, and no others.
    let slack = 4 * (client.endpoint().stats().retransmissions - retransmissions) + 8;
    for (before, after) in [(before.0, after.0), (before.1, after.1)] {
        assert!(
            after.sends - before.sends <= 1000 + slack,
            "{before:?} {after:?}"
        );
        assert!(
            after.receives - before.receives <= 1000 + slack,
            "{before:?} {after:?}"
        );
        assert!(after.send_doorbells - before.send_doorbells <= after.sends - before.sends);
        assert_eq!(
            after.registrations, before.registrations,
            "no registration after the start"
        );
    }
}

#[test]
fn rpcs_survive_a_broken_queue_pair() {
    let (a, b) = (open(&VerbsConfig::default()), open(&VerbsConfig::default()));
    let to = b.route();
    let (mut client, mut server) = (event_loop(a, 1, 8), event_loop(b, 2, 8));
    let session = connect(&mut client, &mut server, to);
    for round in 1..=3 {
        enqueue(&mut client, session, 3_000, 50);
        client.turn().unwrap();
        if round == 2 {
            server.backend().fail_queue_pair().unwrap();
        } else {
            client.backend().fail_queue_pair().unwrap();
        }
        run(&mut client, &mut server, |app| app.answered == round * 50);
    }
    assert_eq!((client.app().failed, client.app().down.len()), (0, 0));
    assert!(client.backend().verbs_stats().restarts >= 1);
    assert!(server.backend().verbs_stats().restarts >= 1);
}

/// The server's process has ended, its queue pair with it: the device swallows sends to it and reports success.
#[test]
fn a_peer_whose_queue_pair_died_fails_its_session_with_cause_and_cure_and_others_go_on() {
    let client = open(&VerbsConfig::default());
    let (dying, living) = (open(&VerbsConfig::default()), open(&VerbsConfig::default()));
    let (to_dying, to_living) = (dying.route(), living.route());
    let mut client = impatient(client, 1, 8, Duration::from_secs(2));
    let (mut dying, mut living) = (event_loop(dying, 2, 8), event_loop(living, 3, 8));
    let doomed = connect(&mut client, &mut dying, to_dying);
    let other = connect(&mut client, &mut living, to_living);
    drop(dying);
    enqueue(&mut client, doomed, 3_000, 5);
    let deadline = MonotonicClock.now() + BOUND;
    let mut answered = 0;
    // The other session answers all the time until the dead one is given up, and afterwards.
    while client.app().down.is_empty() {
        enqueue(&mut client, other, 32, 1);
        answered += 1;
        run(&mut client, &mut living, |app| app.answered == answered);
        assert!(
            MonotonicClock.now() < deadline,
            "the dead peer is never noticed"
        );
    }
    let reason = client.app().down[0];
    assert_eq!(reason, DownReason::TimedOut);
    for words in ["the peer is silent", "queue pair", "start it anew"] {
        assert!(reason.to_string().contains(words), "{reason}");
    }
    run(&mut client, &mut living, |app| app.failed == 5);
    enqueue(&mut client, other, 3_000, 50);
    run(&mut client, &mut living, |app| {
        app.answered == answered + 50
    });
    assert_eq!(
        client.app().down.len(),
        1,
        "nobody else's session was harmed"
    );
}

/// A client and a server that both lose this share of their packets, and a session of theirs.
fn lossy(
    client: VerbsBackend,
    server: VerbsBackend,
    share: &str,
) -> (LossyLoop, LossyLoop, SessionId) {
    let to = server.route();
    let loss = Faults {
        loss: share.parse().unwrap(),
        ..Faults::default()
    };
    let [mut client, mut server] = [(client, 1), (server, 2)].map(|(backend, number)| {
        let backend = Faulty::new(backend, MonotonicClock, 6 + number);
        backend.handle().set(Direction::Outbound, loss);
        event_loop(backend, number, 8)
    });
    let session = connect(&mut client, &mut server, to);
    (client, server, session)
}

#[test]
fn rpcs_survive_injected_loss() {
    let (mut client, mut server, session) = lossy(
        open(&VerbsConfig::default()),
        open(&VerbsConfig::default()),
        "5%",
    );
    enqueue(&mut client, session, 3_000, 200);
    run(&mut client, &mut server, |app| app.answered == 200);
    assert_eq!(client.app().failed, 0);
    assert!(client.endpoint().stats().retransmissions > 0);
}

#[test]
fn a_thousand_sessions_share_one_queue_pair() {
    let (a, b) = (open(&VerbsConfig::default()), open(&VerbsConfig::default()));
    let to = b.route();
    let (mut client, mut server) = (event_loop(a, 1, 1000), event_loop(b, 2, 1000));
    let mut sessions = Vec::new();
    for _ in 0..1000 {
        sessions.push(connect(&mut client, &mut server, to));
    }
    for session in &sessions {
        enqueue(&mut client, *session, 32, 1);
    }
    run(&mut client, &mut server, |app| app.answered == 1000);
    assert_eq!((client.app().failed, client.app().down.len()), (0, 0));
}
