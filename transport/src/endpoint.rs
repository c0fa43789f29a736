//! The sans-IO core: called with `now` and packets, hands back packets, deadlines and events.
//!
//! ```text
//!   on_packets -> rpc/receive -> a handler per packet type -> answers, ready sessions, callbacks
//!   on_timeout -> session/timers -> rollbacks, probes, keepalive
//!   poll_transmit <- control packets, answers, ready sessions
//! ```
//! What the files in `session/` and `rpc/` add to [`Endpoint`] belongs to one packet type or one
//! operation each; here is what holds them together, and nothing that calls the program above.

use std::collections::VecDeque;

use crate::backend::{Caps, Route, TxBatch};
use crate::buf::Pool;
use crate::config::{Config, ConfigError, MTU_MAX, MTU_MIN};
use crate::congestion::Congestion;
use crate::rpc::{AnswerQueue, ControlQueue, FastPath, Finished, Memory, ReadyList, RequestTable};
use crate::session::{
    Event, Identity, PeerInfo, Role, RtoLimits, Secret, SessionId, SessionTable, State, Terms,
};
use crate::stats::{EndpointStats, RttHistogram, SessionStats};
use crate::time::{Clock, Instant};
use crate::timing_wheel::TimingWheel;
use crate::wire::Features;

/// One end of any number of sessions, for one thread: no I/O, no clock.
pub struct Endpoint<R: Route> {
    pub(crate) config: Config,
    pub(crate) identity: Identity,
    pub(crate) secret: Secret,
    pub(crate) rto_limits: RtoLimits,
    /// What a new client end begins with.
    pub(crate) congestion: Congestion,
    /// The session's MTU that this side offers.
    mtu: u16,
    features: Features,
    rx_queue_packets: u64,
    pub(crate) memory: Memory,
    pub(crate) sessions: SessionTable<R>,
    pub(crate) requests: RequestTable,
    pub(crate) ready: ReadyList,
    pub(crate) answers: AnswerQueue,
    pub(crate) fast_path: FastPath<R>,
    pub(crate) control: ControlQueue<R>,
    pub(crate) timers: TimingWheel,
    pub(crate) events: VecDeque<Event<R>>,
    /// Completions that wait for an application or for a flush.
    pub(crate) finished: VecDeque<Finished>,
    pub(crate) stats: EndpointStats,
    pub(crate) rtts: RttHistogram,
}

/// What [`Endpoint::poll_transmit`] did.
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
pub struct Transmit {
    /// Packets added to the batch.
    pub count: usize,
    /// A buffer that must go back to the application was retransmitted: call `Backend::flush`,
    /// then [`Endpoint::on_tx_flushed`], before this batch is sent.
    pub flush_first: bool,
}

impl<R: Route> Endpoint<R> {
    /// An endpoint over a backend with these capabilities, whose `pool` its messages come from.
    /// All its nonces and cookies come from `seed`, which is secret and never used twice: a server
    /// drops a CONNECT whose nonce it has seen in a session that has ended.
    pub fn new(
        config: Config,
        caps: &Caps,
        pool: Pool,
        identity: Identity,
        seed: u64,
    ) -> Result<Self, ConfigError> {
        config.validate()?;
        let mtu = config.mtu.map_or(caps.mtu.min(MTU_MAX), usize::from);
        if !(MTU_MIN..=caps.mtu.min(MTU_MAX)).contains(&mtu) {
            return Err(ConfigError::Mtu);
        }
        let cumulative = config.cumulative_credits.unwrap_or(caps.packet_is_dear);
        let rto_floor = config.rto_floor.unwrap_or(caps.rto_floor);
        Ok(Self {
            identity,
            secret: Secret::new(seed),
            rto_limits: RtoLimits {
                initial: config.rto_initial.max(rto_floor),
                floor: rto_floor,
                max: config.rto_max.max(rto_floor),
            },
            congestion: Congestion::new(&config.congestion, rto_floor),
            // At most MTU_MAX.
            mtu: mtu as u16,
            features: Features::NONE
                .with_if(cumulative, Features::CUMULATIVE_CREDITS)
                .with_if(!config.data_checksums, Features::HEADER_CHECKSUMS),
            rx_queue_packets: u64::from(caps.rx_queue_packets),
            memory: Memory::new(pool, caps.copies, config.assembly_bytes),
            sessions: SessionTable::new(config.sessions),
            requests: RequestTable::new(config.requests),
            ready: ReadyList::new(config.sessions),
            answers: AnswerQueue::new(config.answers),
            fast_path: FastPath::new(&config),
            control: ControlQueue::new(config.answers),
            timers: TimingWheel::new(config.sessions, rto_floor.as_nanos() / 32),
            events: VecDeque::with_capacity(config.sessions.min(256)),
            finished: VecDeque::with_capacity(config.requests),
            stats: EndpointStats::default(),
            rtts: RttHistogram::default(),
            config,
        })
    }

    /// A request's timer may be due: what has arrived is better taken in first.
    #[inline]
    pub(crate) fn is_look_due(&self, now: Instant) -> bool {
        self.requests.next_look() <= now
    }

    /// Fills `tx` with packets to send, all stamped with `now`. What does not fit comes with the next call.
    pub fn poll_transmit(&mut self, now: Instant, tx: &mut TxBatch<R>) -> Transmit {
        self.poll_transmit_by(&now, tx)
    }

    /// As [`Endpoint::poll_transmit`], with a look at the clock for each packet instead of one for all (the paper's
    /// section 5.2.2 without batched timestamps).
    pub fn poll_transmit_by(&mut self, clock: &impl Clock, tx: &mut TxBatch<R>) -> Transmit {
        let before = tx.len();
        self.memory.begin_epoch();
        self.fast_path.transmit(tx);
        self.control.transmit(tx);
        self.transmit_answers(clock, tx);
        self.ready.release_departures(clock.now());
        self.transmit_requests(clock, tx);
        let count = tx.len() - before;
        self.stats.packets_sent += count as u64;
        let mut finished = self.finished.iter();
        let flush_first = finished.any(|finished| self.memory.is_referred_to(finished.after_epoch))
            || self.memory.needs_flush();
        Transmit { count, flush_first }
    }

    /// The backend has flushed: nothing handed out before the last `poll_transmit` is referred to.
    pub fn on_tx_flushed(&mut self) {
        self.memory.on_flushed();
    }

    /// When `on_timeout` and `poll_transmit` must be called at the latest; a moment in the past
    /// means at once.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let has_work = !self.ready.is_empty()
            || !self.answers.is_empty()
            || !self.fast_path.is_empty()
            || !self.control.is_empty()
            || !self.finished.is_empty()
            || self.memory.has_retired()
            || !self.events.is_empty();
        if has_work {
            return Some(Instant::ZERO);
        }
        let (timers, departures) = (self.timers.next(), self.ready.next_departure());
        let look = self.requests.next_due();
        let look = (look != Instant::FAR_FUTURE).then_some(look);
        timers.into_iter().chain(departures).chain(look).min()
    }

    /// The next news about sessions.
    pub fn poll_event(&mut self) -> Option<Event<R>> {
        self.events.pop_front()
    }

    /// Changes what later handshakes say about this endpoint. Standing sessions stay.
    pub fn set_identity(&mut self, identity: Identity) {
        self.identity = identity;
    }

    /// Who this endpoint says it is.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> EndpointStats {
        EndpointStats {
            requests_pending: self.requests.used() as u64,
            ..self.stats
        }
    }

    /// Round-trip times of all client ends since the endpoint's creation, holding times taken out.
    #[must_use]
    pub fn rtts(&self) -> RttHistogram {
        self.rtts
    }

    /// A session's measurements; `None` once it is over.
    #[must_use]
    pub fn session_stats(&self, session: SessionId) -> Option<SessionStats> {
        let entry = self.sessions.get(session)?;
        let terms = entry.terms;
        let agreed = SessionStats {
            credits: terms.credits,
            slots: terms.slots,
            mtu: terms.mtu,
            ..SessionStats::default()
        };
        let Role::Client(client) = &entry.role else {
            return Some(agreed);
        };
        Some(SessionStats {
            rtt_ns_smoothed: client.rtt.smoothed_ns(),
            rtt_ns_min: client.rtt.min_ns,
            rtt_ns_last: client.rtt.last_ns,
            rto_ns: client.rtt.rto(0).as_nanos(),
            rtt_samples: client.rtt.samples,
            retransmissions: client.retransmissions,
            credits_in_use: terms.credits - client.credits,
            requests_in_flight: client.in_flight(),
            requests_queued: client.queued,
            requests_completed: client.completed,
            credit_stalls: client.credit_stalls,
            rate_bytes_per_second: client.congestion.rate(),
            ..agreed
        })
    }

    /// The other end of a session that stands.
    #[must_use]
    pub fn peer(&self, session: SessionId) -> Option<PeerInfo<R>> {
        let entry = self
            .sessions
            .get(session)
            .filter(|entry| entry.state == State::Open)?;
        Some(PeerInfo {
            route: entry.route,
            identity: entry.peer,
        })
    }

    /// The pool of the backend.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        self.memory.pool()
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What this side offers in a handshake.
    pub(crate) fn own_terms(&self) -> Terms {
        Terms {
            credits: self.config.credits,
            slots: self.config.slots,
            features: self.features,
            mtu: self.mtu,
        }
    }

    /// Whether the receive queue has room for another session's packets (the paper's |RQ| / C).
    pub(crate) fn has_credits_for(&mut self, terms: &Terms) -> bool {
        let fits = self.sessions.credits + u64::from(terms.credits) <= self.rx_queue_packets;
        if !fits && self.config.overcommit {
            self.stats.sessions_overcommitted += 1;
        }
        fits || self.config.overcommit
    }
}
