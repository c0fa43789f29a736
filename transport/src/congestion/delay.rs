//! A window that keeps few of the session's own packets in the network's queue.
//!
//! A round is about a round trip. Its smallest RTT less the path's own is the queueing delay; the session's rate times
//! that is what it has in the queue (Little's law), and the window follows this number of packets. Sessions of one path
//! settle at the same number and so at the same rate, whatever the link's speed, which nobody has to know. Taken from:
//! FAST (own packets in the queue), CoDel (the minimum over a round), DCTCP (the share of marked packets).
//!
//! Integers only, so that simulations replay. Windows and counts of packets are in units of 1/256 packet.

use super::base::Base;
use crate::time::{Duration, Instant};
use trine_canary as canary;

/// A packet.
const ONE: u32 = 256;
/// Packets that a session keeps in the queue above the floor.
const TARGET: u32 = 2 * ONE;
/// The window of a new session, and of one that was idle: all credits of many sessions at once would fill a queue for
/// longer than a timeout.
const START: u32 = 16 * ONE;
/// The window has not been proven right for longer than this, or four round trips, of idleness.
const IDLE: Duration = Duration::from_millis(10);
/// After so long the queue is another one, too.
const FORGOTTEN: Duration = Duration::from_secs(1);
/// A queue that makes up for busy processors is no longer than this.
const HOST_MAX_NS: u32 = 500_000;
/// After so many rounds in a row without a queue the window grows faster.
const CALM_ROUNDS: u8 = 5;

/// What the backend and the program know.
#[derive(Copy, Clone, Debug)]
pub(crate) struct DelayLimits {
    /// Queueing delay that is no queue: the hosts' own noise.
    pub(crate) floor_ns: u16,
    /// What to add to an [`Instant`] to get the wall clock's place among the drain slots.
    pub(crate) wall_ns: u32,
}

/// A session's window.
#[derive(Clone, Debug)]
pub(crate) struct Delay {
    /// From one packet to all credits.
    window: u32,
    credits: u16,
    /// See [`DelayLimits`].
    floor_ns: u16,
    wall_ns: u32,
    /// The path's own RTT.
    base: Base,
    round: Round,
    /// The queueing delay of the last round.
    queue_ns: u32,
    /// How long answers lie at the hosts, smoothed: packets at the server until it answers, answers here.
    host_ns: u32,
    /// Rounds in a row with hardly any.
    calm: u8,
    /// The window doubles each round until the first queue.
    is_starting: bool,
    mtu: u16,
    /// When a loss last made the window smaller.
    cut_at: Instant,
    sampled_at: Instant,
}

/// What has been seen since the round began.
#[derive(Copy, Clone, Debug)]
struct Round {
    /// `FAR_FUTURE` while there is none.
    began: Instant,
    rtt_ns_min: u32,
    /// Bytes that the session has sent or asked for.
    bytes: u32,
    samples: u16,
    marks: u16,
    /// The window kept packets back in this round, or in the one before.
    is_limited: bool,
    was_limited: bool,
}

impl Round {
    const NONE: Self = Self {
        began: Instant::FAR_FUTURE,
        rtt_ns_min: u32::MAX,
        bytes: 0,
        samples: 0,
        marks: 0,
        is_limited: false,
        was_limited: false,
    };

    fn next(&self, now: Instant) -> Self {
        Self {
            began: now,
            was_limited: self.is_limited,
            ..Self::NONE
        }
    }

    #[inline]
    fn limited(&self) -> bool {
        self.is_limited | self.was_limited
    }
}

impl Delay {
    pub(crate) fn new(limits: DelayLimits) -> Self {
        Self {
            window: START,
            credits: (START / ONE) as u16,
            floor_ns: limits.floor_ns,
            wall_ns: limits.wall_ns,
            host_ns: 0,
            base: Base::new(),
            round: Round::NONE,
            queue_ns: 0,
            calm: 0,
            is_starting: true,
            mtu: u16::MAX,
            cut_at: Instant::ZERO,
            sampled_at: Instant::ZERO,
        }
    }

    /// The handshake has fixed the session's credits and packets.
    pub(crate) fn set_window(&mut self, credits: u16, mtu: u16) {
        self.credits = credits;
        self.window = START.min(self.window_max());
        self.mtu = mtu;
    }

    /// A handshake has taken this long: the one sample before there are packets of our own in the queue.
    pub(crate) fn on_handshake(&mut self, now: Instant, rtt: Duration) {
        self.sampled_at = now;
        if rtt > Duration::ZERO {
            self.base.turn(now);
            self.base.note(ns(rtt));
        }
    }

    /// Credits that are kept back.
    pub(crate) fn reserve(&self) -> u16 {
        if canary::planted("all credits are kept back") && self.window == ONE {
            return self.credits;
        }
        // At most the credits, which have 16 bits.
        ((self.window_max() - self.window) / ONE) as u16
    }

    #[inline]
    fn window_max(&self) -> u32 {
        u32::from(self.credits) * ONE
    }

    /// Bytes for the window and the RTT that it makes, for people.
    pub(crate) fn rate(&self) -> u64 {
        let bytes = u64::from(self.window) * u64::from(self.mtu) / u64::from(ONE);
        let rtt_ns = u64::from(self.base.ns()) + u64::from(self.queue_ns);
        match self.base.is_known() {
            true => bytes * 1_000_000_000 / rtt_ns.max(1),
            false => 0,
        }
    }

    /// So many bytes are sent, or asked for.
    #[inline]
    pub(crate) fn on_sent(&mut self, bytes: usize) {
        if self.round.began != Instant::FAR_FUTURE {
            // A packet, or those that the credits allow to ask for: below 2^32.
            self.round.bytes = self.round.bytes.saturating_add(bytes as u32);
        }
    }

    /// There is something to send, and the window is full.
    #[inline]
    pub(crate) fn on_blocked(&mut self) {
        self.round.is_limited = true;
    }

    /// Nothing is under way, and something is to be sent. True if the window may be another now. Packets that were lost
    /// are no idleness.
    pub(crate) fn on_wake(&mut self, now: Instant) -> bool {
        let idle = now.saturating_since(self.sampled_at.max(self.cut_at));
        let round_trips = 4 * u64::from(self.base.ns());
        let is_small = self.window <= START && idle < FORGOTTEN;
        if idle.as_nanos() <= IDLE.as_nanos().max(round_trips) || is_small {
            return false;
        }
        self.window = START.min(self.window_max());
        self.is_starting = true;
        self.round = Round::NONE;
        true
    }

    /// Until when only one packet may be under way, if this is a drain slot: sessions with a queue empty it together,
    /// at the same time by the wall clock, so that all see the path without it. Otherwise one that has joined late would
    /// take the queue that it finds for the path, and have several times the others' share.
    #[inline]
    pub(crate) fn drained_until(&self, now: Instant) -> Option<Instant> {
        let has_queue = self.window < self.window_max() && self.round.limited();
        let left = self.base.left_of_slot(self.wall_at(now), self.queue_ns);
        left.filter(|_| has_queue).map(|left| now + left)
    }

    /// An answer lay at the hosts for so long, and no handler ran.
    pub(crate) fn on_host_wait(&mut self, wait: Duration) {
        let wait_ns = ns(wait).min(HOST_MAX_NS * 4);
        self.host_ns = (7 * self.host_ns + wait_ns) / 8;
    }

    /// Whether a queue is looked for: a round is under way, or the window holds packets back.
    pub(crate) fn is_suspicious(&self) -> bool {
        self.round.began != Instant::FAR_FUTURE || self.round.limited()
    }

    /// A packet that was sent at `sent_at` is answered. True if the window may be another now.
    #[inline(always)]
    pub(crate) fn on_sample(
        &mut self,
        now: Instant,
        sent_at: Instant,
        rtt: Duration,
        is_marked: bool,
    ) -> bool {
        let rtt_ns = ns(rtt);
        self.sampled_at = now;
        self.base.note(rtt_ns);
        let is_good = rtt_ns.saturating_sub(self.base.ns()) <= self.floor_ns() && !is_marked;
        let wants_more = self.window < self.window_max() && self.round.limited();
        if is_good && !wants_more {
            // As nearly always. A sample without a queue ends the doubt that began a round.
            self.round.began = Instant::FAR_FUTURE;
            (self.round.is_limited, self.round.was_limited) = (false, false);
            if self.base.is_over(now) {
                self.turn(now);
            }
            return false;
        }
        self.on_telling_sample(now, sent_at, rtt_ns, is_marked)
    }

    /// Begins another window of the path's RTT. Credit returns tell of the hosts' waits; without any the memory of them fades.
    #[inline(never)]
    fn turn(&mut self, now: Instant) {
        self.base.turn(now);
        self.host_ns /= 2;
    }

    #[inline(never)]
    fn on_telling_sample(
        &mut self,
        now: Instant,
        sent_at: Instant,
        rtt_ns: u32,
        is_marked: bool,
    ) -> bool {
        if self.base.is_over(now) {
            self.turn(now);
        }
        if self.drained_until(now).is_some() {
            // One packet a round trip says nothing about the window.
            self.round.began = Instant::FAR_FUTURE;
            return false;
        }
        if self.round.began == Instant::FAR_FUTURE {
            let limited = self.round.limited();
            self.round = self.round.next(now);
            self.round.was_limited = limited;
            return false;
        }
        let round = &mut self.round;
        round.rtt_ns_min = round.rtt_ns_min.min(rtt_ns);
        round.samples = round.samples.saturating_add(1);
        round.marks = round.marks.saturating_add(is_marked.into());
        if sent_at < round.began {
            return false;
        }
        if canary::planted("the queue is taken for the path") {
            self.base.take_for_path(self.round.rtt_ns_min);
        }
        self.end_round(now);
        true
    }

    /// The answer to a packet of this round has come: all that it was behind is known.
    fn end_round(&mut self, now: Instant) {
        let (round, floor_ns) = (self.round, self.floor_ns());
        self.round = round.next(now);
        self.queue_ns = round.rtt_ns_min.saturating_sub(self.base.ns());
        self.calm = match self.queue_ns <= floor_ns / 4 {
            true => self.calm.saturating_add(1),
            false => 0,
        };
        let span = now.saturating_since(round.began);
        let above = self.queue_ns.saturating_sub(floor_ns);
        let own = own_packets(round.bytes, self.mtu, above, span);
        self.is_starting &= self.queue_ns <= floor_ns / 2 && round.marks == 0;
        if own > TARGET || round.marks > 0 {
            let for_queue = (own.saturating_sub(TARGET) / 2).min(self.window / 2);
            let marks = u64::from(round.marks) * u64::from(self.window);
            let for_marks = (marks / u64::from(round.samples) / 2) as u32;
            self.shrink(for_queue.max(for_marks));
        } else if round.limited() {
            self.grow(own);
        }
    }

    fn grow(&mut self, own: u32) {
        let more = if self.is_starting {
            self.window
        } else if self.calm > CALM_ROUNDS {
            (self.window / 4).clamp(32, 2_048)
        } else {
            (self.window / 8).clamp(32, ONE).min((TARGET - own) / 2)
        };
        self.window = (self.window + more).min(self.window_max());
    }

    fn shrink(&mut self, less: u32) {
        self.is_starting = false;
        self.window = self.window.saturating_sub(less).max(ONE);
    }

    /// A packet is lost. One cut for all that were lost in a round trip.
    pub(crate) fn on_gap(&mut self, now: Instant) {
        let rtt_ns = u64::from(self.base.ns()) + u64::from(self.queue_ns);
        if now.saturating_since(self.cut_at).as_nanos() < rtt_ns {
            return;
        }
        self.cut_at = now;
        // Without a queue it was hardly the queue's end that lost it.
        let part = if self.queue_ns > self.floor_ns() {
            2
        } else {
            8
        };
        self.shrink(self.window / part);
    }

    /// Nothing has come for a packet that the peer answers at once. One cut for all that was under way together, and none
    /// if other packets were answered meanwhile: the path is there, and a timeout of little more than a long round trip
    /// fires too early now and then.
    pub(crate) fn on_timeout(&mut self, now: Instant, sent_at: Instant) {
        if sent_at >= self.cut_at.max(self.sampled_at) {
            self.cut_at = now;
            self.shrink(self.window / 2);
        }
    }

    fn wall_at(&self, now: Instant) -> u64 {
        now.as_nanos().wrapping_add(self.wall_ns.into())
    }

    /// Noise grows with the length of the path. And where packets wait for a processor, the link would be idle meanwhile
    /// without a queue that lasts as long.
    #[inline]
    fn floor_ns(&self) -> u32 {
        let noise = u32::from(self.floor_ns).max(self.base.ns() / 16);
        noise.max(self.host_ns.min(HOST_MAX_NS))
    }
}

/// A duration in 32 bits, at least 1: 0 is no time that a packet takes.
#[inline]
fn ns(time: Duration) -> u32 {
    u32::try_from(time.as_nanos()).unwrap_or(u32::MAX).max(1)
}

/// The packets of a session in a queue in which each waits for `wait_ns`, if it sent `bytes` within `span`.
fn own_packets(bytes: u32, mtu: u16, wait_ns: u32, span: Duration) -> u32 {
    let packets = u64::from(bytes) * u64::from(ONE) / u64::from(mtu.max(1));
    let own = u128::from(packets) * u128::from(wait_ns) / u128::from(span.as_nanos().max(1));
    u32::try_from(own).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
