//! When a session's next packet may leave.
//!
//! Carousel stamps each packet with its departure and keeps it in the wheel. Packets are made when
//! they leave here, so the session itself waits in the wheel; no packet refers to a buffer before
//! that.

use crate::time::{Duration, Instant};

/// A session that was served late may make up for this much.
const LAG_MAX: Duration = Duration::from_millis(1);

/// A session's place in time.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Pacer {
    departure: Instant,
    /// True while the session waits in the wheel with packets to send.
    is_waiting: bool,
}

impl Pacer {
    /// Begins a burst at `now`. Only a session that has waited may make up for lost time.
    pub(crate) fn begin(&mut self, now: Instant) {
        let lag = if self.is_waiting {
            LAG_MAX
        } else {
            Duration::ZERO
        };
        self.is_waiting = false;
        let earliest = Instant::from_nanos(now.as_nanos().saturating_sub(lag.as_nanos()));
        self.departure = self.departure.max(earliest);
    }

    /// The session waits in the wheel for its departure.
    pub(crate) fn wait(&mut self) {
        self.is_waiting = true;
    }

    /// When the next packet may leave.
    pub(crate) fn departure(&self) -> Instant {
        self.departure
    }

    /// The peer has sent so many bytes for a packet that left before their number was known.
    pub(crate) fn on_answered(&mut self, now: Instant, bytes: usize, rate: u64) {
        self.departure = self.departure.max(now);
        self.on_sent(bytes, rate);
    }

    /// Packets of so many bytes have left, or will come for one that has.
    pub(crate) fn on_sent(&mut self, bytes: usize, rate: u64) {
        // At most 1,024 packets of 9,000 bytes, times 10^9, and a rate above zero.
        self.departure += Duration::from_nanos(bytes as u64 * 1_000_000_000 / rate);
    }
}
