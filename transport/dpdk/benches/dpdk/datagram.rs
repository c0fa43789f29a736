//! Datagrams through the backend, without RPCs: the cost of Ethernet, IPv4 and UDP headers.

use std::net::{SocketAddr, SocketAddrV4};
use std::time::Instant;

use trine_dpdk::DpdkBackend;
use trine_transport::backend::{Backend, Body, TxBatch};
use trine_transport::buf::PoolConfig;

use crate::bare::report;
use crate::{FRAME, Hangup, ROUNDS, SERVER, UDP_PORT, start_eal};
use trine_report::median;

const PAYLOAD: [u8; FRAME - 42] = [7; FRAME - 42];

fn open(role: &str, arguments: &[String]) -> DpdkBackend {
    let (eal, config) = start_eal(role, arguments);
    let backend = DpdkBackend::open(&eal, &config, UDP_PORT, PoolConfig::default());
    backend.unwrap_or_else(|error| panic!("{error}"))
}

/// Sends every datagram back.
pub(crate) fn echo(arguments: &[String]) {
    let hangup = Hangup::watch();
    let mut backend = open("server", arguments);
    println!("ready");
    let mut tx = TxBatch::new();
    while !hangup.came() {
        for packet in backend.rx_burst().expect("a working port") {
            let (header, body) = packet.bytes.split_at(24);
            tx.push(packet.route, header, Body::Bytes(body));
        }
        if !tx.is_empty() {
            backend.tx_burst(&mut tx).expect("a working port");
        }
    }
    hangup.idle();
}

/// Median round trip of one datagram at a time.
pub(crate) fn ping(arguments: &[String]) {
    let mut backend = open("client", arguments);
    let mut tx = TxBatch::new();
    let route: SocketAddr = SocketAddrV4::new(SERVER, UDP_PORT).into();
    let mut round = |patience: u64| {
        let start = Instant::now();
        tx.push(route, &PAYLOAD[..24], Body::Bytes(&PAYLOAD[24..]));
        backend.tx_burst(&mut tx).expect("a working port");
        let answered =
            (0..patience).any(|_| !backend.rx_burst().expect("a working port").is_empty());
        answered.then(|| start.elapsed().as_nanos() as f64)
    };
    // The first datagrams are lost while ARP asks.
    while round(100_000).is_none() {}
    for _ in 0..ROUNDS / 10 {
        round(u64::MAX);
    }
    report(median((0..ROUNDS).filter_map(|_| round(u64::MAX))));
}
