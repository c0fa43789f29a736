//! The slice that everything else builds on: sessions, small and large messages, loss, death.

use super::holds::idle;
use super::net::{Done, Manner, Net};
use super::script::Script;
use crate::config::{HELD_PROBE_MAX, SEQUENCES_MAX};
use crate::prng::Ratio;
use crate::time::Duration;
use crate::{Config, ConnectError, DownReason, Event, Identity, RpcError};

const SECOND: Duration = Duration::from_secs(1);

fn completed(net: &Net, node: usize, count: usize) -> bool {
    net.nodes[node].app.completions.len() == count
}

#[test]
fn a_request_comes_back_answered() {
    let mut net = Net::new(1, 2, &Config::default());
    let session = net.connected(0, 1);
    net.request(0, session, 5, 32);
    assert!(net.run_until(SECOND, |net| completed(net, 0, 1)));
    assert_eq!(net.nodes[0].app.completions[0], Done::with(5, 32));
    let stats = net.nodes[0]
        .endpoint
        .session_stats(session)
        .expect("it stands");
    assert_eq!(stats.rtt_ns_min, 20_000, "two ways of 10 us");
    assert_eq!(stats.credits_in_use, 0);
    assert_eq!(net.nodes[0].endpoint.stats().retransmissions, 0);
}

#[test]
fn messages_of_every_size_arrive_whole() {
    let full = 1472 - 48;
    for bytes in [
        0,
        1,
        full - 1,
        full,
        full + 1,
        3 * full,
        3 * full + 1,
        100_000,
        8 << 20,
    ] {
        for cumulative in [false, true] {
            let config = Config {
                cumulative_credits: Some(cumulative),
                ..Config::default()
            };
            let mut net = Net::new(2, 2, &config);
            let session = net.connected(0, 1);
            net.request(0, session, 9, bytes);
            assert!(
                net.run_until(SECOND * 10, |net| completed(net, 0, 1)),
                "{bytes} bytes"
            );
            assert_eq!(
                net.nodes[0].app.completions[0],
                Done::with(9, bytes),
                "{bytes} bytes"
            );
            assert_eq!(
                net.nodes[0].endpoint.stats().retransmissions,
                0,
                "{bytes} bytes"
            );
        }
    }
}

#[test]
fn requests_beyond_the_slots_wait_their_turn() {
    let mut net = Net::new(3, 2, &Config::default());
    let session = net.connected(0, 1);
    for tag in 0..1_000 {
        net.request(0, session, tag, 100);
    }
    assert!(net.run_until(SECOND, |net| completed(net, 0, 1_000)));
    assert!(
        net.nodes[0]
            .app
            .completions
            .iter()
            .all(|done| *done == Done::with(done.tag, 100))
    );
}

#[test]
fn a_slow_request_does_not_hold_up_the_others_and_is_sent_once_more_at_most() {
    let mut net = Net::new(4, 2, &Config::default());
    let session = net.connected(0, 1);
    net.nodes[1].app.manner = Manner::Later;
    net.request(0, session, 1, 64);
    net.run_for(Duration::from_millis(1));
    net.nodes[1].app.manner = Manner::Echo;
    net.request(0, session, 2, 64);
    net.run_for(Duration::from_millis(500));
    assert_eq!(net.nodes[0].app.completions.len(), 1);
    assert_eq!(net.nodes[0].app.completions[0].tag, 2);
    let stats = net.nodes[0].endpoint.stats();
    assert_eq!(
        stats.retransmissions, 1,
        "BUSY ends the retransmission of the data"
    );
    assert!(
        stats.probes_sent < 20,
        "probes slow down: {}",
        stats.probes_sent
    );
    net.answer_all(1);
    assert!(net.run_until(Duration::from_millis(1), |net| completed(net, 0, 2)));
    assert_eq!(net.nodes[1].app.executed[&1], 1);
    let rtt = net.nodes[0]
        .endpoint
        .session_stats(session)
        .expect("it stands")
        .rtt_ns_smoothed;
    assert!(
        rtt < 100_000,
        "a slow handler does not look like a slow network: {rtt} ns"
    );
}

/// A watch is held for 10 s. Two hundred probes a request would keep both sides awake.
#[test]
fn a_request_that_is_held_for_long_is_probed_seldom_and_its_lost_answer_is_found() {
    let mut net = Net::new(9, 2, &Config::default());
    let session = net.connected(0, 1);
    net.nodes[1].app.manner = Manner::Later;
    net.request(0, session, 1, 64);
    net.run_for(Duration::from_secs(10));
    let probes = net.nodes[0].endpoint.stats().probes_sent;
    assert!((20..50).contains(&probes), "{probes}");
    // The answer is lost, and so is the next probe.
    net.faults.loss = Ratio::percent(100);
    net.answer_all(1);
    net.run_for(Duration::from_millis(600));
    net.faults.loss = Ratio::ZERO;
    assert!(net.run_until(HELD_PROBE_MAX, |net| completed(net, 0, 1)));
    assert_eq!(net.nodes[1].app.executed[&1], 1);
}

#[test]
fn under_loss_everything_completes_and_runs_once() {
    for (seed, loss) in [(1, 1), (2, 5), (3, 30), (4, 50)] {
        let mut net = Net::new(seed, 2, &Config::default());
        let session = net.connected(0, 1);
        net.faults.loss = Ratio::percent(loss);
        net.faults.duplication = Ratio::percent(2);
        net.faults.reorder = Ratio::percent(2);
        for tag in 0..200 {
            net.request(0, session, tag, 10 + 20 * tag as usize);
        }
        assert!(
            net.run_until(SECOND * 100, |net| completed(net, 0, 200)),
            "loss {loss} %"
        );
        for done in &net.nodes[0].app.completions {
            let expected = Done::with(done.tag, 10 + 20 * done.tag as usize);
            assert_eq!(*done, expected, "loss {loss} %");
        }
        assert!(net.nodes[1].app.executed.values().all(|count| *count == 1));
    }
}

#[test]
fn a_dead_peer_is_found_and_its_requests_end() {
    let mut net = Net::new(5, 2, &Config::default());
    let session = net.connected(0, 1);
    net.nodes[1].app.manner = Manner::Later;
    net.request(0, session, 1, 64);
    net.run_for(Duration::from_millis(100));
    net.nodes[1].is_dead = true;
    assert!(net.run_until(SECOND * 2, |net| completed(net, 0, 1)));
    assert_eq!(
        net.nodes[0].app.completions[0].result,
        Err(RpcError::OutcomeUnknown)
    );
    assert_eq!(
        net.nodes[0].app.events[1],
        Event::Down {
            session,
            reason: DownReason::TimedOut
        }
    );
    assert_eq!(net.nodes[0].endpoint.stats().sessions_client, 0);
}

#[test]
fn a_dead_peer_ends_the_requests_of_its_own_sessions_only() {
    let mut net = Net::new(6, 3, &Config::default());
    let (dead, alive) = (net.connected(0, 1), net.connected(0, 2));
    for node in [1, 2] {
        net.nodes[node].app.manner = Manner::Later;
    }
    net.request(0, dead, 1, 64);
    net.request(0, alive, 2, 64);
    net.run_for(Duration::from_millis(100));
    net.nodes[1].is_dead = true;
    assert!(net.run_until(SECOND * 2, |net| completed(net, 0, 1)));
    let done = &net.nodes[0].app.completions[0];
    assert_eq!((done.tag, done.result), (1, Err(RpcError::OutcomeUnknown)));
    net.run_for(SECOND);
    assert_eq!(
        net.nodes[0].app.completions.len(),
        1,
        "the other one goes on"
    );
    net.answer_all(2);
    assert!(net.run_until(SECOND, |net| completed(net, 0, 2)));
    let done = &net.nodes[0].app.completions[1];
    assert_eq!((done.tag, done.result), (2, Ok(())));
}

#[test]
fn an_idle_session_lives_and_costs_a_few_packets() {
    let mut net = Net::new(6, 2, &Config::default());
    let session = net.connected(0, 1);
    net.faults.loss = Ratio::percent(20);
    net.run_for(SECOND * 60);
    assert!(net.nodes[0].endpoint.peer(session).is_some());
    assert_eq!(net.nodes[1].endpoint.stats().sessions_server, 1);
    let sent = net.nodes[0].endpoint.stats().packets_sent;
    assert!(sent < 60 * 10, "{sent} packets in a minute");
}

/// The request that was answered had left its retransmission timer behind, and the session's timer moved down the
/// wheel. A thread that slept until then was woken for nothing.
#[test]
fn an_idle_session_wakes_hardly_anybody_before_its_keepalive() {
    let mut net = Net::new(6, 2, &Config::default());
    let session = net.connected(0, 1);
    // The timers of the handshake come once.
    net.run_for(SECOND);
    net.request(0, session, 1, 64);
    assert!(net.run_until(SECOND, |net| completed(net, 0, 1)));
    let node = &mut net.nodes[0];
    // Packets received meanwhile have put the keepalive off; the timer has not moved.
    let wakes = (1..).find(|_| {
        let due = node.endpoint.next_timeout().expect("a keepalive");
        !node.turn_unchecked(due).is_empty()
    });
    assert!(wakes <= Some(2), "woken {wakes:?} times for one packet");
}

/// A group's heartbeats put the keepalives of its sessions off, but not their timers. A third of the wake-ups of an idle
/// replica were for those.
#[test]
fn a_sleep_ends_for_a_reason() {
    let mut net = Net::new(6, 2, &Config::default());
    let session = net.connected(0, 1);
    net.run_for(SECOND);
    for round in 1..=20 {
        net.request(0, session, round, 64);
        assert!(net.run_until(SECOND, |net| completed(net, 0, round as usize)));
        net.run_for(Duration::from_millis(32));
        for node in &mut net.nodes {
            node.endpoint.settle_timers(net.now);
            let due = node.endpoint.next_timeout().expect("a keepalive");
            let quiet = due.saturating_since(net.now);
            // The keepalive counts from the last packet.
            let keepalive = Config::default().keepalive_interval;
            assert!(
                quiet >= keepalive - Duration::from_millis(40),
                "{quiet:?} until the next wake-up"
            );
        }
    }
    let node = &mut net.nodes[0];
    let due = node.endpoint.next_timeout().expect("a keepalive");
    assert!(!node.turn_unchecked(due).is_empty(), "woken for nothing");
}

/// Replicas have sessions in both directions, of which one has the heartbeats. The PINGs in the other one, from both ends, were
/// as many wake-ups as the heartbeats' answers.
#[test]
fn a_session_is_seldom_asked_while_another_shows_that_the_peer_lives() {
    let mut net = Net::new(6, 2, &Config::default());
    let busy = net.connected(0, 1);
    net.connected(1, 0);
    net.run_for(SECOND);
    let sent = |net: &Net| -> u64 {
        let sent = net
            .nodes
            .iter()
            .map(|node| node.endpoint.stats().packets_sent);
        sent.sum()
    };
    let before = sent(&net);
    for round in 1..=250 {
        net.request(0, busy, round, 64);
        assert!(net.run_until(SECOND, |net| completed(net, 0, round as usize)));
        net.run_for(Duration::from_millis(32));
    }
    // Eight seconds, in which one end asks every second and the other every two: 12 PINGs, where 48 came before.
    let pings = (sent(&net) - before - 2 * 250) / 2;
    assert!((4..=14).contains(&pings), "{pings} times asked");
    // The peer is back under the same identity, as from its disk, and does not know the sessions. A new one does not keep the
    // old ones for long.
    net.restart(1, &Config::default());
    net.nodes[1].endpoint.set_identity(Identity {
        cluster: 0,
        incarnation: 2,
    });
    let busy = net.connected(0, 1);
    for round in 251..=251 + 3_000 / 32 {
        net.request(0, busy, round, 64);
        net.run_for(Duration::from_millis(32));
    }
    let stats = net.nodes[0].endpoint.stats();
    assert_eq!((stats.sessions_client, stats.sessions_server), (1, 0));
}

#[test]
fn a_restarted_peer_resets_the_session_at_once() {
    let config = Config::default();
    let mut net = Net::new(7, 2, &config);
    let session = net.connected(0, 1);
    net.request(0, session, 1, 64);
    assert!(net.run_until(SECOND, |net| completed(net, 0, 1)));
    net.restart(1, &config);
    net.request(0, session, 2, 64);
    assert!(net.run_until(Duration::from_millis(20), |net| completed(net, 0, 2)));
    assert_eq!(
        net.nodes[0].app.completions[1].result,
        Err(RpcError::OutcomeUnknown)
    );
    assert_eq!(
        net.nodes[0].app.events[1],
        Event::Down {
            session,
            reason: DownReason::Reset
        }
    );
    // And a new session to the new process works.
    let session = net.connected(0, 1);
    net.request(0, session, 3, 64);
    assert!(net.run_until(SECOND, |net| completed(net, 0, 3)));
    assert_eq!(net.nodes[0].app.completions[2].result, Ok(()));
}

#[test]
fn disconnect_tells_the_peer_and_ends_what_is_pending() {
    let mut net = Net::new(8, 2, &Config::default());
    let session = net.connected(0, 1);
    net.nodes[1].app.manner = Manner::Later;
    for tag in 0..10 {
        net.request(0, session, tag, 64);
    }
    net.run_for(Duration::from_millis(1));
    let now = net.now;
    net.nodes[0].endpoint.disconnect(now, session);
    net.run_for(Duration::from_millis(1));
    let results: Vec<_> = net.nodes[0]
        .app
        .completions
        .iter()
        .map(|done| (done.tag, done.result))
        .collect();
    for (tag, result) in results {
        let expected = if tag < 8 {
            RpcError::OutcomeUnknown
        } else {
            RpcError::NotSent
        };
        assert_eq!(result, Err(expected), "request {tag}");
    }
    assert_eq!(
        net.nodes[0].app.events[1],
        Event::Down {
            session,
            reason: DownReason::Disconnected
        }
    );
    assert!(matches!(
        net.nodes[1].app.events[1],
        Event::Down {
            reason: DownReason::PeerDisconnected,
            ..
        }
    ));
    net.answer_all(1);
    assert_eq!(net.nodes[1].endpoint.stats().responses_stale, 8);
}

#[test]
fn nobody_there_is_said_in_time_and_queued_requests_were_not_sent() {
    let mut net = Net::new(9, 1, &Config::default());
    let session = net.connect(0, 77);
    net.request(0, session, 1, 64);
    assert!(net.run_until(SECOND * 2, |net| completed(net, 0, 1)));
    assert_eq!(
        net.nodes[0].app.completions[0].result,
        Err(RpcError::NotSent)
    );
    let failed = Event::ConnectFailed {
        session,
        route: 77,
        reason: ConnectError::TimedOut,
    };
    assert_eq!(net.nodes[0].app.events, [failed]);
}

#[test]
fn another_cluster_is_refused_by_name() {
    let config = Config::default();
    let mut net = Net::new(10, 0, &config);
    net.add(
        &config,
        super::net::caps(),
        Identity {
            cluster: 5,
            incarnation: 1,
        },
    );
    net.add(
        &config,
        super::net::caps(),
        Identity {
            cluster: 6,
            incarnation: 2,
        },
    );
    net.add(
        &config,
        super::net::caps(),
        Identity {
            cluster: 0,
            incarnation: 3,
        },
    );
    let session = net.connect(0, 1);
    net.run_for(Duration::from_millis(5));
    let reason = ConnectError::WrongCluster { theirs: 6 };
    assert_eq!(
        net.nodes[0].app.events,
        [Event::ConnectFailed {
            session,
            route: 1,
            reason
        }]
    );
    net.connected(2, 0);
    net.connected(2, 1);
}

#[test]
fn a_response_that_does_not_fit_says_so_and_the_slot_goes_on() {
    let mut net = Net::new(11, 2, &Config::default());
    let session = net.connected(0, 1);
    net.nodes[1].app.manner = Manner::Sized(5_000);
    net.request_for(0, session, 1, 64, 1_000, None);
    net.request_for(0, session, 2, 64, 5_000, None);
    assert!(net.run_until(SECOND, |net| completed(net, 0, 2)));
    net.nodes[0].app.completions.sort_by_key(|done| done.tag);
    assert_eq!(
        net.nodes[0].app.completions[0].result,
        Err(RpcError::ResponseTooLarge { bytes: 5_000 })
    );
    assert_eq!(net.nodes[0].app.completions[1], Done::with(2, 5_000));
}

#[test]
fn a_deadline_ends_the_wait_and_is_told_to_the_handler() {
    let mut net = Net::new(12, 2, &Config::default());
    let session = net.connected(0, 1);
    net.nodes[1].app.manner = Manner::Later;
    let deadline = net.now + Duration::from_millis(7);
    net.request_for(0, session, 1, 64, 64, Some(deadline));
    assert!(net.run_until(SECOND, |net| completed(net, 0, 1)));
    assert_eq!(
        net.nodes[0].app.completions[0].result,
        Err(RpcError::DeadlineExceeded)
    );
    assert!(net.now.saturating_since(deadline) < Duration::from_millis(1));
    let told = net.nodes[1].app.deadlines[0].expect("the handler knows the deadline");
    assert!(told >= deadline && told.saturating_since(deadline) < Duration::from_micros(20));
    // The late answer is dropped and the slot works on.
    net.answer_all(1);
    net.nodes[1].app.manner = Manner::Echo;
    net.request(0, session, 2, 64);
    assert!(net.run_until(SECOND, |net| completed(net, 0, 2)));
    assert_eq!(net.nodes[0].app.completions[1].result, Ok(()));
}

#[test]
fn an_expired_request_is_not_executed() {
    let mut net = Net::new(13, 2, &Config::default());
    let session = net.connected(0, 1);
    // Three packets, the first of which tells a deadline that passes before the last arrives.
    net.faults.loss = Ratio::ZERO;
    let deadline = net.now + Duration::from_micros(4);
    net.request_for(0, session, 1, 60_000, 64, Some(deadline));
    net.run_for(Duration::from_millis(10));
    assert_eq!(
        net.nodes[0].app.completions[0].result,
        Err(RpcError::DeadlineExceeded)
    );
    assert!(
        net.nodes[1].app.executed.is_empty(),
        "an expired request ran"
    );
}

#[test]
fn cancelling_frees_the_slot_for_others() {
    let config = Config {
        slots: 1,
        ..Config::default()
    };
    let mut net = Net::new(14, 2, &config);
    let session = net.connected(0, 1);
    net.nodes[1].app.manner = Manner::Later;
    let running = net.request(0, session, 1, 64);
    let queued = net.request(0, session, 2, 64);
    net.request(0, session, 3, 64);
    net.run_for(Duration::from_millis(1));
    assert!(net.nodes[0].endpoint.cancel(queued));
    assert!(!net.nodes[0].endpoint.cancel(queued), "a request ends once");
    assert!(net.nodes[0].endpoint.cancel(running));
    net.nodes[1].app.manner = Manner::Echo;
    assert!(net.run_until(SECOND, |net| completed(net, 0, 3)));
    let results: Vec<_> = net.nodes[0]
        .app
        .completions
        .iter()
        .map(|done| (done.tag, done.result))
        .collect();
    assert_eq!(
        results,
        [
            (2, Err(RpcError::Cancelled)),
            (1, Err(RpcError::Cancelled)),
            (3, Ok(()))
        ]
    );
    assert!(!net.nodes[1].app.executed.contains_key(&2));
    // The cancelled request's answer comes late and changes nothing.
    net.answer_all(1);
    net.run_for(Duration::from_millis(5));
    assert_eq!(net.nodes[0].app.completions.len(), 3);
}

/// A PING was out when the process was paused. The time that it had slept counted as the peer's
/// silence, and sessions whose PONG was not the first in the queue ended at once.
#[test]
fn a_process_that_was_paused_asks_again_first() {
    let mut s = Script::client();
    s.wait(Duration::from_millis(260));
    s.expect(&["Ping"]);
    s.wait(Duration::from_secs(5));
    s.expect(&["Ping"]);
    assert_eq!(s.down(), None, "nobody had the time to answer");
    // From here on it is the peer's silence.
    for _ in 0..12 {
        s.wait(Duration::from_millis(100));
        s.take();
    }
    assert_eq!(s.down(), Some(DownReason::TimedOut));
}

/// A session that existed long enough stopped its process: 51 days at a million requests a second in one slot. The slot
/// had no request number left, which was asserted.
#[test]
fn a_session_that_runs_out_of_request_numbers_ends_before() {
    let mut s = Script::client();
    let index = s.session.expect("a session").index;
    s.node.endpoint.set_sequence(index, SEQUENCES_MAX - 1);
    let results = |s: &Script| -> Vec<_> {
        s.node
            .app
            .completions
            .iter()
            .map(|done| done.result)
            .collect()
    };
    s.enqueue(1, 10, 10);
    s.take();
    s.response(SEQUENCES_MAX, 0, 10);
    idle(&mut s, SECOND, |_, _| {});
    assert_eq!((results(&s), s.down()), (vec![Ok(())], None));
    s.enqueue(2, 10, 10);
    idle(&mut s, SECOND, |_, _| {});
    assert_eq!(s.down(), Some(DownReason::NumbersUsedUp));
    assert_eq!(results(&s), [Ok(()), Err(RpcError::OutcomeUnknown)]);
}
