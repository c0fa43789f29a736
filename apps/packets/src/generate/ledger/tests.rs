//! Tests of the ledger: every kind of fault, and none.

use super::*;
use crate::scenario::{ApplicationName, TableSettings, referee};

const PORTS: u8 = 3;
const WINDOW: usize = 8;

fn samples(name: ApplicationName) -> Samples {
    let settings = TableSettings {
        entries: 50,
        ports: PORTS,
        seed: 5,
    };
    let (reference, traffic) = referee(name, &settings);
    Samples::draw(&*reference, &*traffic, PORTS, true, 6)
}

/// Sends packets until one is expected by `count` ports; that one and its frame as it must come back.
fn send_one(ledger: &mut Ledger, samples: &Samples, count: u32) -> (u8, Vec<u8>) {
    for _ in 0..10_000 {
        let number = ledger.sent();
        let mut frame = vec![0; ledger.next_length(samples)];
        ledger.write_next(samples, &mut frame, 100);
        let expected = &samples.of(number).expected;
        let tail = &frame[frame.len() - NUMBER_BYTES..];
        let back = [&expected.bytes[..], tail].concat();
        if expected.ports.count_ones() == count {
            return (expected.ports, back);
        }
        for port in (0..PORTS).filter(|port| expected.ports >> port & 1 != 0) {
            let arrival = ledger.on_frame(samples, port, &back, 150);
            assert_eq!(arrival, Arrival::Right(50));
        }
    }
    panic!("no such packet in 10,000");
}

fn port(ports: u8) -> u8 {
    ports.trailing_zeros() as u8
}

#[test]
fn a_packet_comes_back_once_by_its_port() {
    let samples = samples(ApplicationName::Ipv4);
    let mut ledger = Ledger::new(2, WINDOW, 0);
    let (ports, back) = send_one(&mut ledger, &samples, 1);
    assert!(!ledger.is_settled());
    assert_eq!(
        ledger.on_frame(&samples, port(ports), &back, 400),
        Arrival::Right(300)
    );
    assert!(ledger.is_settled());
    assert_eq!(ledger.faults(), Faults::default());
    assert_eq!(
        ledger.on_frame(&samples, port(ports), &back, 500),
        Arrival::Wrong
    );
    let wrong = (0..PORTS)
        .find(|port| ports >> port & 1 == 0)
        .expect("another port");
    assert_eq!(ledger.on_frame(&samples, wrong, &back, 500), Arrival::Wrong);
    let faults = Faults {
        doubled: 1,
        misrouted: 1,
        ..Faults::default()
    };
    assert_eq!(ledger.faults(), faults);
}

#[test]
fn a_flooded_packet_comes_back_by_every_port() {
    let samples = samples(ApplicationName::Switch);
    let mut ledger = Ledger::new(0, WINDOW, 0);
    let (ports, back) = send_one(&mut ledger, &samples, u32::from(PORTS));
    for port in (0..PORTS).filter(|port| ports >> port & 1 != 0) {
        assert!(!ledger.is_settled());
        assert_eq!(
            ledger.on_frame(&samples, port, &back, 101),
            Arrival::Right(1)
        );
    }
    assert!(ledger.is_settled());
    assert_eq!(ledger.faults().sum(), 0);
}

#[test]
fn changed_bytes_and_unknown_numbers_are_faults() {
    let samples = samples(ApplicationName::Ipv6);
    let mut ledger = Ledger::new(1, WINDOW, 0);
    let (ports, mut back) = send_one(&mut ledger, &samples, 1);
    let mut strange = back.clone();
    *strange.last_mut().expect("a byte") ^= 0x80;
    strange[back.len() - 3] ^= 1;
    assert_eq!(
        ledger.on_frame(&samples, port(ports), &strange, 101),
        Arrival::Wrong
    );
    assert_eq!(
        ledger.on_frame(&samples, port(ports), &[1, 2, 3], 101),
        Arrival::Wrong
    );
    back[20] ^= 1;
    assert_eq!(
        ledger.on_frame(&samples, port(ports), &back, 101),
        Arrival::Wrong
    );
    let faults = Faults {
        altered: 1,
        strange: 2,
        ..Faults::default()
    };
    assert_eq!(ledger.faults(), faults);
}

#[test]
fn what_should_be_dropped_holds_no_place_and_must_not_come() {
    let samples = samples(ApplicationName::Ipv4);
    let mut ledger = Ledger::new(0, WINDOW, 0);
    let (_, back) = send_one(&mut ledger, &samples, 0);
    assert!(ledger.is_settled() && ledger.room() == WINDOW);
    assert_eq!(ledger.on_frame(&samples, 0, &back, 101), Arrival::Wrong);
    assert_eq!(ledger.faults().misrouted, 1);
}

#[test]
fn a_full_window_waits_and_silence_means_loss() {
    let samples = samples(ApplicationName::Echo);
    let mut ledger = Ledger::new(0, WINDOW, 0);
    let mut expected = 0;
    while ledger.room() > 0 {
        expected += samples.of(ledger.sent()).expected.ports.count_ones();
        let mut frame = vec![0; ledger.next_length(&samples)];
        ledger.write_next(&samples, &mut frame, 1_000);
    }
    ledger.on_time(999 + PATIENCE_NS);
    assert_eq!((ledger.room(), ledger.faults().lost), (0, 0));
    ledger.on_time(1_000 + PATIENCE_NS);
    assert_eq!(
        (ledger.room(), ledger.faults().lost),
        (WINDOW, u64::from(expected))
    );
}
