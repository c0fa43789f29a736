//! Two unprivileged processes without huge pages, joined by memif.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use trine_dpdk::frame::{HEADERS, Local, Reject};
use trine_dpdk::mac::MacAddr;
use trine_dpdk::raw::RawQueue;
use trine_dpdk::template::{Checksums, Fill, Template};
use trine_dpdk::{DpdkBackend, DpdkConfig, Eal, arguments};
use trine_transport::backend::{Backend, Body, TxBatch};
use trine_transport::buf::PoolConfig;
use trine_transport::prng::Prng;
use trine_transport::time::Duration;

use crate::process::{become_nobody, start, until, wait_for_director};
use crate::{Case, Role, rpc};

pub(crate) const CASES: &[Case] = &[
    ("memif::datagrams_both_ways", || pair("echo", "ask")),
    ("memif::rpcs", || pair("serve", "call")),
    ("memif::rpcs_with_loss", || {
        pair("serve", "call_with_faults")
    }),
    ("memif::fuzzed_frames_do_not_get_through", || {
        pair("survive", "fuzz")
    }),
];

pub(crate) const ROLES: &[Role] = &[
    ("echo", echo),
    ("ask", ask),
    ("serve", serve),
    ("call", call),
    ("call_with_faults", call_with_faults),
    ("survive", survive),
    ("fuzz", fuzz),
];

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
const SERVER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 9, 1]);
const UDP_PORT: u16 = 7471;
/// Ends the server.
const STOP: &[u8] = b"stop";

/// Runs the two roles on a memif socket of their own.
///
/// They end in order: the server stops polling, then the client closes its port, then the server. The driver handles a
/// peer's end in a thread of its own. It unmaps the rings even while the other end polls them, and frees them twice if
/// the port is closed at that very moment.
fn pair(server: &str, client: &str) {
    let socket = format!("@trine-test-{server}-{}", std::process::id());
    let mut server = start(server, &[&socket]);
    server.expect("ready");
    let mut client = start(client, &[&socket]);
    client.expect("done");
    server.expect("idle");
    client.release();
    client.finish();
    server.release();
    server.finish();
}

/// This process no longer polls. It waits until it may close its port.
fn idle(word: &str) {
    println!("{word}");
    wait_for_director();
}

/// Starts EAL with a memif device, as an unprivileged user and without huge pages.
pub(crate) fn start_eal(role: &str, socket: &str) -> std::sync::Arc<Eal> {
    become_nobody();
    let mac = if role == "server" {
        format!(",mac={SERVER_MAC}")
    } else {
        String::new()
    };
    let line = format!("--no-pci --no-huge --vdev=net_memif0,role={role},socket={socket}{mac}");
    Eal::start(&arguments::split(&line)).unwrap_or_else(|error| panic!("{error}"))
}

fn open(role: &str, socket: &str) -> DpdkBackend {
    let ip = if role == "server" { SERVER } else { CLIENT };
    let eal = start_eal(role, socket);
    let backend = DpdkBackend::open(&eal, &DpdkConfig::new(ip), UDP_PORT, PoolConfig::default());
    backend.unwrap_or_else(|error| panic!("{error}"))
}

fn server_address() -> SocketAddr {
    SocketAddrV4::new(SERVER, UDP_PORT).into()
}

/// Sends every datagram back, until one says stop.
fn echo(arguments: &[String]) {
    let mut backend = open("server", &arguments[0]);
    println!("ready");
    let mut tx = TxBatch::new();
    let mut stop = false;
    until("a datagram that says stop", || {
        for packet in backend.rx_burst().expect("a working port") {
            if packet.bytes == STOP {
                stop = true;
            }
            push(&mut tx, packet.route, packet.bytes);
        }
        if tx.is_empty() {
            backend
                .wait(Some(Duration::from_millis(1)))
                .expect("a working port");
        }
        backend.tx_burst(&mut tx).expect("a working port");
        stop.then_some(())
    });
    idle("idle");
    assert!(!backend.link_is_up(), "the peer is gone");
    let stats = backend.dpdk_stats();
    assert!(stats.arp_answered >= 1, "{stats:?}");
    assert_eq!(stats.rejected.iter().sum::<u64>(), 0, "{stats:?}");
}

fn push(tx: &mut TxBatch<SocketAddr>, route: SocketAddr, bytes: &[u8]) {
    let (header, body) = bytes.split_at(bytes.len().min(TxBatch::<SocketAddr>::HEADER_MAX));
    for some in body.chunks(TxBatch::<SocketAddr>::COPY_MAX).take(1) {
        tx.push(route, header, Body::Bytes(some));
    }
    if body.is_empty() {
        tx.push(route, header, Body::None);
    }
}

/// Sends datagrams of many sizes, alone and in bursts, and expects each of them back once and whole.
fn ask(arguments: &[String]) {
    let mut backend = open("client", &arguments[0]);
    let mut prng = Prng::new(7);
    let mut tx = TxBatch::new();
    // The first packets may be lost while ARP asks: the first one is repeated until it is answered.
    until("the first answer", || {
        push(&mut tx, server_address(), b"first");
        backend.tx_burst(&mut tx).expect("a working port");
        backend
            .wait(Some(Duration::from_millis(20)))
            .expect("a working port");
        let mut rx = backend.rx_burst().expect("a working port");
        rx.any(|packet| packet.bytes == b"first").then_some(())
    });
    let unresolved = backend.dpdk_stats().tx_unresolved;
    for round in 0..2_000_u32 {
        let count = if round % 4 == 0 {
            1
        } else {
            prng.in_range(1..=64) as usize
        };
        let mut sent = Vec::new();
        for place in 0..count {
            let mut bytes = vec![0; prng.in_range(8..=300) as usize];
            prng.fill(&mut bytes);
            bytes[..4].copy_from_slice(&round.to_be_bytes());
            bytes[4..8].copy_from_slice(&(place as u32).to_be_bytes());
            push(&mut tx, server_address(), &bytes);
            sent.push(bytes);
        }
        backend.tx_burst(&mut tx).expect("a working port");
        let mut received = Vec::new();
        until("an answer to every datagram", || {
            let rx = backend.rx_burst().expect("a working port");
            // Late answers to the first datagram's repetitions.
            received.extend(
                rx.filter(|packet| packet.bytes != b"first")
                    .map(|packet| packet.bytes.to_vec()),
            );
            (received.len() >= sent.len()).then_some(())
        });
        assert_eq!(received, sent, "round {round}");
    }
    long_datagrams(&mut backend);
    let stats = backend.dpdk_stats();
    assert_eq!(stats.tx_unresolved, unresolved, "{stats:?}");
    assert_eq!(stats.tx_no_buffer, 0, "{stats:?}");
    push(&mut tx, server_address(), STOP);
    backend.tx_burst(&mut tx).expect("a working port");
    until("the server's last word", || {
        let mut rx = backend.rx_burst().expect("a working port");
        rx.any(|packet| packet.bytes == STOP).then_some(())
    });
    idle("done");
}

/// Bodies that stay in their message buffer until they are sent, up to the MTU.
fn long_datagrams(backend: &mut DpdkBackend) {
    let mut message = backend.pool().alloc(8_000).expect("memory");
    Prng::new(8).fill(&mut message);
    let mut tx = TxBatch::new();
    for len in [300, 1_000, 1_448] {
        tx.push(
            server_address(),
            &[9; 24],
            Body::Message(&message, 1..1 + len),
        );
        backend.tx_burst(&mut tx).expect("a working port");
        assert!(!message.is_shared(), "the port has a copy");
        until("the answer to a long datagram", || {
            let mut rx = backend.rx_burst().expect("a working port");
            // The echo cuts its replies to header and one short body.
            let expected: Vec<u8> = [&[9; 24], &message[1..1 + len]].concat();
            rx.any(|packet| {
                expected.starts_with(packet.bytes) && packet.bytes.len() == expected.len().min(304)
            })
            .then_some(())
        });
    }
}

fn serve(arguments: &[String]) {
    let backend = open("server", &arguments[0]);
    println!("ready");
    let _server = rpc::serve(backend);
    idle("idle");
}

fn call(arguments: &[String]) {
    let _client = rpc::call(open("client", &arguments[0]), server_address(), None);
    idle("done");
}

fn call_with_faults(arguments: &[String]) {
    let faults = "loss=2%,dup=1%,reorder=1%,corrupt=0.5%"
        .parse()
        .expect("faults");
    let _client = rpc::call(
        open("client", &arguments[0]),
        server_address(),
        Some(faults),
    );
    idle("done");
}

/// A backend under fire: counts what got through, and answers ARP to the end.
fn survive(arguments: &[String]) {
    let mut backend = open("server", &arguments[0]);
    println!("ready");
    let mut through = 0_u64;
    let mut stop = false;
    let mut tx = TxBatch::new();
    until("the attacker's end", || {
        for packet in backend.rx_burst().expect("a working port") {
            stop |= packet.bytes == STOP;
            // The only frames that are meant to get through carry this.
            assert!(
                packet.bytes == STOP || packet.bytes.starts_with(b"good"),
                "{:?}",
                packet.bytes
            );
            through += 1;
        }
        if stop {
            // The attacker's Ethernet address is unknown here: he gets only the question for it.
            let route = SocketAddrV4::new(CLIENT, UDP_PORT).into();
            push(&mut tx, route, STOP);
            backend.tx_burst(&mut tx).expect("a working port");
        }
        (stop && backend.dpdk_stats().arp_asked > 0).then_some(())
    });
    idle("idle");
    let stats = backend.dpdk_stats();
    assert!(through > 100, "{through}");
    for reason in Reject::ALL {
        assert!(
            stats.rejected(reason) > 0,
            "nothing was refused as {reason}: {stats:?}"
        );
    }
    assert!(
        backend.buffers_available() > 2_000,
        "buffers leaked: {}",
        backend.buffers_available()
    );
}

/// Sends frames that are wrong in every way, with good ones in between.
fn fuzz(arguments: &[String]) {
    let eal = start_eal("client", &arguments[0]);
    let mut queue =
        RawQueue::open(&eal, &DpdkConfig::new(CLIENT)).unwrap_or_else(|error| panic!("{error}"));
    until("a link", || queue.link_is_up().then_some(()));
    let mut prng = Prng::new(0x0066_757a);
    let from = Local {
        mac: queue.mac(),
        ip: CLIENT,
        port: UDP_PORT,
    };
    let template = Template::new(&from, SERVER_MAC, SocketAddrV4::new(SERVER, UDP_PORT));
    let checksums = Checksums {
        ip: Fill::Software,
        udp: Fill::Software,
    };
    let good = |payload: &[u8]| {
        let mut frame = vec![0; HEADERS];
        frame.extend_from_slice(payload);
        template.complete(&mut frame, checksums);
        frame
    };
    for round in 0..60_000_u32 {
        let mut frame = good(b"good frame with some payload");
        if round % 64 != 0 {
            spoil(&mut frame, &mut prng);
        }
        until("room in the ring", || {
            send(&mut queue, &frame).then_some(())
        });
    }
    // The reply is the server's question for the sender's Ethernet address.
    while queue.receive() > 0 {}
    until("an answer", || {
        // A server that has answered polls no longer: the ring may be full for good.
        send(&mut queue, &good(STOP));
        (queue.receive() > 0).then_some(())
    });
    idle("done");
}

/// Whether the ring had room for the frame.
fn send(queue: &mut RawQueue, frame: &[u8]) -> bool {
    assert!(queue.allocate(1), "a packet buffer");
    queue.frame(0, frame.len()).copy_from_slice(frame);
    queue.send_as_they_are(1) == 1
}

/// Makes a good frame bad, in a way that no checksum is right by chance.
fn spoil(frame: &mut Vec<u8>, prng: &mut Prng) {
    let patch = |frame: &mut Vec<u8>, at: usize, bytes: &[u8]| {
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        let ip = &mut frame[14..34];
        ip[10..12].fill(0);
        let sum: u32 = ip
            .chunks(2)
            .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
            .sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        ip[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    };
    match prng.below(20) {
        0 => frame[12..14].copy_from_slice(&[0x88, 0x47]),
        1 => frame[12..14].copy_from_slice(&[0x81, 0x00]),
        2 => frame[12..14].copy_from_slice(&[0x86, 0xdd]),
        3 => frame[12..14].copy_from_slice(&[0x08, 0x06]),
        4 => frame[5] ^= 1 + prng.below(255) as u8,
        5 => patch(frame, 14, &[0x46]),
        6 => patch(frame, 14, &[0x65]),
        7 => patch(frame, 20, &[0x20, 0]),
        8 => patch(frame, 20, &[0, 1 + prng.below(255) as u8]),
        9 => patch(frame, 23, &[6]),
        10 => patch(frame, 16, &[0xff, 0xff]),
        11 => frame[24] ^= 1 + prng.below(255) as u8,
        12 => frame[40] ^= 1 + prng.below(255) as u8,
        13 => frame[36..38].copy_from_slice(&53_u16.to_be_bytes()),
        14 => patch(frame, 33, &[77]),
        15 => impossible_source(frame),
        16 => {
            // Random bytes after a right Ethernet header: an IPv4 header's checksum is right once in 65,536 times,
            // and then everything else would have to be right as well.
            prng.fill(&mut frame[14..]);
        }
        17 => {
            frame.resize(14 + prng.below(300) as usize, 0);
            prng.fill(&mut frame[14..]);
        }
        18 => frame[HEADERS] ^= 1 + prng.below(255) as u8,
        _ => frame.truncate(14 + prng.below(20) as usize),
    }
}

/// A well-formed frame that claims to come from the server itself.
fn impossible_source(frame: &mut [u8]) {
    let from = Local {
        mac: MacAddr([2, 0, 0, 0, 9, 2]),
        ip: SERVER,
        port: UDP_PORT,
    };
    let template = Template::new(&from, SERVER_MAC, SocketAddrV4::new(SERVER, UDP_PORT));
    template.complete(
        frame,
        Checksums {
            ip: Fill::Software,
            udp: Fill::Software,
        },
    );
}
