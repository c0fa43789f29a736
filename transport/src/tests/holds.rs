//! A server end's holdings for a client that does not go on, while it answers every PING.

use super::net::{Manner, caps};
use super::script::{FULL, Script};
use crate::time::Duration;
use crate::wire::{Header, PacketType, RequestNumber, split_first};
use crate::{Config, DownReason};

/// Lets time pass in small steps and answers each PING, as a client does that is alive and idle.
/// `also` sends something before every step.
pub(super) fn idle(s: &mut Script, span: Duration, mut also: impl FnMut(&mut Script, u64)) {
    let step = Duration::from_millis(50);
    for number in 0..span.as_nanos() / step.as_nanos() {
        also(s, number);
        s.wait(step);
        for bytes in s.take() {
            let (packet, _) = split_first(&bytes).expect("a packet");
            if packet.header.packet_type == PacketType::Ping {
                let token: RequestNumber = packet.header.request;
                let pong = Header {
                    request: token,
                    ..s.header(PacketType::Pong)
                };
                s.send(pong, &[]);
            }
        }
    }
}

fn hold_timeout() -> Duration {
    Config::default().hold_timeout
}

fn held(s: &Script) -> usize {
    s.node.endpoint.assembly_bytes()
}

/// Sessions that left large requests half sent and answered PINGs kept `assembly_bytes` for ever,
/// and no other client's large request came through.
#[test]
fn a_request_left_half_sent_gives_its_memory_back() {
    let mut s = Script::server();
    s.request(1, 0, 8 << 20);
    assert_eq!(held(&s), 8 << 20);
    idle(&mut s, hold_timeout(), |_, _| {});
    assert_eq!(held(&s), 8 << 20, "not before it has had its time");
    idle(
        &mut s,
        hold_timeout() + Duration::from_millis(100),
        |_, _| {},
    );
    assert_eq!(held(&s), 0);
    assert_eq!(s.node.endpoint.stats().requests_abandoned, 1);
    assert_eq!(s.down(), None, "a client may give up a request");
    // The next request of the slot is as good as any.
    s.request(2, 0, 100);
    assert_eq!(s.executed(), 1);
    assert_eq!(s.down(), None);
}

#[test]
fn a_client_that_then_goes_on_loses_its_session() {
    let mut s = Script::server();
    s.request(1, 0, 8 << 20);
    idle(
        &mut s,
        hold_timeout() * 2 + Duration::from_millis(100),
        |_, _| {},
    );
    s.request(1, 1, 8 << 20);
    s.take();
    assert_eq!(s.down(), Some(DownReason::Violation));
    assert_eq!(s.executed(), 0);
}

#[test]
fn a_packet_now_and_then_does_not_hold_what_others_want() {
    let config = Config {
        assembly_bytes: 8 << 20,
        ..Config::default()
    };
    let mut s = Script::server_over(&config, caps());
    s.request(1, 0, 8 << 20);
    // One packet a step: the least would be a 64th of the request in each timeout. Another request has the reserve,
    // and so a third one finds no memory meanwhile.
    s.request_in_slot(1, 1, 0, 8 << 20);
    assert_eq!(held(&s), 16 << 20);
    idle(&mut s, hold_timeout() * 3, |s, step| {
        if held(s) > 0 {
            s.request(1, step as u16 + 1, 8 << 20);
            s.request_in_slot(1, 1, step as u16 + 1, 8 << 20);
            s.request_in_slot(2, 1, 0, 8 << 20);
        }
    });
    assert_eq!(
        (held(&s), s.node.endpoint.stats().requests_abandoned),
        (0, 2)
    );
    assert!(s.node.endpoint.stats().drops.no_memory > 0);
}

/// A living client on a slow path, 30 KB/s, lost its session. Its 8 MB did not grow by a 64th in each hold timeout,
/// were given up, and its next packet was a violation.
#[test]
fn a_slow_client_keeps_its_session_while_nobody_wants_the_memory() {
    let mut s = Script::server();
    s.request(1, 0, 8 << 20);
    idle(&mut s, hold_timeout() * 10, |s, step| {
        s.request(1, step as u16 + 1, 8 << 20);
    });
    assert_eq!((held(&s), s.down()), (8 << 20, None));
    assert_eq!(s.node.endpoint.stats().requests_abandoned, 0);
}

#[test]
fn a_slow_request_that_moves_is_not_given_up() {
    let mut s = Script::server();
    let packets = 200;
    s.request(1, 0, packets * FULL);
    idle(&mut s, hold_timeout() * 5, |s, step| {
        if step < packets as u64 - 2 {
            s.request(1, step as u16 + 1, packets * FULL);
        }
    });
    assert_eq!(s.executed(), 0);
    s.request(1, packets as u16 - 1, packets * FULL);
    assert_eq!((s.executed(), s.down()), (1, None));
    assert_eq!(s.node.endpoint.stats().requests_abandoned, 0);
}

#[test]
fn one_that_begins_again_and_again_and_never_finishes_loses_its_session() {
    let mut s = Script::server();
    let mut sequence = 0;
    idle(&mut s, hold_timeout() * 60, |s, _| {
        if s.down().is_none() && held(s) == 0 {
            sequence += 1;
            s.request(sequence, 0, 8 << 20);
        }
    });
    assert_eq!(s.down(), Some(DownReason::Violation));
    assert_eq!(sequence, u64::from(crate::config::HOLD_STRIKES_MAX) + 1);
    assert_eq!(held(&s), 0);
}

/// A client that begins its request again before each scan was never found idle.
#[test]
fn a_request_that_is_begun_again_has_no_more_time_than_the_one_before() {
    let config = Config {
        assembly_bytes: 16 << 20,
        ..Config::default()
    };
    let mut s = Script::server_over(&config, caps());
    // A second request uses the reserve and goes on, a third one finds no room.
    s.request(1, 0, 8 << 20);
    s.request_in_slot(1, 1, 0, 8 << 20);
    let mut sequence = 1;
    let mut begins_again = |s: &mut Script, step: u64| {
        if step % 39 == 38 && s.node.endpoint.stats().requests_abandoned == 0 {
            sequence += 1;
            s.request(sequence, 0, 8 << 20);
        }
        s.request_in_slot(2, 1, 0, 8 << 20);
        for part in 0..16 {
            let number = (step * 16 + part + 1) as u16;
            s.request_in_slot(1, 1, number, 8 << 20);
        }
    };
    idle(&mut s, hold_timeout() * 5 / 2, &mut begins_again);
    assert_eq!(s.node.endpoint.stats().requests_abandoned, 1);
    assert_eq!((sequence, s.down()), (3, None));
}

#[test]
fn our_own_pause_is_not_the_clients_fault() {
    let mut s = Script::server();
    s.request(1, 0, 3 * FULL);
    s.take();
    s.wait(hold_timeout() * 10);
    s.take();
    assert_eq!((held(&s), s.down()), (3 * FULL, None));
}

/// Responses stayed in their slots until the next request, 8 MiB each, also for a client that never
/// makes another.
#[test]
fn a_response_of_several_packets_that_nobody_asks_about_is_released() {
    let mut s = Script::server();
    s.node.app.manner = Manner::Sized(1 << 20);
    s.request(1, 0, 100);
    let in_use = |s: &Script| s.node.endpoint.pool().stats().blocks_in_use;
    s.take();
    assert_eq!(in_use(&s), 1);
    // It stays while the client asks for its parts, however slowly.
    idle(&mut s, hold_timeout() * 3, |s, step| {
        if step % 20 == 0 {
            s.request_for_response(1, (step / 20) as u16 + 1, 1);
        }
    });
    assert_eq!(in_use(&s), 1);
    idle(
        &mut s,
        hold_timeout() * 2 + Duration::from_millis(100),
        |_, _| {},
    );
    assert_eq!(in_use(&s), 0);
    assert_eq!(s.node.endpoint.stats().responses_released, 1);
    // It cannot be had any more: the client must learn that, and does by its session's end.
    s.request_for_response(1, 2, 1);
    s.take();
    assert_eq!(s.down(), Some(DownReason::Violation));
}

#[test]
fn a_response_of_one_packet_stays() {
    let mut s = Script::server();
    s.request(1, 0, 100);
    s.take();
    idle(&mut s, hold_timeout() * 4, |_, _| {});
    s.request(1, 0, 100);
    s.expect(&["Response 0"]);
    assert_eq!((s.executed(), s.down()), (1, None));
}

/// `on_timeout` never returned. A server end that held a part of a request and was disconnected kept the time of its
/// next scan. A session that is closing is not scanned, so the timer was due again at once, for ever.
#[test]
fn a_session_that_closes_has_nothing_to_scan() {
    let mut s = Script::server();
    s.request(1, 0, 3 * FULL);
    idle(
        &mut s,
        hold_timeout() - Duration::from_millis(500),
        |_, _| {},
    );
    let session = s.session.expect("a session");
    s.node.endpoint.disconnect(s.now, session);
    assert_eq!(held(&s), 0);
    // The peer is dead: nothing answers our DISCONNECTs, and the moment of the scan passes.
    let mut disconnects = 0;
    for _ in 0..18 {
        s.wait(Duration::from_millis(50));
        disconnects += s.take().len();
    }
    assert!(disconnects > 2);
    assert_eq!(s.node.endpoint.stats().sessions_server, 1, "still closing");
    s.wait(Duration::from_millis(100));
    s.take();
    assert_eq!(s.node.endpoint.stats().sessions_server, 0);
}
