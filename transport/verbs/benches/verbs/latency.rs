//! What an RPC adds to a datagram. Both ends in one thread, so that the two differ in nothing else.

use std::time::Instant as Wall;

use trine_transport::backend::{Backend, Body, MonotonicClock, TxBatch};
use trine_verbs::{VerbsBackend, VerbsConfig};

use crate::ends::Ends;
use crate::open;

const ROUNDS: usize = 2_000;
/// An RPC of 32 bytes on the wire: header and body.
const HEAD: [u8; 24] = [7; 24];
const BODY: [u8; 32] = [7; 32];

pub(crate) fn run() {
    let config = VerbsConfig::default();
    let datagram = median(datagrams(&config));
    let rpc = median(rpcs(&config));
    println!("\n32 B round trip, both ends in one thread, median of {ROUNDS}");
    println!(
        "datagram {:.1} us, RPC {:.1} us, ratio {:.2}",
        datagram / 1e3,
        rpc / 1e3,
        rpc / datagram
    );
}

fn median(mut nanos: Vec<f64>) -> f64 {
    nanos.sort_by(f64::total_cmp);
    nanos[nanos.len() / 2]
}

/// Round trips of one datagram at a time.
fn datagrams(config: &VerbsConfig) -> Vec<f64> {
    let (mut a, mut b) = (open(config), open(config));
    let mut batch = TxBatch::new();
    let mut pass = |from: &mut VerbsBackend, to: &mut VerbsBackend| {
        batch.push(to.route(), &HEAD, Body::Bytes(&BODY));
        from.tx_burst(&mut batch).expect("a working device");
        while to.rx_burst().expect("a working device").is_empty() {}
    };
    (0..ROUNDS)
        .map(|_| {
            let start = Wall::now();
            pass(&mut a, &mut b);
            pass(&mut b, &mut a);
            start.elapsed().as_nanos() as f64
        })
        .collect()
}

/// Round trips of one RPC at a time.
fn rpcs(config: &VerbsConfig) -> Vec<f64> {
    let (client, server) = (open(config), open(config));
    let route = server.route();
    let mut ends = Ends::connect(client, server, route, MonotonicClock, 1);
    (0..ROUNDS)
        .map(|_| {
            let start = Wall::now();
            ends.issue();
            while !ends.is_answered() {
                ends.server.turn().expect("a working device");
                ends.client.turn().expect("a working device");
            }
            start.elapsed().as_nanos() as f64
        })
        .collect()
}
