//! The role of generator and sink: it sends as fast as it can, and drops what comes back. The tests check every packet.

use crate::frames::Frames;
use crate::ports::{OUTPUTS, open};
use crate::process::wait_for_end;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use trine_packets::config::{BURST, LINK_SECONDS};
use trine_packets::ports::MemifRole;
use trine_packets::scenario::{ApplicationName, TableSettings, traffic};
use trine_transport::prng::Prng;

/// Different packets. Those of a large table touch more memory than a cache holds.
const PACKETS: usize = 1 << 22;
/// Rounds of a pause after which a full ring has room again.
const PAUSE: u32 = 64;

pub(crate) fn run(name: ApplicationName, entries: usize, socket: &str) {
    let settings = TableSettings {
        entries,
        ports: OUTPUTS,
        seed: 1,
    };
    let packets = match name {
        // Longer, and their automaton is touched many times by each.
        ApplicationName::Patterns => PACKETS / 16,
        _ => PACKETS,
    };
    let traffic = traffic(name, &settings);
    let frames = Frames::draw(&*traffic, packets, &mut Prng::new(9));
    drop(traffic);
    let (mut output, mut inputs) = open(MemifRole::Client, socket);
    let start = Instant::now();
    while !output.link_is_up() || !inputs.iter().all(|input| input.link_is_up()) {
        let patience = Duration::from_secs(LINK_SECONDS);
        assert!(start.elapsed() < patience, "no link");
        std::thread::yield_now();
    }
    let ended = Arc::new(AtomicBool::new(false));
    let end = Arc::clone(&ended);
    std::thread::spawn(move || {
        wait_for_end();
        end.store(true, Ordering::Relaxed);
    });
    println!("ready");
    let mut next = 0;
    while !ended.load(Ordering::Relaxed) {
        let mut sent = 0;
        if output.allocate(BURST) {
            for index in 0..BURST {
                let frame = frames.get(next);
                output.frame(index, frame.len()).copy_from_slice(frame);
                next = (next + 1) % frames.len();
            }
            sent = output.send_as_they_are(BURST);
        }
        for input in &mut inputs {
            input.receive();
        }
        if sent < BURST {
            (0..PAUSE).for_each(|_| std::hint::spin_loop());
        }
    }
    // The end of the process closes the ports, see `open`.
    std::mem::forget((output, inputs));
}
