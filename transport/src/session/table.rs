//! The sessions of an endpoint, found by index and, from outside, by index and generation.

use std::collections::{BTreeMap, VecDeque};

use super::names::{EndedNames, ServerEndName};
use super::seal::Seal;
use super::state::{SessionInput, SessionState};
use super::{Identity, PeerInfo, RtoLimits, SessionId, SessionPeer, Terms};
use crate::backend::Route;
use crate::config::{HALF_OPEN_MAX, SESSIONS_CACHED, SESSIONS_MAX, SIBLINGS_SOUGHT_MAX};
use crate::prefetch::prefetch;
use crate::rpc::{ClientEnd, ServerEnd};
use crate::time::Instant;
use crate::wire::{RequestNumber, Seed};

/// Cache lines of a session that a packet may need: a server end's are the first two.
const SESSION_LINES: usize = 5;

/// One end of a session. Fields that every packet needs come first, in the order in which it is needed: a
/// server end's in two cache lines, which begin with the session.
#[repr(C, align(64))]
pub(crate) struct Session<R> {
    pub(super) generation: u32,
    /// Made of the nonce.
    pub(super) seed: Seed,
    /// The session's index at the peer. Means nothing before `Open`.
    pub(super) remote: u16,
    pub(super) state: SessionState,
    /// False while it is half open.
    pub(super) is_counted: bool,
    pub(super) terms: Terms,
    pub(super) route: R,
    /// When a packet last came that only a living peer can have sent: one that moved a request on,
    /// or the answer to our PING. A replay is neither.
    pub(super) heard_at: Instant,
    /// Some exactly while a PING is unanswered.
    pub(super) probe: Option<Probing>,
    /// When the timer of the established session fired last: whatever lasts long is looked at then.
    pub(super) scanned_at: Instant,
    pub(super) role: Role,
    /// Drawn by the client; tells this session from others at the same index.
    pub(super) nonce: u64,
    /// The peer. Means nothing before `Open`.
    pub(super) peer: Identity,
    /// Retransmission of CONNECT and DISCONNECT. Means nothing while `Open`.
    pub(super) handshake: Handshake,
    /// The keys of a sealed session.
    pub(super) seal: Seal,
}

/// Which end this is. Both live in the table itself: a box would cost each packet a cache line.
#[allow(clippy::large_enum_variant)]
pub(crate) enum Role {
    Client(ClientEnd),
    Server(ServerEnd),
}

/// The end of a session that is over: its requests and memory are to be given up.
#[must_use]
pub(crate) struct Ended {
    /// The index that it had.
    pub(crate) index: u16,
    pub(crate) role: Role,
}

/// A PING whose answer is awaited.
#[derive(Copy, Clone, Debug)]
pub(super) struct Probing {
    pub(super) since: Instant,
    pub(super) sent_at: Instant,
    pub(super) token: RequestNumber,
}

/// Timers of a handshake or a teardown.
#[derive(Copy, Clone, Debug)]
pub(super) struct Handshake {
    pub(super) resend_at: Instant,
    pub(super) give_up_at: Instant,
    pub(super) sent_at: Instant,
    pub(super) attempts: u8,
    pub(super) cookie: u64,
    pub(super) token: RequestNumber,
}

impl Handshake {
    /// One that begins now.
    pub(super) fn begin(now: Instant, give_up_at: Instant, token: RequestNumber) -> Self {
        Self {
            resend_at: now,
            give_up_at,
            sent_at: now,
            attempts: 0,
            cookie: 0,
            token,
        }
    }

    /// The packet is sent now, and again later: doubling the interval each time. Returns when the timer fires.
    pub(super) fn on_sent(&mut self, now: Instant, limits: &RtoLimits) -> Instant {
        let interval = limits.initial.saturating_mul(1 << self.attempts.min(6));
        self.attempts = self.attempts.saturating_add(1);
        self.resend_at = now + interval.min(limits.max);
        self.resend_at.min(self.give_up_at)
    }
}

impl<R: Route> Session<R> {
    /// Data that all its packets share.
    #[inline(always)]
    pub(crate) fn peer_of(&self, index: u16) -> SessionPeer<R> {
        SessionPeer {
            route: self.route,
            seed: self.seed,
            remote: self.remote,
            index,
            terms: self.terms,
        }
    }

    /// The other end.
    pub(super) fn peer_info(&self) -> PeerInfo<R> {
        PeerInfo {
            route: self.route,
            identity: self.peer,
        }
    }

    /// Its name, at this index.
    #[inline(always)]
    pub(crate) fn id(&self, index: u16) -> SessionId {
        SessionId {
            index,
            generation: self.generation,
        }
    }
}

impl<R> Session<R> {
    /// Its name, as a server end.
    pub(super) fn name(&self) -> ServerEndName {
        ServerEndName {
            nonce: self.nonce,
            is_sealed: matches!(self.seal, Seal::On(_)),
        }
    }

    /// Whether requests may flow.
    #[inline(always)]
    pub(crate) fn is_open(&self) -> bool {
        self.state == SessionState::Open
    }

    /// Whether this side has ended it.
    pub(crate) fn is_closing(&self) -> bool {
        self.state == SessionState::Closing
    }

    pub(crate) fn terms(&self) -> Terms {
        self.terms
    }

    #[inline(always)]
    pub(crate) fn role(&self) -> &Role {
        &self.role
    }

    #[inline(always)]
    pub(crate) fn role_mut(&mut self) -> &mut Role {
        &mut self.role
    }

    /// When the peer last proved that it is there.
    pub(crate) fn heard_at(&self) -> Instant {
        self.heard_at
    }

    /// See `heard_at`.
    #[inline(always)]
    pub(crate) fn prove_alive(&mut self, now: Instant) {
        self.heard_at = now;
        self.probe = None;
    }

    #[inline(always)]
    pub(crate) fn client(&mut self) -> Option<&mut ClientEnd> {
        match &mut self.role {
            Role::Client(client) => Some(client),
            Role::Server(_) => None,
        }
    }

    #[inline(always)]
    pub(crate) fn server(&mut self) -> Option<&mut ServerEnd> {
        match &mut self.role {
            Role::Server(server) => Some(server),
            Role::Client(_) => None,
        }
    }

    /// Moves on, or says that the input does not belong here.
    #[must_use]
    pub(super) fn go(&mut self, input: SessionInput) -> bool {
        match self.state.after(input) {
            Some(next) => {
                self.state = next;
                true
            }
            None => false,
        }
    }
}

/// All sessions.
pub(super) struct SessionTable<R> {
    sessions: Vec<Session<R>>,
    /// Oldest first, so that an index rests before it is used again.
    free: VecDeque<u16>,
    limit: usize,
    /// Sum of the credits of all sessions in use but the half-open ones.
    credits: u64,
    /// Sessions that are in use and do not count yet.
    half_open: usize,
    /// The established server ends: a CONNECT that comes twice finds its session.
    by_name: BTreeMap<ServerEndName, u16>,
    /// Server ends that are over and whose cookies may still be good.
    pub(super) ended: EndedNames,
}

impl<R: Route> SessionTable<R> {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            sessions: Vec::new(),
            free: VecDeque::new(),
            limit,
            credits: 0,
            half_open: 0,
            by_name: BTreeMap::new(),
            ended: EndedNames::default(),
        }
    }

    pub(super) fn has_room(&self) -> bool {
        let used = self.sessions.len() - self.free.len();
        used - self.half_open < self.limit
    }

    /// Indexes that there may be: half-open sessions have some beyond the limit.
    fn indexes_max(&self) -> usize {
        (self.limit + HALF_OPEN_MAX).min(SESSIONS_MAX)
    }

    /// Takes an index into use. `make` gets the new session's generation.
    pub(super) fn insert(&mut self, make: impl FnOnce(u32) -> Session<R>) -> Option<SessionId> {
        if let Some(index) = self.free.pop_front() {
            let place = &mut self.sessions[usize::from(index)];
            let generation = place.generation;
            *place = make(generation);
            return Some(self.opened(index, generation));
        }
        if self.sessions.len() == self.indexes_max() {
            return None;
        }
        // There are at most SESSIONS_MAX, so the index has 16 bits.
        let index = self.sessions.len() as u16;
        self.sessions.push(make(0));
        Some(self.opened(index, 0))
    }

    fn opened(&mut self, index: u16, generation: u32) -> SessionId {
        self.credits += u64::from(self.sessions[usize::from(index)].terms.credits);
        SessionId { index, generation }
    }

    /// The session at an index, which is fresh, does not count until it is [proven](Self::prove).
    pub(super) fn set_half_open(&mut self, index: u16) {
        let session = &mut self.sessions[usize::from(index)];
        session.is_counted = false;
        self.credits -= u64::from(session.terms.credits);
        self.half_open += 1;
    }

    /// A half-open session counts from now on.
    pub(super) fn prove(&mut self, index: u16) {
        let session = &mut self.sessions[usize::from(index)];
        session.is_counted = true;
        self.credits += u64::from(session.terms.credits);
        self.half_open -= 1;
    }

    /// Gives an index back, and the session's end to the caller.
    pub(super) fn release(&mut self, index: u16) -> Ended {
        let session = &mut self.sessions[usize::from(index)];
        assert!(
            session.state == SessionState::Free,
            "a session was released in the middle of its life"
        );
        session.generation = session.generation.wrapping_add(1);
        if session.is_counted {
            self.credits -= u64::from(session.terms.credits);
        } else {
            self.half_open -= 1;
        }
        let name = session.name();
        if self.by_name.get(&name) == Some(&index) {
            self.by_name.remove(&name);
        }
        session.seal = Seal::Off;
        session.probe = None;
        self.free.push_back(index);
        let role = std::mem::replace(&mut session.role, Role::Server(ServerEnd::default()));
        Ended { index, role }
    }

    /// Sum of the credits of all sessions in use.
    pub(super) fn credits(&self) -> u64 {
        self.credits
    }

    /// Sets a session's terms. Credits that it does not use are free again.
    pub(super) fn set_terms(&mut self, index: u16, terms: Terms) {
        let session = &mut self.sessions[usize::from(index)];
        self.credits -= u64::from(session.terms.credits - terms.credits);
        session.terms = terms;
    }

    /// A server end can be found by its name from now on.
    pub(super) fn name(&mut self, index: u16) {
        let name = self.sessions[usize::from(index)].name();
        self.by_name.insert(name, index);
    }

    /// The server end with this name.
    pub(super) fn named(&self, name: ServerEndName) -> Option<u16> {
        self.by_name.get(&name).copied()
    }

    /// The session at an index that is in use.
    pub(super) fn at(&mut self, index: u16) -> Option<&mut Session<R>> {
        self.sessions
            .get_mut(usize::from(index))
            .filter(|session| session.state != SessionState::Free)
    }

    /// The session at an index, if requests may flow.
    #[inline(always)]
    pub(super) fn established(&mut self, index: u16) -> Option<&mut Session<R>> {
        self.sessions
            .get_mut(usize::from(index))
            .filter(|session| session.is_open())
    }

    /// The session of this id, if it is not over.
    pub(super) fn get(&self, id: SessionId) -> Option<&Session<R>> {
        self.sessions.get(usize::from(id.index)).filter(|session| {
            session.state != SessionState::Free && session.generation == id.generation
        })
    }

    /// The session of this id, if it is not over.
    pub(super) fn get_mut(&mut self, id: SessionId) -> Option<&mut Session<R>> {
        self.at(id.index)
            .filter(|session| session.generation == id.generation)
    }

    /// More sessions than a processor's own cache holds.
    pub(super) fn are_many(&self) -> bool {
        self.sessions.len() > SESSIONS_CACHED
    }

    /// Begins to fetch what a packet of this session needs.
    #[inline]
    pub(super) fn prefetch(&self, index: u16) {
        if let Some(session) = self.sessions.get(usize::from(index)) {
            prefetch::<_, SESSION_LINES>(session);
        }
    }

    /// Begins to fetch a slot, once the session itself is under way.
    #[inline]
    pub(super) fn prefetch_slot(&self, index: u16, slot: u8) {
        let Some(session) = self.sessions.get(usize::from(index)) else {
            return;
        };
        match &session.role {
            Role::Server(server) => server.prefetch_slot(slot),
            Role::Client(client) => client.prefetch_slot(slot),
        }
    }

    /// Established sessions.
    pub(super) fn open(&self) -> impl Iterator<Item = (u16, &Session<R>)> {
        self.in_state(|state| state == SessionState::Open)
    }

    /// Sessions that this end has asked for, and that do not stand yet.
    pub(super) fn asking(&self) -> impl Iterator<Item = (u16, &Session<R>)> {
        self.in_state(|state| matches!(state, SessionState::Asking | SessionState::Returning))
    }

    /// Sessions in such a state.
    pub(super) fn in_state(
        &self,
        is_meant: impl Fn(SessionState) -> bool,
    ) -> impl Iterator<Item = (u16, &Session<R>)> {
        // The limit is at most SESSIONS_MAX, so the index has 16 bits.
        let indexed = self.sessions.iter().enumerate();
        indexed
            .filter(move |(_, session)| is_meant(session.state))
            .map(|(index, session)| (index as u16, session))
    }

    /// From now on nothing can be sealed or opened.
    pub(super) fn forget_keys(&mut self) {
        for session in &mut self.sessions {
            session.seal = Seal::Off;
        }
    }

    #[cfg(test)]
    pub(super) fn half_open(&self) -> usize {
        self.half_open
    }

    /// The other established sessions with the same incarnation at the same address, sealed as this one or not. None are sought
    /// among many.
    pub(super) fn siblings_of(&self, index: u16) -> impl Iterator<Item = &Session<R>> {
        let session = &self[index];
        let is_sought = self.sessions.len() <= SIBLINGS_SOUGHT_MAX;
        let sessions = if is_sought { &self.sessions[..] } else { &[] };
        sessions.iter().filter(move |other| {
            other.is_open()
                // A process may have joined its group between the two.
                && (other.route, other.peer.incarnation) == (session.route, session.peer.incarnation)
                && other.nonce != session.nonce
                && other.is_sealed() == session.is_sealed()
        })
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Session<R>> {
        self.sessions
            .iter()
            .filter(|session| session.state != SessionState::Free)
    }
}

impl<R> std::ops::Index<u16> for SessionTable<R> {
    type Output = Session<R>;

    fn index(&self, index: u16) -> &Session<R> {
        &self.sessions[usize::from(index)]
    }
}

impl<R> std::ops::IndexMut<u16> for SessionTable<R> {
    fn index_mut(&mut self, index: u16) -> &mut Session<R> {
        &mut self.sessions[usize::from(index)]
    }
}
