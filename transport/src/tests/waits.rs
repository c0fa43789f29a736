//! A server that answers late is taken for a loss once, and not for ever.

use super::client_handlers::{outcome, sent};
use super::script::Script;
use crate::time::Duration;
use crate::wire::{Flags, Header, PacketType, RequestNumber, ServerTime};

/// How many samples there are, and the smallest.
fn samples(s: &Script) -> (u64, u64) {
    let stats = s.node.endpoint.session_stats(s.session.expect("a session"));
    stats
        .map(|stats| (stats.rtt_samples, stats.rtt_ns_min))
        .expect("it stands")
}

fn rto_ns(s: &Script) -> u64 {
    let stats = s.node.endpoint.session_stats(s.session.expect("a session"));
    stats.map(|stats| stats.rto_ns).expect("it stands")
}

/// A response of this round to request 1.
fn response_of_round(s: &mut Script, round: u8) {
    let header = Header {
        message_bytes: 100,
        request: RequestNumber::new(0, 1),
        flags: Flags::of_round(round),
        ..s.header(PacketType::Response)
    };
    s.send(header, &[0; 100]);
    assert_eq!(outcome(s), Some(Ok(())));
}

/// The next request of a server that is late again is not sent twice.
fn expect_patience(s: &mut Script, span: Duration) {
    s.enqueue(2, 100, 100);
    assert_eq!(s.take().len(), 1);
    s.wait(span);
    s.expect(&[]);
}

#[test]
fn a_timeout_that_was_too_early_is_not_made_twice() {
    let mut s = sent(1, 100);
    s.wait(Duration::from_millis(20));
    s.expect(&["Ping", "Request 0 round 1"]);
    response_of_round(&mut s, 0);
    assert_eq!(rto_ns(&s), 25_000_000, "the wait and a quarter");
    expect_patience(&mut s, Duration::from_millis(20));
}

/// The server repeats the round that it saw last, but BUSY has said that the first transmission was there.
#[test]
fn nor_is_one_that_busy_has_answered() {
    let mut s = sent(1, 100);
    s.wait(Duration::from_millis(20));
    s.expect(&["Ping", "Request 0 round 1"]);
    s.answer(PacketType::Busy, 1, 0, Flags::of_round(1));
    s.wait(Duration::from_millis(4));
    response_of_round(&mut s, 1);
    assert_eq!(rto_ns(&s), 30_000_000, "24 ms and a quarter");
    expect_patience(&mut s, Duration::from_millis(24));
}

/// A loss must not make the next one slower to notice.
#[test]
fn a_loss_is_no_wait() {
    let mut s = sent(1, 100);
    let before = rto_ns(&s);
    s.wait(Duration::from_millis(20));
    s.expect(&["Ping", "Request 0 round 1"]);
    s.wait(Duration::from_micros(100));
    response_of_round(&mut s, 1);
    assert!(rto_ns(&s) <= before, "{} after {before}", rto_ns(&s));
}

/// Clocks are read before a poll. If the thread lost its processor in between, the server says that it had the
/// request before that was sent, or for the whole time. The smallest RTT was then 0 for ever.
#[test]
fn a_server_time_as_long_as_the_wait_gives_no_sample() {
    for server_time in [50, 60] {
        let mut s = sent(1, 100);
        let before = samples(&s);
        s.wait(Duration::from_micros(50));
        let header = Header {
            message_bytes: 100,
            request: RequestNumber::new(0, 1),
            server_time: ServerTime::from_duration(Duration::from_micros(server_time)),
            ..s.header(PacketType::Response)
        };
        s.send(header, &[0; 100]);
        assert_eq!(outcome(&s), Some(Ok(())));
        assert_eq!(samples(&s), before, "{server_time}");
    }
}
