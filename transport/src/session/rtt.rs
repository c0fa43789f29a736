//! Round-trip time of a session and the retransmission timeout made of it (RFC 6298).
//!
//! The smoothed RTT forgets within ten answers. A server that syncs a disk, or that waits for a processor, is late once
//! in a thousand answers and again soon after. So the timeout also covers the longest wait of the last seconds. It does
//! not where packets get lost: each loss would take that long, and a server's answer may wait for losses elsewhere.

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
    window: RttWindow,
    window_before: RttWindow,
    /// When this window ends.
    window_end: Instant,
    /// What the timeout covers for the sake of waits; 0 where losses forbid it.
    covered_ns: u32,
    limits: RtoLimits,
}

/// What a second has shown of timeouts that are made of the samples alone.
#[derive(Copy, Clone, Default, Debug)]
struct RttWindow {
    /// The longest wait for a response, server time included; no more than counts.
    waited_ns: u32,
    /// Responses that came later than such a timeout. The packet was not lost.
    early: u32,
    /// Packets that were retransmitted and had been lost.
    right: u32,
}

/// Bounds of the retransmission timeout.
#[derive(Copy, Clone, Debug)]
pub(crate) struct RtoLimits {
    pub(crate) initial: Duration,
    pub(crate) floor: Duration,
    pub(crate) max: Duration,
    /// A wait beyond this one raises the timeout no further: it is a handler's, of which the server says BUSY, or a long
    /// round trip, of which samples tell.
    pub(crate) wait_max: Duration,
}

const BACKOFF_MAX: u8 = 12;

const fn with_a_quarter(ns: u32) -> u32 {
    ns.saturating_add(ns / 4)
}

/// The longest wait counts for one to two of these.
const WAIT_WINDOW: Duration = Duration::from_secs(1);
/// Packets that may be retransmitted in vain for each one that was lost.
const EARLY_FOR_A_RIGHT: u32 = 4;

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
            window: RttWindow::default(),
            window_before: RttWindow::default(),
            window_end: Instant::ZERO,
            covered_ns: 0,
            limits,
        }
    }

    pub(crate) fn smoothed_ns(&self) -> u64 {
        self.smoothed_ns
    }

    /// The smallest sample that says anything; 0 before the first.
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
        } else {
            let deviation = self.smoothed_ns.abs_diff(sample);
            self.variation_ns = (3 * self.variation_ns + deviation) / 4;
            self.smoothed_ns = (7 * self.smoothed_ns + sample) / 8;
        }
        // A handshake within one look at the clock takes no time by it. No path is so short.
        if sample > 0 && (self.min_ns == 0 || sample < self.min_ns) {
            self.min_ns = sample;
        }
        self.samples += 1;
        self.backoff = 0;
    }

    /// A response has come this long after the transmission that it answers. The server time is part of it: the timer
    /// runs meanwhile.
    #[inline(always)]
    pub(crate) fn on_waited(&mut self, now: Instant, waited: Duration) {
        if now >= self.window_end {
            self.turn_window(now);
        }
        if waited > self.limits.floor {
            self.on_long_wait(waited);
        }
    }

    #[inline(never)]
    fn on_long_wait(&mut self, waited: Duration) {
        if waited <= self.sampled() {
            return;
        }
        let waited = waited.min(self.limits.wait_max).as_nanos();
        let waited_ns = u32::try_from(waited).unwrap_or(u32::MAX);
        self.window.waited_ns = self.window.waited_ns.max(waited_ns);
        self.window.early = self.window.early.saturating_add(1);
        self.weigh();
    }

    /// The same for a response to a transmission that was taken for lost. The timeout covers its wait from now on, so
    /// the doubling ends. A longer wait than the timeout may cover keeps the doubling: only that lets the next request
    /// wait for its answer, and so gives a sample of a round trip that has become this long.
    pub(crate) fn on_spurious_timeout(&mut self, now: Instant, waited: Duration) {
        self.on_waited(now, waited);
        // Without a sample the timeout is the initial one, which covers no wait.
        if self.samples > 0 && waited <= self.rto_without_doubling() {
            self.backoff = 0;
        }
    }

    /// The response to a packet that was sent again has shown that the first one, or its answer, was lost.
    pub(crate) fn on_loss(&mut self, now: Instant) {
        if now >= self.window_end {
            self.turn_window(now);
        }
        self.window.right = self.window.right.saturating_add(1);
        self.weigh();
    }

    #[cold]
    fn turn_window(&mut self, now: Instant) {
        let is_next = now < self.window_end.saturating_add(WAIT_WINDOW);
        let ended = std::mem::take(&mut self.window);
        self.window_before = if is_next { ended } else { RttWindow::default() };
        self.window_end = now.saturating_add(WAIT_WINDOW);
        self.weigh();
    }

    /// Decides what the timeout covers: the longest wait of late and a quarter of it, but no more than the handlers' share
    /// allows, and nothing if too many packets were lost.
    fn weigh(&mut self) {
        let (window, before) = (self.window, self.window_before);
        let early = window.early.saturating_add(before.early);
        let right = window.right.saturating_add(before.right);
        let longest = window.waited_ns.max(before.waited_ns);
        let covers = early > right.saturating_mul(EARLY_FOR_A_RIGHT);
        self.covered_ns = if covers { with_a_quarter(longest) } else { 0 };
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
            self.rto_without_doubling()
        };
        let doublings = attempts.max(self.backoff).min(BACKOFF_MAX);
        if doublings == 0 {
            return base.min(self.limits.max);
        }
        base.saturating_mul(1 << doublings).min(self.limits.max)
    }

    #[inline(always)]
    fn rto_without_doubling(&self) -> Duration {
        let covered = Duration::from_nanos(self.covered_ns.into());
        self.sampled().max(covered.min(self.limits.wait_max))
    }

    /// The timeout that the samples alone make.
    #[inline(always)]
    fn sampled(&self) -> Duration {
        Duration::from_nanos(self.smoothed_ns + 4 * self.variation_ns).max(self.limits.floor)
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
            wait_max: Duration::from_millis(50),
        })
    }

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    /// `trine status` showed a smallest round trip of 0 ns for as long as a session stood: the handshake's.
    #[test]
    fn a_sample_of_no_time_is_not_the_smallest() {
        let mut rtt = rtt();
        let smallest = [0, 30_000, 0, 20_000, 40_000].map(|ns| {
            rtt.on_sample(Duration::from_nanos(ns));
            rtt.min_ns()
        });
        assert_eq!(smallest, [0, 30_000, 30_000, 20_000, 20_000]);
    }

    /// On healthy loopback, every sync of a disk and every wait for a processor of more than a millisecond made a
    /// retransmission: 1 ms is the kernel's floor, and the samples without the server time were 50 us.
    #[test]
    fn the_timeout_covers_the_longest_wait_of_the_last_second() {
        let mut rtt = rtt();
        let usual = Duration::from_micros(50);
        for _ in 0..100 {
            rtt.on_sample(usual);
            rtt.on_waited(at(10_000), usual);
        }
        assert_eq!(rtt.rto(0), Duration::from_millis(1));
        rtt.on_waited(at(10_010), Duration::from_millis(8));
        for millis in 10_011..12_000 {
            rtt.on_sample(usual);
            rtt.on_waited(at(millis), usual);
            assert_eq!(rtt.rto(0), Duration::from_millis(10), "{millis}");
        }
        rtt.on_waited(at(12_000), usual);
        assert_eq!(rtt.rto(0), Duration::from_millis(1), "it is forgotten");
    }

    /// Found by review: the first request of a session whose handshake gave no sample went out after 10 ms again, like the
    /// next one, for the life of the session.
    #[test]
    fn a_path_of_which_nothing_is_known_is_learnt() {
        let mut rtt = rtt();
        let path = Duration::from_millis(30);
        let mut now = at(1_000);
        for _request in 0..4 {
            let rto = rtt.rto(0);
            if rto >= path {
                return;
            }
            rtt.on_timeout(now + rto, now);
            now += path;
            rtt.on_spurious_timeout(now, path);
        }
        panic!("{:?} after four requests", rtt.rto(0));
    }

    /// A review found that a round trip beyond 50 ms that came suddenly was never learnt: each request was sent twice, for
    /// the life of the session. Answers to what was taken for lost are no samples, and ended the doubling.
    #[test]
    fn a_path_that_becomes_longer_than_any_wait_is_learnt() {
        for (usual, later) in [
            (200, 49_000),
            (200, 51_000),
            (200, 80_000),
            (80_000, 90_000),
        ] {
            let [usual, later] = [usual, later].map(Duration::from_micros);
            let mut rtt = rtt();
            for _ in 0..100 {
                rtt.on_sample(usual);
            }
            let mut early = Vec::new();
            let mut now = at(1_000);
            for request in 0..100 {
                let sent_at = now;
                now = sent_at + later;
                if rtt.rto(0) < later {
                    early.push(request);
                    rtt.on_timeout(sent_at + rtt.rto(0), sent_at);
                    rtt.on_spurious_timeout(now, later);
                } else {
                    rtt.on_waited(now, later);
                    rtt.on_sample(later);
                }
            }
            assert!(early.len() < 20, "{later:?}: {early:?}");
            assert!(
                early.iter().all(|&request| request < 50),
                "{later:?}: {early:?}"
            );
        }
    }

    /// Where packets got lost, a leader's answers waited for the appends that it sent again. So the timeouts of clients grew
    /// with the losses elsewhere, and each of their own losses cost 50 ms: at 5 % loss a tenth of all writes took that.
    #[test]
    fn waits_do_not_count_where_packets_get_lost() {
        let mut rtt = rtt();
        let usual = Duration::from_micros(50);
        let wait = |rtt: &mut Rtt, millis, waited| {
            rtt.on_sample(usual);
            rtt.on_waited(at(millis), Duration::from_millis(waited));
        };
        for millis in 10_000..10_100 {
            wait(&mut rtt, millis, 0);
        }
        for millis in 10_100..10_104 {
            wait(&mut rtt, millis, 8);
        }
        assert_eq!(rtt.rto(0), Duration::from_millis(10));
        rtt.on_loss(at(10_104));
        assert_eq!(rtt.rto(0), Duration::from_millis(1));
        wait(&mut rtt, 10_105, 8);
        assert_eq!(
            rtt.rto(0),
            Duration::from_millis(10),
            "five in vain for a loss"
        );
        // Losses are forgotten like waits.
        for millis in 10_106..10_110 {
            rtt.on_loss(at(millis));
        }
        wait(&mut rtt, 12_999, 0);
        wait(&mut rtt, 13_000, 8);
        assert_eq!(rtt.rto(0), Duration::from_millis(10));
    }

    /// The path is ten times as long all at once, and each second packet is lost. There is always one for which the doubled
    /// timeout is long enough.
    #[test]
    fn a_path_that_becomes_longer_is_learnt_in_spite_of_losses() {
        let mut rtt = rtt();
        for _ in 0..100 {
            rtt.on_sample(Duration::from_micros(800));
        }
        let later = Duration::from_millis(8);
        let mut now = at(1_000);
        let mut sampled = 0;
        for request in 0..200 {
            let sent_at = now;
            let is_lost = request % 2 == 0;
            let rto = rtt.rto(0);
            now = sent_at + later;
            match (is_lost, rto < later) {
                (true, _) => {
                    now = sent_at + rto + later;
                    rtt.on_timeout(sent_at + rto, sent_at);
                    rtt.on_loss(now);
                    rtt.on_waited(now, later);
                }
                (false, true) => {
                    rtt.on_timeout(sent_at + rto, sent_at);
                    rtt.on_spurious_timeout(now, later);
                }
                (false, false) => {
                    rtt.on_waited(now, later);
                    rtt.on_sample(later);
                    sampled += 1;
                }
            }
        }
        assert!(sampled > 80, "{sampled} samples");
        assert!(rtt.rto(0) > later);
    }

    #[test]
    fn a_wait_of_an_hour_ago_is_no_wait_of_late() {
        let mut rtt = rtt();
        rtt.on_sample(Duration::from_micros(50));
        rtt.on_waited(at(1_000), Duration::from_millis(8));
        rtt.on_waited(at(3_600_000), Duration::from_micros(50));
        assert_eq!(rtt.rto(0), Duration::from_millis(1));
    }

    #[test]
    fn a_handler_of_a_minute_is_no_reason_to_wait_for_a_minute() {
        let mut rtt = rtt();
        rtt.on_sample(Duration::from_micros(50));
        rtt.on_waited(at(1_000), Duration::from_secs(60));
        assert_eq!(rtt.rto(0), Duration::from_millis(50));
    }

    #[test]
    fn a_timeout_that_was_none_ends_the_doubling_and_is_measured() {
        let mut rtt = rtt();
        rtt.on_sample(Duration::from_micros(50));
        rtt.on_timeout(at(10), at(9));
        assert_eq!(rtt.rto(0), Duration::from_millis(2));
        rtt.on_spurious_timeout(at(12), Duration::from_millis(4));
        assert_eq!(rtt.rto(0), Duration::from_millis(5));
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
