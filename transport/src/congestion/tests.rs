//! Timely's answers to constant, growing and falling RTTs, and the work that the bypasses skip.

use super::*;

fn config() -> CongestionConfig {
    CongestionConfig {
        control: CongestionControl::TimelyEcn,
        ..CongestionConfig::default()
    }
}

fn timely() -> Timely {
    Timely::new(TimelyLimits {
        rtt_low: Duration::from_micros(50),
        rtt_high: Duration::from_micros(1_000),
        rate_max: 3_125_000_000,
    })
}

/// Feeds a sample per round trip, at least 50 us apart; the rate after each, in MB/s.
fn curve(timely: &mut Timely, start: u64, rtts_us: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let mut now = Instant::from_nanos(start);
    let step = |rtt: u64| {
        now += Duration::from_micros(rtt.max(50));
        timely.on_rtt(now, Duration::from_micros(rtt));
        timely.rate() / 1_000_000
    };
    rtts_us.into_iter().map(step).collect()
}

#[test]
fn below_the_low_threshold_it_stays_at_the_links_rate() {
    let mut timely = timely();
    assert!(
        curve(&mut timely, 0, [10, 20, 49, 10, 30])
            .iter()
            .all(|rate| *rate == 3_125)
    );
    assert!(timely.is_uncongested());
}

#[test]
fn above_the_high_threshold_it_falls_by_beta_times_the_excess() {
    let mut timely = timely();
    assert_eq!(
        curve(&mut timely, 0, [2_000, 2_000, 4_000]),
        [2_718, 2_365, 1_904]
    );
}

#[test]
fn a_growing_rtt_between_the_thresholds_decreases_and_a_falling_one_increases() {
    let mut timely = timely();
    let growing = curve(&mut timely, 0, (1..10).map(|n| 60 + 20 * n));
    assert!(
        growing.windows(2).skip(1).all(|pair| pair[1] < pair[0]),
        "{growing:?}"
    );
    let falling = curve(&mut timely, 1_000_000, (1..6).map(|n| 240 - 30 * n));
    assert!(
        falling.last() > growing.last(),
        "{growing:?} then {falling:?}"
    );
}

#[test]
fn recovery_becomes_hyperactive_after_five_quiet_updates() {
    let mut timely = timely();
    curve(&mut timely, 0, [4_000; 30]);
    let recovery = curve(&mut timely, 120_000_000, [20; 12]);
    let steps: Vec<u64> = recovery.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!((1..=2).contains(&steps[1]), "{steps:?}");
    assert!((6..=7).contains(&steps[10]), "{steps:?}");
}

#[test]
fn it_never_leaves_its_bounds() {
    let mut timely = timely();
    curve(&mut timely, 0, [1_000_000; 1_000]);
    assert_eq!(timely.rate(), 3_125_000);
    curve(&mut timely, 2_000_000_000_000, [1; 2_000]);
    assert_eq!(timely.rate(), 3_125_000_000);
}

#[test]
fn a_mark_counts_once_per_round_trip() {
    let mut timely = timely();
    let rtt = Duration::from_micros(40);
    timely.on_mark(Instant::from_nanos(1_000_000), rtt);
    let once = timely.rate();
    timely.on_mark(Instant::from_nanos(1_010_000), rtt);
    assert_eq!(timely.rate(), once);
    timely.on_mark(Instant::from_nanos(1_050_000), rtt);
    assert!(timely.rate() < once);
}

#[test]
fn the_bypasses_serve_uncongested_sessions_only() {
    let floor = Duration::from_micros(50);
    let mut congestion = Congestion::new(&config(), floor);
    assert_eq!(congestion.pacing_rate(), None);
    let mut now = Instant::from_nanos(1_000_000);
    congestion.on_sample(now, now, Duration::from_micros(2_000), false);
    let rate = congestion.rate();
    assert_eq!(congestion.pacing_rate(), Some(rate));
    now += Duration::from_micros(100);
    congestion.on_sample(now, now, Duration::from_micros(10), false);
    assert!(
        congestion.rate() > rate,
        "a congested session does not skip its update"
    );
    let unbypassed = CongestionConfig {
        rate_limiter_bypass: false,
        ..config()
    };
    assert!(Congestion::new(&unbypassed, floor).pacing_rate().is_some());
    let off = CongestionConfig {
        control: CongestionControl::Off,
        ..config()
    };
    assert_eq!(Congestion::new(&off, floor).pacing_rate(), None);
}

#[test]
fn each_controller_has_a_name() {
    for control in CongestionControl::ALL {
        assert_eq!(control.name().parse(), Ok(control));
    }
    let unknown = "bbr".parse::<CongestionControl>().expect_err("no such");
    let text = "bbr is no congestion control; there are off, timely, timely+ecn, delay";
    assert_eq!(unknown.to_string(), text);
}

#[test]
fn a_mark_counts_only_for_the_controller_that_uses_marks() {
    let (floor, rtt) = (Duration::from_micros(50), Duration::from_micros(10));
    for (control, slows_down) in [
        (CongestionControl::Off, false),
        (CongestionControl::Timely, false),
        (CongestionControl::TimelyEcn, true),
    ] {
        let config = CongestionConfig {
            control,
            ..config()
        };
        let mut congestion = Congestion::new(&config, floor);
        let before = congestion.rate();
        let now = Instant::from_nanos(1_000_000);
        congestion.on_sample(now, now, rtt, true);
        assert_eq!(congestion.rate() < before, slows_down, "{control}");
        assert_eq!(congestion.pacing_rate().is_some(), slows_down, "{control}");
    }
}

/// A pacer that charged an MTU for a request of 56 bytes let a congested session send a 26th of its rate.
#[test]
fn an_answer_is_charged_when_its_size_is_known() {
    let rate = 1_000_000_000;
    let mut pacer = Pacer::default();
    let start = Instant::from_nanos(5_000_000);
    pacer.begin(start);
    pacer.on_sent(56, rate);
    assert_eq!(pacer.departure(), start + Duration::from_nanos(56));
    let answered = start + Duration::from_micros(20);
    pacer.on_answered(answered, 1_472, rate);
    assert_eq!(pacer.departure(), answered + Duration::from_nanos(1_472));
}

#[test]
fn a_pacer_keeps_the_rate_and_makes_up_only_for_waiting() {
    let rate = 1_000_000_000;
    let mut pacer = Pacer::default();
    let start = Instant::from_nanos(5_000_000);
    pacer.begin(start);
    pacer.on_sent(1_000, rate);
    assert_eq!(pacer.departure(), start + Duration::from_micros(1));
    // Served late while it waited: the lost time is made up.
    pacer.wait();
    pacer.begin(start + Duration::from_micros(10));
    assert_eq!(pacer.departure(), start + Duration::from_micros(1));
    // Idle in between: it is not.
    pacer.begin(start + Duration::from_micros(20));
    assert_eq!(pacer.departure(), start + Duration::from_micros(20));
}
