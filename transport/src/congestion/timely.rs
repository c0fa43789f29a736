//! Timely (Mittal et al., SIGCOMM 2015) in the form of Zhu et al. (CoNEXT 2016), whose fixed point
//! is fair: a rate that grows by a step below the low threshold, shrinks above the high one, and in
//! between weighs growth against decrease by the gradient of the RTT.
//!
//! Integers only, so that simulations replay: fractions are in units of 1/1024.

use crate::time::{Duration, Instant};

const ONE: u64 = 1024;
/// Weight of a new RTT difference: 0.46.
const EWMA: i64 = 471;
/// Strength of a decrease: 0.26.
const BETA: u64 = 266;
/// One step of growth, in bytes per second and update interval.
const STEP: u64 = 5_000_000;
/// Growth is this much faster after `STREAK` updates without a growing RTT (hyperactive increase).
const HYPERACTIVE: u64 = 5;
const STREAK: u8 = 5;
/// No session gets slower than this, or a hundredth of the link where that is less.
const RATE_MIN: u64 = 15_000_000;

/// What the rate must keep to.
#[derive(Copy, Clone, Debug)]
pub(crate) struct TimelyLimits {
    pub(crate) rtt_low: Duration,
    pub(crate) rtt_high: Duration,
    pub(crate) rate_max: u64,
}

/// A session's rate.
#[derive(Clone, Debug)]
pub(crate) struct Timely {
    pub(crate) limits: TimelyLimits,
    /// Bytes per second.
    rate: u64,
    rtt_ns: u64,
    /// Smoothed difference of successive RTTs.
    difference_ns: i64,
    updated_at: Instant,
    marked_at: Instant,
    /// Updates in a row in which the RTT did not grow.
    streak: u8,
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
        }
    }

    pub(crate) fn rate(&self) -> u64 {
        self.rate
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
        // Samples come per packet; together those of one low threshold make one full update.
        let elapsed = now.saturating_since(self.updated_at).as_nanos();
        let share = (elapsed.saturating_mul(ONE) / low).min(ONE);
        self.updated_at = now;
        let gradient = self.gradient(rtt_ns, low);
        let is_quiet = gradient <= 0 && rtt_ns <= high;
        self.streak = if is_quiet {
            self.streak.saturating_add(1)
        } else {
            0
        };
        let (growth, decrease) = if rtt_ns < low {
            (ONE, 0)
        } else if rtt_ns > high {
            (0, BETA * (ONE - high * ONE / rtt_ns) / ONE)
        } else {
            let weight = weight_of(gradient);
            let excess = (rtt_ns - low) * ONE / low;
            (ONE - weight, BETA * weight / ONE * excess / ONE)
        };
        let haste = if self.streak >= STREAK {
            HYPERACTIVE
        } else {
            1
        };
        let step = STEP * haste * growth / ONE * share / ONE;
        let decrease = (decrease * share / ONE).min(ONE / 2);
        self.set(self.rate / ONE * (ONE - decrease) + step);
    }

    /// A switch has marked a packet: half of Timely's strongest decrease, once per round trip.
    pub(crate) fn on_mark(&mut self, now: Instant, rtt: Duration) {
        if now.saturating_since(self.marked_at) < rtt {
            return;
        }
        self.marked_at = now;
        self.streak = 0;
        self.set(self.rate / ONE * (ONE - BETA / 2));
    }

    /// The RTT's smoothed growth per sample, relative to the low threshold.
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
        let least = RATE_MIN.min(self.limits.rate_max / 100).max(1);
        self.rate = rate.clamp(least, self.limits.rate_max);
    }
}

/// How much of an update is decrease: none below a gradient of -1/4, all above 1/4.
fn weight_of(gradient: i64) -> u64 {
    let one = ONE as i64;
    (2 * gradient + one / 2).clamp(0, one) as u64
}
