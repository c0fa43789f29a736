//! Timely (Mittal et al., SIGCOMM 2015) in the form of Zhu et al. (CoNEXT 2016), whose fixed point
//! is fair. The rate grows by a step below the low threshold and shrinks above the high one. In
//! between it weighs growth against decrease by the gradient of the RTT.
//!
//! Integers only, so that simulations replay: fractions are in units of 2^-20.

use crate::time::{Duration, Instant};

const ONE: u64 = 1 << 20;
/// Weight of a new RTT difference: 0.46.
const EWMA: i64 = 482_345;
/// Strength of a decrease: 0.26.
const BETA: u64 = 272_630;
/// One step of growth in an update interval is this part of the link: Timely's 10 Mbit/s of 25
/// Gbit/s. The steps of many flows add up. With 1,000, a hundred of them grow by a tenth of the
/// link in each low threshold, more than the decrease can follow.
const STEP_PART: u64 = 2_500;
/// Growth is this much faster after `STREAK` updates without a growing RTT (hyperactive increase).
const HYPERACTIVE: u64 = 5;
const STREAK: u8 = 5;
/// No session gets slower than this part of the link.
const RATE_MIN_PART: u64 = 1_000;

/// The bounds of the rate.
#[derive(Copy, Clone, Debug)]
pub(crate) struct TimelyLimits {
    pub(crate) rtt_low: Duration,
    pub(crate) rtt_high: Duration,
    pub(crate) rate_max: u64,
}

/// A session's rate.
#[derive(Clone, Debug)]
pub(crate) struct Timely {
    limits: TimelyLimits,
    /// Bytes per second.
    rate: u64,
    rtt_ns: u64,
    /// Smoothed difference of successive RTTs.
    difference_ns: i64,
    updated_at: Instant,
    marked_at: Instant,
    /// Updates in a row in which the RTT did not grow.
    streak: u8,
    /// The most that the session's credits let it have in flight.
    window_bytes: u64,
}

impl Timely {
    pub(crate) fn new(limits: TimelyLimits) -> Self {
        Self {
            limits,
            rate: limits.rate_max,
            rtt_ns: 0,
            difference_ns: 0,
            updated_at: Instant::ZERO,
            marked_at: Instant::ZERO,
            streak: 0,
            window_bytes: u64::MAX,
        }
    }

    /// Tells the session's credits, in bytes.
    pub(crate) fn set_window(&mut self, bytes: u64) {
        self.window_bytes = bytes;
    }

    pub(crate) fn rate(&self) -> u64 {
        self.rate
    }

    /// An RTT below this one is no sign of congestion.
    #[inline]
    pub(crate) fn rtt_low(&self) -> Duration {
        self.limits.rtt_low
    }

    /// The session may use the whole link.
    #[inline]
    pub(crate) fn is_uncongested(&self) -> bool {
        self.rate == self.limits.rate_max
    }

    pub(crate) fn on_rtt(&mut self, now: Instant, rtt: Duration) {
        let rtt_ns = rtt.as_nanos().max(1);
        let low = self.limits.rtt_low.as_nanos().max(1);
        let high = self.limits.rtt_high.as_nanos();
        // Samples come per packet, but the gradient is a difference between updates. Taken for each
        // packet it would be small for fast sessions and large for slow ones. Slow sessions would
        // then decrease and grow by other rules than fast ones and never catch up with them.
        let elapsed = now.saturating_since(self.updated_at).as_nanos();
        if elapsed < low {
            return;
        }
        // The time of one low threshold makes one step of growth. The time of one round trip makes
        // one decrease, since its samples tell of the same queue. Slow sessions see few samples and
        // must grow as fast as others, so time counts, not updates; idle time does not.
        let round = rtt_ns.max(low);
        let elapsed = elapsed.min(10 * round);
        let grown = elapsed.saturating_mul(ONE) / low;
        let fallen = (elapsed.saturating_mul(ONE) / round).min(ONE);
        self.updated_at = now;
        let gradient = self.gradient(rtt_ns, low);
        let is_quiet = gradient <= 0 && rtt_ns < low;
        self.streak = if is_quiet {
            self.streak.saturating_add(1)
        } else {
            0
        };
        let (growth, decrease) = if rtt_ns < low {
            (ONE, 0)
        } else if rtt_ns > high {
            // At least half of the strongest decrease, or the band below would decrease more.
            (
                0,
                part(BETA, (ONE - high.saturating_mul(ONE) / rtt_ns).max(ONE / 2)),
            )
        } else {
            let weight = weight_of(gradient);
            let excess = (rtt_ns - low).saturating_mul(ONE) / low;
            (ONE - weight, part(part(BETA, weight), excess))
        };
        let haste = if self.streak >= STREAK {
            HYPERACTIVE
        } else {
            1
        };
        let step = part(
            part(self.limits.rate_max / STEP_PART * haste, growth),
            grown,
        );
        let decrease = part(decrease, fallen).min(ONE / 2);
        // The credits alone keep the rate below a window a round trip: a higher rate was never
        // used, and to decrease it would change nothing.
        let used = self.window_bytes.saturating_mul(1_000_000_000) / rtt_ns;
        let rate = if decrease > 0 {
            self.rate.min(used.saturating_mul(2))
        } else {
            self.rate
        };
        self.set(part(rate, ONE - decrease) + step);
    }

    /// A switch has marked a packet: half of Timely's strongest decrease, once per round trip.
    pub(crate) fn on_mark(&mut self, now: Instant, rtt: Duration) {
        if now.saturating_since(self.marked_at) < rtt {
            return;
        }
        self.marked_at = now;
        self.streak = 0;
        self.set(part(self.rate, ONE - BETA / 2));
    }

    /// The RTT's smoothed growth per update, relative to the low threshold.
    fn gradient(&mut self, rtt_ns: u64, low: u64) -> i64 {
        // RTTs are far below 2^43 ns.
        let difference = if self.rtt_ns == 0 {
            0
        } else {
            rtt_ns as i64 - self.rtt_ns as i64
        };
        self.rtt_ns = rtt_ns;
        let one = ONE as i64;
        self.difference_ns = ((one - EWMA) * self.difference_ns + EWMA * difference) / one;
        self.difference_ns * one / low as i64
    }

    fn set(&mut self, rate: u64) {
        let least = (self.limits.rate_max / RATE_MIN_PART).max(1);
        self.rate = rate.clamp(least, self.limits.rate_max);
    }
}

/// A value times a fraction.
fn part(value: u64, fraction: u64) -> u64 {
    // Both are below 2^64, and no fraction here makes a value larger than 2^63.
    (u128::from(value) * u128::from(fraction) / u128::from(ONE)) as u64
}

/// How much of an update is decrease: none below a gradient of -1/4, all above 1/4.
fn weight_of(gradient: i64) -> u64 {
    let one = ONE as i64;
    (2 * gradient + one / 2).clamp(0, one) as u64
}
