//! Congestion control of a client end: a rate made of RTT samples and ECN marks, and the pacing of
//! departures by it. Servers have none (paper 5.2): the client drives the protocol.

mod pacer;
#[cfg(test)]
mod tests;
mod timely;

pub(crate) use pacer::Pacer;
pub(crate) use timely::{Timely, TimelyLimits};

use crate::config::CongestionConfig;
use crate::time::{Duration, Instant};

/// How a session's rate is found.
#[derive(Clone, Debug)]
pub(crate) enum Congestion {
    /// Credits alone limit the session.
    Off,
    /// Timely, with the two bypasses that serve uncongested sessions.
    Timely {
        timely: Timely,
        bypass_update: bool,
        bypass_pacing: bool,
    },
}

impl Congestion {
    /// Thresholds that are not configured come from the backend's timeout floor: a kernel's
    /// wake-ups are no congestion.
    pub(crate) fn new(config: &CongestionConfig, rto_floor: Duration) -> Self {
        if !config.enabled {
            return Self::Off;
        }
        let rtt_low = config
            .rtt_low
            .unwrap_or(rto_floor.max(Duration::from_micros(50)));
        let rtt_high = config.rtt_high.unwrap_or(rtt_low * 20).max(rtt_low * 2);
        let rate_max = config.link_bytes_per_second.max(1);
        Self::Timely {
            timely: Timely::new(TimelyLimits {
                rtt_low,
                rtt_high,
                rate_max,
            }),
            bypass_update: config.timely_bypass,
            bypass_pacing: config.rate_limiter_bypass,
        }
    }

    /// The handshake has fixed how much the credits let the session have in flight.
    pub(crate) fn set_window(&mut self, bytes: u64) {
        if let Self::Timely { timely, .. } = self {
            timely.set_window(bytes);
        }
    }

    /// A packet was answered.
    #[inline]
    pub(crate) fn on_sample(&mut self, now: Instant, rtt: Duration, is_marked: bool) {
        let Self::Timely {
            timely,
            bypass_update,
            ..
        } = self
        else {
            return;
        };
        let is_well = timely.is_uncongested() && rtt < timely.rtt_low() && !is_marked;
        if is_well && *bypass_update {
            return;
        }
        if is_marked {
            timely.on_mark(now, rtt);
        }
        timely.on_rtt(now, rtt);
    }

    /// The rate that departures must keep; `None` lets packets go at once.
    #[inline]
    pub(crate) fn pacing_rate(&self) -> Option<u64> {
        match self {
            Self::Off => None,
            Self::Timely {
                timely,
                bypass_pacing,
                ..
            } => {
                let is_free = *bypass_pacing && timely.is_uncongested();
                (!is_free).then(|| timely.rate())
            }
        }
    }

    /// The present rate, 0 without congestion control.
    pub(crate) fn rate(&self) -> u64 {
        match self {
            Self::Off => 0,
            Self::Timely { timely, .. } => timely.rate(),
        }
    }
}
