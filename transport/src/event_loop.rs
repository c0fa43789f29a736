//! The only module where core, backend and clock meet.
//!
//! One turn takes in the arrived packets, runs timers, lets the application act and sends. Between
//! turns the loop polls again for a while, and yields the processor when others want it. It then
//! sleeps in the kernel until a packet, a [`Waker`] or the next deadline. An idle node therefore
//! costs next to nothing, a busy one never sleeps. After a packet that came alone, with none for a while
//! before it and no answer awaited, it sleeps at once.

use crate::app::{App, Cx};
use crate::backend::{Backend, BackendError, RxBatch, TxBatch, Waker};
use crate::config::{Config, ConfigError, CongestionConfig};
use crate::congestion::CongestionControl;
use crate::endpoint::Endpoint;
use crate::session::Identity;
use crate::time::{Clock, Duration, Instant};
use trine_origin::Origin;

/// Session events handled in one turn at most; the rest waits for the next.
const EVENTS_PER_TURN_MAX: usize = 1024;
/// Packets of a burst: three full trains of kernel UDP.
const BURST_PACKETS: usize = 2 * TxBatch::<()>::ITEMS_DEFAULT;
/// Bursts sent in one turn at most, so that receiving is never shut out.
const BURSTS_PER_TURN_MAX: usize = 8;

/// Bursts received in one turn at most, while a timer waits for what has arrived.
const BURSTS_BEFORE_TIMERS_MAX: usize = 64;

/// Polls of one turn while nothing arrives, on a backend whose empty poll costs a few nanoseconds. A clock read and a
/// scan of the timers cost several times as much, and a packet that comes meanwhile would wait for them. The turn's
/// time is then at most this many empty polls old.
const EMPTY_POLLS_MAX: u32 = 16;

/// Packets come, and all of them are dropped: after this time without a useful one the loop no longer polls for the next.
const FLOOD_AFTER: Duration = Duration::from_millis(1);
/// How long it sleeps instead. The packets of a flood then come many at a time, and cost half as much. A useful packet waits
/// this long at most, and the timer's slack (50 us on Linux).
const FLOOD_SLEEP: Duration = Duration::from_micros(50);

/// Packets that come at least so often are polled for. A next one is not to be expected after a longer gap, unless it is an
/// answer.
const ALONE_AFTER: Duration = Duration::from_millis(5);

/// An endpoint, its backend, its application and a clock, run by one thread.
pub struct EventLoop<B: Backend, C, A> {
    backend: B,
    endpoint: Endpoint<B::Route>,
    app: A,
    clock: C,
    tx: TxBatch<B::Route>,
    /// When the last turn began, or had received: see [`Looks`].
    now: Instant,
    /// When packets last came or went; decides between polling on and sleeping.
    active_at: Instant,
    /// The same without turns in which all packets were dropped. Only kept where `watches_drops`.
    useful_at: Instant,
    /// What came or went last did so long after what was before it.
    came_alone: bool,
    /// See [`Caps::packet_is_dear`](crate::backend::Caps): counting drops is cheap beside such a packet.
    watches_drops: bool,
    /// Packets that were dropped up to the last turn that received any.
    drops: u64,
    spin: Duration,
    /// See [`EMPTY_POLLS_MAX`].
    polls: u32,
    looks: Looks,
    /// The backend looks at the arrival of packets.
    notes_arrivals: bool,
    courtesy: Courtesy,
    stats: LoopStats,
    /// A forked child has a copy of all of this, and must not use it.
    origin: Origin,
    /// It is such a copy, and has given up what it shares.
    is_abandoned: bool,
}

/// When a turn looks at its clock.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Looks {
    /// Once for all of its packets, those received and those sent.
    Once,
    /// Again after it has received, for what comes then. A thread that loses its processor before the call that receives
    /// would otherwise take packets to have come before they did, and so their round trips to be too short.
    AgainAfterReceiving,
    /// At each packet.
    EachPacket,
}

impl Looks {
    fn of(congestion: &CongestionConfig) -> Self {
        if !congestion.batched_timestamps {
            return Self::EachPacket;
        }
        match congestion.control {
            CongestionControl::Delay => Self::AgainAfterReceiving,
            CongestionControl::Off | CongestionControl::Timely | CongestionControl::TimelyEcn => {
                Self::Once
            }
        }
    }
}

/// An event loop's counters.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct LoopStats {
    /// Turns run.
    pub turns: u64,
    /// Turns that received or sent a packet.
    pub turns_busy: u64,
    /// Times the processor was offered to others.
    pub yields: u64,
    /// Times the loop slept in the kernel.
    pub sleeps: u64,
}

impl<B: Backend, C: Clock, A: App<B::Route>> EventLoop<B, C, A> {
    /// Makes an endpoint over `backend` and joins the parts.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if `config` contradicts itself or the backend.
    pub fn new(
        backend: B,
        clock: C,
        app: A,
        mut config: Config,
        identity: Identity,
        seed: u64,
    ) -> Result<Self, ConfigError> {
        let spin = config.spin;
        config.congestion.wall_ahead = clock.wall_ahead();
        let looks = Looks::of(&config.congestion);
        let pool = backend.pool().clone();
        let caps = backend.caps();
        let is_same_everywhere = config.mtu.is_some();
        let mut endpoint = Endpoint::new(config, &caps, pool, identity, seed)?;
        if !is_same_everywhere {
            endpoint.set_packet_sizes(backend.packet_sizes());
        }
        let now = clock.now();
        Ok(Self {
            backend,
            endpoint,
            app,
            clock,
            tx: TxBatch::with_capacity(BURST_PACKETS),
            now,
            active_at: now,
            useful_at: now,
            came_alone: false,
            watches_drops: caps.packet_is_dear,
            drops: 0,
            spin,
            polls: if caps.packet_is_dear {
                1
            } else {
                EMPTY_POLLS_MAX
            },
            looks,
            notes_arrivals: false,
            courtesy: Courtesy::default(),
            stats: LoopStats::default(),
            origin: Origin::here(),
            is_abandoned: false,
        })
    }

    /// Receives, runs timers, lets the application act, sends; never waits. True if a packet came
    /// or went.
    ///
    /// # Errors
    ///
    /// [`BackendError`] if the backend became unusable, or if this process is a forked child of the one that made this.
    pub fn turn(&mut self) -> Result<bool, BackendError> {
        self.check_origin()?;
        let now = self.clock.now();
        self.now = now;
        self.courtesy.on_turn(now);
        let received = self.receive()?;
        let now = self.now;
        let useful = self.was_useful(received);
        self.endpoint.on_timeout(now, &mut self.app);
        for _ in 0..EVENTS_PER_TURN_MAX {
            let Some(event) = self.endpoint.poll_event() else {
                break;
            };
            self.app
                .on_event(&mut Cx::new(&mut self.endpoint, now), event);
        }
        self.app.on_turn(&mut Cx::new(&mut self.endpoint, now));
        let sent = self.transmit(now)?;
        let busy = received > 0 || sent;
        if busy {
            let gap = now.saturating_since(self.active_at);
            self.came_alone = gap > ALONE_AFTER.max(self.spin);
            self.active_at = now;
            self.stats.turns_busy += 1;
        }
        if useful || sent {
            self.useful_at = now;
        }
        self.stats.turns += 1;
        Ok(busy)
    }

    /// Runs turns until `done` says so or `deadline` has passed; true in the first case. `done` is
    /// asked after every turn.
    ///
    /// # Errors
    ///
    /// [`BackendError`] if the backend became unusable.
    pub fn run_until(
        &mut self,
        deadline: Option<Instant>,
        mut done: impl FnMut(&mut A) -> bool,
    ) -> Result<bool, BackendError> {
        loop {
            let busy = self.turn()?;
            if done(&mut self.app) {
                return Ok(true);
            }
            if deadline.is_some_and(|deadline| self.now >= deadline) {
                return Ok(false);
            }
            if !busy {
                self.pause(deadline)?;
            }
        }
    }

    /// After a turn without packets: polls on, or sleeps until something is due, at most until
    /// `deadline`.
    ///
    /// # Errors
    ///
    /// [`BackendError`] if the backend became unusable.
    pub fn pause(&mut self, deadline: Option<Instant>) -> Result<(), BackendError> {
        self.check_origin()?;
        if self.is_worth_polling() {
            if self.is_flooded() {
                self.stats.sleeps += 1;
                std::thread::sleep(FLOOD_SLEEP.into());
                return Ok(());
            }
            if self.courtesy.should_yield(self.now) {
                self.stats.yields += 1;
                std::thread::yield_now();
            }
            return Ok(());
        }
        self.endpoint.settle_timers(self.now);
        let due = [
            self.endpoint.next_timeout(),
            self.app.next_timeout(),
            deadline,
        ];
        let timeout = due
            .into_iter()
            .flatten()
            .min()
            .map(|due| due.saturating_since(self.now));
        if timeout == Some(Duration::ZERO) {
            return Ok(());
        }
        self.stats.sleeps += 1;
        self.backend.wait(timeout)
    }

    /// Calls `act` with the application and the endpoint as handlers see it, outside of a turn.
    /// Packets that it enqueues are sent at once; in a forked child nothing is sent.
    pub fn with<T>(&mut self, act: impl FnOnce(&mut A, &mut Cx<'_, B::Route>) -> T) -> T {
        self.now = self.clock.now();
        // There is work: polling pays.
        self.active_at = self.now;
        self.useful_at = self.now;
        self.came_alone = false;
        let result = act(&mut self.app, &mut Cx::new(&mut self.endpoint, self.now));
        // A poll before the send would only delay it. A failure shows itself again in the next turn.
        let _sent = self.transmit(self.now);
        result
    }

    /// The clock's time when the last turn began.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The application.
    #[must_use]
    pub fn app(&self) -> &A {
        &self.app
    }

    /// The application, to be changed between turns.
    pub fn app_mut(&mut self) -> &mut A {
        &mut self.app
    }

    /// The endpoint.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint<B::Route> {
        &self.endpoint
    }

    /// The endpoint, to be changed between turns.
    pub fn endpoint_mut(&mut self) -> &mut Endpoint<B::Route> {
        &mut self.endpoint
    }

    /// The backend.
    #[must_use]
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// The backend, to be changed between turns.
    pub fn backend_mut(&mut self) -> &mut B {
        &mut self.backend
    }

    /// See [`Backend::watch`].
    pub fn watch(&mut self, descriptor: std::os::fd::OwnedFd) -> bool {
        self.backend.watch(descriptor)
    }

    /// The clock.
    #[must_use]
    pub fn clock(&self) -> &C {
        &self.clock
    }

    /// A handle that ends the loop's sleep from another thread.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.backend.waker()
    }

    /// The loop's counters.
    #[must_use]
    pub fn stats(&self) -> LoopStats {
        self.stats
    }

    /// Ends the loop and gives the backend back, for another loop on the same address.
    #[must_use]
    pub fn into_backend(self) -> B {
        self.backend
    }

    /// Gives the application back and closes the rest.
    #[must_use]
    pub fn into_app(self) -> A {
        self.app
    }

    /// Whether this is the process that made the loop, and not a child that it has forked. A child's copy does nothing: its
    /// turns fail with [`BackendError::OtherProcess`].
    #[inline]
    #[must_use]
    pub fn is_here(&self) -> bool {
        self.origin.is_here()
    }

    #[inline]
    fn check_origin(&mut self) -> Result<(), BackendError> {
        if self.origin.is_here() {
            return Ok(());
        }
        Err(self.abandon())
    }

    /// Gives up what a child shares with its parent, and forgets its keys.
    #[cold]
    fn abandon(&mut self) -> BackendError {
        if !std::mem::replace(&mut self.is_abandoned, true) {
            self.backend.abandon();
            self.endpoint.forget_keys();
        }
        BackendError::OtherProcess
    }

    /// Whether another packet is likely within moments of the last one.
    fn is_worth_polling(&self) -> bool {
        self.now.saturating_since(self.active_at) < self.spin
            && (!self.came_alone || self.endpoint.awaits_answers())
    }

    /// Packets come, and none has been useful for a while.
    fn is_flooded(&self) -> bool {
        self.active_at > self.useful_at && self.now.saturating_since(self.useful_at) > FLOOD_AFTER
    }

    /// Whether one of `received` packets was not dropped.
    fn was_useful(&mut self, received: usize) -> bool {
        if received == 0 || !self.watches_drops {
            return received > 0;
        }
        let drops = self.endpoint.drops().total();
        let dropped = drops - std::mem::replace(&mut self.drops, drops);
        received as u64 > dropped
    }

    /// Takes in a burst, and more of them while a request seems overdue. After a pause of this process its answer may
    /// have arrived long ago, and a timer that ran first would retransmit a request that is answered.
    fn receive(&mut self) -> Result<usize, BackendError> {
        let mut received = 0;
        for _ in 0..BURSTS_BEFORE_TIMERS_MAX {
            let count = self.receive_burst()?;
            received += count;
            if count == 0 || !self.endpoint.is_scan_due(self.now) {
                break;
            }
        }
        Ok(received)
    }

    fn receive_burst(&mut self) -> Result<usize, BackendError> {
        let mut rx = self.backend.rx_burst()?;
        for _ in 1..self.polls {
            if !rx.is_empty() {
                break;
            }
            rx = self.backend.rx_burst()?;
        }
        let received = rx.len();
        if received > 0 && self.looks != Looks::EachPacket {
            if self.looks == Looks::AgainAfterReceiving {
                self.now = self.clock.now();
            }
            let now = self.now;
            self.endpoint.on_packets(now, &mut rx, &mut self.app);
            if self.endpoint.wants_arrivals(now) != self.notes_arrivals {
                self.notes_arrivals = !self.notes_arrivals;
                self.backend.note_arrivals(self.notes_arrivals);
            }
            return Ok(received);
        }
        for packet in rx {
            let mut one = RxBatch::from_packets(std::slice::from_ref(&packet));
            let now = self.clock.now();
            self.endpoint.on_packets(now, &mut one, &mut self.app);
        }
        Ok(received)
    }

    fn transmit(&mut self, now: Instant) -> Result<bool, BackendError> {
        let mut sent = false;
        for _ in 0..BURSTS_PER_TURN_MAX {
            // The application may have forked.
            self.check_origin()?;
            let transmit = if self.looks == Looks::EachPacket {
                self.endpoint.poll_transmit_by(&self.clock, &mut self.tx)
            } else {
                self.endpoint.poll_transmit(now, &mut self.tx)
            };
            if transmit.flush_first {
                self.backend.flush();
                self.endpoint.on_tx_flushed();
            }
            if self.tx.is_empty() {
                break;
            }
            sent = true;
            let full = self.tx.is_full();
            self.backend.tx_burst(&mut self.tx)?;
            if !full {
                break;
            }
        }
        Ok(sent)
    }
}

/// When a polling loop offers its processor to others.
///
/// A yield costs as much as a poll, so a loop that has a core of its own yields rarely. If the core
/// turns out to be shared (the time since the yield is longer than a poll takes), it yields after
/// every empty turn. The packets that it waits for can only come if the other thread runs.
#[derive(Debug)]
struct Courtesy {
    /// Empty turns until the next yield.
    countdown: u32,
    interval: u32,
    /// When the turn began that ended with a yield; `None` if the last turn did not.
    yielded_at: Option<Instant>,
}

const YIELD_INTERVAL_MAX: u32 = 32;
/// From one empty turn over a yield to the next: longer than this means that another thread ran.
const SHARED_CORE_GAP: Duration = Duration::from_nanos(2_000);

impl Default for Courtesy {
    fn default() -> Self {
        Self {
            countdown: 0,
            interval: 1,
            yielded_at: None,
        }
    }
}

impl Courtesy {
    /// Called when a turn begins. If the turn before ended with a yield, the time in between says
    /// whether another thread ran, also when this turn then finds a packet.
    fn on_turn(&mut self, now: Instant) {
        if let Some(yielded_at) = self.yielded_at.take() {
            let shared = now.saturating_since(yielded_at) > SHARED_CORE_GAP;
            self.interval = if shared {
                1
            } else {
                (self.interval * 2).min(YIELD_INTERVAL_MAX)
            };
            self.countdown = self.interval;
        }
    }

    /// Called after an empty turn that began at `now`.
    fn should_yield(&mut self, now: Instant) -> bool {
        self.countdown = self.countdown.saturating_sub(1);
        if self.countdown == 0 {
            self.yielded_at = Some(now);
        }
        self.countdown == 0
    }
}

#[cfg(test)]
mod tests;
