//! Round-trip time of a session and the retransmission timeout made of it (RFC 6298).

use crate::time::{Duration, Instant};

/// Smoothed RTT, its variation, and the timeout. Samples have the server time taken out.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Rtt {
    smoothed_ns: u64,
    variation_ns: u64,
    min_ns: u64,
    last_ns: u64,
    samples: u64,
    /// Doublings since the last sample: an RTT that grew past the timeout must still be measured.
    backoff: u8,
    /// When it was last doubled.
    backed_off_at: Instant,
    limits: RtoLimits,
}

/// Bounds of the retransmission timeout.
#[derive(Copy, Clone, Debug)]
pub(crate) struct RtoLimits {
    pub(crate) initial: Duration,
    pub(crate) floor: Duration,
    pub(crate) max: Duration,
}

const BACKOFF_MAX: u8 = 12;

impl Rtt {
    pub(crate) fn new(limits: RtoLimits) -> Self {
        Self {
            smoothed_ns: 0,
            variation_ns: 0,
            min_ns: 0,
            last_ns: 0,
            samples: 0,
            backoff: 0,
            backed_off_at: Instant::ZERO,
            limits,
        }
    }

    pub(crate) fn smoothed_ns(&self) -> u64 {
        self.smoothed_ns
    }

    /// The smallest sample; 0 before the first.
    pub(crate) fn min_ns(&self) -> u64 {
        self.min_ns
    }

    /// The latest sample; 0 before the first.
    pub(crate) fn last_ns(&self) -> u64 {
        self.last_ns
    }

    pub(crate) fn samples(&self) -> u64 {
        self.samples
    }

    /// A packet that was sent once was answered after this time.
    #[inline(always)]
    pub(crate) fn on_sample(&mut self, rtt: Duration) {
        let sample = rtt.as_nanos();
        self.last_ns = sample;
        if self.samples == 0 {
            self.smoothed_ns = sample;
            self.variation_ns = sample / 2;
            self.min_ns = sample;
        } else {
            let deviation = self.smoothed_ns.abs_diff(sample);
            self.variation_ns = (3 * self.variation_ns + deviation) / 4;
            self.smoothed_ns = (7 * self.smoothed_ns + sample) / 8;
            self.min_ns = self.min_ns.min(sample);
        }
        self.samples += 1;
        self.backoff = 0;
    }

    /// A timeout has fired for a packet that was sent at `sent_at`. One doubling for all that was
    /// under way together: many slots that time out at once are one piece of news, not many.
    pub(crate) fn on_timeout(&mut self, now: Instant, sent_at: Instant) {
        if sent_at >= self.backed_off_at {
            self.backoff = (self.backoff + 1).min(BACKOFF_MAX);
            self.backed_off_at = now;
        }
    }

    /// The timeout for a request that has already timed out `attempts` times in a row.
    #[inline(always)]
    pub(crate) fn rto(&self, attempts: u8) -> Duration {
        let base = if self.samples == 0 {
            self.limits.initial
        } else {
            Duration::from_nanos(self.smoothed_ns + 4 * self.variation_ns).max(self.limits.floor)
        };
        let doublings = attempts.max(self.backoff).min(BACKOFF_MAX);
        if doublings == 0 {
            return base.min(self.limits.max);
        }
        base.saturating_mul(1 << doublings).min(self.limits.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rtt() -> Rtt {
        Rtt::new(RtoLimits {
            initial: Duration::from_millis(10),
            floor: Duration::from_millis(1),
            max: Duration::from_millis(200),
        })
    }

    #[test]
    fn the_timeout_follows_the_rtt_down_to_the_floor() {
        let mut rtt = rtt();
        assert_eq!(rtt.rto(0), Duration::from_millis(10));
        rtt.on_sample(Duration::from_millis(4));
        assert_eq!(rtt.rto(0), Duration::from_millis(12), "RTT + 4 * RTT / 2");
        for _ in 0..100 {
            rtt.on_sample(Duration::from_micros(20));
        }
        assert_eq!(rtt.rto(0), Duration::from_millis(1));
        assert_eq!(rtt.min_ns, 20_000);
    }

    /// Found by a chaos run at 5 % loss: the appends under way timed out together, and the session
    /// took each for a doubling. A second loss then waited for the longest timeout that there is.
    #[test]
    fn many_timeouts_at_once_are_one_doubling() {
        let mut rtt = rtt();
        rtt.on_sample(Duration::from_micros(20));
        let at = |millis| Instant::ZERO + Duration::from_millis(millis);
        for _slot in 0..8 {
            rtt.on_timeout(at(10), at(9));
        }
        assert_eq!(rtt.rto(0), Duration::from_millis(2));
        rtt.on_timeout(at(13), at(11));
        assert_eq!(rtt.rto(0), Duration::from_millis(4), "that was sent since");
    }

    #[test]
    fn it_doubles_until_its_limit_and_a_sample_ends_that() {
        let mut rtt = rtt();
        rtt.on_sample(Duration::from_micros(20));
        assert_eq!(rtt.rto(3), Duration::from_millis(8));
        assert_eq!(rtt.rto(200), Duration::from_millis(200));
        let at = |millis| Instant::ZERO + Duration::from_millis(millis);
        rtt.on_timeout(at(10), at(5));
        rtt.on_timeout(at(20), at(15));
        assert_eq!(
            rtt.rto(0),
            Duration::from_millis(4),
            "the session remembers timeouts"
        );
        rtt.on_sample(Duration::from_micros(20));
        assert_eq!(rtt.rto(0), Duration::from_millis(1));
    }
}
