//! Counters of endpoint and sessions: plain numbers, copied out on request.

use crate::congestion::CongestionControl;
use crate::time::Duration;

/// An endpoint's counters since its creation, and its present load.
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
pub struct EndpointStats {
    /// Sessions that this endpoint opened and that are established now.
    pub sessions_client: u64,
    /// Sessions that peers opened and that are established now.
    pub sessions_server: u64,
    /// Requests in flight or queued now.
    pub requests_pending: u64,
    /// Requests accepted by `enqueue_request`.
    pub requests_enqueued: u64,
    /// Requests that completed with a response.
    pub requests_completed: u64,
    /// Requests that completed with an error.
    pub requests_failed: u64,
    /// Handler calls.
    pub requests_executed: u64,
    /// Requests that had expired before their handler could run.
    pub requests_expired: u64,
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets received whose layout was sound.
    pub packets_received: u64,
    /// Rollbacks after a timeout.
    pub timeouts: u64,
    /// Rollbacks after a gap in the peer's answers.
    pub gaps: u64,
    /// Packets retransmitted.
    pub retransmissions: u64,
    /// BUSY packets sent.
    pub busy_sent: u64,
    /// BUSY packets received.
    pub busy_received: u64,
    /// Slow probes of executing requests.
    pub probes_sent: u64,
    /// Times that a session had something to send but no credit.
    pub credit_stalls: u64,
    /// Responses that came after their request was over.
    pub responses_stale: u64,
    /// Requests whose client left them half sent for the hold timeout; their memory was given back.
    pub requests_abandoned: u64,
    /// Responses of several packets that no client asked about for the hold timeout; the same.
    pub responses_released: u64,
    /// Sessions granted beyond the receive queue's size (`Config::overcommit`).
    pub sessions_overcommitted: u64,
    /// Sessions that ended because their peer broke the protocol.
    pub sessions_violated: u64,
    /// Sessions that gave way to those of callers with fewer of them.
    pub sessions_gave_way: u64,
    /// Sessions of this endpoint that ended because packets of their size vanished on the path.
    pub black_holes: u64,
    /// Runs of sealed packets that were opened.
    pub sealed_opened: u64,
    /// Handshakes that were put off, because handshakes had taken their share of this endpoint's time.
    pub handshakes_deferred: u64,
    /// Requests half received whose memory was given to a caller with less of it.
    pub requests_gave_way: u64,
    /// Responses of several packets that were released because their caller's address held most of them.
    pub responses_gave_way: u64,
    /// Memory in use by requests that are being received now.
    pub request_bytes_held: u64,
    /// Memory in use now by responses of several packets that clients fetch.
    pub response_bytes_held: u64,
    /// The congestion control of this endpoint's own sessions.
    pub congestion: CongestionControl,
    /// Received packets that were dropped, by cause.
    pub drops: Drops,
}

/// Received packets that were dropped, by cause.
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
pub struct Drops {
    /// Shorter than a header or than the stated length; the rest of the datagram goes too.
    pub truncated: u64,
    /// Another protocol version.
    pub version: u64,
    /// An unknown packet type.
    pub unknown_type: u64,
    /// A flag that version 1 does not know at that place.
    pub unsupported: u64,
    /// A wrong checksum: corrupted, or of an older session at the same index.
    pub checksum: u64,
    /// No session at that index.
    pub no_session: u64,
    /// The session's peer has another address.
    pub wrong_route: u64,
    /// Not a packet for this end, or not in this state.
    pub wrong_state: u64,
    /// Slot, packet number or size outside the session's terms or the message.
    pub bad_number: u64,
    /// Of an earlier request or already answered.
    pub past: u64,
    /// Ahead of a missing packet.
    pub reordered: u64,
    /// A message above the limit.
    pub too_large: u64,
    /// No memory to receive the request.
    pub no_memory: u64,
    /// The queue of answers was full.
    pub answers_full: u64,
    /// A handshake packet that is malformed or fits no handshake.
    pub handshake: u64,
    /// A CONNECT whose cookie is wrong or too old.
    pub cookie: u64,
    /// A packet without a good seal in a sealed session: damaged, forged, or of another session.
    pub forged: u64,
    /// A sealed packet that has come before, or too late to tell.
    pub replayed: u64,
}

impl Drops {
    /// All causes together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.named().iter().map(|(_, count)| count).sum()
    }

    /// Every cause with its name, for status pages.
    #[must_use]
    pub fn named(&self) -> [(&'static str, u64); 18] {
        [
            ("truncated", self.truncated),
            ("version", self.version),
            ("unknown_type", self.unknown_type),
            ("unsupported", self.unsupported),
            ("checksum", self.checksum),
            ("no_session", self.no_session),
            ("wrong_route", self.wrong_route),
            ("wrong_state", self.wrong_state),
            ("bad_number", self.bad_number),
            ("past", self.past),
            ("reordered", self.reordered),
            ("too_large", self.too_large),
            ("no_memory", self.no_memory),
            ("answers_full", self.answers_full),
            ("handshake", self.handshake),
            ("cookie", self.cookie),
            ("forged", self.forged),
            ("replayed", self.replayed),
        ]
    }
}

/// A session's measurements and load.
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
pub struct SessionStats {
    /// Smoothed round-trip time; 0 before the first sample and at the server end.
    pub rtt_ns_smoothed: u64,
    /// The smallest sample; 0 before the first.
    pub rtt_ns_min: u64,
    /// The latest sample; 0 before the first.
    pub rtt_ns_last: u64,
    /// The present retransmission timeout.
    pub rto_ns: u64,
    /// Samples taken.
    pub rtt_samples: u64,
    /// Packets retransmitted.
    pub retransmissions: u64,
    /// Credits agreed on.
    pub credits: u16,
    /// Credits in use.
    pub credits_in_use: u16,
    /// Slots agreed on.
    pub slots: u8,
    /// Largest packet agreed on.
    pub mtu: u16,
    /// Requests in slots.
    pub requests_in_flight: u32,
    /// Requests that wait for a slot.
    pub requests_queued: u32,
    /// Requests completed with a response.
    pub requests_completed: u64,
    /// Times that the session had something to send but no credit.
    pub credit_stalls: u64,
    /// The rate that congestion control allows, in bytes per second; 0 with congestion control off.
    pub rate_bytes_per_second: u64,
}

/// All counters of an endpoint.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) stats: EndpointStats,
    pub(crate) rtts: RttHistogram,
}

/// How often round-trip times of each size were measured: four classes an octave, so that a
/// percentile is right to a fifth.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct RttHistogram {
    counts: [u64; Self::CLASSES],
}

impl Default for RttHistogram {
    fn default() -> Self {
        Self {
            counts: [0; Self::CLASSES],
        }
    }
}

impl RttHistogram {
    /// Up to 4 seconds.
    const CLASSES: usize = 128;

    #[inline]
    pub(crate) fn record(&mut self, rtt: Duration) {
        self.counts[Self::class_of(rtt.as_nanos())] += 1;
    }

    /// Samples.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// A time that so many of a thousand samples did not exceed; `None` without samples.
    #[must_use]
    pub fn at_per_mille(&self, per_mille: u64) -> Option<Duration> {
        let wanted = (self.count() * per_mille.min(1_000)).div_ceil(1_000).max(1);
        let mut seen = 0;
        let class = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        Some(Duration::from_nanos(Self::end_of(class)))
    }

    fn class_of(ns: u64) -> usize {
        let ns = ns.max(4);
        let octave = ns.ilog2() as usize;
        // The two bits below the highest one.
        let quarter = (ns >> (octave - 2)) as usize & 3;
        (octave * 4 + quarter).min(Self::CLASSES - 1)
    }

    /// The largest time of a class.
    fn end_of(class: usize) -> u64 {
        let (octave, quarter) = (class / 4, class as u64 % 4);
        (1 << octave) + ((quarter + 1) << octave.saturating_sub(2)) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_right_to_a_fifth() {
        let mut histogram = RttHistogram::default();
        assert_eq!(histogram.at_per_mille(500), None);
        for us in 1..=1_000 {
            histogram.record(Duration::from_micros(us));
        }
        for (per_mille, us) in [(1, 1), (500, 500), (990, 990), (1_000, 1_000)] {
            let at = histogram
                .at_per_mille(per_mille)
                .expect("samples")
                .as_nanos();
            assert!(
                (us * 1_000..=us * 1_250).contains(&at),
                "{per_mille}: {at} ns"
            );
        }
        assert_eq!(histogram.count(), 1_000);
    }

    #[test]
    fn the_ends_have_their_classes() {
        let mut histogram = RttHistogram::default();
        histogram.record(Duration::ZERO);
        assert_eq!(histogram.at_per_mille(1_000), Some(Duration::from_nanos(4)));
        histogram.record(Duration::MAX);
        assert!(histogram.at_per_mille(1_000) > Some(Duration::from_secs(4)));
    }
}
