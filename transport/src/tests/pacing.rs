//! A paced client end: when the next packet leaves.

use super::client_handlers::outcome;
use super::script::{FULL, Script};
use crate::time::Duration;
use crate::{Config, CongestionConfig, CongestionControl};

/// Two ticks of the wheel of departures: a packet leaves so much too late at most.
const WHEEL: Duration = Duration::from_nanos(2 * 1_024);

/// A client end that keeps to a megabyte a second: a byte a microsecond.
fn paced() -> Script {
    Script::client_with(&Config {
        congestion: CongestionConfig {
            control: CongestionControl::Timely,
            rate_limiter_bypass: false,
            link_bytes_per_second: 1_000_000,
            ..CongestionConfig::default()
        },
        ..Config::default()
    })
}

/// It charged an MTU for each: 1,472 us here.
#[test]
fn a_small_request_takes_the_time_of_its_bytes() {
    let mut s = paced();
    for tag in 0..8 {
        s.enqueue(tag, 32, 32);
    }
    assert_eq!(s.take().len(), 1);
    // Two more at 56 and 112 us, and five up to 392 us.
    s.wait(Duration::from_micros(112) + WHEEL);
    assert_eq!(s.take().len(), 2);
    s.wait(Duration::from_micros(280));
    assert_eq!(s.take().len(), 5);
}

#[test]
fn a_response_takes_the_time_of_its_bytes() {
    let mut s = paced();
    s.enqueue(1, 32, 976);
    assert_eq!(s.take().len(), 1);
    s.wait(Duration::from_micros(500));
    s.response(1, 0, 976);
    assert_eq!(outcome(&s), Some(Ok(())));
    s.enqueue(2, 32, 32);
    s.expect(&[]);
    s.wait(Duration::from_micros(999));
    s.expect(&[]);
    s.wait(WHEEL);
    assert_eq!(s.take().len(), 1);
}

#[test]
fn further_response_packets_take_it_when_they_are_asked_for() {
    let mut s = paced();
    let bytes = FULL + 76;
    s.enqueue(1, 32, bytes);
    assert_eq!(s.take().len(), 1);
    s.wait(Duration::from_micros(500));
    s.response(1, 0, bytes);
    s.wait(Duration::from_micros(FULL as u64 + 23));
    s.expect(&[]);
    s.wait(WHEEL);
    s.expect(&["RequestForResponse 1"]);
    s.enqueue(2, 32, 32);
    s.wait(Duration::from_micros(97));
    s.expect(&[]);
    s.wait(Duration::from_micros(2) + WHEEL);
    assert_eq!(s.take().len(), 1);
}
