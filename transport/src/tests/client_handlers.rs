//! Each packet that a client end receives: in order, duplicate, past, future, in the wrong state.

use super::script::{FULL, Script};
use crate::time::{Duration, Instant};
use crate::wire::{
    BadTerm, Flags, Header, PacketType, Refuse, RefuseReason, RequestNumber, Seed, split_first,
};
use crate::{Config, ConnectError, DownReason, Event, RpcError};

/// A client whose request of `packets` packets has been sent.
pub(super) fn sent(packets: usize, response_bytes: usize) -> Script {
    let mut s = Script::client();
    s.enqueue(1, packets * FULL, response_bytes);
    let expected: Vec<String> = (0..packets)
        .map(|number| format!("Request {number}"))
        .collect();
    s.expect(&expected.iter().map(String::as_str).collect::<Vec<_>>());
    s
}

pub(super) fn outcome(s: &Script) -> Option<Result<(), RpcError>> {
    s.node.app.completions.first().map(|done| done.result)
}

fn credits_in_use(s: &Script) -> u16 {
    let session = s.session.expect("a session");
    s.node
        .endpoint
        .session_stats(session)
        .expect("it stands")
        .credits_in_use
}

mod response {
    use super::*;

    #[test]
    fn in_order_a_single_packet_completes() {
        let mut s = sent(1, 100);
        s.response(1, 0, 100);
        assert_eq!(outcome(&s), Some(Ok(())));
        assert_eq!(credits_in_use(&s), 0);
    }

    #[test]
    fn the_first_packet_returns_all_credits_of_the_request() {
        let mut s = sent(3, 3 * FULL);
        assert_eq!(credits_in_use(&s), 3);
        s.response(1, 0, 3 * FULL);
        assert_eq!(credits_in_use(&s), 0);
        s.expect(&["RequestForResponse 1", "RequestForResponse 2"]);
        s.response(1, 1, 3 * FULL);
        s.response(1, 2, 3 * FULL);
        assert_eq!(outcome(&s), Some(Ok(())));
    }

    #[test]
    fn duplicates_and_the_past_are_dropped() {
        let mut s = sent(1, 2 * FULL);
        s.response(1, 0, 2 * FULL);
        s.response(1, 0, 2 * FULL);
        s.expect(&["RequestForResponse 1"]);
        s.response(1, 1, 2 * FULL);
        s.response(1, 1, 2 * FULL);
        s.expect(&[]);
        assert_eq!(s.node.app.completions.len(), 1);
        assert_eq!(s.drops().past, 2);
    }

    #[test]
    fn a_future_packet_of_this_round_is_a_loss_found_before_the_timer() {
        let mut s = sent(1, 4 * FULL);
        s.response(1, 0, 4 * FULL);
        s.expect(&[
            "RequestForResponse 1",
            "RequestForResponse 2",
            "RequestForResponse 3",
        ]);
        s.response(1, 2, 4 * FULL);
        s.expect(&[
            "RequestForResponse 1 round 1",
            "RequestForResponse 2 round 1",
            "RequestForResponse 3 round 1",
        ]);
        // Later answers of the first round are used or ignored, and are no second loss.
        s.response(1, 3, 4 * FULL);
        s.expect(&[]);
        assert_eq!((s.node.endpoint.stats().gaps, s.drops().reordered), (1, 2));
        for number in 1..4 {
            s.response(1, number, 4 * FULL);
        }
        assert_eq!(outcome(&s), Some(Ok(())));
    }

    #[test]
    fn a_packet_that_was_never_asked_for_is_dropped() {
        let mut s = sent(1, 4 * FULL);
        s.response(1, 1, 4 * FULL);
        s.response(2, 0, 100);
        s.expect(&[]);
        assert_eq!((outcome(&s), s.drops().bad_number), (None, 2));
    }

    #[test]
    fn before_the_last_request_packet_has_left_there_is_no_response() {
        let config = Config {
            credits: 2,
            ..Config::default()
        };
        let mut s = Script::asking(&config);
        s.cookie(1);
        s.expect(&["Connect"]);
        s.accept(2, 8);
        s.enqueue(1, 3 * FULL, 100);
        s.expect(&["Request 0", "Request 1"]);
        s.response(1, 0, 100);
        assert_eq!((outcome(&s), s.drops().bad_number), (None, 1));
    }

    /// Whatever the first packet of a longer response meets, the client asks for the second one.
    #[test]
    fn the_rest_of_a_response_is_asked_for_in_every_state() {
        const BYTES: usize = FULL + 496;
        type Prelude = fn(&mut Script);
        let timeout: Prelude = |s| {
            s.wait(Duration::from_millis(20));
            s.node.endpoint.on_timeout(s.now, &mut s.node.app);
        };
        let busy: Prelude = |s| s.answer(PacketType::Busy, 1, 0, Flags::default());
        let preludes: [&[Prelude]; 6] = [
            &[],
            &[timeout],
            &[timeout, |s| drop(s.take())],
            &[busy],
            &[timeout, busy],
            &[busy, timeout, |s| drop(s.take())],
        ];
        for packets in [1, 2] {
            for (number, prelude) in preludes.iter().enumerate() {
                let mut s = sent(packets, BYTES);
                prelude.iter().for_each(|step| step(&mut s));
                s.response(1, 0, BYTES);
                let asked = s.take().into_iter().any(|bytes| {
                    let (packet, _) = split_first(&bytes).expect("a packet");
                    let header = packet.header;
                    header.packet_type == PacketType::RequestForResponse
                        && header.packet_number == 1
                });
                assert!(asked, "{packets} packets, prelude {number}");
                s.response(1, 1, BYTES);
                assert_eq!(outcome(&s), Some(Ok(())), "prelude {number}");
                assert_eq!(credits_in_use(&s), 0);
            }
        }
    }

    /// The slot's next request brings more room, and late packets of the first response do not count as its own.
    #[test]
    fn one_that_did_not_fit_is_taken_in_the_next_attempt() {
        const BYTES: usize = FULL + 496;
        let mut s = sent(1, FULL);
        s.response(1, 0, BYTES);
        let too_large = Err(RpcError::ResponseTooLarge { bytes: BYTES });
        assert_eq!(outcome(&s), Some(too_large));
        s.enqueue(2, FULL, 16 * FULL);
        s.take();
        s.response(1, 0, BYTES);
        s.response(1, 1, BYTES);
        s.expect(&[]);
        s.response(2, 0, BYTES);
        s.expect(&["RequestForResponse 1 sequence 2"]);
        s.response(1, 1, BYTES);
        s.response(2, 1, BYTES);
        let results: Vec<_> = s
            .node
            .app
            .completions
            .iter()
            .map(|done| done.result)
            .collect();
        assert_eq!(results, [too_large, Ok(())]);
        assert_eq!((credits_in_use(&s), s.drops().past), (0, 3));
    }

    #[test]
    fn one_that_does_not_fit_ends_the_request_with_an_error() {
        let mut s = sent(1, 100);
        s.response(1, 0, 10_000);
        assert_eq!(
            outcome(&s),
            Some(Err(RpcError::ResponseTooLarge { bytes: 10_000 }))
        );
        assert_eq!(credits_in_use(&s), 0);
    }

    #[test]
    fn a_length_that_contradicts_the_size_is_dropped() {
        let mut s = sent(1, 100);
        let request = RequestNumber::new(0, 1);
        let header = Header {
            message_bytes: 100,
            request,
            ..s.header(PacketType::Response)
        };
        s.send(header, &[0; 99]);
        assert_eq!((outcome(&s), s.drops().bad_number), (None, 1));
    }

    #[test]
    fn after_a_timeout_the_answer_to_the_first_transmission_still_counts() {
        let mut s = sent(1, 100);
        s.wait(Duration::from_millis(20));
        s.expect(&["Ping", "Request 0 round 1"]);
        s.response(1, 0, 100);
        assert_eq!(outcome(&s), Some(Ok(())));
        s.expect(&[]);
    }

    /// Appendix C of the paper: it is dropped there because the wheel holds the packet. Here the
    /// wheel holds none, so nothing needs to be dropped.
    #[test]
    fn it_counts_even_before_the_retransmission_has_left() {
        let mut s = sent(1, 100);
        s.wait(Duration::from_millis(20));
        s.node.endpoint.on_timeout(s.now, &mut s.node.app);
        s.response(1, 0, 100);
        assert_eq!(outcome(&s), Some(Ok(())));
        assert_eq!(credits_in_use(&s), 0);
        s.expect(&["Ping"]);
    }
}

mod round_trip {
    use super::*;
    use crate::wire::ServerTime;

    /// The samples so far and the last of them.
    fn samples(s: &Script) -> (u64, u64) {
        let stats = s.node.endpoint.session_stats(s.session.expect("a session"));
        stats
            .map(|stats| (stats.rtt_samples, stats.rtt_ns_last))
            .expect("it stands")
    }

    #[test]
    fn the_servers_holding_time_is_taken_out() {
        let mut s = sent(1, 100);
        let (before, _) = samples(&s);
        s.wait(Duration::from_micros(503));
        let header = Header {
            message_bytes: 100,
            request: RequestNumber::new(0, 1),
            server_time: ServerTime::from_duration(Duration::from_micros(3)),
            ..s.header(PacketType::Response)
        };
        s.send(header, &[0; 100]);
        assert_eq!(samples(&s), (before + 1, 500_000));
    }

    #[test]
    fn a_holding_time_that_cannot_be_said_gives_no_sample() {
        let mut s = sent(1, 100);
        let before = samples(&s);
        let header = Header {
            message_bytes: 100,
            request: RequestNumber::new(0, 1),
            server_time: ServerTime::from_duration(Duration::from_secs(1)),
            ..s.header(PacketType::Response)
        };
        s.send(header, &[0; 100]);
        assert_eq!(outcome(&s), Some(Ok(())));
        assert_eq!(samples(&s), before);
    }

    /// Karn's rule: the answer to the first transmission says nothing about the second.
    #[test]
    fn an_answer_to_an_earlier_round_gives_no_sample() {
        let mut s = sent(1, 100);
        let before = samples(&s);
        s.wait(Duration::from_millis(20));
        s.expect(&["Ping", "Request 0 round 1"]);
        s.wait(Duration::from_micros(1));
        s.response(1, 0, 100);
        assert_eq!(outcome(&s), Some(Ok(())));
        assert_eq!(samples(&s), before);
    }
}

mod credit_return {
    use super::*;

    #[test]
    fn in_order_each_brings_the_next_packet_out() {
        let mut s = Script::client_with(&Config::default());
        s.enqueue(1, 40 * FULL, 100);
        assert_eq!(s.take().len(), 32);
        s.answer(PacketType::CreditReturn, 1, 0, Flags::default());
        s.expect(&["Request 32"]);
        assert_eq!(credits_in_use(&s), 32);
    }

    #[test]
    fn one_makes_up_for_lost_ones() {
        let mut s = Script::client();
        s.enqueue(1, 40 * FULL, 100);
        s.take();
        s.answer(PacketType::CreditReturn, 1, 2, Flags::default());
        s.expect(&["Request 32", "Request 33", "Request 34"]);
    }

    #[test]
    fn duplicates_and_the_past_are_dropped() {
        let mut s = sent(3, 100);
        s.answer(PacketType::CreditReturn, 1, 1, Flags::default());
        s.answer(PacketType::CreditReturn, 1, 1, Flags::default());
        s.answer(PacketType::CreditReturn, 1, 0, Flags::default());
        s.expect(&[]);
        assert_eq!((s.drops().past, credits_in_use(&s)), (2, 1));
    }

    /// A request that had timed out several times was watched for the last, long timeout. Progress set its timer to a
    /// round trip again, but the time of its next scan stayed. With all packets sent nothing moved that, and a second
    /// loss waited for up to 200 ms.
    #[test]
    fn it_ends_the_back_off_of_a_request_that_has_sent_everything() {
        let mut s = sent(3, 100);
        let mut sent_at = s.now;
        for round in 1..=4 {
            sent_at = resend(&mut s, round, sent_at);
        }
        s.wait(Duration::from_micros(20));
        s.answer(PacketType::CreditReturn, 1, 0, Flags::of_round(4));
        s.expect(&[]);
        let rto = rto(&s);
        assert!(rto < Duration::from_millis(20), "{rto:?}");
        s.wait(rto);
        s.expect(&["Request 1 round 5", "Request 2 round 5"]);
    }

    /// Waits for the timeout that begins the round; says when.
    fn resend(s: &mut Script, round: u8, sent_at: Instant) -> Instant {
        let step = Duration::from_millis(1);
        while s.now.saturating_since(sent_at) < Duration::from_secs(1) {
            s.wait(step);
            let again = s.take().into_iter().any(|bytes| {
                let (packet, _) = split_first(&bytes).expect("a packet");
                packet.header.packet_type == PacketType::Request
                    && packet.header.flags.round() == round
            });
            if again {
                return s.now;
            }
        }
        panic!("no retransmission");
    }

    fn rto(s: &Script) -> Duration {
        let session = s.session.expect("a session");
        let stats = s.node.endpoint.session_stats(session).expect("it stands");
        Duration::from_nanos(stats.rto_ns)
    }

    #[test]
    fn for_the_last_packet_or_an_unsent_one_it_is_dropped() {
        let mut s = sent(3, 100);
        s.answer(PacketType::CreditReturn, 1, 2, Flags::default());
        s.answer(PacketType::CreditReturn, 2, 0, Flags::default());
        assert_eq!((s.drops().bad_number, credits_in_use(&s)), (2, 3));
    }

    #[test]
    fn a_gap_of_this_round_rolls_back_once() {
        let mut s = sent(4, 100);
        s.answer(PacketType::CreditReturn, 1, 1, Flags::GAP);
        s.answer(PacketType::CreditReturn, 1, 1, Flags::GAP);
        s.expect(&[
            "Request 1 round 1",
            "Request 2 round 1",
            "Request 3 round 1",
        ]);
        s.answer(PacketType::CreditReturn, 1, 1, Flags::GAP);
        s.expect(&[]);
        s.answer(
            PacketType::CreditReturn,
            1,
            1,
            Flags::GAP.with(Flags::of_round(1)),
        );
        s.expect(&[
            "Request 1 round 2",
            "Request 2 round 2",
            "Request 3 round 2",
        ]);
        assert_eq!(s.node.endpoint.stats().gaps, 2);
    }

    /// Found by the simulator (seed 135): on a path whose MTU had shrunk, the full packets of a request vanished and
    /// its short last one arrived. Each time the server answered with a gap, and the client rolled back and
    /// retransmitted everything at once. That made millions of packets a second for as long as the request had time.
    #[test]
    fn gaps_without_progress_are_left_to_the_timer() {
        let mut s = sent(4, 100);
        let gap = |round| Flags::GAP.with(Flags::of_round(round));
        for round in 0..3 {
            s.answer(PacketType::CreditReturn, 1, 0, gap(round));
            assert_eq!(s.take().len(), 4, "round {round}");
        }
        s.answer(PacketType::CreditReturn, 1, 0, gap(3));
        s.expect(&[]);
        s.wait(Duration::from_millis(20));
        assert!(s.take().len() >= 4, "the timer sends again");
        s.answer(PacketType::CreditReturn, 1, 0, gap(4));
        s.expect(&[]);
        // Progress makes the next gap count again.
        s.answer(PacketType::CreditReturn, 1, 1, gap(4));
        assert_eq!(s.take().len(), 3);
        assert_eq!(s.node.endpoint.stats().gaps, 4);
    }
}

mod busy {
    use super::*;

    #[test]
    fn it_ends_the_retransmission_and_starts_slow_probes() {
        let mut s = sent(1, 100);
        s.answer(PacketType::Busy, 1, 0, Flags::default());
        s.wait(Duration::from_millis(60));
        s.expect(&["RequestForResponse 0"]);
        s.answer(PacketType::Busy, 1, 0, Flags::default());
        s.response(1, 0, 100);
        assert_eq!(outcome(&s), Some(Ok(())));
        assert_eq!(s.node.endpoint.stats().retransmissions, 0);
    }

    #[test]
    fn it_returns_the_credits_of_all_packets_but_the_last() {
        let mut s = sent(3, 100);
        s.answer(PacketType::Busy, 1, 0, Flags::default());
        assert_eq!(credits_in_use(&s), 1);
    }

    #[test]
    fn during_a_rollback_it_stops_the_rollback() {
        let mut s = sent(3, 100);
        s.wait(Duration::from_millis(20));
        s.node.endpoint.on_timeout(s.now, &mut s.node.app);
        s.answer(PacketType::Busy, 1, 0, Flags::default());
        s.expect(&["Ping"]);
        s.response(1, 0, 100);
        assert_eq!(outcome(&s), Some(Ok(())));
        assert_eq!(credits_in_use(&s), 0);
    }

    #[test]
    fn of_the_past_the_future_or_an_unsent_request_it_is_dropped() {
        let mut s = sent(1, 2 * FULL);
        s.answer(PacketType::Busy, 2, 0, Flags::default());
        assert_eq!(s.drops().bad_number, 1);
        s.response(1, 0, 2 * FULL);
        s.answer(PacketType::Busy, 1, 0, Flags::default());
        assert_eq!(s.drops().wrong_state, 1);
        s.expect(&["RequestForResponse 1"]);
        s.response(1, 1, 2 * FULL);
        s.answer(PacketType::Busy, 1, 0, Flags::default());
        assert_eq!(s.drops().past, 1);
    }
}

mod handshake {
    use super::*;

    #[test]
    fn connect_is_repeated_ever_more_slowly_until_the_timeout() {
        let mut s = Script::asking(&Config::default());
        let mut sent = 0;
        for _ in 0..1_100 {
            s.wait(Duration::from_millis(1));
            sent += s.take().len();
        }
        assert_eq!(sent, 8, "after 10, 30, 70, 150, 310, 510, 710 and 910 ms");
        assert!(matches!(
            s.node.app.events[..],
            [Event::ConnectFailed {
                reason: ConnectError::TimedOut,
                ..
            }]
        ));
    }

    #[test]
    fn a_second_cookie_replaces_the_first_and_a_duplicate_does_nothing() {
        let mut s = Script::asking(&Config::default());
        s.cookie(1);
        s.cookie(1);
        s.expect(&["Connect"]);
        s.cookie(2);
        s.expect(&["Connect"]);
    }

    #[test]
    fn accept_comes_after_the_cookie_only() {
        let mut s = Script::asking(&Config::default());
        s.accept(32, 8);
        assert_eq!(s.drops().wrong_state, 1);
        s.expect(&[]);
        assert!(s.node.app.events.is_empty());
    }

    #[test]
    fn accept_grants_no_more_than_was_asked_for() {
        for (credits, slots) in [(33, 8), (32, 9), (0, 8), (32, 0)] {
            let mut s = Script::asking(&Config::default());
            s.cookie(1);
            s.accept(credits, slots);
            assert_eq!(s.drops().handshake, 1, "{credits} credits, {slots} slots");
        }
    }

    #[test]
    fn a_duplicate_accept_changes_nothing() {
        let mut s = sent(1, 100);
        s.accept(16, 4);
        assert_eq!(s.drops().wrong_state, 1);
        assert_eq!(credits_in_use(&s), 1);
        s.response(1, 0, 100);
        assert_eq!(outcome(&s), Some(Ok(())));
    }

    #[test]
    fn requests_wait_for_the_session_and_take_its_terms() {
        let mut s = Script::asking(&Config::default());
        for tag in 0..4 {
            s.enqueue(tag, 10, 10);
        }
        s.cookie(1);
        s.expect(&["Connect"]);
        s.accept(2, 3);
        s.expect(&["Request 0", "Request 0 slot 1"]);
        assert_eq!(credits_in_use(&s), 2);
    }

    #[test]
    fn refusals_are_told_as_they_are() {
        let (term, nearest) = (BadTerm::Slots, 64);
        for (reason, detail, error) in [
            (
                RefuseReason::Version,
                3,
                ConnectError::VersionMismatch { theirs: 3 },
            ),
            (
                RefuseReason::Cluster,
                8,
                ConnectError::WrongCluster { theirs: 8 },
            ),
            (RefuseReason::Full, 0, ConnectError::PeerFull),
            (
                RefuseReason::Terms(term),
                nearest,
                ConnectError::BadTerms { term, nearest },
            ),
            (
                RefuseReason::Unknown(9),
                0,
                ConnectError::OtherReason { code: 9 },
            ),
        ] {
            let mut s = Script::asking(&Config::default());
            let header = Header {
                version: 3,
                ..s.header(PacketType::Refuse)
            };
            s.send(header, &Refuse { reason, detail }.write());
            s.expect(&[]);
            let Some(Event::ConnectFailed { reason, .. }) = s.node.app.events.first() else {
                panic!("no event")
            };
            assert_eq!(*reason, error);
        }
    }

    #[test]
    fn a_standing_session_cannot_be_refused() {
        let mut s = sent(1, 100);
        let header = s.header(PacketType::Refuse);
        s.send(
            header,
            &Refuse {
                reason: RefuseReason::Full,
                detail: 0,
            }
            .write(),
        );
        assert_eq!((s.drops().wrong_state, s.down()), (1, None));
    }
}

mod reset {
    use super::*;

    fn reset(s: &mut Script, token: RequestNumber) {
        let header = Header {
            request: token,
            ..s.header(PacketType::Reset)
        };
        s.raw(super::super::script::PEER, &header, Seed::NONE, &[]);
    }

    fn ping_token(s: &mut Script) -> RequestNumber {
        let sent = s.take();
        let ping = sent.first().expect("a packet");
        let (packet, _) = split_first(ping).expect("a packet");
        assert_eq!(packet.header.packet_type, PacketType::Ping);
        packet.header.request
    }

    #[test]
    fn with_the_token_of_our_ping_it_ends_the_session() {
        let mut s = sent(1, 100);
        s.wait(Duration::from_millis(20));
        let token = ping_token(&mut s);
        reset(&mut s, token);
        s.expect(&[]);
        assert_eq!(s.down(), Some(DownReason::Reset));
        assert_eq!(outcome(&s), Some(Err(RpcError::OutcomeUnknown)));
    }

    #[test]
    fn with_any_other_token_or_unasked_it_is_dropped() {
        let mut s = sent(1, 100);
        reset(&mut s, RequestNumber::token(1));
        assert_eq!((s.drops().wrong_state, s.down()), (1, None));
        s.wait(Duration::from_millis(20));
        ping_token(&mut s);
        reset(&mut s, RequestNumber::token(1));
        assert_eq!((s.drops().wrong_state, s.down()), (2, None));
    }

    #[test]
    fn after_a_sign_of_life_the_token_is_void() {
        let mut s = sent(1, 100);
        s.wait(Duration::from_millis(20));
        let token = ping_token(&mut s);
        let pong = Header {
            request: token,
            ..s.header(PacketType::Pong)
        };
        s.send(pong, &[]);
        reset(&mut s, token);
        assert_eq!((s.drops().wrong_state, s.down()), (1, None));
    }
}

mod disconnected {
    use super::*;

    #[test]
    fn only_the_answer_to_our_disconnect_ends_the_closing() {
        let mut s = sent(1, 100);
        let header = s.header(PacketType::Disconnected);
        s.send(header, &[]);
        assert_eq!((s.drops().wrong_state, s.down()), (1, None));
        let session = s.session.expect("a session");
        s.node.endpoint.disconnect(s.now, session);
        let sent = s.take();
        let (packet, _) = split_first(&sent[0]).expect("a packet");
        assert_eq!(packet.header.packet_type, PacketType::Disconnect);
        let token = packet.header.request;
        s.wait(Duration::from_millis(20));
        s.expect(&["Disconnect"]);
        s.send(
            Header {
                request: token,
                ..header
            },
            &[],
        );
        s.wait(Duration::from_secs(3));
        s.expect(&[]);
        assert_eq!(s.node.app.events.len(), 2, "Connected and one Down");
    }
}

/// Backends that send from the message buffers themselves (PROTOCOL.md section 5.5).
mod buffers {
    use super::*;
    use crate::backend::{Caps, TxBatch};
    use crate::tests::net::caps;

    /// As `sent(1, 100)`, over a backend that does not copy.
    fn sent_uncopied() -> Script {
        let mut s = Script::client_over(
            &Config::default(),
            Caps {
                copies: false,
                ..caps()
            },
        );
        s.enqueue(1, 100, 100);
        s.expect(&["Request 0"]);
        s
    }

    #[test]
    fn without_a_retransmission_the_answer_frees_the_buffer() {
        let mut s = sent_uncopied();
        s.response(1, 0, 100);
        assert_eq!(outcome(&s), Some(Ok(())));
        let mut tx = TxBatch::new();
        assert!(!s.node.endpoint.poll_transmit(s.now, &mut tx).flush_first);
    }

    #[test]
    fn after_a_retransmission_the_completion_waits_for_a_flush() {
        let mut s = sent_uncopied();
        s.wait(Duration::from_millis(20));
        s.expect(&["Ping", "Request 0 round 1"]);
        s.response(1, 0, 100);
        assert_eq!(
            outcome(&s),
            None,
            "the retransmission may still be in the queue"
        );
        let mut tx = TxBatch::new();
        assert!(s.node.endpoint.poll_transmit(s.now, &mut tx).flush_first);
        s.node.endpoint.on_timeout(s.now, &mut s.node.app);
        assert_eq!(outcome(&s), None, "not flushed yet");
        s.node.endpoint.on_tx_flushed();
        s.node.endpoint.on_timeout(s.now, &mut s.node.app);
        assert_eq!(outcome(&s), Some(Ok(())));
        assert!(!s.node.endpoint.poll_transmit(s.now, &mut tx).flush_first);
    }

    #[test]
    fn a_failed_request_that_was_sent_waits_and_one_that_was_not_does_not() {
        let mut s = sent_uncopied();
        // A short one would take the fast path.
        let unsent = s.enqueue(2, 1_000, 100);
        s.node.endpoint.cancel(unsent);
        s.node.endpoint.on_timeout(s.now, &mut s.node.app);
        assert_eq!(s.node.app.completions.len(), 1);
        let session = s.session.expect("a session");
        s.node.endpoint.disconnect(s.now, session);
        s.node.endpoint.on_timeout(s.now, &mut s.node.app);
        assert_eq!(
            s.node.app.completions.len(),
            1,
            "the sent one may still be in the queue"
        );
        // Another turn with its flush.
        s.take();
        s.node.endpoint.on_timeout(s.now, &mut s.node.app);
        assert_eq!(s.node.app.completions.len(), 2);
    }

    #[test]
    fn a_response_sent_again_keeps_its_memory_until_a_flush() {
        let mut s = Script::server_over(
            &Config::default(),
            Caps {
                copies: false,
                ..caps()
            },
        );
        s.request(1, 0, 100);
        s.expect(&["Response 0"]);
        s.request_of_round(1, 0, 100, 1);
        s.expect(&["Response 0 round 1"]);
        let in_use = s.node.endpoint.pool().stats().blocks_in_use;
        s.request(2, 0, 100);
        assert_eq!(
            s.node.endpoint.pool().stats().blocks_in_use,
            in_use + 1,
            "the old one is kept"
        );
        s.take();
        assert_eq!(
            s.node.endpoint.pool().stats().blocks_in_use,
            in_use,
            "the flush has freed it"
        );
    }

    /// A new request in the slot was taken as proof that the old one's response had been read. A
    /// client that gave the old request up proves nothing. The response went back to the pool, and
    /// the next message was written over bytes that the device was about to read.
    #[test]
    fn a_response_that_the_client_gave_up_keeps_its_memory_until_a_flush() {
        let mut s = Script::server_over(
            &Config::default(),
            Caps {
                copies: false,
                ..caps()
            },
        );
        s.request(1, 0, 1_000);
        s.expect(&["Response 0"]);
        let in_use = s.node.endpoint.pool().stats().blocks_in_use;
        let header = Header {
            kind: 7,
            message_bytes: 1_000,
            request: RequestNumber::new(0, 2),
            flags: Flags::default().with(Flags::GAP),
            ..s.header(PacketType::Request)
        };
        s.send(header, &[0; 1_000]);
        let kept = s.node.endpoint.pool().stats().blocks_in_use;
        assert_eq!(kept, in_use + 1, "the old one is kept");
        s.take();
        assert_eq!(s.node.endpoint.pool().stats().blocks_in_use, in_use);
    }

    /// The client's half of it: it says so until a request of the slot has been answered.
    #[test]
    fn the_request_after_one_that_was_given_up_says_so() {
        let says_so = |s: &mut Script| {
            let sent = s.take();
            let (packet, _) = split_first(&sent[0]).expect("a packet");
            assert_eq!(packet.header.packet_type, PacketType::Request);
            packet.header.flags.has(Flags::GAP)
        };
        let mut s = Script::client();
        let first = s.enqueue(1, 100, 100);
        assert!(!says_so(&mut s), "the slot is fresh");
        s.node.endpoint.cancel(first);
        let unsent = s.enqueue(2, 100, 100);
        s.node.endpoint.cancel(unsent);
        s.enqueue(3, 100, 100);
        assert!(says_so(&mut s), "the one before the last was sent");
        s.response(3, 0, 100);
        s.enqueue(4, 100, 100);
        assert!(!says_so(&mut s), "the last one was answered");
    }
}
