//! Sessions: one-to-one connections of two endpoints (PROTOCOL.md section 4).
//!
//! `Sessions` holds all of an endpoint's. The files beside this one add how sessions come, stay and go. Each has an
//! end of `rpc/`, with its requests. The caller gets the end of a session that is over.

mod accept;
pub(crate) mod api;
mod black_holes;
mod change;
mod connect;
mod half_open;
mod halves;
mod keepalive;
mod names;
pub(crate) mod peer;
mod refuse;
pub(crate) mod rtt;
mod seal;
mod sealing;
mod secret;
pub(crate) mod shares;
mod state;
mod table;
mod teardown;
pub(crate) mod terms;
mod timers;

pub use api::{
    BadTerm, ConnectError, ConnectParams, ConnectRefused, DownReason, Event, Identity, KeyObstacle,
    PeerInfo, SessionId,
};
pub(crate) use peer::{Received, SessionPeer};
pub(crate) use rtt::RtoLimits;
pub use shares::Holder;
pub(crate) use table::{Ended, Role, Session};
pub(crate) use teardown::Closed;
pub(crate) use terms::Terms;
pub(crate) use timers::Timer;

use std::collections::VecDeque;

use self::black_holes::BlackHoles;
use self::half_open::Trust;
use self::secret::Secret;
use self::shares::Shares;
use self::state::{SessionInput, SessionState};
use self::table::{Handshake, Probing, SessionTable};
use crate::backend::{PACKET_EVERYWHERE, PacketSizes, Route};
use crate::config::HALF_OPEN_MAX;
use crate::congestion::Congestion;
use crate::keys::KeyId;
use crate::rpc::{Control, ControlQueue};
use crate::stats::{Drops, EndpointStats};
use crate::time::{Duration, Instant};
use crate::timing_wheel::TimingWheel;
use crate::wire::{Body, Features, Header, Seed};
use trine_canary as canary;

/// All sessions of an endpoint.
pub(crate) struct Sessions<R: Route> {
    table: SessionTable<R>,
    shares: Shares,
    identity: Identity,
    secret: Secret,
    /// Only where sessions may be sealed.
    trust: Option<Box<Trust>>,
    settings: SessionSettings,
    sizes: PacketSizes<R>,
    black_holes: BlackHoles<R>,
    /// An entry per session, by index.
    timers: TimingWheel,
    /// News that the program has not taken.
    events: VecDeque<Event<R>>,
}

/// Settings of sessions.
pub(crate) struct SessionSettings {
    /// Sessions at most.
    pub(crate) sessions: usize,
    /// Those of them that only privileged holders get.
    pub(crate) sessions_reserved: usize,
    /// This side's offer in a handshake; the route may allow smaller packets only.
    pub(crate) terms: Terms,
    pub(crate) rto_limits: RtoLimits,
    /// The congestion state that a new client end begins with.
    pub(crate) congestion: Congestion,
    /// Packets that the receive queue holds.
    pub(crate) rx_queue_packets: u64,
    pub(crate) overcommit: bool,
    pub(crate) connect_timeout: Duration,
    pub(crate) failure_timeout: Duration,
    pub(crate) keepalive_interval: Duration,
}

/// Destinations of control packets and of counts.
pub(crate) struct ControlOutput<'a, R> {
    control: &'a mut ControlQueue<R>,
    stats: &'a mut EndpointStats,
}

/// Events for which there is room from the start.
const EVENTS_AT_FIRST: usize = 256;

impl<'a, R: Route> ControlOutput<'a, R> {
    pub(crate) fn new(control: &'a mut ControlQueue<R>, stats: &'a mut EndpointStats) -> Self {
        Self { control, stats }
    }

    /// Where dropped packets are counted.
    pub(crate) fn count_drops(&mut self) -> &mut Drops {
        &mut self.stats.drops
    }

    fn send(&mut self, route: R, header: Header, seed: Seed, body: Option<Body>) {
        let body = body.as_deref().unwrap_or(&[]);
        self.send_bytes(route, &header, seed, body);
    }

    fn send_bytes(&mut self, route: R, header: &Header, seed: Seed, body: &[u8]) {
        self.push(Control::new(route, header, seed, body));
    }

    fn push(&mut self, packet: Control<R>) {
        self.control.push(packet, &mut self.stats.drops);
    }
}

impl<R: Route> Sessions<R> {
    pub(crate) fn new(
        settings: SessionSettings,
        sizes: PacketSizes<R>,
        identity: Identity,
        seed: u64,
    ) -> Self {
        let precision_ns = settings.rto_limits.floor.as_nanos() / 32;
        Self {
            table: SessionTable::new(settings.sessions),
            shares: Shares::default(),
            identity,
            secret: Secret::new(seed),
            trust: None,
            timers: TimingWheel::new(settings.sessions + HALF_OPEN_MAX, precision_ns),
            events: VecDeque::with_capacity(settings.sessions.min(EVENTS_AT_FIRST)),
            settings,
            sizes,
            black_holes: BlackHoles::default(),
        }
    }

    /// From now on the size of packets depends on the route.
    pub(crate) fn set_packet_sizes(&mut self, sizes: PacketSizes<R>) {
        self.sizes = sizes;
    }

    /// The largest packet to wish for on a route.
    fn packet_size(&self, now: Instant, route: &R) -> u16 {
        let largest = self.settings.terms.mtu;
        if canary::planted("the wish is the device's size") {
            return largest;
        }
        let wish = self.sizes.of(route).min(largest);
        if self.black_holes.is_known(now, route) {
            return wish.min(PACKET_EVERYWHERE as u16);
        }
        wish
    }

    /// The congestion control of a new session on a route.
    fn congestion(&self, route: &R) -> Congestion {
        let congestion = self.settings.congestion.clone();
        // To ask takes system calls.
        match congestion.is_off_nearby() && self.sizes.is_near(route) {
            true => Congestion::Off,
            false => congestion,
        }
    }

    /// What a client asks for: times that nobody looks at would only cost the server its reading of the clock.
    fn features(&self, congestion: &Congestion) -> Features {
        let own = self.settings.terms.features;
        match congestion.uses_answer_times() {
            true => own,
            false => own.without(Features::ANSWER_TIMES),
        }
    }

    /// Whether a session's packets are larger than what every path carries, because somebody said that this one does.
    pub(crate) fn rests_on_promise(&self, index: u16) -> bool {
        let session = &self.table[index];
        let bytes = usize::from(session.terms.mtu);
        self.sizes.is_promise(&session.route, bytes)
    }

    /// Full packets of a session vanish. The next sessions on its route have smaller ones for a while.
    pub(crate) fn on_black_hole(&mut self, now: Instant, index: u16) {
        self.black_holes.note(now, self.table[index].route);
    }

    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    /// Changes the identity of this endpoint in later handshakes.
    pub(crate) fn set_identity(&mut self, identity: Identity) {
        self.identity = identity;
    }

    /// The next news about sessions.
    pub(crate) fn poll_event(&mut self) -> Option<Event<R>> {
        self.events.pop_front()
    }

    pub(crate) fn have_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// The session at an index that is in use.
    #[inline(always)]
    pub(crate) fn at(&mut self, index: u16) -> Option<&mut Session<R>> {
        self.table.at(index)
    }

    /// The session of this id, if it is not over.
    pub(crate) fn get(&self, id: SessionId) -> Option<&Session<R>> {
        self.table.get(id)
    }

    /// The session of this id, if requests may flow.
    #[inline(always)]
    pub(crate) fn established(&mut self, id: SessionId) -> Option<&mut Session<R>> {
        let session = self.table.established(id.index);
        session.filter(|session| session.id(id.index) == id)
    }

    /// The session at an index, if requests may flow.
    #[inline(always)]
    pub(crate) fn established_at(&mut self, index: u16) -> Option<&mut Session<R>> {
        self.table.established(index)
    }

    /// The session at an index, of any state.
    #[inline(always)]
    pub(crate) fn entry(&mut self, index: u16) -> &mut Session<R> {
        &mut self.table[index]
    }

    /// The session whose packets have this mark, if it is not over.
    #[inline]
    pub(crate) fn marked(&mut self, mark: u32) -> Option<&mut Session<R>> {
        let index = mark as u16;
        let session = self.table.at(index)?;
        session.has_mark(index, mark).then_some(session)
    }

    /// The key that the peer of an established session has proven to hold.
    pub(crate) fn key(&self, id: SessionId) -> Option<KeyId> {
        self.get(id).filter(|session| session.is_open())?.key()
    }

    /// The other end of an established session.
    pub(crate) fn peer(&self, id: SessionId) -> Option<PeerInfo<R>> {
        let session = self.get(id).filter(|session| session.is_open())?;
        Some(session.peer_info())
    }

    /// More sessions than a processor's own cache holds.
    pub(crate) fn are_many(&self) -> bool {
        self.table.are_many()
    }

    /// Begins to fetch what a packet of this session needs.
    #[inline]
    pub(crate) fn prefetch(&self, index: u16) {
        self.table.prefetch(index);
    }

    /// Begins to fetch a slot, once the session itself is under way.
    #[inline]
    pub(crate) fn prefetch_slot(&self, index: u16, slot: u8) {
        self.table.prefetch_slot(index, slot);
    }

    #[cfg(test)]
    pub(crate) fn half_open(&self) -> usize {
        self.table.half_open()
    }

    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Session<R>> {
        self.table.iter()
    }

    /// Each server end is counted once, for the holder that its memory is counted for.
    #[cfg(test)]
    pub(crate) fn check_shares(&self) {
        let servers = self
            .table
            .iter()
            .filter(|session| session.is_counted)
            .filter_map(|session| match session.role() {
                Role::Server(server) => Some(server.account()),
                Role::Client(_) => None,
            });
        self.shares
            .check(servers.map(|account| (account.session, account.holder)));
    }

    /// Whether the receive queue has room for another session's packets (the paper's |RQ| / C).
    fn has_credits_for(&self, terms: &Terms, stats: &mut EndpointStats) -> bool {
        let credits = self.table.credits() + u64::from(terms.credits);
        let fits = credits <= self.settings.rx_queue_packets;
        if !fits && self.settings.overcommit {
            stats.sessions_overcommitted += 1;
        }
        fits || self.settings.overcommit
    }
}
