//! The window's answers to what a round shows, branch by branch, and what begins and ends a round.

use super::*;

const MTU: u16 = 1_000;
const CREDITS: u16 = 64;
const PATH: u32 = 20_000;

fn micros(count: u64) -> Duration {
    Duration::from_micros(count)
}

/// One second, which is in no drain slot.
fn start() -> Instant {
    Instant::ZERO + Duration::from_millis(1_000)
}

/// A session that knows its path of 20 us, with a window of so many packets, beyond slow start.
fn session(packets: u32) -> Delay {
    let mut delay = Delay::new(DelayLimits {
        floor_ns: 25_000,
        wall_ns: 0,
    });
    delay.set_window(CREDITS, MTU);
    delay.on_handshake(start(), Duration::from_nanos(PATH.into()));
    delay.window = packets * ONE;
    delay.is_starting = false;
    delay
}

/// What a round of 100 us shows.
#[derive(Copy, Clone)]
struct Seen {
    /// The smallest queueing delay.
    queue_us: u32,
    /// Packets that were sent.
    packets: u32,
    marks: u16,
    limited: bool,
}

/// Of ten samples.
fn round(seen: Seen) -> Round {
    Round {
        began: start(),
        rtt_ns_min: PATH + 1_000 * seen.queue_us,
        bytes: seen.packets * u32::from(MTU),
        samples: 10,
        marks: seen.marks,
        is_limited: seen.limited,
        was_limited: false,
    }
}

fn after(mut delay: Delay, seen: Seen) -> Delay {
    delay.round = round(seen);
    delay.end_round(start() + micros(100));
    delay
}

fn seen(queue_us: u32, packets: u32) -> Seen {
    Seen {
        queue_us,
        packets,
        marks: 0,
        limited: true,
    }
}

/// In 1/256 packets.
fn window_after(packets: u32, seen: Seen) -> u32 {
    after(session(packets), seen).window
}

#[test]
fn packets_beyond_the_target_leave_the_window_by_half_a_round() {
    // Ten packets in 100 us, and 75 us above the floor of 25: 7.5 are queued, 5.5 too many.
    assert_eq!(window_after(10, seen(100, 10)), 10 * ONE - 11 * ONE / 4);
    // Never more than half at once, and never less than one packet.
    assert_eq!(window_after(10, seen(1_000, 40)), 5 * ONE);
    assert_eq!(window_after(1, seen(1_000, 40)), ONE);
}

#[test]
fn a_window_that_keeps_to_the_target_stays() {
    // 2 packets queued of 8 sent.
    assert_eq!(window_after(8, seen(50, 8)), 8 * ONE);
    // Below the target it grows, by half of what is missing.
    assert_eq!(window_after(8, seen(45, 8)), 8 * ONE + (2 * ONE - 409) / 2);
    // The floor is no queue: an eighth, a packet at most.
    assert_eq!(window_after(4, seen(25, 4)), 4 * ONE + ONE / 2);
    assert_eq!(window_after(40, seen(25, 40)), 41 * ONE);
}

#[test]
fn a_session_that_did_not_need_more_gets_no_more() {
    let idle = Seen {
        limited: false,
        ..seen(0, 2)
    };
    assert_eq!(window_after(8, idle), 8 * ONE);
    // But it is cut if it is what queues.
    let queues = Seen {
        limited: false,
        ..seen(1_000, 8)
    };
    assert_eq!(window_after(8, queues), 4 * ONE);
}

#[test]
fn the_start_doubles_until_half_a_floor_of_queue() {
    let starting = || Delay {
        is_starting: true,
        ..session(16)
    };
    assert_eq!(after(starting(), seen(12, 16)).window, 32 * ONE);
    let queued = after(starting(), seen(13, 16));
    assert_eq!(queued.window, 17 * ONE);
    assert!(!queued.is_starting);
    let all = after(
        Delay {
            window: 40 * ONE,
            ..starting()
        },
        seen(0, 40),
    );
    assert_eq!(all.window, 64 * ONE, "and no further than the credits");
    assert_eq!(all.reserve(), 0);
}

#[test]
fn six_calm_rounds_make_it_grow_by_a_quarter() {
    let mut delay = session(16);
    let mut windows = Vec::new();
    for _ in 0..8 {
        delay = after(delay, seen(6, 1));
        windows.push(delay.window / ONE);
    }
    assert_eq!(windows, [17, 18, 19, 20, 21, 26, 32, 40]);
    let queued = after(delay, seen(7, 1));
    assert_eq!(queued.calm, 0, "a quarter of the floor is not calm");
}

#[test]
fn marks_take_their_share_of_half_the_window() {
    let marked = |marks, queue_us| {
        let seen = Seen {
            marks,
            ..seen(queue_us, 8)
        };
        window_after(8, seen)
    };
    assert_eq!(marked(0, 0), 9 * ONE);
    assert_eq!(marked(1, 0), 8 * ONE - 102);
    assert_eq!(marked(10, 0), 4 * ONE, "on each packet");
    // The larger of both reasons counts.
    assert_eq!(marked(1, 1_000), 4 * ONE);
}

#[test]
fn a_loss_halves_the_window_where_there_is_a_queue() {
    for (queue_ns, left) in [(200_000, 8), (10_000, 14)] {
        let mut delay = session(16);
        delay.queue_ns = queue_ns;
        delay.on_gap(start());
        assert_eq!(delay.window, left * ONE, "{queue_ns}");
        delay.on_gap(start() + micros(20));
        assert_eq!(delay.window, left * ONE, "once a round trip");
        delay.on_gap(start() + micros(230));
        assert!(delay.window < left * ONE);
    }
}

#[test]
fn a_timeout_halves_it_once_for_all_that_was_under_way() {
    let mut delay = session(16);
    for _slot in 0..8 {
        delay.on_timeout(start() + micros(1_000), start());
    }
    assert_eq!(delay.window, 8 * ONE);
    delay.on_timeout(start() + micros(3_000), start() + micros(2_000));
    assert_eq!(delay.window, 4 * ONE);
    delay.sampled_at = start() + micros(5_000);
    delay.on_timeout(start() + micros(6_000), start() + micros(4_000));
    assert_eq!(
        delay.window,
        4 * ONE,
        "another packet was answered meanwhile"
    );
}

#[test]
fn a_round_ends_with_the_answer_to_a_packet_of_its_own() {
    let mut delay = session(64);
    let mut sample = |sent_us: u64, at_us: u64| {
        let (sent_at, now) = (start() + micros(sent_us), start() + micros(at_us));
        delay.on_sent(usize::from(MTU));
        let ended = delay.on_sample(now, sent_at, now.saturating_since(sent_at), false);
        (ended, delay.window / ONE)
    };
    assert_eq!(sample(0, 1_000), (false, 64), "it begins a round");
    assert_eq!(sample(50, 1_010), (false, 64));
    assert_eq!(
        sample(999, 1_020),
        (false, 64),
        "a good sample ends the doubt"
    );
    assert_eq!(sample(100, 2_000), (false, 64), "another round");
    assert_eq!(sample(1_999, 3_000), (false, 64), "sent before it began");
    assert_eq!(sample(2_000, 4_000), (true, 64));
}

/// Suspicion has a price: the kernel is asked when packets arrive. Neither all credits in use nor the end of a window of
/// the path's RTT is a reason for it.
#[test]
fn a_good_sample_ends_all_suspicion() {
    let mut delay = session(64);
    delay.on_blocked();
    assert!(delay.is_suspicious());
    let mut at = start();
    for _ in 0..10 {
        at += Duration::from_millis(500);
        assert!(!delay.on_sample(at, at, micros(20), false));
        assert!(!delay.is_suspicious(), "{delay:?}");
    }
    delay.on_sample(at, at, micros(200), false);
    assert!(delay.is_suspicious(), "a queue");
}

/// 40 us above the path are a queue on a path of 20 us, and noise on one of 20 ms.
#[test]
fn noise_grows_with_the_path() {
    let mut delay = session(8);
    assert_eq!(delay.floor_ns(), 25_000);
    delay.base = Base::new();
    delay.on_handshake(start(), Duration::from_millis(20));
    assert_eq!(delay.floor_ns(), 1_250_000);
}

/// A link would be idle while packets wait for a processor. A handler's time is no such wait: its answers are not counted.
#[test]
fn a_queue_may_make_up_for_busy_hosts() {
    let mut delay = session(8);
    for _ in 0..100 {
        delay.on_host_wait(micros(200));
    }
    assert!((199_000..=200_000).contains(&delay.floor_ns()), "{delay:?}");
    for _ in 0..100 {
        delay.on_host_wait(Duration::from_secs(10));
    }
    assert_eq!(delay.floor_ns(), HOST_MAX_NS, "but not without end");
    for _ in 0..100 {
        delay.on_host_wait(Duration::ZERO);
    }
    assert_eq!(delay.floor_ns(), 25_000);
}

/// Only large requests tell of it. The floor must not stay high for the small ones that come after.
#[test]
fn the_hosts_waits_are_forgotten_with_the_path() {
    let mut delay = session(8);
    for _ in 0..100 {
        delay.on_host_wait(micros(400));
    }
    let mut at = start();
    for _ in 0..10 {
        at += Duration::from_millis(1_200);
        delay.on_sample(at, at, micros(20), false);
    }
    assert_eq!(delay.floor_ns(), 25_000);
}

#[test]
fn a_session_that_was_idle_begins_with_the_start_window() {
    let mut delay = session(64);
    let sent_at = start() + micros(10);
    assert!(!delay.on_sample(sent_at + micros(20), sent_at, micros(20), false));
    assert!(!delay.on_wake(start() + Duration::from_millis(10)));
    assert!(delay.on_wake(start() + Duration::from_secs(3_600)));
    assert_eq!((delay.window, delay.is_starting), (START, true));
    let mut small = session(4);
    assert!(!small.on_wake(start() + Duration::from_millis(500)));
    assert_eq!(small.window, 4 * ONE, "it knows of a queue");
    assert!(small.on_wake(start() + Duration::from_secs(3_600)));
    assert_eq!((small.window, small.is_starting), (START, true));
    let mut few = Delay::new(DelayLimits {
        floor_ns: 25_000,
        wall_ns: 0,
    });
    few.set_window(8, MTU);
    few.on_wake(start());
    assert_eq!((few.window, few.reserve()), (8 * ONE, 0));
}

/// What is sent again after a second without an answer goes out by the window that the losses have left.
#[test]
fn losses_are_no_idleness() {
    let mut delay = session(8);
    let lost_at = start() + Duration::from_secs(2);
    delay.on_timeout(lost_at, start() + micros(10));
    assert!(!delay.on_wake(lost_at + micros(10)));
    assert_eq!(delay.window, 4 * ONE);
}

#[test]
fn only_a_session_that_its_window_limits_drains() {
    // The wall clock is at the beginning of a slot.
    let in_slot = Instant::from_nanos(4 << 28);
    let limited = Round {
        is_limited: true,
        ..Round::NONE
    };
    let draining = |packets, round| {
        let delay = Delay {
            round,
            ..session(packets)
        };
        delay.drained_until(in_slot).is_some()
    };
    assert!(draining(8, limited));
    assert!(!draining(64, limited), "it has no queue");
    assert!(!draining(8, Round::NONE), "it makes none");
    let elsewhere = Delay {
        round: limited,
        ..session(8)
    };
    assert_eq!(
        elsewhere.drained_until(in_slot + Duration::from_millis(100)),
        None
    );
}

/// Nothing overflows at the ends of what a session can be.
#[test]
fn the_largest_numbers_fit() {
    let mut delay = session(8);
    delay.set_window(1_024, 9_000);
    for rtt in [u64::MAX, 1, 4_294_967_295, u64::MAX] {
        for at in [0, 1, u64::MAX / 4] {
            let now = start() + Duration::from_nanos(at);
            delay.on_sent(usize::MAX);
            delay.on_blocked();
            delay.on_sample(now, now, Duration::from_nanos(rtt), true);
            delay.on_gap(now);
            delay.on_timeout(now, now);
            assert!((ONE..=1_024 * ONE).contains(&delay.window));
            assert!(delay.reserve() < 1_024);
            let _ = (delay.rate(), delay.drained_until(now), delay.on_wake(now));
        }
    }
}
