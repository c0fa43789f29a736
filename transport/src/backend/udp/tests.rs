//! The backend against real sockets on loopback.

use super::options::{option, set_option};
use super::*;
use crate::backend::{Body, MonotonicClock};
use crate::prng::Prng;
use crate::time::Clock as _;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration as StdDuration, Instant as StdInstant};

const PATIENCE: StdDuration = StdDuration::from_secs(10);

fn any_port() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

fn open() -> UdpBackend {
    UdpBackend::bind(any_port(), &UdpConfig::default()).unwrap()
}

/// Receives until `count` datagrams have come, sleeping in the backend between bursts.
fn receive(backend: &mut UdpBackend, count: usize) -> Vec<(Vec<u8>, SocketAddr)> {
    let deadline = StdInstant::now() + PATIENCE;
    let mut received = Vec::new();
    while received.len() < count {
        assert!(
            StdInstant::now() < deadline,
            "only {} of {count} datagrams came",
            received.len()
        );
        let rx = backend.rx_burst().unwrap();
        if rx.is_empty() {
            backend.wait(Some(Duration::from_millis(100))).unwrap();
            continue;
        }
        received.extend(rx.map(|packet| (packet.bytes.to_vec(), packet.route)));
    }
    received
}

#[test]
fn packets_for_one_route_arrive_in_one_datagram() {
    let (mut client, mut server) = (open(), open());
    let mut tx = TxBatch::new();
    let route = server.local_addr();
    tx.push(route, b"first,", Body::Bytes(b"body,"));
    tx.push(route, b"second", Body::None);
    client.tx_burst(&mut tx).unwrap();
    assert!(tx.is_empty());
    assert_eq!(
        receive(&mut server, 1),
        [(b"first,body,second".to_vec(), client.local_addr())]
    );
    let stats = client.stats();
    assert_eq!(
        (stats.tx_packets, stats.tx_datagrams, stats.tx_bytes),
        (2, 1, 17)
    );
    assert_eq!(server.stats().rx_datagrams, 1);
}

#[test]
fn without_coalescing_each_packet_has_its_datagram() {
    let config = UdpConfig {
        coalesce: false,
        offload: false,
        ..UdpConfig::default()
    };
    let mut client = UdpBackend::bind(any_port(), &config).unwrap();
    let mut server = open();
    let mut tx = TxBatch::new();
    tx.push(server.local_addr(), b"first", Body::None);
    tx.push(server.local_addr(), b"second", Body::None);
    client.tx_burst(&mut tx).unwrap();
    let received = receive(&mut server, 2);
    assert_eq!(
        (received[0].0.as_slice(), received[1].0.as_slice()),
        (&b"first"[..], &b"second"[..])
    );
    assert_eq!(client.stats().tx_datagrams, 2);
}

#[test]
fn long_bodies_are_sent_from_their_message() {
    let config = UdpConfig {
        offload: false,
        ..UdpConfig::default()
    };
    let (mut client, mut server) = (open(), UdpBackend::bind(any_port(), &config).unwrap());
    let mut message = client.pool().alloc(4000).unwrap();
    for (index, byte) in message.iter_mut().enumerate() {
        *byte = index as u8;
    }
    let mut tx = TxBatch::new();
    for start in (0..4000).step_by(1000) {
        tx.push(
            server.local_addr(),
            &[start as u8; 24],
            Body::Message(&message, start..start + 1000),
        );
    }
    assert!(message.is_shared());
    client.tx_burst(&mut tx).unwrap();
    assert!(!message.is_shared());
    for (index, (bytes, _)) in receive(&mut server, 4).iter().enumerate() {
        assert_eq!(bytes[..24], [(index * 1000) as u8; 24]);
        assert_eq!(bytes[24..], message[index * 1000..][..1000]);
    }
}

#[test]
fn a_large_burst_comes_whole_and_in_order() {
    let (mut client, mut server) = (open(), open());
    let mut tx = TxBatch::new();
    let mut expected = Vec::new();
    for burst in 0..4u8 {
        while !tx.is_full() {
            let packet = [burst; 250];
            tx.push(server.local_addr(), &[tx.len() as u8], Body::Bytes(&packet));
        }
        for item in tx.iter() {
            item.copy_to(&mut expected);
        }
        client.tx_burst(&mut tx).unwrap();
    }
    assert!(client.stats().tx_datagrams < client.stats().tx_packets / 4);
    let mut received = Vec::new();
    while received.len() < expected.len() {
        receive(&mut server, 1)
            .into_iter()
            .for_each(|(bytes, _)| received.extend(bytes));
    }
    assert_eq!(received, expected);
}

#[test]
fn one_burst_reaches_several_peers() {
    let mut client = open();
    let mut servers = [open(), open(), open()];
    let mut tx = TxBatch::new();
    for round in 0..3u8 {
        for server in &servers {
            tx.push(server.local_addr(), &[round], Body::None);
        }
    }
    client.tx_burst(&mut tx).unwrap();
    for server in &mut servers {
        assert_eq!(receive(server, 1)[0].0, [0, 1, 2]);
    }
}

#[test]
fn ipv6_and_dual_stack_routes_work_both_ways() {
    let config = UdpConfig::default();
    let Ok(mut dual) = UdpBackend::bind("[::]:0".parse().unwrap(), &config) else {
        // A kernel without IPv6 has nothing to test here.
        return;
    };
    let mut v4 = open();
    let mut tx = TxBatch::new();
    tx.push(
        (Ipv4Addr::LOCALHOST, dual.local_addr().port()).into(),
        b"ping",
        Body::None,
    );
    v4.tx_burst(&mut tx).unwrap();
    let (_, route) = receive(&mut dual, 1).remove(0);
    assert_eq!(route, v4.local_addr(), "a mapped address is the IPv4 route");
    tx.push(route, b"pong", Body::None);
    dual.tx_burst(&mut tx).unwrap();
    assert_eq!(receive(&mut v4, 1)[0].0, b"pong");
}

#[test]
fn datagrams_beyond_the_mtu_are_dropped_and_counted() {
    let config = UdpConfig {
        offload: false,
        ..UdpConfig::default()
    };
    let mut server = UdpBackend::bind(any_port(), &config).unwrap();
    let raw = UdpSocket::bind(any_port()).unwrap();
    raw.send_to(&[1; MTU_DEFAULT + 1], server.local_addr())
        .unwrap();
    raw.send_to(&[2; MTU_DEFAULT], server.local_addr()).unwrap();
    assert_eq!(receive(&mut server, 1)[0].0, [2; MTU_DEFAULT]);
    assert_eq!(server.stats().rx_truncated, 1);
}

/// Sends a train of 40 full packets and a short one; returns the received bytes as one string.
fn train_arrives(receive_offload: bool) -> usize {
    let mut client = open();
    let config = UdpConfig {
        offload: receive_offload,
        ..UdpConfig::default()
    };
    let mut server = UdpBackend::bind(any_port(), &config).unwrap();
    let mut message = client.pool().alloc(1448 * 40 + 7).unwrap();
    Prng::new(1).fill(&mut message);
    let mut tx = TxBatch::new();
    let mut expected = Vec::new();
    for start in (0..message.len()).step_by(1448) {
        let end = message.len().min(start + 1448);
        tx.push(
            server.local_addr(),
            &[start as u8; 24],
            Body::Message(&message, start..end),
        );
    }
    tx.iter().for_each(|item| item.copy_to(&mut expected));
    client.tx_burst(&mut tx).unwrap();
    assert_eq!(client.stats().tx_datagrams, 41);
    let (mut received, mut datagrams) = (Vec::new(), 0);
    while received.len() < expected.len() {
        for (bytes, _) in receive(&mut server, 1) {
            received.extend(bytes);
            datagrams += 1;
        }
    }
    assert!(received == expected, "bytes changed or moved on the way");
    datagrams
}

#[test]
fn a_train_arrives_as_one_where_both_sides_take_offload() {
    assert_eq!(train_arrives(true), 1);
}

#[test]
fn a_train_arrives_in_datagrams_where_the_receiver_takes_none() {
    assert_eq!(train_arrives(false), 41);
}

#[test]
fn an_empty_datagram_is_delivered_as_such() {
    let mut server = open();
    let raw = UdpSocket::bind(any_port()).unwrap();
    raw.send_to(&[], server.local_addr()).unwrap();
    assert!(receive(&mut server, 1)[0].0.is_empty());
}

#[test]
fn congestion_marks_are_seen() {
    let config = UdpConfig {
        congestion_marks: true,
        ..UdpConfig::default()
    };
    let mut server = UdpBackend::bind(any_port(), &config).unwrap();
    let raw = UdpSocket::bind(any_port()).unwrap();
    set_option(raw.as_fd(), libc::IPPROTO_IP, libc::IP_TOS, 0b11).unwrap();
    raw.send_to(b"marked", server.local_addr()).unwrap();
    set_option(raw.as_fd(), libc::IPPROTO_IP, libc::IP_TOS, 0b10).unwrap();
    raw.send_to(b"capable", server.local_addr()).unwrap();
    let mut seen = Vec::new();
    let deadline = StdInstant::now() + PATIENCE;
    while seen.len() < 2 {
        assert!(
            StdInstant::now() < deadline,
            "datagrams on loopback did not arrive"
        );
        seen.extend(
            server
                .rx_burst()
                .unwrap()
                .map(|packet| (packet.bytes.to_vec(), packet.ecn)),
        );
    }
    assert_eq!(
        seen,
        [(b"marked".to_vec(), true), (b"capable".to_vec(), false)]
    );
}

/// The time of arrival is the kernel's, not that of the call that takes the datagram in.
#[test]
fn arrivals_are_noted_while_somebody_asks() {
    let (mut server, raw) = (open(), UdpSocket::bind(any_port()).unwrap());
    let arrival = |server: &mut UdpBackend, late: std::time::Duration| {
        let sent_ns = MonotonicClock.now().as_nanos();
        raw.send_to(b"x", server.local_addr()).unwrap();
        let due = StdInstant::now() + late;
        while StdInstant::now() < due {}
        let deadline = StdInstant::now() + PATIENCE;
        loop {
            assert!(StdInstant::now() < deadline, "nothing arrived");
            let batch = server.rx_burst().unwrap();
            if !batch.is_empty() {
                let took_ns = MonotonicClock.now().as_nanos();
                return (sent_ns, batch.arrivals().first().copied(), took_ns);
            }
        }
    };
    let late = std::time::Duration::from_millis(20);
    assert_eq!(arrival(&mut server, late).1, None);
    server.note_arrivals(true);
    // The kernel begins to note them a little later. Other processes of the machine may have it do so all the time.
    let noted = (0..50).any(|_| {
        let (sent_ns, arrived_ns, took_ns) = arrival(&mut server, late);
        let arrived_ns = arrived_ns.expect("asked for");
        // The clocks are read one after the other.
        let slack_ns = 5_000_000;
        assert!(arrived_ns + slack_ns >= sent_ns && arrived_ns <= took_ns);
        took_ns - arrived_ns > 15_000_000
    });
    assert!(noted, "the kernel's times are those of the call");
    server.note_arrivals(false);
    assert_eq!(arrival(&mut server, late).1, None);
}

#[test]
fn a_port_without_listener_does_not_disturb_the_others() {
    let (mut client, mut server) = (open(), open());
    let gone = open().local_addr();
    let mut tx = TxBatch::new();
    for _ in 0..3 {
        tx.push(gone, b"into the void", Body::None);
        tx.push(server.local_addr(), b"hello", Body::None);
        client.tx_burst(&mut tx).unwrap();
        client.rx_burst().unwrap();
    }
    assert_eq!(receive(&mut server, 3).len(), 3);
}

#[test]
fn packets_that_the_kernel_refuses_are_counted_and_the_rest_goes_out() {
    let (mut client, mut server) = (open(), open());
    let v6_only = "[2001:db8::1]:9".parse().unwrap();
    let mut tx = TxBatch::new();
    // Wrong address family for the socket, and port zero: EAFNOSUPPORT and EINVAL.
    tx.push(v6_only, b"lost", Body::None);
    tx.push((Ipv4Addr::LOCALHOST, 0).into(), b"lost", Body::None);
    tx.push(server.local_addr(), b"kept", Body::None);
    client.tx_burst(&mut tx).unwrap();
    assert_eq!(receive(&mut server, 1)[0].0, b"kept");
    assert_eq!(client.stats().tx_refused, 2);
}

#[test]
fn a_packet_beyond_the_largest_datagram_is_refused_not_fatal() {
    let (mut client, mut server) = (open(), open());
    let message = client.pool().alloc(MTU_MAX + 1).unwrap();
    let mut tx = TxBatch::new();
    tx.push(
        server.local_addr(),
        &[],
        Body::Message(&message, 0..message.len()),
    );
    tx.push(server.local_addr(), b"kept", Body::None);
    client.tx_burst(&mut tx).unwrap();
    assert_eq!(receive(&mut server, 1)[0].0, b"kept");
    assert_eq!(client.stats().tx_refused, 1, "EMSGSIZE");
}

#[test]
fn errors_of_single_sends_are_judged() {
    let judge = |number, retries| judge_send_error(&io::Error::from_raw_os_error(number), retries);
    assert!(matches!(judge(libc::EAGAIN, 0), SendRecovery::Retry));
    assert!(matches!(
        judge(libc::EAGAIN, SEND_RETRIES_MAX),
        SendRecovery::Skip
    ));
    assert!(matches!(judge(libc::ECONNREFUSED, 0), SendRecovery::Retry));
    assert!(matches!(judge(libc::ENOBUFS, 0), SendRecovery::Skip));
    assert!(matches!(judge(libc::EMSGSIZE, 0), SendRecovery::Skip));
    assert!(matches!(judge(libc::EPERM, 0), SendRecovery::Skip));
    assert!(matches!(judge(libc::EBADF, 0), SendRecovery::Stop));
}

#[test]
fn an_address_in_use_names_cause_and_hint() {
    let first = open();
    let error = UdpBackend::bind(first.local_addr(), &UdpConfig::default()).unwrap_err();
    assert_eq!(
        error,
        BackendError::AddressInUse {
            address: first.local_addr()
        }
    );
    let text = error.to_string();
    assert!(
        text.contains("in use") && text.contains("another port"),
        "{text}"
    );
}

#[test]
fn a_foreign_address_names_cause_and_hint() {
    let error =
        UdpBackend::bind("192.0.2.1:0".parse().unwrap(), &UdpConfig::default()).unwrap_err();
    assert!(matches!(error, BackendError::AddressNotAvailable { .. }));
    assert!(error.to_string().contains("ip addr"));
}

#[test]
fn the_receive_queue_is_as_large_as_asked_or_says_so() {
    let backend = open();
    let granted = backend
        .rx_queue_shortfall()
        .map_or(UdpConfig::default().rx_queue_bytes, |s| s.granted);
    let packets = backend.caps().rx_queue_packets as usize;
    assert!(packets >= granted / RX_PACKET_CHARGE && packets > 0);
    let shortfall = RxQueueShortfall {
        asked: 8 << 20,
        granted: 425_984,
    };
    assert!(
        shortfall
            .to_string()
            .contains("sysctl -w net.core.rmem_max=8388608")
    );
}

#[test]
fn wait_ends_by_packet_by_waker_and_by_timeout() {
    let (mut client, mut server) = (open(), open());
    let start = StdInstant::now();
    server.wait(Some(Duration::from_millis(20))).unwrap();
    assert!(start.elapsed() >= StdDuration::from_millis(20));

    let mut tx = TxBatch::new();
    tx.push(server.local_addr(), b"wake up", Body::None);
    client.tx_burst(&mut tx).unwrap();
    server.wait(None).unwrap();
    assert_eq!(receive(&mut server, 1).len(), 1);

    // Before the wait, and while it sleeps.
    server.waker().wake();
    server.wait(None).unwrap();
    let waker = server.waker();
    let thread = std::thread::spawn(move || waker.wake());
    server.wait(None).unwrap();
    thread.join().unwrap();
}

#[test]
fn wait_ends_by_what_is_watched() {
    let mut server = open();
    let (watched, mut other) = std::os::unix::net::UnixStream::pair().unwrap();
    assert!(server.watch(watched.into()));
    let start = StdInstant::now();
    server.wait(Some(Duration::from_millis(20))).unwrap();
    assert!(start.elapsed() >= StdDuration::from_millis(20));
    io::Write::write_all(&mut other, b"x").unwrap();
    server.wait(None).unwrap();
}

#[test]
fn busy_polling_is_set_or_refused_with_the_reason() {
    let config = UdpConfig {
        busy_poll_us: 50,
        ..UdpConfig::default()
    };
    match UdpBackend::bind(any_port(), &config) {
        Ok(backend) => {
            let set = option(backend.socket.as_fd(), libc::SOL_SOCKET, libc::SO_BUSY_POLL);
            assert_eq!(set.unwrap(), 50);
        }
        Err(BackendError::PermissionDenied { what }) => assert!(what.contains("SO_BUSY_POLL")),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn one_wake_ends_one_wait() {
    let mut server = open();
    server.waker().wake();
    server.waker().wake();
    server.wait(None).unwrap();
    let start = StdInstant::now();
    server.wait(Some(Duration::from_millis(20))).unwrap();
    assert!(
        start.elapsed() >= StdDuration::from_millis(20),
        "a used wake must not keep the node awake"
    );
}

/// A server at every address of `any`, and a client at `client`. `None` where the kernel lacks IPv6.
fn at_every_address(any: &str, client: &str) -> Option<(UdpBackend, UdpBackend)> {
    let bind = |address: &str| {
        let address: SocketAddr = address.parse().unwrap();
        match UdpBackend::bind(address, &UdpConfig::default()) {
            Ok(backend) => Some(backend),
            Err(error) if address.is_ipv4() => panic!("{address}: {error}"),
            Err(_) => None,
        }
    };
    Some((bind(any)?, bind(client)?))
}

/// The ways to bind to every address, with a client and the addresses at which it asks. The kernel's own choice for each
/// client is its own address.
const EVERY_ADDRESS: [(&str, &str, &[&str]); 4] = [
    (
        "0.0.0.0:0",
        "127.0.0.1:0",
        &["127.0.0.2", "127.0.0.1", "127.8.8.8"],
    ),
    (
        "[::]:0",
        "127.0.0.1:0",
        &["127.0.0.2", "127.0.0.1", "127.8.8.8"],
    ),
    (
        "[::ffff:0.0.0.0]:0",
        "127.0.0.1:0",
        &["127.0.0.2", "127.0.0.1"],
    ),
    ("[::]:0", "[::1]:0", &["::1"]),
];

const TRAIN: [usize; 3] = [1_472, 1_472, 900];

/// Adds datagrams to `to` that the kernel takes as one train.
fn push_train(tx: &mut TxBatch<SocketAddr>, pool: &Pool, to: SocketAddr) {
    let mut message = pool.alloc(TRAIN[0]).unwrap();
    message.fill(7);
    for bytes in TRAIN {
        tx.push(to, &[1; 24], Body::Message(&message, 0..bytes - 24));
    }
}

/// Receives a whole train, as one datagram or as several, and checks that all of it came from `asked`.
fn expect_train(backend: &mut UdpBackend, asked: SocketAddr) {
    let mut missing = TRAIN.iter().sum::<usize>();
    while missing > 0 {
        for (bytes, from) in receive(backend, 1) {
            assert_eq!(from, asked);
            missing -= bytes.len();
        }
    }
}

/// A machine with several addresses, asked at one that the kernel would not answer from.
#[test]
fn a_socket_at_every_address_answers_from_the_one_that_was_asked() {
    for (any, client, addresses) in EVERY_ADDRESS {
        let Some((mut server, mut client)) = at_every_address(any, client) else {
            continue;
        };
        for ip in addresses {
            let ip: IpAddr = ip.parse().unwrap();
            let asked = SocketAddr::new(ip, server.local_addr().port());
            let mut tx = TxBatch::new();
            tx.push(asked, b"ping", Body::None);
            client.tx_burst(&mut tx).unwrap();
            let ping = (b"ping".to_vec(), client.local_addr());
            assert_eq!(receive(&mut server, 1), [ping]);
            let known = server
                .local_addresses
                .as_ref()
                .expect("a socket at every address");
            assert_eq!(known.by(&client.local_addr()), Some(ip), "{any}");
            tx.push(client.local_addr(), b"pong", Body::None);
            server.tx_burst(&mut tx).unwrap();
            assert_eq!(receive(&mut client, 1), [(b"pong".to_vec(), asked)]);
            push_train(&mut tx, server.pool(), client.local_addr());
            server.tx_burst(&mut tx).unwrap();
            expect_train(&mut client, asked);
        }
        assert_eq!(server.stats().tx_refused, 0, "{any}");
    }
}

/// One burst, so one system call: each peer's datagrams have their own source.
#[test]
fn peers_of_one_burst_are_answered_from_different_addresses() {
    for any in ["0.0.0.0:0", "[::]:0"] {
        let Some((mut server, first)) = at_every_address(any, "127.0.0.1:0") else {
            continue;
        };
        let mut clients = [first, open(), open()];
        let port = server.local_addr().port();
        let address = |n: usize| SocketAddr::from(([127, 0, 1, n as u8], port));
        let mut tx = TxBatch::new();
        for (n, client) in clients.iter_mut().enumerate() {
            tx.push(address(n), b"ping", Body::None);
            client.tx_burst(&mut tx).unwrap();
        }
        receive(&mut server, clients.len());
        push_train(&mut tx, server.pool(), clients[0].local_addr());
        tx.push(clients[1].local_addr(), b"pong", Body::None);
        push_train(&mut tx, server.pool(), clients[2].local_addr());
        server.tx_burst(&mut tx).unwrap();
        expect_train(&mut clients[0], address(0));
        let pong = (b"pong".to_vec(), address(1));
        assert_eq!(receive(&mut clients[1], 1), [pong]);
        expect_train(&mut clients[2], address(2));
    }
}

/// The kernel refuses to send from an address that the machine has lost: IPv4 with `ENETUNREACH`, IPv6 with `EINVAL`. The
/// answer then leaves from the kernel's choice.
#[test]
fn an_address_that_is_gone_is_forgotten() {
    for (any, client, _) in EVERY_ADDRESS {
        let Some((mut server, mut gone)) = at_every_address(any, client) else {
            continue;
        };
        let Some((_, mut other)) = at_every_address(any, client) else {
            continue;
        };
        let is_v4 = gone.local_addr().is_ipv4();
        // Addresses for documentation, which no machine has.
        let lost = if is_v4 { "192.0.2.1" } else { "2001:db8::1" };
        let there: IpAddr = if is_v4 { "127.0.0.2" } else { "::1" }.parse().unwrap();
        let port = server.local_addr().port();
        for is_train in [false, true] {
            let asked = server
                .local_addresses
                .as_mut()
                .expect("a socket at every address");
            asked.on_received(gone.local_addr(), lost.parse().unwrap());
            asked.on_received(other.local_addr(), there);
            let mut tx = TxBatch::new();
            for peer in [gone.local_addr(), other.local_addr()] {
                match is_train {
                    true => push_train(&mut tx, server.pool(), peer),
                    false => tx.push(peer, b"pong", Body::None),
                }
            }
            server.tx_burst(&mut tx).unwrap();
            let chosen = gone.local_addr().ip();
            for (client, ip) in [(&mut gone, chosen), (&mut other, there)] {
                let from = SocketAddr::new(ip, port);
                match is_train {
                    true => expect_train(client, from),
                    false => assert_eq!(receive(client, 1), [(b"pong".to_vec(), from)]),
                }
            }
            assert_eq!(server.stats().tx_refused, 0);
            let asked = server
                .local_addresses
                .as_ref()
                .expect("a socket at every address");
            assert_eq!(asked.by(&gone.local_addr()), None, "{any} {lost}");
            assert_eq!(asked.by(&other.local_addr()), Some(there));
            // No reason to stop trains.
            assert_eq!(server.trains.datagrams_max(), TRAIN_DATAGRAMS_MAX);
        }
    }
}

/// A peer that cannot be reached from any address costs one packet, and the server keeps what it asked.
#[test]
fn a_refusal_for_another_reason_leaves_the_asked_address() {
    let (mut server, mut client) = at_every_address("0.0.0.0:0", "127.0.0.1:0").unwrap();
    // The kernel refuses a port of zero, and a broadcast without `SO_BROADCAST`.
    let bad: [SocketAddr; 2] = [([127, 0, 0, 1], 0).into(), ([255; 4], 7471).into()];
    let there = IpAddr::from([127, 0, 0, 2]);
    let asked = server
        .local_addresses
        .as_mut()
        .expect("a socket at every address");
    for peer in [bad[0], bad[1], client.local_addr()] {
        asked.on_received(peer, there);
    }
    let mut tx = TxBatch::new();
    for peer in [bad[0], bad[1], client.local_addr()] {
        tx.push(peer, b"pong", Body::None);
    }
    server.tx_burst(&mut tx).unwrap();
    let from = SocketAddr::new(there, server.local_addr().port());
    assert_eq!(receive(&mut client, 1), [(b"pong".to_vec(), from)]);
    assert_eq!(server.stats().tx_refused, 2);
    let asked = server
        .local_addresses
        .as_ref()
        .expect("a socket at every address");
    assert_eq!(bad.map(|peer| asked.by(&peer)), [Some(there); 2]);
}

#[test]
fn only_a_server_at_every_address_is_told_where_it_was_asked() {
    let client = UdpConfig {
        answers_where_asked: false,
        ..UdpConfig::default()
    };
    let any = "0.0.0.0:0".parse().unwrap();
    assert!(
        UdpBackend::bind(any, &client)
            .unwrap()
            .local_addresses
            .is_none()
    );
    assert!(open().local_addresses.is_none());
}
