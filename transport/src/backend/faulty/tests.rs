//! Rates, order and integrity of packets through a faulty ring, on a clock that the test moves.

use super::*;
use crate::backend::{RingBackend, RingConfig, RingRoute};
use crate::prng::Ratio;
use std::cell::Cell;
use std::rc::Rc;

#[derive(Clone, Default)]
struct TestClock(Rc<Cell<u64>>);

impl TestClock {
    fn advance(&self, span: Duration) {
        self.0.set(self.0.get() + span.as_nanos());
    }
}

impl Clock for TestClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.0.get())
    }
}

const PEER: RingRoute = RingRoute(1);

struct Lab {
    sender: Faulty<RingBackend, TestClock>,
    receiver: Faulty<RingBackend, TestClock>,
    clock: TestClock,
}

fn lab(seed: u64) -> Lab {
    let clock = TestClock::default();
    let (a, b) = RingBackend::pair(RingConfig {
        queue_packets: 200_000,
        ..RingConfig::default()
    });
    Lab {
        sender: Faulty::new(a, clock.clone(), seed),
        receiver: Faulty::new(b, clock.clone(), seed + 1),
        clock,
    }
}

impl Lab {
    /// Sends numbered packets of 600 bytes, a microsecond apart.
    fn send(&mut self, numbers: std::ops::Range<u32>) {
        let mut message = self.sender.pool().alloc(600).unwrap();
        for number in numbers {
            message.fill(number as u8);
            let mut tx = TxBatch::with_capacity(1);
            tx.push(PEER, &number.to_le_bytes(), Body::Message(&message, 0..600));
            self.sender.tx_burst(&mut tx).unwrap();
            self.clock.advance(Duration::from_micros(1));
        }
    }

    fn receive(&mut self) -> Vec<u32> {
        self.sender.rx_burst().unwrap();
        let mut numbers = Vec::new();
        // A burst whose packets were all held back or lost is empty although more have arrived.
        let mut empty_bursts = 0;
        while empty_bursts < 10 {
            let rx = self.receiver.rx_burst().unwrap();
            empty_bursts = if rx.is_empty() { empty_bursts + 1 } else { 0 };
            numbers
                .extend(rx.map(|packet| u32::from_le_bytes(packet.bytes[..4].try_into().unwrap())));
        }
        numbers
    }
}

fn within(count: u64, expected: u64) -> bool {
    count.abs_diff(expected) * 10 < expected
}

#[test]
fn without_rules_everything_passes_untouched() {
    let mut lab = lab(1);
    lab.send(0..1_000);
    assert_eq!(lab.receive(), (0..1_000).collect::<Vec<_>>());
    assert_eq!(lab.sender.handle().total(), FaultCounts::default());
}

#[test]
fn loss_follows_its_rate_and_is_counted() {
    let mut lab = lab(2);
    let handle = lab.sender.handle();
    handle.set(Direction::Outbound, Faults::loss(Ratio::percent(5)));
    lab.send(0..100_000);
    let received = lab.receive();
    let counts = handle.counts(Direction::Outbound);
    assert_eq!(counts.packets, 100_000);
    assert_eq!(received.len() as u64 + counts.lost, 100_000);
    assert!(within(counts.lost, 5_000), "{counts:?}");
    assert!(received.is_sorted(), "loss alone keeps the order");
}

#[test]
fn inbound_loss_is_drawn_on_the_receivers_side() {
    let mut lab = lab(3);
    lab.receiver
        .handle()
        .set(Direction::Inbound, Faults::loss(Ratio::percent(20)));
    lab.send(0..20_000);
    let received = lab.receive().len() as u64;
    let counts = lab.receiver.handle().counts(Direction::Inbound);
    assert_eq!(received + counts.lost, 20_000);
    assert!(within(counts.lost, 4_000), "{counts:?}");
}

#[test]
fn duplicates_arrive_twice() {
    let mut lab = lab(4);
    lab.sender
        .handle()
        .set(Direction::Outbound, "dup=10%".parse().unwrap());
    lab.send(0..10_000);
    let received = lab.receive();
    let counts = lab.sender.handle().total();
    assert_eq!(received.len() as u64, 10_000 + counts.duplicated);
    assert!(within(counts.duplicated, 1_000), "{counts:?}");
    assert!(received.is_sorted());
}

#[test]
fn reordered_packets_are_overtaken_and_none_is_lost() {
    let mut lab = lab(5);
    lab.sender
        .handle()
        .set(Direction::Outbound, "reorder=5%".parse().unwrap());
    lab.send(0..10_000);
    lab.clock.advance(REORDER_HOLD);
    let mut received = lab.receive();
    let swaps = received.windows(2).filter(|pair| pair[0] > pair[1]).count() as u64;
    let counts = lab.sender.handle().total();
    assert!(within(counts.reordered, 500), "{counts:?}");
    assert!(
        swaps > counts.reordered / 2,
        "{swaps} of {}",
        counts.reordered
    );
    received.sort_unstable();
    assert_eq!(received, (0..10_000).collect::<Vec<_>>());
}

#[test]
fn a_reordered_packet_that_nobody_follows_arrives_after_the_hold() {
    let mut lab = lab(6);
    lab.sender.handle().set(
        Direction::Outbound,
        Faults {
            reorder: Ratio::ONE,
            ..Faults::NONE
        },
    );
    lab.send(0..1);
    assert!(lab.receive().is_empty());
    lab.clock.advance(REORDER_HOLD);
    assert_eq!(lab.receive(), [0]);
}

#[test]
fn delayed_packets_take_their_time() {
    for direction in [Direction::Outbound, Direction::Inbound] {
        let mut lab = lab(7);
        let handle = if direction == Direction::Outbound {
            lab.sender.handle()
        } else {
            lab.receiver.handle()
        };
        handle.set(direction, "delay=5ms..6ms".parse().unwrap());
        lab.send(0..100);
        assert!(lab.receive().is_empty(), "{direction:?}");
        lab.clock.advance(Duration::from_millis(4));
        assert!(lab.receive().is_empty(), "{direction:?}");
        lab.clock.advance(Duration::from_millis(3));
        let mut received = lab.receive();
        assert!(!received.is_sorted(), "a varying delay reorders");
        received.sort_unstable();
        assert_eq!(received, (0..100).collect::<Vec<_>>());
        assert_eq!(handle.counts(direction).delayed, 100);
    }
}

#[test]
fn corruption_inverts_one_bit() {
    let mut lab = lab(8);
    lab.sender.handle().set(
        Direction::Outbound,
        Faults {
            corrupt: Ratio::ONE,
            ..Faults::NONE
        },
    );
    lab.send(7..8);
    let mut expected = 7u32.to_le_bytes().to_vec();
    expected.resize(604, 7);
    let rx = lab.receiver.rx_burst().unwrap().next().unwrap();
    let differing: u32 = rx
        .bytes
        .iter()
        .zip(&expected)
        .map(|(a, b)| (a ^ b).count_ones())
        .sum();
    assert_eq!((rx.bytes.len(), differing), (604, 1));
}

#[test]
fn rules_change_at_run_time_and_per_link() {
    let clock = TestClock::default();
    let mut mesh = RingBackend::mesh(3, RingConfig::default()).into_iter();
    let mut sender = Faulty::new(mesh.next().unwrap(), clock, 9);
    let mut receivers: Vec<_> = mesh.collect();
    let handle = sender.handle();
    let mut arrived = |sender: &mut Faulty<RingBackend, TestClock>| {
        let mut tx = TxBatch::new();
        tx.push(RingRoute(1), b"x", Body::None);
        tx.push(RingRoute(2), b"x", Body::None);
        sender.tx_burst(&mut tx).unwrap();
        receivers
            .iter_mut()
            .map(|receiver| receiver.rx_burst().unwrap().len())
            .collect::<Vec<_>>()
    };
    assert_eq!(arrived(&mut sender), [1, 1]);
    handle.set_link(RingRoute(2), Direction::Outbound, Faults::CUT);
    assert_eq!(arrived(&mut sender), [1, 0]);
    handle.set(Direction::Outbound, Faults::CUT);
    handle.set_link(RingRoute(2), Direction::Outbound, Faults::NONE);
    assert_eq!(arrived(&mut sender), [0, 1]);
    handle.clear();
    assert_eq!(arrived(&mut sender), [1, 1]);
}

#[test]
fn one_seed_gives_one_history() {
    let history = |seed| {
        let mut lab = lab(seed);
        let faults = "loss=10%,dup=10%,reorder=10%,corrupt=0%,delay=1us..50us"
            .parse()
            .unwrap();
        lab.sender.handle().set(Direction::Outbound, faults);
        lab.send(0..2_000);
        lab.clock.advance(Duration::from_millis(10));
        lab.receive()
    };
    assert_eq!(history(10), history(10));
    assert_ne!(history(10), history(11));
}

#[test]
fn a_sleep_ends_when_a_held_packet_is_due() {
    let (a, mut b) = RingBackend::pair(RingConfig::default());
    let mut sender = Faulty::new(a, crate::backend::MonotonicClock, 12);
    sender
        .handle()
        .set(Direction::Outbound, "delay=20ms".parse().unwrap());
    let mut tx = TxBatch::new();
    tx.push(PEER, b"late", Body::None);
    sender.tx_burst(&mut tx).unwrap();
    assert!(b.rx_burst().unwrap().is_empty());
    while b.rx_burst().unwrap().is_empty() {
        // Without the held packet's deadline this would sleep for ever.
        sender.wait(None).unwrap();
        sender.rx_burst().unwrap();
    }
}

/// A device that reads the message memory itself, some time after a burst.
struct DmaDevice {
    ring: RingBackend,
    /// Bodies handed in since the last flush.
    unread: usize,
}

impl Backend for DmaDevice {
    type Route = RingRoute;

    fn caps(&self) -> Caps {
        Caps {
            copies: false,
            ..self.ring.caps()
        }
    }

    fn pool(&self) -> &Pool {
        self.ring.pool()
    }

    fn rx_burst(&mut self) -> Result<RxBatch<'_, RingRoute>, BackendError> {
        self.ring.rx_burst()
    }

    fn tx_burst(&mut self, tx: &mut TxBatch<RingRoute>) -> Result<(), BackendError> {
        self.unread += tx.iter().filter(|item| item.body.is_some()).count();
        self.ring.tx_burst(tx)
    }

    fn flush(&mut self) {
        let in_use = self.pool().stats().blocks_in_use;
        assert!(in_use >= self.unread, "memory was free before it was read");
        self.unread = 0;
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Result<(), BackendError> {
        self.ring.wait(timeout)
    }

    fn waker(&self) -> Waker {
        self.ring.waker()
    }

    fn stats(&self) -> BackendStats {
        self.ring.stats()
    }
}

/// Copies went back to the pool with the burst that carried them, and a second copy of a packet may
/// leave after the answer to the first. Over a device that reads the memory later, both were
/// overwritten before they had left.
#[test]
fn copies_stay_until_a_device_has_read_them() {
    let clock = TestClock::default();
    let (ring, _peer) = RingBackend::pair(RingConfig::default());
    let mut sender = Faulty::new(DmaDevice { ring, unread: 0 }, clock.clone(), 13);
    let handle = sender.handle();
    for faults in ["delay=10us", "corrupt=100%", "dup=100%"] {
        handle.set(Direction::Outbound, faults.parse().unwrap());
        let message = sender.pool().alloc(600).unwrap();
        let mut tx = TxBatch::new();
        for _ in 0..4 {
            tx.push(PEER, b"header", Body::Message(&message, 0..600));
        }
        let messages: Vec<_> = (0..8).map(|_| sender.pool().alloc(600)).collect();
        if faults != "dup=100%" {
            // With duplicates the core's own buffers are sent, and these stay in use.
            drop(messages);
        }
        sender.tx_burst(&mut tx).unwrap();
        clock.advance(Duration::from_millis(1));
        sender.rx_burst().unwrap();
        assert_eq!(sender.inner().unread, 0, "{faults}");
    }
    assert_eq!(sender.inner().stats().tx_packets, 4 + 4 + 8);
}
