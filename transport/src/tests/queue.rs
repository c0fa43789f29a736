//! Requests that wait for a slot.

use super::net::{Manner, Net};
use super::script::Script;
use crate::Config;
use crate::time::{Duration, Instant};
use crate::wire::{Flags, PacketType};

fn limited() -> Config {
    Config {
        slots: 1,
        requests: 100,
        queued_requests_per_session: 10,
        ..Config::default()
    }
}

fn try_enqueue(s: &mut Script, deadline: Option<Instant>) -> Option<crate::RequestId> {
    let pool = s.node.endpoint.pool().clone();
    let buffer = || pool.alloc(10).expect("memory");
    let (request, response) = (buffer(), buffer());
    let session = s.session.expect("a session");
    s.node
        .endpoint
        .enqueue_request(s.now, session, 7, request, response, 0, deadline)
        .ok()
}

/// The slots of a session that is not established yet are all free, and that let any number of
/// requests into its queue. One dead peer took the request table from all the others.
#[test]
fn a_session_that_does_not_stand_yet_has_its_limit_too() {
    let mut s = Script::asking(&limited());
    let accepted = (0..50).filter(|_| try_enqueue(&mut s, None).is_some());
    assert_eq!(accepted.count(), 10);
}

/// Requests that ended in the queue kept their entries until a slot became free. Behind one
/// slow handler, short deadlines filled the request table with requests that no caller waited
/// for.
#[test]
fn requests_that_ended_in_the_queue_leave_it() {
    let mut s = Script::asking(&limited());
    s.cookie(0xc00c);
    s.expect(&["Connect"]);
    s.accept(32, 1);
    try_enqueue(&mut s, None).expect("the slot is free");
    s.expect(&["Request 0"]);
    for _ in 0..50 {
        let deadline = s.now + Duration::from_micros(100);
        try_enqueue(&mut s, Some(deadline)).expect("the queue is empty");
        s.wait(Duration::from_millis(1));
        s.take();
    }
    assert!(s.node.endpoint.stats().requests_pending <= 2, "expired");
    for _ in 0..200 {
        let request = try_enqueue(&mut s, None).expect("the queue is nearly empty");
        s.node.endpoint.cancel(request);
    }
    let pending = s.node.endpoint.stats().requests_pending;
    assert!(pending <= 20, "{pending} entries for one request");
    // The rest of the queue still goes, in its order.
    let last = try_enqueue(&mut s, None).expect("room");
    s.answer(PacketType::Busy, 1, 0, Flags::default());
    s.response(1, 0, 10);
    s.take();
    assert_eq!(s.node.endpoint.stats().requests_pending, 1);
    assert!(s.node.endpoint.cancel(last));
    assert_eq!(s.node.endpoint.stats().requests_pending, 0);
}

/// A session that is asked seldom, because another one shows that the peer lives, is due at once when an application ends that
/// other one. It did so while the session's own timer ran, for a request whose time was over: debug builds stopped.
#[test]
fn a_session_may_be_ended_while_the_timer_of_one_that_relies_on_it_runs() {
    let mut ended_when_due = 0;
    for offset in (0..600).step_by(10) {
        let mut net = Net::new(7, 2, &limited());
        net.nodes[1].app.manner = Manner::Later;
        let (quiet, busy) = (net.connected(0, 1), net.connected(0, 1));
        // The peer holds it, and is asked about it twice a second.
        net.request(0, quiet, 1, 10);
        net.run_for(Duration::from_millis(3_000 + offset));
        net.request(0, busy, 2, 10);
        net.run_for(Duration::from_millis(1));
        let asked = net.nodes[0].endpoint.stats().packets_sent;
        let deadline = net.now + Duration::from_millis(1);
        net.request_for(0, quiet, 3, 10, 10, Some(deadline));
        net.nodes[0].app.ends = Some(busy);
        net.run_for(Duration::from_millis(4));
        assert_eq!(
            net.nodes[0].app.completions.len(),
            2,
            "the late one and the ended one"
        );
        // PING in one session, DISCONNECT in the other.
        let sent = net.nodes[0].endpoint.stats().packets_sent - asked;
        ended_when_due += usize::from(sent == 2);
    }
    assert!(ended_when_due > 0, "it was never due at once");
}
