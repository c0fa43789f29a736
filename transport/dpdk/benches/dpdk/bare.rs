//! The baselines: frames turned around as they are, the least that DPDK allows.

use std::time::{Duration, Instant};

use trine_dpdk::config::BURST;
use trine_dpdk::raw::RawQueue;

use crate::{BATCH, FRAME, Hangup, ROUNDS, SMALL, SPAN_MS, WINDOW, process, start_eal};
use trine_report::median;

const PATIENCE: Duration = Duration::from_secs(10);

fn open(arguments: &[String]) -> RawQueue {
    let (eal, config) = start_eal("client", arguments);
    let mut queue = RawQueue::open(&eal, &config).unwrap_or_else(|error| panic!("{error}"));
    let start = Instant::now();
    while !queue.link_is_up() {
        assert!(start.elapsed() < PATIENCE, "no link");
    }
    // memif's receiver gives the sender room by polling. Before its first poll every frame sent to it is lost, and
    // every lost frame would narrow the window for the rest of the run.
    queue.receive();
    queue
}

/// Sends every frame back; a frame that starts with zeros is only counted, see [`flood`].
pub(crate) fn echo(arguments: &[String]) {
    let hangup = Hangup::watch();
    let (eal, config) = start_eal("server", arguments);
    let mut queue = RawQueue::open(&eal, &config).unwrap_or_else(|error| panic!("{error}"));
    println!("ready");
    let mut counted = 0_u64;
    while !hangup.came() {
        let count = queue.receive();
        if count == 0 {
            continue;
        }
        if queue.received(0)[0] != 0 {
            assert_eq!(queue.send_back(), count, "a lost frame narrows the window");
            continue;
        }
        counted += count as u64;
        if (0..count).any(|index| queue.received(index)[1] != 0) {
            // The flood's last frame asks how many came.
            assert!(queue.allocate(1), "a packet buffer");
            queue.frame(0, FRAME)[..8].copy_from_slice(&counted.to_be_bytes());
            queue.send(1);
        }
    }
    hangup.idle();
}

fn send(queue: &mut RawQueue, count: usize, first: u8) -> usize {
    if !queue.allocate(count) {
        return 0;
    }
    for index in 0..count {
        queue.frame(index, FRAME).fill(first);
    }
    queue.send(count)
}

fn receive(queue: &mut RawQueue) -> usize {
    let mut polls = 0_u64;
    loop {
        let count = queue.receive();
        if count > 0 {
            return count;
        }
        polls += 1;
        assert!(polls < 2_000_000_000, "the echo is gone");
    }
}

/// Median round trip of one frame at a time.
pub(crate) fn ping(arguments: &[String]) {
    let mut queue = open(arguments);
    let mut round = || {
        let start = Instant::now();
        assert_eq!(send(&mut queue, 1, 1), 1, "an idle port takes a frame");
        receive(&mut queue);
        start.elapsed().as_nanos() as f64
    };
    for _ in 0..ROUNDS / 10 {
        round();
    }
    report(median((0..ROUNDS).map(|_| round())));
}

/// Round trips a second, with a window, sent in batches.
pub(crate) fn rate(arguments: &[String]) {
    let mut queue = open(arguments);
    let (mut in_flight, mut echoes) = (0, 0_u64);
    let mut start = Instant::now();
    let mut warm = false;
    loop {
        while in_flight + BATCH <= WINDOW {
            in_flight += send(&mut queue, BATCH, 1);
        }
        let count = receive(&mut queue);
        in_flight -= count;
        echoes += count as u64;
        let elapsed = start.elapsed();
        if !warm && elapsed >= Duration::from_millis(SPAN_MS / 10) {
            (warm, echoes, start) = (true, 0, Instant::now());
        } else if elapsed >= Duration::from_millis(SPAN_MS) {
            return report(echoes as f64 / elapsed.as_secs_f64());
        }
    }
}

/// Frames a second in one direction, as the receiver counts them.
pub(crate) fn flood(arguments: &[String]) {
    flood_with(arguments, |queue| send(queue, BURST, 0));
}

/// Headers of a packet that has a body.
const HEAD: [u8; FRAME - SMALL] = [0; FRAME - SMALL];

/// Like [`flood`], with bodies of the given length that are copied after their headers.
pub(crate) fn flood_copied(arguments: &[String]) {
    let body = body(arguments);
    flood_with(arguments, |queue| {
        if !queue.allocate(BURST) {
            return 0;
        }
        for index in 0..BURST {
            let frame = queue.frame(index, HEAD.len() + body.len());
            frame[..HEAD.len()].copy_from_slice(&HEAD);
            frame[HEAD.len()..].copy_from_slice(body);
        }
        queue.send(BURST)
    });
}

/// Like [`flood_copied`], with bodies that the port reads where they are.
pub(crate) fn flood_attached(arguments: &[String]) {
    let body = body(arguments);
    flood_with(arguments, |queue| queue.send_attached(&HEAD, body, BURST));
}

fn body(arguments: &[String]) -> &'static [u8] {
    let len = arguments[2].parse().expect("a length");
    Box::leak(vec![0; len].into_boxed_slice())
}

fn flood_with(arguments: &[String], mut send: impl FnMut(&mut RawQueue) -> usize) {
    let mut queue = open(arguments);
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(SPAN_MS) {
        send(&mut queue);
    }
    let elapsed = start.elapsed();
    // The question may find the ring full: it is repeated.
    let counted = loop {
        if queue.allocate(1) {
            let frame = queue.frame(0, FRAME);
            frame.fill(0);
            frame[1] = 1;
            queue.send(1);
        }
        if queue.receive() > 0 {
            break u64::from_be_bytes(*queue.received(0).first_chunk().expect("a counter"));
        }
        assert!(start.elapsed() < PATIENCE, "the receiver is gone");
    };
    report(counted as f64 / elapsed.as_secs_f64());
}

pub(crate) fn report(figure: f64) {
    println!("result: {figure}");
    process::wait_for_director();
}
