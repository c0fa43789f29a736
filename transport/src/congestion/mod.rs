//! Congestion control of a client end: a rate made of RTT samples and ECN marks, and the pacing of
//! departures by it. Servers have none (paper 5.2): the client drives the protocol.

mod pacer;
#[cfg(test)]
mod tests;
mod timely;

pub(crate) use pacer::Pacer;
pub(crate) use timely::{Timely, TimelyLimits};

use std::fmt;
use std::str::FromStr;

use crate::time::{Duration, Instant};

/// The choice of a controller.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum CongestionControl {
    /// None: credits alone limit a session.
    #[default]
    Off,
    /// Timely: the rate follows from round-trip times.
    Timely,
    /// Timely, and a congestion mark of the network (ECN) lowers the rate at once.
    TimelyEcn,
}

impl CongestionControl {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Off, Self::Timely, Self::TimelyEcn];

    /// Its name in options and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Timely => "timely",
            Self::TimelyEcn => "timely+ecn",
        }
    }

    /// Whether it uses the network's congestion marks, which the backend must then tell.
    #[must_use]
    pub fn uses_marks(self) -> bool {
        self == Self::TimelyEcn
    }
}

impl fmt::Display for CongestionControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No controller has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownControl(String);

impl fmt::Display for UnknownControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = CongestionControl::ALL
            .map(CongestionControl::name)
            .join(", ");
        write!(f, "{} is no congestion control; there are {names}", self.0)
    }
}

impl std::error::Error for UnknownControl {}

impl FromStr for CongestionControl {
    type Err = UnknownControl;

    fn from_str(name: &str) -> Result<Self, UnknownControl> {
        let found = Self::ALL.into_iter().find(|control| control.name() == name);
        found.ok_or_else(|| UnknownControl(name.to_owned()))
    }
}

/// Congestion control. The switches of its optimizations are there so that each one's share can be measured.
#[derive(Clone, Debug)]
pub struct CongestionConfig {
    /// Which controller runs.
    pub control: CongestionControl,
    /// An uncongested session with an RTT below the low threshold skips the rate update.
    pub timely_bypass: bool,
    /// An uncongested session sends directly and never enters the timing wheel.
    pub rate_limiter_bypass: bool,
    /// The event loop reads the clock once a turn. Off means that it also reads it once for each received datagram and
    /// for each sent packet that carries a time or is measured.
    pub batched_timestamps: bool,
    /// The rate of an uncongested session, bytes per second.
    pub link_bytes_per_second: u64,
    /// Timely's low threshold: additive increase below. `None` takes the backend's timeout floor,
    /// at least 50 us.
    pub rtt_low: Option<Duration>,
    /// Timely's high threshold: multiplicative decrease above. `None` takes 20 low thresholds.
    pub rtt_high: Option<Duration>,
}

impl Default for CongestionConfig {
    fn default() -> Self {
        Self {
            control: CongestionControl::Off,
            timely_bypass: true,
            rate_limiter_bypass: true,
            batched_timestamps: true,
            link_bytes_per_second: 3_125_000_000,
            rtt_low: None,
            rtt_high: None,
        }
    }
}

/// How a session's rate is found.
#[derive(Clone, Debug)]
pub(crate) enum Congestion {
    /// Credits alone limit the session.
    Off,
    /// Timely, with the two bypasses that serve uncongested sessions.
    Timely {
        timely: Timely,
        uses_marks: bool,
        bypass_update: bool,
        bypass_pacing: bool,
    },
}

impl Congestion {
    /// Thresholds that are not configured come from the backend's timeout floor: a kernel's
    /// wake-ups are no congestion.
    pub(crate) fn new(config: &CongestionConfig, rto_floor: Duration) -> Self {
        let control = config.control;
        if control == CongestionControl::Off {
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
            uses_marks: control.uses_marks(),
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
            uses_marks,
            bypass_update,
            ..
        } = self
        else {
            return;
        };
        let is_marked = is_marked && *uses_marks;
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
