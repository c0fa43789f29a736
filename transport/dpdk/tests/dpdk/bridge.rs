//! Real frames: DPDK on AF_PACKET devices, joined with the kernel's own UDP by a bridge.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use trine_dpdk::{DpdkBackend, DpdkConfig, Eal, arguments};
use trine_transport::backend::{Backend, Body, TxBatch, UdpBackend, UdpConfig};
use trine_transport::buf::PoolConfig;
use trine_transport::prng::Prng;

use crate::process::{Process, is_root, start_in, until};
use crate::{Case, Role, rpc};
use trine_testnet::Network;

pub(crate) const CASES: &[Case] = &[
    ("bridge::kernel_socket_with_udp_checksums", || {
        with_network(|network| exchange_with_kernel(network, "always"))
    }),
    ("bridge::kernel_socket_without_udp_checksums", || {
        with_network(|network| exchange_with_kernel(network, "never"))
    }),
    ("bridge::rpcs_between_kernel_and_dpdk", || {
        with_network(rpcs_with_kernel)
    }),
    ("bridge::rpcs_between_dpdk_and_dpdk", || {
        with_network(rpcs_without_kernel)
    }),
    ("bridge::what_a_full_queue_loses_is_counted", || {
        with_network(lose_in_a_full_queue)
    }),
];

pub(crate) const ROLES: &[Role] = &[
    ("bridge_echo", echo),
    ("bridge_kernel", kernel),
    ("bridge_serve", serve),
    ("bridge_call", call),
    ("bridge_call_from_kernel", call_from_kernel),
    ("bridge_deaf", deaf),
    ("bridge_flood", flood),
];

const KERNEL: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 100);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const UDP_PORT: u16 = 7471;
/// Datagrams exchanged with the kernel.
const DATAGRAMS: u64 = 2_000;
/// Datagrams to an endpoint that takes none: more than the receive queue of an AF_PACKET port holds.
const FLOOD: u64 = 20_000;

fn with_network(case: fn(&Network)) {
    if !is_root() {
        println!("skipped: network devices need root");
        return;
    }
    let network = Network::create();
    case(&network);
}

/// The kernel accepts DPDK's frames, and the other way round: every header and checksum is right.
fn exchange_with_kernel(network: &Network, udp_checksum: &str) {
    network.add_kernel(KERNEL);
    let mut server = start_port(network, 1, "bridge_echo", SERVER, udp_checksum);
    let kernel = start_in(&network.namespace, "bridge_kernel", &[]);
    kernel.finish();
    server.release();
    let rejected = server.finish();
    assert!(rejected.contains("rejected UdpChecksum 0"), "{rejected}");
    assert!(rejected.contains("rejected IpChecksum 0"), "{rejected}");
    assert_eq!(network.kernel_udp("InCsumErrors"), 0);
    assert_eq!(network.kernel_udp("InErrors"), 0);
    assert!(network.kernel_udp("InDatagrams") >= DATAGRAMS);
}

/// An endpoint on a kernel socket and one on DPDK speak the same wire format.
fn rpcs_with_kernel(network: &Network) {
    network.add_kernel(KERNEL);
    let server = start_port(network, 1, "bridge_serve", SERVER, "auto");
    start_in(&network.namespace, "bridge_call_from_kernel", &[]).finish();
    server.finish();
    assert!(network.kernel_udp("InDatagrams") > 0);
    assert_eq!(network.kernel_udp("InErrors"), 0);
}

/// Two endpoints on DPDK find each other by ARP, and the kernel's UDP sees nothing of it.
fn rpcs_without_kernel(network: &Network) {
    let server = start_port(network, 1, "bridge_serve", SERVER, "auto");
    let client = start_port(network, 2, "bridge_call", CLIENT, "auto");
    client.finish();
    server.finish();
    for counter in ["InDatagrams", "OutDatagrams", "NoPorts", "InErrors"] {
        assert_eq!(network.kernel_udp(counter), 0, "{counter}");
    }
}

/// An endpoint that does not receive for a while loses the datagrams that its queue has no room for, and counts them.
fn lose_in_a_full_queue(network: &Network) {
    network.add_kernel(KERNEL);
    let mut server = start_port(network, 1, "bridge_deaf", SERVER, "auto");
    start_in(&network.namespace, "bridge_flood", &[]).finish();
    server.release();
    let told = server.finish();
    let lost = told.trim().strip_prefix("lost ").expect("the count");
    let lost: u64 = lost.parse().expect("a number");
    assert!((1..=FLOOD).contains(&lost), "{lost} of {FLOOD}");
}

/// A process with a DPDK port on the network, once the port is open.
fn start_port(
    network: &Network,
    number: usize,
    role: &str,
    ip: Ipv4Addr,
    udp_checksum: &str,
) -> Process {
    let device = network.add_port(number);
    let mut process = start_in(
        &network.namespace,
        role,
        &[&device, &ip.to_string(), udp_checksum],
    );
    process.expect("ready");
    process
}

fn open(arguments: &[String]) -> DpdkBackend {
    open_with("net_af_packet0", arguments)
}

fn open_with(driver: &str, arguments: &[String]) -> DpdkBackend {
    let (device, ip, udp_checksum) = (&arguments[0], &arguments[1], &arguments[2]);
    let line = format!("--no-pci --no-huge --vdev={driver},iface={device}");
    let config: DpdkConfig = format!("ip={ip}/24,udp-checksum={udp_checksum}")
        .parse()
        .expect("options");
    let backend = Eal::start(&arguments::split(&line))
        .and_then(|eal| DpdkBackend::open(&eal, &config, UDP_PORT, PoolConfig::default()))
        .unwrap_or_else(|error| panic!("{error}"));
    println!("ready");
    backend
}

/// Sends every datagram back until the director hangs up, then reports the refused ones.
fn echo(arguments: &[String]) {
    let mut backend = open(arguments);
    let waker = backend.waker();
    let over = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&over);
    std::thread::spawn(move || {
        crate::process::wait_for_director();
        seen.store(true, Ordering::SeqCst);
        waker.wake();
    });
    let mut message = backend.pool().alloc(2_048).expect("memory");
    let mut tx = TxBatch::new();
    while !over.load(Ordering::SeqCst) {
        let packets: Vec<_> = backend
            .rx_burst()
            .expect("a working port")
            .map(|p| (p.bytes.to_vec(), p.route))
            .collect();
        for (bytes, route) in &packets {
            message.resize(bytes.len());
            message.copy_from_slice(bytes);
            tx.push(*route, &[], Body::Message(&message, 0..bytes.len()));
            backend.tx_burst(&mut tx).expect("a working port");
        }
        if packets.is_empty() {
            backend.wait(None).expect("a working port");
        }
    }
    let stats = backend.dpdk_stats();
    for reason in trine_dpdk::frame::Reject::ALL {
        println!("rejected {reason:?} {}", stats.rejected(reason));
    }
}

/// Answers one datagram, then takes nothing any more; reports its queue's losses once the director hangs up. The pcap
/// driver counts its losses, as those of real cards do; the AF_PACKET driver of DPDK 22.11 does not.
fn deaf(arguments: &[String]) {
    let mut backend = open_with("net_pcap0", arguments);
    let mut message = backend.pool().alloc(2_048).expect("memory");
    let route = until("a datagram", || {
        let mut packets = backend.rx_burst().expect("a working port");
        packets.next().map(|packet| packet.route)
    });
    assert_eq!(backend.stats().rx_overflows, 0);
    message.resize(1);
    let mut tx = TxBatch::new();
    tx.push(route, &[], Body::Message(&message, 0..1));
    backend.tx_burst(&mut tx).expect("a working port");
    crate::process::wait_for_director();
    println!("lost {}", backend.stats().rx_overflows);
}

/// Sends until the deaf one has answered, then a flood.
fn flood(_arguments: &[String]) {
    let socket = UdpSocket::bind((KERNEL, UDP_PORT)).expect("the kernel's address");
    socket.connect((SERVER, UDP_PORT)).expect("a route");
    let patience = Some(Duration::from_millis(200));
    socket.set_read_timeout(patience).expect("a timeout");
    let mut buffer = [0; 1_000];
    until("the answer", || {
        socket.send(&buffer).expect("a working socket");
        socket.recv(&mut buffer).ok()
    });
    for _ in 0..FLOOD {
        socket.send(&buffer).expect("a working socket");
    }
}

/// A plain kernel socket that talks to the echo.
fn kernel(_arguments: &[String]) {
    let socket = UdpSocket::bind((KERNEL, UDP_PORT)).expect("the kernel's address");
    socket.connect((SERVER, UDP_PORT)).expect("a route");
    socket
        .set_read_timeout(Some(Duration::from_millis(200)))
        .expect("a timeout");
    let mut prng = Prng::new(3);
    let mut buffer = [0; 2_048];
    for round in 0..DATAGRAMS {
        let mut bytes = vec![0; 8 + prng.below(1_465) as usize];
        prng.fill(&mut bytes);
        bytes[..8].copy_from_slice(&round.to_be_bytes());
        // The kernel may lose a datagram while it asks for the server's address, and late answers may come twice.
        until("the echo", || {
            socket.send(&bytes).expect("a working socket");
            while let Ok(len) = socket.recv(&mut buffer) {
                if buffer[..len] == bytes {
                    return Some(());
                }
            }
            None
        });
    }
}

fn serve(arguments: &[String]) {
    let _server = rpc::serve(open(arguments));
}

fn call(arguments: &[String]) {
    let _client = rpc::call(open(arguments), SocketAddr::from((SERVER, UDP_PORT)), None);
}

fn call_from_kernel(_arguments: &[String]) {
    let backend =
        UdpBackend::bind((KERNEL, 0).into(), &UdpConfig::default()).expect("the kernel's address");
    let _client = rpc::call(backend, SocketAddr::from((SERVER, UDP_PORT)), None);
}
