//! The sans-IO core: called with `now` and packets, hands back packets, deadlines and events.
//!
//! ```text
//!   on_packets -> receive -> a handler per packet type -> answers, ready sessions, callbacks
//!   on_timeout -> sessions -> rollbacks, probes, keepalive
//!   poll_transmit <- control packets, answers, ready sessions
//! ```
//! [`Endpoint`] joins values that know nothing of each other. `session/` and `rpc/` define them. The files in
//! `endpoint/` pass to each value the others that it needs. No other file sees the fields of an `Endpoint`.

mod chains;
mod fast_path;
#[cfg(test)]
mod invariants;
mod receive;
mod requests;
mod responses;
mod seal_memory;
mod sealed;
mod sessions;
mod transmit;

use self::seal_memory::SealMemory;
use crate::backend::{Caps, PacketSizes, Route};
use crate::buf::{MsgBuf, Pool};
use crate::config::{Config, ConfigError, HALF_OPEN_MAX, MTU_MAX, MTU_MIN};
use crate::congestion::Congestion;
use crate::rpc::{ControlQueue, FastPath, Memory, Requests, Responses};
use crate::session::{
    Event, Identity, PeerInfo, Role, RtoLimits, SessionId, SessionSettings, Sessions, Terms,
};
use crate::stats::{Counters, EndpointStats, RttHistogram, SessionStats};
use crate::time::Instant;
use crate::wire::Features;

/// One end of any number of sessions, for one thread: no I/O, no clock.
pub struct Endpoint<R: Route> {
    config: Config,
    sessions: Sessions<R>,
    /// Requests of this side's client ends.
    requests: Requests,
    /// Answers of this side's server ends.
    responses: Responses,
    fast_path: FastPath<R>,
    control: ControlQueue<R>,
    memory: Memory,
    counters: Counters,
    seal_memory: SealMemory<R>,
    /// The backend should look at the arrival of packets until then.
    arrivals_until: Instant,
    /// When the network delivered the datagram that is taken in, while the backend looks; else `None`.
    arrived_at: Option<Instant>,
}

/// The result of [`Endpoint::poll_transmit`].
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
pub struct Transmit {
    /// Packets added to the batch.
    pub count: usize,
    /// A buffer that must go back to the application was retransmitted: call `Backend::flush`,
    /// then [`Endpoint::on_tx_flushed`], before this batch is sent.
    pub flush_first: bool,
}

impl<R: Route> Endpoint<R> {
    /// An endpoint over a backend with these capabilities, whose `pool` its messages come from. All
    /// its nonces and cookies come from `seed`, which is secret and never used twice. A server
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
        let settings = SessionSettings {
            sessions: config.sessions,
            sessions_reserved: config.sessions_reserved,
            terms: Terms {
                credits: config.credits,
                slots: config.slots,
                features: Features::ANSWER_TIMES
                    .with_if(cumulative, Features::CUMULATIVE_CREDITS)
                    .with_if(!config.data_checksums, Features::HEADER_CHECKSUMS),
                // At most MTU_MAX.
                mtu: mtu as u16,
            },
            rto_limits: RtoLimits {
                initial: config.rto_initial.max(rto_floor),
                floor: rto_floor,
                max: config.rto_max.max(rto_floor),
                wait_max: config.probe_interval_max,
            },
            congestion: Congestion::new(&config.congestion, rto_floor),
            rx_queue_packets: u64::from(caps.rx_queue_packets),
            overcommit: config.overcommit,
            connect_timeout: config.connect_timeout,
            failure_timeout: config.failure_timeout,
            keepalive_interval: config.keepalive_interval,
        };
        // At most MTU_MAX.
        let sizes = PacketSizes::of_device(mtu as u16);
        let mut control = ControlQueue::new(config.answers);
        control.set_datagram_max(sizes.anywhere());
        let mut sessions = Sessions::new(settings, sizes, identity, seed);
        if let Some(keys) = &config.keys {
            sessions.set_keys(keys.clone());
        }
        Ok(Self {
            sessions,
            requests: Requests::new(config.requests, config.sessions + HALF_OPEN_MAX),
            responses: Responses::new(&config),
            fast_path: FastPath::new(config.congestion.batched_timestamps),
            control,
            memory: Memory::new(pool, caps.copies, &config),
            counters: Counters::default(),
            seal_memory: SealMemory::new(config.tag_per_run),
            arrivals_until: Instant::ZERO,
            arrived_at: None,
            config,
        })
    }

    /// From now on the size of a session's packets depends on its route. Without this call it is one size for all:
    /// [`Config::mtu`], or the backend's. A size above that is not wished for.
    pub fn set_packet_sizes(&mut self, sizes: PacketSizes<R>) {
        self.control.set_datagram_max(sizes.anywhere());
        self.sessions.set_packet_sizes(sizes);
    }

    /// Whether the backend should look at when packets arrive ([`Backend::note_arrivals`](crate::backend::Backend)).
    #[inline]
    pub(crate) fn wants_arrivals(&self, now: Instant) -> bool {
        now < self.arrivals_until
    }

    /// A request's timer may be due: packets that have arrived are better taken in first.
    #[inline]
    pub(crate) fn is_scan_due(&self, now: Instant) -> bool {
        self.requests.next_scan() <= now
    }

    /// A message buffer of `len` bytes; `None` when the pool's limit is reached.
    #[inline(always)]
    pub(crate) fn alloc(&mut self, len: usize) -> Option<MsgBuf> {
        self.memory.alloc(len)
    }

    /// The next news about sessions.
    pub fn poll_event(&mut self) -> Option<Event<R>> {
        self.sessions.poll_event()
    }

    /// Changes the identity of this endpoint in later handshakes. Established sessions stay.
    pub fn set_identity(&mut self, identity: Identity) {
        self.sessions.set_identity(identity);
    }

    /// The identity that this endpoint presents.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.sessions.identity()
    }

    /// Whether requests of this endpoint's own are not complete.
    #[must_use]
    pub fn awaits_answers(&self) -> bool {
        self.requests.used() > 0
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> EndpointStats {
        EndpointStats {
            requests_pending: self.requests.used() as u64,
            request_bytes_held: self.memory.assembly_bytes() as u64,
            response_bytes_held: self.memory.response_bytes() as u64,
            congestion: self.config.congestion.control,
            ..self.counters.stats
        }
    }

    /// Packets that were dropped, by cause.
    pub(crate) fn drops(&self) -> &crate::stats::Drops {
        &self.counters.stats.drops
    }

    /// Round-trip times of all client ends since the endpoint's creation, server times taken out.
    #[must_use]
    pub fn rtts(&self) -> RttHistogram {
        self.counters.rtts
    }

    /// A session's measurements; `None` once it is over.
    #[must_use]
    pub fn session_stats(&self, session: SessionId) -> Option<SessionStats> {
        let entry = self.sessions.get(session)?;
        let terms = entry.terms();
        let measured = match entry.role() {
            Role::Client(client) => client.stats(&terms),
            Role::Server(_) => SessionStats::default(),
        };
        Some(SessionStats {
            credits: terms.credits,
            slots: terms.slots,
            mtu: terms.mtu,
            ..measured
        })
    }

    /// The other end of an established session.
    #[must_use]
    pub fn peer(&self, session: SessionId) -> Option<PeerInfo<R>> {
        self.sessions.peer(session)
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
}
