//! Which work does each guideline save? Bursts of small datagrams from one endpoint to another, with one guideline
//! switched off at a time.

use std::time::{Duration, Instant};

use trine_transport::backend::{Backend, Body, TxBatch};
use trine_verbs::{VerbsConfig, VerbsStats};

use crate::open;

const BURSTS: u64 = 200;
const BURST: u64 = 32;
/// A small RPC on the wire: header and body.
const HEAD: [u8; 24] = [7; 24];
const BODY: [u8; 32] = [7; 32];
const BYTES: usize = HEAD.len() + BODY.len();
const PATIENCE: Duration = Duration::from_secs(30);

/// A configuration, its name, and its expected counts.
struct Setting {
    name: &'static str,
    config: VerbsConfig,
    expected: Expected,
}

/// For all bursts together. A doorbell is a write of the processor to the device over PCIe. A completion is a write of
/// the device to memory. A gathered part is a read of memory by the device, beside that of the work request.
#[derive(Copy, Clone, Debug)]
struct Counts {
    requests: u64,
    doorbells: u64,
    completions: u64,
    gathered: u64,
    receive_doorbells: u64,
}

/// Requests, doorbells, completions, gathered parts.
type Sent = [u64; 4];

#[derive(Copy, Clone)]
struct Expected {
    sent: Sent,
    /// The device decides how many datagrams one poll finds, so there are bounds for these.
    receive_doorbells: (u64, u64),
}

impl Counts {
    fn sent(&self) -> Sent {
        [
            self.requests,
            self.doorbells,
            self.completions,
            self.gathered,
        ]
    }
}

pub(crate) fn run() {
    println!(
        "{:<34} {:>8} {:>9} {:>11} {:>8} {:>9} {:>9}",
        "per datagram", "requests", "doorbells", "completions", "gathered", "receive", "time"
    );
    println!(
        "{:<34} {:>8} {:>9} {:>11} {:>8} {:>9} {:>9}",
        format!("({BURSTS} bursts of {BURST}, {BYTES} B)"),
        "posted",
        "",
        "of sends",
        "parts",
        "doorbells",
        "(ns)"
    );
    for setting in settings() {
        let (counts, nanos) = measure(&setting.config);
        let each = |count: u64| format!("{:.3}", count as f64 / (BURSTS * BURST) as f64);
        println!(
            "{:<34} {:>8} {:>9} {:>11} {:>8} {:>9} {:>9.0}",
            setting.name,
            each(counts.requests),
            each(counts.doorbells),
            each(counts.completions),
            each(counts.gathered),
            each(counts.receive_doorbells),
            nanos
        );
        let Setting { name, expected, .. } = setting;
        let (least, most) = expected.receive_doorbells;
        assert_eq!(counts.sent(), expected.sent, "{name}");
        assert!(
            (least..=most).contains(&counts.receive_doorbells),
            "{name}: {counts:?}"
        );
    }
}

fn settings() -> Vec<Setting> {
    let all = VerbsConfig::default();
    let packets = BURSTS * BURST;
    // The last places that were read wait for the next poll.
    let (batched, single) = ((1, packets / 16), (packets - 2 * BURST, packets));
    let setting = |name, config, sent, receive_doorbells| Setting {
        name,
        config,
        expected: Expected {
            sent,
            receive_doorbells,
        },
    };
    let unbatched = VerbsConfig {
        doorbell_batching: false,
        ..all.clone()
    };
    let signaled = VerbsConfig {
        signal_interval: 1,
        ..all.clone()
    };
    let gathered = VerbsConfig {
        inline_bytes: 0,
        ..all.clone()
    };
    let reposted = VerbsConfig {
        receive_batch: 1,
        ..all.clone()
    };
    let queue_pairs = |queue_pairs| VerbsConfig {
        queue_pairs,
        ..all.clone()
    };
    let none = VerbsConfig {
        doorbell_batching: false,
        signal_interval: 1,
        inline_bytes: 0,
        receive_batch: 1,
        ..all.clone()
    };
    let (few, many) = (BURSTS, packets);
    let rare = packets / 16;
    vec![
        setting(
            "all guidelines",
            all.clone(),
            [packets, few, rare, 0],
            batched,
        ),
        setting(
            "no doorbell batching",
            unbatched,
            [packets, many, rare, 0],
            batched,
        ),
        setting(
            "every send signaled",
            signaled,
            [packets, few, many, 0],
            batched,
        ),
        setting(
            "nothing inline",
            gathered,
            [packets, few, rare, many],
            batched,
        ),
        setting(
            "receives re-posted singly",
            reposted,
            [packets, few, rare, 0],
            single,
        ),
        setting(
            "four queue pairs",
            queue_pairs(4),
            [packets, 4 * few, rare, 0],
            batched,
        ),
        setting(
            "eight queue pairs",
            queue_pairs(8),
            [packets, 8 * few, rare, 0],
            batched,
        ),
        setting(
            "none of the first four",
            none,
            [packets, many, many, many],
            single,
        ),
    ]
}

/// The cost of the bursts, and nanoseconds a datagram.
fn measure(config: &VerbsConfig) -> (Counts, f64) {
    let (mut sender, mut receiver) = (open(config), open(config));
    let peer = receiver.address();
    let mut batch = TxBatch::new();
    let mut burst = |count: u64| {
        for choice in 0..count as u32 {
            batch.push(sender.route_to(&peer, choice), &HEAD, Body::Bytes(&BODY));
        }
        sender.tx_burst(&mut batch).expect("a working device");
        let (mut received, start) = (0, Instant::now());
        while received < count {
            received += receiver.rx_burst().expect("a working device").len() as u64;
            assert!(start.elapsed() < PATIENCE, "{received} of {count} came");
        }
    };
    // The first packet makes the address handle.
    burst(BURST);
    let start = Instant::now();
    for _ in 0..BURSTS - 1 {
        burst(BURST);
    }
    let nanos = start.elapsed().as_nanos() as f64 / ((BURSTS - 1) * BURST) as f64;
    (
        counts(&sender.verbs_stats(), &receiver.verbs_stats(), config),
        nanos,
    )
}

fn counts(sender: &VerbsStats, receiver: &VerbsStats, config: &VerbsConfig) -> Counts {
    // Filling the rings at the start is not counted.
    let rings = u64::from(config.queue_pairs);
    let filled = if config.receive_batch == 1 {
        rings * u64::from(config.receive_queue)
    } else {
        rings
    };
    Counts {
        requests: sender.sends,
        doorbells: sender.send_doorbells,
        completions: sender.sends_signaled,
        gathered: sender.sends_gathered,
        receive_doorbells: receiver.receive_doorbells - filled,
    }
}
