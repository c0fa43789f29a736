//! Each packet that a server end receives: in order, duplicate, past, future, in the wrong state.

use super::net::Manner;
use super::script::{FULL, NONCE, PEER, STRANGER, Script};
use crate::time::Duration;
use crate::wire::{Flags, Header, NO_SESSION, PacketType, RequestNumber, Seed};
use crate::{Config, DownReason};

mod request {
    use super::*;

    #[test]
    fn in_order_a_single_packet_is_executed_and_answered() {
        let mut s = Script::server();
        s.request(1, 0, 100);
        s.expect(&["Response 0"]);
        assert_eq!(s.executed(), 1);
    }

    #[test]
    fn in_order_each_packet_but_the_last_returns_its_credit() {
        let mut s = Script::server();
        s.request(1, 0, 2 * FULL + 1);
        s.request(1, 1, 2 * FULL + 1);
        s.expect(&["CreditReturn 0", "CreditReturn 1"]);
        assert_eq!(s.executed(), 0);
        s.request(1, 2, 2 * FULL + 1);
        s.expect(&["Response 0"]);
        assert_eq!(s.executed(), 1);
    }

    #[test]
    fn a_duplicate_part_returns_the_credit_again_and_moves_nothing() {
        let mut s = Script::server();
        s.request(1, 0, 2 * FULL + 1);
        s.request(1, 1, 2 * FULL + 1);
        s.request(1, 0, 2 * FULL + 1);
        s.expect(&["CreditReturn 0", "CreditReturn 1", "CreditReturn 1"]);
        assert_eq!(s.drops().past, 1);
    }

    #[test]
    fn a_duplicate_of_an_answered_request_brings_the_response_again_not_the_handler() {
        let mut s = Script::server();
        s.request(1, 0, 100);
        s.expect(&["Response 0"]);
        s.request_of_round(1, 0, 100, 2);
        s.expect(&["Response 0 round 2"]);
        assert_eq!(s.executed(), 1);
    }

    #[test]
    fn a_duplicate_of_an_executing_request_brings_busy() {
        let mut s = Script::server();
        s.node.app.manner = Manner::Later;
        s.request(1, 0, 100);
        s.expect(&[]);
        s.request_of_round(1, 0, 100, 1);
        s.expect(&["Busy round 1"]);
        let (handle, response) = s.node.app.waiting.pop().expect("it executes");
        s.node
            .endpoint
            .enqueue_response(s.now, handle, response)
            .expect("in time");
        s.expect(&["Response 0 round 1"]);
        assert_eq!(s.executed(), 1);
    }

    #[test]
    fn an_early_part_of_an_executing_request_is_answered_by_a_credit_return() {
        let mut s = Script::server();
        s.node.app.manner = Manner::Later;
        s.request(1, 0, FULL + 1);
        s.request(1, 1, FULL + 1);
        s.expect(&["CreditReturn 0"]);
        s.request_of_round(1, 0, FULL + 1, 1);
        s.expect(&["CreditReturn 0 round 1"]);
        assert_eq!(s.executed(), 1);
    }

    #[test]
    fn the_past_is_dropped() {
        let mut s = Script::server();
        s.request(5, 0, 100);
        s.expect(&["Response 0 sequence 5"]);
        s.request(4, 0, 100);
        s.expect(&[]);
        assert_eq!((s.executed(), s.drops().past), (1, 1));
    }

    #[test]
    fn a_part_of_the_past_does_not_fill_the_present() {
        let mut s = Script::server();
        s.request(5, 0, 2 * FULL);
        s.request(4, 1, 2 * FULL);
        s.expect(&["CreditReturn 0 sequence 5"]);
        assert_eq!((s.executed(), s.drops().past), (0, 1));
    }

    #[test]
    fn a_future_part_is_not_kept_but_told_as_a_gap() {
        let mut s = Script::server();
        s.request(1, 1, 2 * FULL + 1);
        s.expect(&["Gap 0"]);
        s.request(1, 0, 2 * FULL + 1);
        s.request(1, 2, 2 * FULL + 1);
        s.expect(&["CreditReturn 0", "Gap 1"]);
        assert_eq!((s.executed(), s.drops().reordered), (0, 2));
    }

    #[test]
    fn a_future_sequence_takes_the_slot_and_makes_the_old_answer_stale() {
        let mut s = Script::server();
        s.node.app.manner = Manner::Later;
        s.request(1, 0, 100);
        s.request(9, 0, 100);
        assert_eq!(s.executed(), 2);
        let (late, response) = s.node.app.waiting.remove(0);
        assert!(
            s.node
                .endpoint
                .enqueue_response(s.now, late, response)
                .is_err()
        );
        let (present, response) = s.node.app.waiting.remove(0);
        assert!(
            s.node
                .endpoint
                .enqueue_response(s.now, present, response)
                .is_ok()
        );
        s.expect(&["Response 0 sequence 9"]);
        assert_eq!(s.node.endpoint.stats().responses_stale, 1);
    }

    #[test]
    fn a_client_end_does_not_serve() {
        let mut s = Script::client();
        s.request(1, 0, 100);
        s.expect(&[]);
        assert_eq!((s.executed(), s.drops().wrong_state), (0, 1));
    }

    #[test]
    fn a_slot_number_or_length_outside_the_terms_costs_the_session() {
        type Change = fn(&mut Header);
        let changes: [(&str, Change); 6] = [
            ("slot", |h| h.request = RequestNumber::new(8, 1)),
            ("sequence zero", |h| h.request = RequestNumber::new(0, 0)),
            ("packet number", |h| h.packet_number = 1),
            ("too short for its size", |h| h.message_bytes = 11),
            ("too long for its size", |h| h.message_bytes = 9),
            ("beyond the limit", |h| h.message_bytes = (8 << 20) + 1),
        ];
        for (what, change) in changes {
            let mut s = Script::server();
            let mut header = Header {
                message_bytes: 10,
                request: RequestNumber::new(0, 1),
                ..s.header(PacketType::Request)
            };
            change(&mut header);
            s.send(header, &[1; 10]);
            s.expect(&[]);
            assert_eq!(s.down(), Some(DownReason::Violation), "{what}");
            assert_eq!(s.executed(), 0, "{what}");
            let stats = s.node.endpoint.stats();
            assert_eq!(
                (stats.sessions_server, stats.sessions_violated),
                (0, 1),
                "{what}"
            );
        }
    }

    #[test]
    fn parts_that_disagree_about_the_message_cost_the_session() {
        let mut s = Script::server();
        s.request(1, 0, 3 * FULL);
        s.request(1, 1, 4 * FULL);
        s.node.turn(s.now);
        assert_eq!(s.down(), Some(DownReason::Violation));
    }

    #[test]
    fn without_memory_for_the_whole_it_is_dropped_and_can_come_again() {
        let config = Config {
            message_bytes: 3 * FULL,
            assembly_bytes: 3 * FULL,
            ..Config::default()
        };
        let mut s = Script::server_with(&config);
        s.request_in_slot(1, 1, 0, 2 * FULL);
        s.expect(&["CreditReturn 0 slot 1"]);
        // The reserve.
        s.request_in_slot(2, 1, 0, 2 * FULL);
        s.expect(&["CreditReturn 0 slot 2"]);
        s.request(1, 0, 2 * FULL);
        s.expect(&[]);
        assert_eq!((s.drops().no_memory, s.down()), (1, None));
        s.request_in_slot(1, 1, 1, 2 * FULL);
        s.request(1, 0, 2 * FULL);
        s.expect(&["Response 0 slot 1", "CreditReturn 0"]);
    }

    #[test]
    fn held_time_is_stated_and_counts_from_the_answered_round() {
        let mut s = Script::server();
        s.node.app.manner = Manner::Later;
        s.request(1, 0, 100);
        s.expect(&[]);
        s.wait(Duration::from_micros(3));
        let (handle, response) = s.node.app.waiting.pop().expect("it executes");
        s.node
            .endpoint
            .enqueue_response(s.now, handle, response)
            .expect("in time");
        let sent = s.take();
        let (packet, _) = crate::wire::split_first(&sent[0]).expect("a packet");
        assert_eq!(
            packet.header.server_time.to_duration(),
            Some(Duration::from_micros(3))
        );
    }
}

mod request_for_response {
    use super::*;

    fn answered(bytes: usize) -> Script {
        let mut s = Script::server();
        s.node.app.manner = Manner::Sized(bytes);
        s.request(1, 0, 8);
        s.expect(&["Response 0"]);
        s
    }

    #[test]
    fn in_order_and_in_any_order_it_is_answered_without_state() {
        let mut s = answered(4 * FULL);
        s.request_for_response(1, 1, 1);
        s.request_for_response(1, 3, 1);
        s.request_for_response(1, 1, 1);
        s.expect(&["Response 1", "Response 3", "Response 1"]);
    }

    #[test]
    fn one_may_ask_for_several() {
        let mut s = answered(4 * FULL);
        s.request_for_response(1, 1, 3);
        s.expect(&["Response 1", "Response 2", "Response 3"]);
    }

    #[test]
    fn the_past_is_dropped() {
        let mut s = answered(4 * FULL);
        s.request(2, 0, 8);
        s.expect(&["Response 0 sequence 2"]);
        s.request_for_response(1, 1, 1);
        s.expect(&[]);
        assert_eq!(s.drops().past, 1);
    }

    #[test]
    fn a_request_that_is_not_here_is_told_as_a_gap() {
        let mut s = answered(4 * FULL);
        s.request_for_response(2, 0, 1);
        s.expect(&["Gap 0 sequence 2"]);
        s.request(2, 0, 2 * FULL);
        s.request_for_response(2, 0, 1);
        s.expect(&["CreditReturn 0 sequence 2", "Gap 1 sequence 2"]);
    }

    #[test]
    fn a_probe_of_an_executing_request_brings_busy() {
        let mut s = Script::server();
        s.node.app.manner = Manner::Later;
        s.request(1, 0, 8);
        s.request_for_response(1, 0, 1);
        s.expect(&["Busy"]);
    }

    #[test]
    fn a_number_or_count_outside_the_response_costs_the_session() {
        for (number, count) in [(4, 1), (0, 0), (3, 2), (1, u32::MAX >> 8), (u16::MAX, 1)] {
            let mut s = answered(4 * FULL);
            s.request_for_response(1, number, count);
            s.expect(&[]);
            assert_eq!(
                s.down(),
                Some(DownReason::Violation),
                "{number} and {count}"
            );
        }
    }

    #[test]
    fn a_client_end_drops_it() {
        let mut s = Script::client();
        s.request_for_response(1, 0, 1);
        s.expect(&[]);
        assert_eq!(s.drops().wrong_state, 1);
    }
}

mod connect {
    use super::*;
    use crate::wire::{BadTerm, Connect, Cookie, Refuse, RefuseReason};

    /// Sends a wish as a CONNECT. Returns the answers.
    fn ask(s: &mut Script, wish: &Connect) -> Vec<Vec<u8>> {
        let header = Header::new(PacketType::Connect, NO_SESSION);
        s.raw(PEER, &header, Seed::NONE, &wish.write());
        s.take()
    }

    /// The cookie for a wish.
    fn cookie_for(s: &mut Script, wish: &Connect) -> u64 {
        let sent = ask(s, wish);
        let (packet, _) = crate::wire::split_first(&sent[0]).expect("a packet");
        Cookie::read(packet.payload).expect("a cookie").cookie
    }

    #[test]
    fn without_a_cookie_nothing_is_remembered() {
        let mut s = Script::stranger();
        for _ in 0..10_000 {
            s.nonce += 1;
            s.connect(0);
            s.node.turn(s.now);
        }
        assert_eq!(s.node.endpoint.stats().sessions_server, 0);
        assert!(s.node.app.events.is_empty());
    }

    #[test]
    fn a_wrong_cookie_is_counted_and_answered_by_a_right_one() {
        let mut s = Script::stranger();
        s.connect(77);
        s.expect(&["Cookie"]);
        assert_eq!(s.drops().cookie, 1);
    }

    #[test]
    fn a_duplicate_is_accepted_again_but_makes_no_second_session() {
        let mut s = Script::stranger();
        s.connect(0);
        let sent = s.take();
        let (packet, _) = crate::wire::split_first(&sent[0]).expect("a packet");
        let cookie = Cookie::read(packet.payload).expect("a cookie").cookie;
        s.connect(cookie);
        s.connect(cookie);
        s.expect(&["Accept", "Accept"]);
        assert_eq!(s.node.endpoint.stats().sessions_server, 1);
    }

    #[test]
    fn another_version_is_told_ours() {
        let mut s = Script::stranger();
        let header = Header {
            version: 2,
            ..Header::new(PacketType::Connect, NO_SESSION)
        };
        let body = s.connect_wish(0).write();
        s.raw(PEER, &header, Seed::NONE, &body);
        let sent = s.take();
        let (packet, _) = crate::wire::split_first(&sent[0]).expect("a packet");
        let refuse = Refuse::read(packet.payload).expect("a refusal");
        assert_eq!((refuse.reason, refuse.detail), (RefuseReason::Version, 1));
    }

    /// What the flags mean there is for that version to say, also whether a tag ends the packet.
    #[test]
    fn a_later_version_is_told_ours_whatever_its_flags_are() {
        for flags in 0..=u8::MAX {
            let mut s = Script::stranger();
            let header = Header {
                version: 2,
                flags: Flags::of_bits(flags),
                ..Header::new(PacketType::Connect, NO_SESSION)
            };
            let with_tag = [&s.connect_wish(0).write()[..], &[0xa5; 16]].concat();
            s.raw(PEER, &header, Seed::NONE, &with_tag);
            s.expect(&["Refuse"]);
        }
    }

    /// A caller that opens and ends sessions by the thousand must not cost others their handshakes.
    #[test]
    fn thousands_of_sessions_that_end_leave_the_cookies_of_others_good() {
        let mut s = Script::stranger();
        let wish = s.connect_wish(0);
        let cookie = cookie_for(&mut s, &wish);
        for nonce in 1..=10_000 {
            s.another(nonce);
            s.probe(PacketType::Disconnect, nonce, 1);
            s.expect(&["Disconnected"]);
        }
        let sent = ask(&mut s, &Connect { cookie, ..wish });
        let (packet, _) = crate::wire::split_first(&sent[0]).expect("a packet");
        assert_eq!(packet.header.packet_type, PacketType::Accept);
        assert_eq!(s.drops().cookie, 0);
    }

    #[test]
    fn a_wish_that_no_session_can_have_is_refused_with_the_nearest_that_one_can() {
        let good = Script::stranger().connect_wish(0);
        for (wish, term, nearest) in [
            (Connect { credits: 0, ..good }, BadTerm::Credits, 1),
            (Connect { slots: 0, ..good }, BadTerm::Slots, 1),
            (Connect { slots: 65, ..good }, BadTerm::Slots, 64),
            (Connect { slots: 255, ..good }, BadTerm::Slots, 64),
            (Connect { mtu: 511, ..good }, BadTerm::Mtu, 512),
            (Connect { mtu: 0, ..good }, BadTerm::Mtu, 512),
        ] {
            let mut s = Script::stranger();
            let cookie = cookie_for(&mut s, &wish);
            assert_eq!(s.drops().handshake, 0, "{wish:?}");
            // As often as it is asked: the server keeps nothing.
            for asked in 1..4 {
                let sent = ask(&mut s, &Connect { cookie, ..wish });
                assert_eq!(sent.len(), 1, "{wish:?}");
                // A CONNECT has 64 bytes.
                assert_eq!(sent[0].len(), 40, "{wish:?}");
                let (packet, _) = crate::wire::split_first(&sent[0]).expect("a packet");
                assert_eq!(packet.header.packet_type, PacketType::Refuse, "{wish:?}");
                assert!(packet.verify(s.seed), "{wish:?}");
                let refuse = Refuse::read(packet.payload).expect("a refusal");
                let expected = (RefuseReason::Terms(term), nearest);
                assert_eq!((refuse.reason, refuse.detail), expected, "{wish:?}");
                assert_eq!(s.drops().handshake, asked, "{wish:?}");
            }
            assert_eq!(s.node.endpoint.stats().sessions_server, 0, "{wish:?}");
            assert!(s.node.app.events.is_empty(), "{wish:?}");
        }
    }

    #[test]
    fn only_who_has_the_cookie_is_refused_for_its_wishes() {
        let mut s = Script::stranger();
        let wish = Connect {
            credits: 0,
            ..s.connect_wish(0)
        };
        let cookie = cookie_for(&mut s, &wish);
        // The cookie of another address, of another wish, and none: each is answered by a cookie of 32 bytes.
        let header = Header::new(PacketType::Connect, NO_SESSION);
        s.raw(
            STRANGER,
            &header,
            Seed::NONE,
            &Connect { cookie, ..wish }.write(),
        );
        s.expect(&["Cookie"]);
        let other = Connect {
            slots: 0,
            cookie,
            ..wish
        };
        s.raw(PEER, &header, Seed::NONE, &other.write());
        s.expect(&["Cookie"]);
        assert_eq!(ask(&mut s, &wish)[0].len(), 32);
    }

    #[test]
    fn a_nonce_of_zero_has_no_answer() {
        let mut s = Script::stranger();
        let wish = Connect {
            nonce: 0,
            ..s.connect_wish(0)
        };
        assert!(ask(&mut s, &wish).is_empty());
        assert_eq!(s.drops().handshake, 1);
    }

    #[test]
    fn beyond_the_limits_it_is_refused() {
        for config in [
            Config {
                sessions: 1,
                ..Config::default()
            },
            // The receive queue of 4,096 packets has room for one such session.
            Config {
                credits: 1_024,
                sessions: 100,
                ..Config::default()
            },
        ] {
            let mut s = Script::server_with(&config);
            let mut refused = false;
            for nonce in 1..10 {
                s.nonce = NONCE + nonce;
                let wish = |cookie, s: &Script| {
                    Connect {
                        credits: 1_024,
                        ..s.connect_wish(cookie)
                    }
                    .write()
                };
                let body = wish(0, &s);
                s.raw(
                    PEER,
                    &Header::new(PacketType::Connect, NO_SESSION),
                    Seed::NONE,
                    &body,
                );
                let sent = s.take();
                let (packet, _) = crate::wire::split_first(&sent[0]).expect("a packet");
                let cookie = Cookie::read(packet.payload).expect("a cookie").cookie;
                let body = wish(cookie, &s);
                s.raw(
                    PEER,
                    &Header::new(PacketType::Connect, NO_SESSION),
                    Seed::NONE,
                    &body,
                );
                let sent = s.take();
                let (packet, _) = crate::wire::split_first(&sent[0]).expect("a packet");
                refused |= packet.header.packet_type == PacketType::Refuse;
            }
            assert!(refused);
        }
    }
}

mod ping_and_disconnect {
    use super::*;

    #[test]
    fn a_ping_is_answered_with_its_token() {
        let mut s = Script::server();
        s.probe(PacketType::Ping, NONCE, 99);
        let sent = s.take();
        let (packet, _) = crate::wire::split_first(&sent[0]).expect("a packet");
        assert_eq!(packet.header.packet_type, PacketType::Pong);
        assert_eq!(packet.header.request, RequestNumber::token(99));
        assert!(packet.verify(s.seed));
    }

    #[test]
    fn a_ping_of_another_session_at_the_index_brings_a_reset() {
        let mut s = Script::server();
        s.probe(PacketType::Ping, NONCE + 1, 99);
        s.expect(&["Reset"]);
        assert_eq!(s.down(), None);
    }

    #[test]
    fn a_ping_to_nobody_brings_a_reset_no_larger_than_itself() {
        let mut s = Script::stranger();
        s.probe(PacketType::Ping, NONCE, 99);
        let sent = s.take();
        assert!(sent[0].len() < 40);
    }

    #[test]
    fn disconnect_ends_the_session_and_is_confirmed_every_time() {
        let mut s = Script::server();
        s.probe(PacketType::Disconnect, NONCE, 5);
        s.expect(&["Disconnected"]);
        assert_eq!(s.down(), Some(DownReason::PeerDisconnected));
        s.probe(PacketType::Disconnect, NONCE, 5);
        s.expect(&["Reset"]);
    }

    #[test]
    fn a_disconnect_of_an_unknown_sender_changes_nothing() {
        let mut s = Script::server();
        let body = crate::wire::Probe {
            sender_session: 1,
            nonce: NONCE,
        }
        .write();
        let header = s.header(PacketType::Disconnect);
        s.raw(STRANGER, &header, Seed::NONE, &body);
        s.expect(&["Reset"]);
        s.probe(PacketType::Disconnect, NONCE + 1, 5);
        s.expect(&["Reset"]);
        assert_eq!(s.down(), None);
    }
}

mod everything {
    use super::*;

    #[test]
    fn a_packet_of_another_route_session_or_nonce_is_dropped_by_its_cause() {
        let mut s = Script::server();
        let header = Header {
            request: RequestNumber::new(0, 1),
            ..s.header(PacketType::Request)
        };
        let seed = s.seed;
        s.raw(STRANGER, &header, seed, &[]);
        assert_eq!(s.drops().wrong_route, 1);
        s.raw(PEER, &header, Seed::of_nonce(NONCE + 1), &[]);
        assert_eq!(s.drops().checksum, 1);
        s.raw(
            PEER,
            &Header {
                session: 200,
                ..header
            },
            seed,
            &[],
        );
        assert_eq!(s.drops().no_session, 1);
        assert_eq!(s.executed(), 0);
    }

    #[test]
    fn several_packets_in_one_datagram_are_all_taken() {
        let mut s = Script::server();
        let mut datagram = Vec::new();
        for slot in 0..3 {
            let header = Header {
                request: RequestNumber::new(slot, 1),
                ..s.header(PacketType::Request)
            };
            datagram.extend_from_slice(&header.write(s.seed, None, &[]));
        }
        datagram.extend_from_slice(&[0; 3]);
        s.node.receive(s.now, PEER, &datagram);
        s.expect(&["Response 0", "Response 0 slot 1", "Response 0 slot 2"]);
        assert_eq!(s.drops().truncated, 1);
    }

    #[test]
    fn client_packets_at_a_server_end_are_dropped() {
        let mut s = Script::server();
        s.response(1, 0, 10);
        s.answer(PacketType::CreditReturn, 1, 0, Flags::default());
        s.answer(PacketType::Busy, 1, 0, Flags::default());
        s.cookie(5);
        s.accept(32, 8);
        s.expect(&[]);
        assert_eq!(s.drops().wrong_state, 5);
        assert_eq!(s.down(), None);
    }
}
