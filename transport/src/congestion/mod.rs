//! Congestion control of a client end: a window, or a rate and the pacing of departures by it, made of RTT samples,
//! ECN marks and losses. Servers have none (paper 5.2): the client drives the protocol.

mod base;
mod delay;
mod pacer;
#[cfg(test)]
mod tests;
mod timely;

pub(crate) use delay::{Delay, DelayLimits};
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
    /// A window that keeps few of the session's packets in the network's queue. Off on routes within the machine.
    Delay,
}

impl CongestionControl {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Off, Self::Timely, Self::TimelyEcn, Self::Delay];

    /// Its name in options and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Timely => "timely",
            Self::TimelyEcn => "timely+ecn",
            Self::Delay => "delay",
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
    /// What to add to an [`Instant`] for the time of the wall clock. The event loop sets it.
    pub wall_ahead: Duration,
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
            wall_ahead: Duration::ZERO,
        }
    }
}

/// What limits a session.
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
    /// A window below the credits.
    Delay(Delay),
}

/// Delays of sockets up to this are the kernel's and the scheduler's. Devices have a timeout floor of 50 us, and less noise.
const NOISE_MAX: Duration = Duration::from_micros(25);
const NOISE_MIN: Duration = Duration::from_micros(10);
/// The noise's part of the backend's timeout floor.
const NOISE_PART: u64 = 40;

impl Congestion {
    /// Thresholds that are not configured come from the backend's timeout floor: a kernel's
    /// wake-ups are no congestion.
    pub(crate) fn new(config: &CongestionConfig, rto_floor: Duration) -> Self {
        let control = config.control;
        match control {
            CongestionControl::Off => return Self::Off,
            CongestionControl::Delay => {
                let noise = Duration::from_nanos(rto_floor.as_nanos() / NOISE_PART);
                return Self::Delay(Delay::new(DelayLimits {
                    // At most 25 us.
                    floor_ns: noise.max(NOISE_MIN).min(NOISE_MAX).as_nanos() as u16,
                    // Less than a cycle, which has 31 bits.
                    wall_ns: (config.wall_ahead.as_nanos() % base::CYCLE_NS) as u32,
                }));
            }
            CongestionControl::Timely | CongestionControl::TimelyEcn => {}
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

    /// Whether it has no use on a route within the machine, where the only queue is the wait for a processor.
    pub(crate) fn is_off_nearby(&self) -> bool {
        self.keeps_credits_back()
    }

    /// Whether it limits a session by [`reserve`](Self::reserve).
    #[inline]
    pub(crate) fn keeps_credits_back(&self) -> bool {
        matches!(self, Self::Delay(_))
    }

    /// The handshake has fixed the credits and the size of packets.
    pub(crate) fn set_terms(&mut self, credits: u16, mtu: u16) {
        match self {
            Self::Off => {}
            Self::Timely { timely, .. } => timely.set_window(u64::from(credits) * u64::from(mtu)),
            Self::Delay(delay) => delay.set_window(credits, mtu),
        }
    }

    /// A packet of the handshake was answered.
    pub(crate) fn on_handshake(&mut self, now: Instant, rtt: Duration) {
        if let Self::Delay(delay) = self {
            delay.on_handshake(now, rtt);
        }
    }

    /// So many bytes are sent, or asked for.
    #[inline(always)]
    pub(crate) fn on_sent(&mut self, bytes: usize) {
        if let Self::Delay(delay) = self {
            delay.on_sent(bytes);
        }
    }

    /// Something is to be sent, and the window is full.
    pub(crate) fn on_blocked(&mut self) {
        if let Self::Delay(delay) = self {
            delay.on_blocked();
        }
    }

    /// Something is to be sent, and nothing is under way. True if [`reserve`](Self::reserve) may be another now.
    pub(crate) fn on_wake(&mut self, now: Instant) -> bool {
        match self {
            Self::Delay(delay) => delay.on_wake(now),
            Self::Off | Self::Timely { .. } => false,
        }
    }

    /// A packet that was sent at `sent_at` was answered. True if [`reserve`](Self::reserve) may be another now.
    #[inline(always)]
    pub(crate) fn on_sample(
        &mut self,
        now: Instant,
        sent_at: Instant,
        rtt: Duration,
        is_marked: bool,
    ) -> bool {
        match self {
            Self::Off => false,
            Self::Delay(delay) => delay.on_sample(now, sent_at, rtt, is_marked),
            Self::Timely {
                timely,
                uses_marks,
                bypass_update,
                ..
            } => {
                let is_marked = is_marked && *uses_marks;
                let is_well = timely.is_uncongested() && rtt < timely.rtt_low() && !is_marked;
                if is_well && *bypass_update {
                    return false;
                }
                if is_marked {
                    timely.on_mark(now, rtt);
                }
                timely.on_rtt(now, rtt);
                false
            }
        }
    }

    /// An answer lay at the hosts for so long, and no handler ran.
    pub(crate) fn on_host_wait(&mut self, wait: Duration) {
        if let Self::Delay(delay) = self {
            delay.on_host_wait(wait);
        }
    }

    /// A packet was lost, as a later one's answer shows.
    pub(crate) fn on_gap(&mut self, now: Instant) {
        if let Self::Delay(delay) = self {
            delay.on_gap(now);
        }
    }

    /// Nothing came for packets up to the one that was sent at `sent_at`, although the peer answers them at once.
    pub(crate) fn on_timeout(&mut self, now: Instant, sent_at: Instant) {
        if let Self::Delay(delay) = self {
            delay.on_timeout(now, sent_at);
        }
    }

    /// Credits that are kept back.
    pub(crate) fn reserve(&self) -> u16 {
        match self {
            Self::Off | Self::Timely { .. } => 0,
            Self::Delay(delay) => delay.reserve(),
        }
    }

    /// Whether there may be a queue, so that it is worth to know when packets arrived.
    pub(crate) fn is_suspicious(&self) -> bool {
        match self {
            Self::Off | Self::Timely { .. } => false,
            Self::Delay(delay) => delay.is_suspicious(),
        }
    }

    /// Whether it is of use to know how long the peer had a packet.
    pub(crate) fn uses_answer_times(&self) -> bool {
        !matches!(self, Self::Off)
    }

    /// Until when only one packet may be under way; `None`: not now.
    pub(crate) fn drained_until(&self, now: Instant) -> Option<Instant> {
        match self {
            Self::Off | Self::Timely { .. } => None,
            Self::Delay(delay) => delay.drained_until(now),
        }
    }

    /// The rate that departures must keep; `None` lets packets go at once.
    #[inline]
    pub(crate) fn pacing_rate(&self) -> Option<u64> {
        match self {
            Self::Off | Self::Delay(_) => None,
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
            Self::Delay(delay) => delay.rate(),
        }
    }
}
