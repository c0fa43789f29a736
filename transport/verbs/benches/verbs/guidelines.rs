//! The work that each guideline saves. Bursts of datagrams from one endpoint to another, with one guideline switched
//! off at a time. Each guideline stands in the table of the packets that it is for.

use std::time::{Duration, Instant};

use trine_transport::backend::{Backend, Body, TxBatch};
use trine_transport::buf::MsgBuf;
use trine_verbs::{VerbsBackend, VerbsConfig, VerbsStats};

use crate::open;

const BURSTS: u64 = 200;
const BURST: u64 = 32;
const PACKETS: u64 = BURSTS * BURST;
const PATIENCE: Duration = Duration::from_secs(30);

/// The datagrams of a table: header and body.
struct Packets {
    name: &'static str,
    head: usize,
    body: usize,
}

/// A small RPC.
const SMALL: Packets = Packets {
    name: "56 B",
    head: 24,
    body: 32,
};
/// A small RPC whose work request has four bytes in its last cache line.
const EDGE: Packets = Packets {
    name: "64 B",
    head: 24,
    body: 40,
};
/// Four bytes: all that an immediate holds.
const WORD: Packets = Packets {
    name: "4 B",
    head: 4,
    body: 0,
};
/// A body that the device fetches.
const LARGE: Packets = Packets {
    name: "1024 B",
    head: 24,
    body: 1000,
};

/// A configuration, its name, and its expected counts for all bursts together.
struct Setting {
    name: &'static str,
    config: VerbsConfig,
    sent: Sent,
    /// The device decides how many datagrams one poll finds, so there are bounds for these.
    receive_doorbells: (u64, u64),
}

/// A doorbell is a write of the processor to the device over PCIe. A completion is a write of the device to memory. A
/// gathered part is a read of memory by the device, beside that of the work request, which is as long as its lines.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Sent {
    requests: u64,
    lines: u64,
    doorbells: u64,
    completions: u64,
    gathered: u64,
    /// Datagrams of which the receiving device writes no byte but the completion and the route header.
    header_only: u64,
}

pub(crate) fn run() {
    table(&SMALL, small());
    table(&EDGE, shrunk(3));
    table(&WORD, header_only());
    table(&LARGE, large());
    pages();
}

fn table(packets: &Packets, settings: Vec<Setting>) {
    println!(
        "\n{BURSTS} bursts of {BURST} datagrams of {}; for each datagram:",
        packets.name
    );
    println!(
        "{:<28} {:>8} {:>6} {:>9} {:>11} {:>8} {:>11} {:>9} {:>9}",
        "",
        "requests",
        "lines",
        "doorbells",
        "completions",
        "gathered",
        "header-only",
        "receive",
        "time"
    );
    println!(
        "{:<28} {:>8} {:>6} {:>9} {:>11} {:>8} {:>11} {:>9} {:>9}",
        "", "posted", "", "", "of sends", "parts", "", "doorbells", "(ns)"
    );
    for setting in settings {
        let (sent, receive_doorbells, nanos) = measure(&setting.config, packets);
        let each = |count: u64| format!("{:.3}", count as f64 / PACKETS as f64);
        println!(
            "{:<28} {:>8} {:>6} {:>9} {:>11} {:>8} {:>11} {:>9} {:>9.0}",
            setting.name,
            each(sent.requests),
            each(sent.lines),
            each(sent.doorbells),
            each(sent.completions),
            each(sent.gathered),
            each(sent.header_only),
            each(receive_doorbells),
            nanos
        );
        let (least, most) = setting.receive_doorbells;
        assert_eq!(sent, setting.sent, "{}", setting.name);
        assert!(
            (least..=most).contains(&receive_doorbells),
            "{}: {receive_doorbells} receive doorbells",
            setting.name
        );
    }
}

/// Receives are given back sixteen or more at a time. The last places that were read wait for the next poll.
const BATCHED: (u64, u64) = (1, PACKETS / 16);
const SINGLY: (u64, u64) = (PACKETS - 2 * BURST, PACKETS + 2 * BURST);

/// With all guidelines that are for small packets.
const ALL: Sent = Sent {
    requests: PACKETS,
    lines: 2 * PACKETS,
    doorbells: BURSTS,
    completions: PACKETS / 16,
    gathered: 0,
    header_only: 0,
};

fn setting(name: &'static str, change: impl FnOnce(&mut VerbsConfig), sent: Sent) -> Setting {
    let mut config = VerbsConfig::default();
    change(&mut config);
    let single = config.receive_batch == 1;
    Setting {
        name,
        config,
        sent,
        receive_doorbells: if single { SINGLY } else { BATCHED },
    }
}

fn small() -> Vec<Setting> {
    let unbatched = Sent {
        doorbells: PACKETS,
        ..ALL
    };
    let signaled = Sent {
        completions: PACKETS,
        ..ALL
    };
    let gathered = Sent {
        gathered: PACKETS,
        ..ALL
    };
    let none = Sent {
        doorbells: PACKETS,
        completions: PACKETS,
        gathered: PACKETS,
        ..ALL
    };
    let queue_pairs = |count: u8| Sent {
        doorbells: u64::from(count) * BURSTS,
        ..ALL
    };
    vec![
        setting("all guidelines", |_| (), ALL),
        setting(
            "no doorbell batching",
            |c| c.doorbell_batching = false,
            unbatched,
        ),
        setting("every send signaled", |c| c.signal_interval = 1, signaled),
        setting("nothing inline", |c| c.inline_bytes = 0, gathered),
        setting("receives re-posted singly", |c| c.receive_batch = 1, ALL),
        setting("four queue pairs", |c| c.queue_pairs = 4, queue_pairs(4)),
        setting("eight queue pairs", |c| c.queue_pairs = 8, queue_pairs(8)),
        setting(
            "none of the first four",
            |c| {
                c.doorbell_batching = false;
                c.signal_interval = 1;
                c.inline_bytes = 0;
                c.receive_batch = 1;
            },
            none,
        ),
    ]
}

fn shrunk(lines_off: u64) -> Vec<Setting> {
    let off = Sent {
        lines: lines_off * PACKETS,
        ..ALL
    };
    vec![
        setting("first four bytes immediate", |_| (), ALL),
        setting("no immediates", |c| c.immediates = false, off),
    ]
}

fn header_only() -> Vec<Setting> {
    let on = Sent {
        lines: PACKETS,
        header_only: PACKETS,
        ..ALL
    };
    vec![
        setting("header-only", |_| (), on),
        setting("no immediates", |c| c.immediates = false, ALL),
    ]
}

fn large() -> Vec<Setting> {
    let gathered = |parts: u64| Sent {
        gathered: parts * PACKETS,
        ..ALL
    };
    vec![
        setting("header in front of the body", |_| (), gathered(1)),
        setting("header apart", |c| c.header_in_front = false, gathered(2)),
    ]
}

/// Two endpoints and the messages of a burst. Each message of a burst is its own, as the sessions' are.
struct Pair {
    sender: VerbsBackend,
    receiver: VerbsBackend,
    head: Vec<u8>,
    messages: Vec<MsgBuf>,
    batch: TxBatch<trine_verbs::VerbsRoute>,
}

impl Pair {
    fn new(config: &VerbsConfig, packets: &Packets) -> Self {
        let (sender, receiver) = (open(config), open(config));
        let message = |_| {
            let mut message = sender.pool().alloc(packets.body).expect("memory");
            message.fill(7);
            message
        };
        Self {
            messages: (0..BURST).map(message).collect(),
            sender,
            receiver,
            head: vec![7; packets.head],
            batch: TxBatch::new(),
        }
    }

    fn burst(&mut self) {
        let peer = self.receiver.address();
        for (choice, message) in self.messages.iter().enumerate() {
            let route = self.sender.route_to(&peer, choice as u32);
            let body = Body::Message(message, 0..message.len());
            self.batch.push(route, &self.head, body);
        }
        self.sender
            .tx_burst(&mut self.batch)
            .expect("a working device");
        arrive(&mut self.receiver, BURST);
    }

    /// Both ends get to know each other: address handles, immediates. Each of the sender's queue pairs has its address
    /// handle and each of the receiver's its answer.
    fn warm_up(&mut self) {
        self.burst();
        let peer = self.sender.address();
        let count = peer.queue_pairs().len() as u32;
        for choice in 0..count {
            let route = self.receiver.route_to(&peer, choice);
            self.batch.push(route, &self.head, Body::None);
        }
        self.receiver
            .tx_burst(&mut self.batch)
            .expect("a working device");
        arrive(&mut self.sender, u64::from(count));
    }
}

fn arrive(backend: &mut VerbsBackend, count: u64) {
    let (mut received, start) = (0, Instant::now());
    while received < count {
        received += backend.rx_burst().expect("a working device").len() as u64;
        assert!(start.elapsed() < PATIENCE, "{received} of {count} came");
    }
}

/// The cost of the bursts: what was sent, doorbells for receives, and nanoseconds a datagram.
fn measure(config: &VerbsConfig, packets: &Packets) -> (Sent, u64, f64) {
    let mut pair = Pair::new(config, packets);
    pair.warm_up();
    let before = (pair.sender.verbs_stats(), pair.receiver.verbs_stats());
    let start = Instant::now();
    for _ in 0..BURSTS {
        // As the core hands memory out again: when nothing posted refers to it. It knows by the answers, here nobody
        // answers. The flushes' own sends are not counted below.
        if packets.body > TxBatch::<trine_verbs::VerbsRoute>::COPY_MAX {
            pair.sender.flush();
        }
        pair.burst();
    }
    let nanos = start.elapsed().as_nanos() as f64 / PACKETS as f64;
    let after = (pair.sender.verbs_stats(), pair.receiver.verbs_stats());
    let receive_doorbells = after.1.receive_doorbells - before.1.receive_doorbells;
    (sent(&before.0, &after.0), receive_doorbells, nanos)
}

fn sent(before: &VerbsStats, after: &VerbsStats) -> Sent {
    let flushes = after.flushes - before.flushes;
    Sent {
        requests: after.sends - before.sends - flushes,
        // A flush is a signaled send of one inline byte.
        lines: after.send_lines - before.send_lines - 2 * flushes,
        doorbells: after.send_doorbells - before.send_doorbells - flushes,
        completions: after.sends_signaled - before.sends_signaled - flushes,
        gathered: after.sends_gathered - before.sends_gathered,
        header_only: after.sends_header_only - before.sends_header_only,
    }
}

/// Translations that the device needs for an endpoint's memory, with and without huge pages.
fn pages() {
    println!(
        "\npages of an endpoint's registered memory (entries of the device's table of addresses):"
    );
    let reserved = std::fs::write("/proc/sys/vm/nr_hugepages", "16");
    for (name, huge_pages) in [("small pages", false), ("huge pages", true)] {
        let config = VerbsConfig {
            huge_pages,
            ..VerbsConfig::default()
        };
        if huge_pages && reserved.is_err() {
            println!("{name:<28} not measured: only root can reserve some");
            continue;
        }
        let stats = open(&config).verbs_stats();
        println!(
            "{name:<28} {} in {} regions",
            stats.registered_pages, stats.registrations
        );
        let few = stats.registered_pages < 1000;
        assert_eq!(few, huge_pages, "{stats:?}");
    }
}
