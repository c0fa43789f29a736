//! The window of "delay" on virtual time, with the settings of replicas and of kernel sockets: it must keep the queue short,
//! the link busy and the shares equal, whatever the link's speed.

use super::net::{Bottleneck, Net, caps};
use crate::backend::Caps;
use crate::config::CongestionConfig;
use crate::time::{Duration, Instant};
use crate::{Config, CongestionControl, Identity, SessionId};

/// Bytes a second of a gigabit a second.
const GIGABIT: u64 = 125_000_000;
/// The next drain slot of these tests: no other comes before they end.
const SLOT_AFTER: Duration = Duration::from_millis(2_000);

/// An incast through one port.
#[derive(Copy, Clone, Debug)]
struct Incast {
    flows: usize,
    gigabits: u64,
    control: CongestionControl,
    /// Half of the flows begin later.
    is_half_late: bool,
}

/// The traffic through the port once the windows had settled.
#[derive(Debug)]
struct Outcome {
    /// Share of the link, in per mille.
    used: u64,
    wait_ns_p50: u64,
    #[expect(dead_code, reason = "printed, for the table of BENCHMARKS.md")]
    wait_ns_p99: u64,
    /// The slowest flow's packets over the fastest's, in percent.
    fairness: u64,
    /// The late flows' packets over the early ones', in percent.
    late: u64,
}

/// As replicas are set, on kernel sockets.
fn product(control: CongestionControl, slot_at: Instant) -> Config {
    let period = 1_u64 << 28;
    let congestion = CongestionConfig {
        control,
        wall_ahead: Duration::from_nanos(period - slot_at.as_nanos() % period),
        ..CongestionConfig::default()
    };
    Config {
        slots: 64,
        credits: 64,
        overcommit: true,
        sessions: 4_096,
        congestion,
        // Each flow's requests have room. With less the server turns flows away, and they count as unfair.
        assembly_bytes: 4 << 30,
        ..Config::default()
    }
}

fn socket() -> Caps {
    Caps {
        rto_floor: Duration::from_millis(1),
        packet_is_dear: true,
        ..caps()
    }
}

fn net_of(nodes: usize, config: &Config) -> Net {
    let mut net = Net::new(1, 0, config);
    for node in 0..nodes {
        let identity = Identity {
            cluster: 0,
            incarnation: node as u64 + 1,
        };
        net.add(config, socket(), identity);
        net.nodes[node].checks_invariants = false;
    }
    net
}

/// Requests of 2 MB, one after the other.
fn transfer(net: &mut Net, node: usize, session: SessionId, requests: u64) {
    let bytes = 2 << 20;
    let endpoint = &mut net.nodes[node].endpoint;
    for tag in 0..requests {
        let request = endpoint.pool().alloc(bytes).expect("memory");
        let response = endpoint.pool().alloc(64).expect("memory");
        let now = net.now;
        endpoint
            .enqueue_request(now, session, 7, request, response, tag, None)
            .expect("accepted");
    }
}

fn sent(net: &Net, nodes: std::ops::RangeInclusive<usize>) -> Vec<u64> {
    let of = |node: usize| net.nodes[node].endpoint.stats().packets_sent;
    nodes.map(of).collect()
}

/// The traffic of `measured` through the port.
fn measure(net: &mut Net, flows: usize, measured: Duration) -> Outcome {
    let port = net.bottleneck.as_mut().expect("a port");
    port.bytes = 0;
    port.waits.clear();
    let link = port.bytes_per_second;
    let before = sent(net, 1..=flows);
    net.run_for(measured);
    let shares: Vec<u64> = sent(net, 1..=flows)
        .iter()
        .zip(before)
        .map(|(after, before)| after - before)
        .collect();
    let (early, late) = shares.split_at(flows / 2);
    let least = shares.iter().min().copied().unwrap_or(0);
    let most = shares.iter().max().copied().unwrap_or(0).max(1);
    let port = net.bottleneck.as_mut().expect("a port");
    port.waits.sort_unstable();
    let waits = &port.waits;
    let at = |percent: usize| {
        let place = waits.len().saturating_sub(1) * percent / 100;
        waits.get(place).map_or(0, |wait| wait.as_nanos())
    };
    Outcome {
        used: port.bytes * 1_000_000 / (link / 1_000 * measured.as_nanos() / 1_000),
        wait_ns_p50: at(50),
        wait_ns_p99: at(99),
        fairness: least * 100 / most,
        late: late.iter().sum::<u64>() * 100 / early.iter().sum::<u64>().max(1),
    }
}

impl Incast {
    fn of(flows: usize, gigabits: u64, control: CongestionControl) -> Self {
        Self {
            flows,
            gigabits,
            control,
            is_half_late: false,
        }
    }

    /// How long a packet of each flow takes the link, and the path.
    fn round(&self) -> Duration {
        let packet = 1_472 * 1_000_000_000 / (self.gigabits * GIGABIT);
        Duration::from_nanos(packet * self.flows as u64) + Duration::from_micros(20)
    }

    fn run(&self) -> Outcome {
        let settling = self.round() * 100;
        let begins = Instant::from_nanos(1_000_000_000);
        let slot_at = match self.is_half_late {
            true => begins + settling + settling,
            false => begins + SLOT_AFTER,
        };
        let config = product(self.control, slot_at);
        let mut net = net_of(self.flows + 1, &config);
        let link = self.gigabits * GIGABIT;
        // The whole of it, and what a slot of 2 ms and its end take.
        let span = settling * 4 + Duration::from_millis(if self.is_half_late { 10 } else { 0 });
        let bytes = link / 1_000_000 * span.as_micros();
        let requests = 1 + bytes / self.flows as u64 / (1 << 21);
        net.bottleneck = Some(Bottleneck::new(0, link, 1 << 30));
        let early = match self.is_half_late {
            true => self.flows / 2,
            false => self.flows,
        };
        self.begin(&mut net, 1..=early, requests * 2);
        net.run_for(settling);
        if self.is_half_late {
            self.begin(&mut net, early + 1..=self.flows, requests);
            let past = Duration::from_millis(5);
            net.run_for(slot_at.saturating_since(net.now) + past + settling);
        }
        measure(&mut net, self.flows, settling)
    }

    fn begin(&self, net: &mut Net, nodes: std::ops::RangeInclusive<usize>, requests: u64) {
        let sessions: Vec<_> = nodes.map(|node| (node, net.connect(node, 0))).collect();
        net.run_for(Duration::from_micros(100));
        for (node, session) in sessions {
            transfer(net, node, session, requests);
        }
    }
}

/// Checks a cell of the table.
fn check(flows: usize, gigabits: u64) {
    let with = Incast::of(flows, gigabits, CongestionControl::Delay).run();
    let none = Incast::of(flows, gigabits, CongestionControl::Off).run();
    println!("{flows:3} flows at {gigabits} Gbit/s: {with:?}");
    println!("{flows:3} flows at {gigabits} Gbit/s, off: {none:?}");
    assert!(with.used >= 970, "{flows} flows at {gigabits}: {with:?}");
    assert!(with.fairness >= 90, "{flows} flows at {gigabits}: {with:?}");
    // There the noise that is allowed for is most of it.
    let part = match (flows, gigabits) {
        (20, 100) => 4,
        (50, 100) => 9,
        _ => 10,
    };
    assert!(
        with.wait_ns_p50 * part <= none.wait_ns_p50,
        "{flows} flows at {gigabits}: {with:?}, and {none:?} without"
    );
}

#[test]
fn the_window_at_an_incast() {
    for (flows, gigabits) in [(20, 1), (20, 10), (100, 10), (20, 25), (20, 100)] {
        check(flows, gigabits);
    }
}

#[test]
#[ignore = "takes long: `.ci/run incast`"]
fn the_window_at_the_rest_of_the_incasts() {
    for (flows, gigabits) in [
        (50, 1),
        (100, 1),
        (50, 10),
        (50, 25),
        (100, 25),
        (50, 100),
        (100, 100),
    ] {
        check(flows, gigabits);
    }
}

/// The floor and what both keep in the queue, instead of all their credits.
#[test]
fn the_window_at_an_incast_of_two() {
    for gigabits in [1, 10, 25] {
        let incast = Incast::of(2, gigabits, CongestionControl::Delay);
        let with = incast.run();
        println!("  2 flows at {gigabits} Gbit/s: {with:?}");
        let packet_ns = 1_472 * 1_000_000_000 / (gigabits * GIGABIT);
        assert!(with.used >= 970, "{gigabits}: {with:?}");
        assert!(
            with.wait_ns_p50 <= 25_000 + 4 * packet_ns,
            "{gigabits}: {with:?}"
        );
    }
}

#[test]
fn the_window_at_an_incast_of_which_half_is_late() {
    for gigabits in [10, 25, 100] {
        let incast = Incast {
            is_half_late: true,
            ..Incast::of(20, gigabits, CongestionControl::Delay)
        };
        let with = incast.run();
        println!(" 20 flows at {gigabits} Gbit/s, half of them late: {with:?}");
        assert!(with.used >= 950, "{gigabits}: {with:?}");
        assert!((70..=140).contains(&with.late), "{gigabits}: {with:?}");
    }
}

/// The queue is as long as without control. A checker that does not see that sees nothing.
#[test]
#[cfg(debug_assertions)]
fn a_window_that_takes_the_queue_for_the_path_is_noticed() {
    let incast = Incast::of(20, 25, CongestionControl::Delay);
    let good = incast.run();
    let _bug = trine_canary::plant("the queue is taken for the path");
    let bad = incast.run();
    assert!(bad.wait_ns_p50 > 4 * good.wait_ns_p50, "{bad:?}");
}

#[test]
#[cfg(debug_assertions)]
fn a_window_of_nothing_is_noticed() {
    let incast = Incast::of(100, 1, CongestionControl::Delay);
    let _bug = trine_canary::plant("all credits are kept back");
    let bad = incast.run();
    assert!(bad.used < 970 || bad.fairness < 50, "{bad:?}");
}

/// One client and one server, and what they get done on a link of 10 Gbit/s.
struct Pair {
    net: Net,
    session: SessionId,
}

impl Pair {
    fn of(control: CongestionControl) -> Self {
        let config = product(control, Instant::from_nanos(1_000_000_000));
        let mut net = net_of(2, &config);
        net.bottleneck = Some(Bottleneck::new(0, 10 * GIGABIT, 1 << 30));
        let session = net.connected(1, 0);
        Self { net, session }
    }

    /// Bytes through the port in `span`.
    fn bytes_in(&mut self, span: Duration) -> u64 {
        let bytes = |net: &Net| net.bottleneck.as_ref().expect("a port").bytes;
        let before = bytes(&self.net);
        self.net.run_for(span);
        bytes(&self.net) - before
    }
}

/// To the window that is a queue for as long as the shortest RTT of late counts.
#[test]
fn a_route_that_becomes_longer_is_learnt() {
    let mut pair = Pair::of(CongestionControl::Delay);
    transfer(&mut pair.net, 1, pair.session, 60);
    pair.net.run_for(Duration::from_millis(2));
    pair.net.faults.delay = Duration::from_millis(10);
    pair.net.run_for(Duration::from_millis(3_500));
    // The credits allow 64 packets in each 20 ms.
    let all = 64 * 1_472 * 50;
    let bytes = pair.bytes_in(Duration::from_millis(1_000));
    assert!(bytes * 10 >= all * 9, "{bytes} of {all} bytes a second");
}

#[test]
fn loss_and_reordering_leave_four_fifths_of_what_goes_through_without() {
    let reorder = (crate::prng::Ratio::ZERO, crate::prng::Ratio::percent(2));
    let loss = (
        crate::prng::Ratio::new(1, 1_000).expect("a ratio"),
        crate::prng::Ratio::ZERO,
    );
    for (loss, reorder) in [loss, reorder] {
        let done = |control| {
            let mut pair = Pair::of(control);
            (pair.net.faults.loss, pair.net.faults.reorder) = (loss, reorder);
            transfer(&mut pair.net, 1, pair.session, 100);
            pair.net.run_for(Duration::from_millis(60));
            let received = pair.net.nodes[0].endpoint.stats().packets_received;
            (received, pair.net.nodes[1].endpoint.stats().requests_failed)
        };
        let (with, none) = (done(CongestionControl::Delay), done(CongestionControl::Off));
        println!("loss {loss:?}, reordering {reorder:?}: {with:?}, off {none:?}");
        assert_eq!((with.1, none.1), (0, 0));
        assert!(with.0 * 10 >= none.0 * 8, "{with:?}, off {none:?}");
    }
}

/// Handlers that wait, for a watch or for another request, have a credit each for as long as they do. Were these counted,
/// the request that they wait for could not be sent.
#[test]
fn requests_that_are_held_do_not_fill_the_window() {
    let mut pair = Pair::of(CongestionControl::Delay);
    pair.net.nodes[0].app.manner = super::net::Manner::Later;
    for tag in 0..60 {
        pair.net.request(1, pair.session, tag, 32);
    }
    let all = |net: &Net| net.nodes[0].app.executed.len() == 60;
    assert!(
        pair.net.run_until(Duration::from_millis(100), all),
        "{} of 60 have come",
        pair.net.nodes[0].app.executed.len()
    );
    pair.net.answer_all(0);
    pair.net.nodes[1].endpoint.check_invariants();
    let done = |net: &Net| net.nodes[1].app.completions.len() == 60;
    assert!(pair.net.run_until(Duration::from_millis(100), done));
}

/// The one packet that may be under way in a drain slot can be that of a request whose handler takes its time.
#[test]
fn a_drain_slot_ends_before_a_handler_does() {
    let slot_at = Instant::from_nanos(1_100_000_000);
    let mut config = product(CongestionControl::Delay, slot_at);
    // So that no timeout sets it going.
    config.rto_floor = Some(Duration::from_millis(100));
    let mut net = net_of(2, &config);
    net.bottleneck = Some(Bottleneck::new(0, 10 * GIGABIT, 1 << 30));
    let session = net.connected(1, 0);
    transfer(&mut net, 1, session, 300);
    let in_slot = slot_at + Duration::from_micros(300);
    net.run_for(in_slot.saturating_since(net.now));
    net.nodes[0].app.manner = super::net::Manner::Later;
    net.request(1, session, 1_000, 32);
    let mut pair = Pair { net, session };
    let bytes = pair.bytes_in(Duration::from_micros(500));
    assert!(bytes < 100_000, "{bytes} bytes in the slot");
    pair.net.run_for(Duration::from_millis(2));
    let bytes = pair.bytes_in(Duration::from_millis(5));
    assert!(bytes > 5_000_000, "{bytes} bytes after it");
    pair.net.nodes[1].endpoint.check_invariants();
}

/// A server of release 0.1.0 grants no answer times, and controls nothing itself.
#[test]
fn one_end_alone_is_enough() {
    let mut net = net_of(1, &product(CongestionControl::Off, Instant::ZERO));
    let config = product(CongestionControl::Delay, Instant::ZERO);
    for node in 1..=20 {
        let identity = Identity {
            cluster: 0,
            incarnation: node + 1,
        };
        net.add(&config, socket(), identity);
    }
    net.bottleneck = Some(Bottleneck::new(0, GIGABIT, 1 << 30));
    let incast = Incast::of(20, 1, CongestionControl::Delay);
    incast.begin(&mut net, 1..=20, 1);
    net.run_for(Duration::from_millis(30));
    let outcome = measure(&mut net, 20, Duration::from_millis(30));
    assert!(outcome.used >= 970 && outcome.fairness >= 90, "{outcome:?}");
    assert!(outcome.wait_ns_p50 < 1_000_000, "{outcome:?}");
}
