//! The feature "answer times": how long the server had a packet before it answered. What a busy host takes is no queue
//! of the network, and congestion control must not take it for one.

use super::script::{FULL, Script};
use crate::time::Duration;
use crate::wire::{Features, Header, PacketType, ServerTime, split_first};
use crate::{Config, CongestionControl};

const TIMED: Features = Features::ANSWER_TIMES;

fn micros(count: u64) -> Duration {
    Duration::from_micros(count)
}

/// The headers of what the endpoint sends now.
fn headers(s: &mut Script) -> Vec<Header> {
    let packets = s.take();
    let header = |bytes: &Vec<u8>| split_first(bytes).expect("a packet").0.header;
    packets.iter().map(header).collect()
}

/// The server times of the packets of this type that the endpoint sends now.
fn times(s: &mut Script, packet_type: PacketType) -> Vec<Duration> {
    let sent = headers(s).into_iter();
    let fitting = sent.filter(|header| header.packet_type == packet_type);
    fitting
        .map(|header| header.server_time.to_duration().expect("short"))
        .collect()
}

fn time_of_a_credit_return(offered: Features) -> Vec<Duration> {
    let mut s = Script::server_offered(&Config::default(), offered);
    s.request(1, 0, 3 * FULL);
    s.wait(micros(30));
    times(&mut s, PacketType::CreditReturn)
}

#[test]
fn a_credit_return_says_how_long_the_server_had_the_packet() {
    assert_eq!(time_of_a_credit_return(TIMED), [micros(30)]);
}

#[test]
#[cfg(debug_assertions)]
fn answers_without_times_are_noticed() {
    let _bug = trine_canary::plant("answers without times");
    assert_eq!(time_of_a_credit_return(TIMED), [Duration::ZERO]);
}

/// Release 0.1.0 does not offer the feature, and its packets stay as they are.
#[test]
fn a_client_that_does_not_ask_gets_none() {
    assert_eq!(time_of_a_credit_return(Features::NONE), [Duration::ZERO]);
}

#[test]
fn merged_credit_returns_count_from_the_packet_that_they_name() {
    let config = Config {
        cumulative_credits: Some(true),
        ..Config::default()
    };
    let offered = Features::CUMULATIVE_CREDITS.with_if(true, TIMED);
    let mut s = Script::server_offered(&config, offered);
    s.request(1, 0, 3 * FULL);
    s.wait(micros(20));
    s.request(1, 1, 3 * FULL);
    s.wait(micros(10));
    let [answer] = headers(&mut s)[..] else {
        panic!("one credit return for both")
    };
    assert_eq!(answer.packet_number, 1);
    assert_eq!(answer.server_time, ServerTime::from_duration(micros(10)));
}

#[test]
fn later_response_packets_count_from_their_request_for_response() {
    for (offered, expected) in [(TIMED, micros(40)), (Features::NONE, Duration::ZERO)] {
        let mut s = Script::server_offered(&Config::default(), offered);
        for number in 0..3 {
            s.request(1, number, 3 * FULL);
        }
        s.wait(micros(7));
        let first = times(&mut s, PacketType::Response);
        assert_eq!(first, [micros(7)], "of the whole request, as ever");
        s.wait(micros(500));
        s.request_for_response(1, 1, 1);
        s.wait(micros(40));
        assert_eq!(times(&mut s, PacketType::Response), [expected]);
    }
}

/// It answers another transmission than the client may believe, so no round trip can be taken from it.
#[test]
fn the_answer_to_a_packet_that_came_before_has_no_time() {
    for (offered, expected) in [
        (TIMED, ServerTime::UNKNOWN),
        (Features::NONE, ServerTime::ZERO),
    ] {
        let mut s = Script::server_offered(&Config::default(), offered);
        for number in [0, 1, 0] {
            s.take();
            s.request(1, number, 3 * FULL);
        }
        let [answer] = headers(&mut s)[..] else {
            panic!("one credit return")
        };
        assert_eq!((answer.packet_number, answer.server_time), (1, expected));
        s.request(1, 2, 3 * FULL);
        s.take();
        s.request(1, 0, 3 * FULL);
        let [answer] = headers(&mut s)[..] else {
            panic!("one credit return")
        };
        assert_eq!((answer.packet_number, answer.server_time), (1, expected));
    }
}

/// The other end of it: what the server had the packet for is no queue of the network. But the timer covers it: a busy
/// server would have all of a window sent again each time that it waits for its processor.
#[test]
fn a_client_takes_the_time_out_of_the_queue_and_leaves_it_in_the_timer() {
    let mut config = Config::default();
    config.congestion.control = CongestionControl::Delay;
    let mut s = Script::client_with(&config);
    s.enqueue(1, 3 * FULL, 32);
    assert_eq!(s.take().len(), 3);
    s.wait(micros(13_000));
    let header = Header {
        request: crate::wire::RequestNumber::new(0, 1),
        server_time: ServerTime::from_duration(micros(12_900)),
        ..s.header(PacketType::CreditReturn)
    };
    s.send(header, &[]);
    let session = s.session.expect("a session");
    let stats = s.node.endpoint.session_stats(session).expect("it is open");
    assert_eq!(stats.rtt_ns_last, micros(13_000).as_nanos());
    assert!(stats.rto_ns > micros(13_000).as_nanos(), "{stats:?}");
    // The start window of 16 packets in the path's own time. The field has twelve bits of mantissa, and is rounded down.
    let rate = 16 * (FULL as u64 + 24) * 10_000;
    let range = rate * 9 / 10..=rate * 11 / 10;
    assert!(range.contains(&stats.rate_bytes_per_second), "{stats:?}");
}
