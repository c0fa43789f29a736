//! The sessions of an endpoint, found by index and, from outside, by index and generation.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::state::{Input, State};
use super::{Identity, SessionId, Terms};
use crate::backend::Route;
use crate::config::SESSIONS_CACHED;
use crate::prefetch::prefetch;
use crate::rpc::{ClientEnd, ServerEnd, ServerSlot};
use crate::time::Instant;
use crate::wire::{RequestNumber, Seed};

/// Cache lines of a session that a packet may need: a server end's are the first two.
const SESSION_LINES: usize = 5;

/// One end of a session. What every packet needs comes first, in the order in which it is needed: a
/// server end's in two cache lines, which begin with the session.
#[repr(C, align(64))]
pub(crate) struct Session<R> {
    pub(crate) generation: u32,
    /// Made of the nonce.
    pub(crate) seed: Seed,
    /// The session's index at the peer. Means nothing before `Open`.
    pub(crate) remote: u16,
    pub(crate) state: State,
    pub(crate) terms: Terms,
    pub(crate) route: R,
    /// When a packet last came that only a living peer can have sent: one that moved a request on,
    /// or the answer to our PING. A replay is neither.
    pub(crate) heard_at: Instant,
    /// Some exactly while a PING is unanswered.
    pub(crate) probe: Option<Probing>,
    pub(crate) role: Role,
    /// Drawn by the client; tells this session from others at the same index.
    pub(crate) nonce: u64,
    /// The peer. Means nothing before `Open`.
    pub(crate) peer: Identity,
    /// Retransmission of CONNECT and DISCONNECT. Means nothing while `Open`.
    pub(crate) handshake: Handshake,
}

/// Which end this is. Both live in the table itself: a box would cost each packet a cache line.
#[allow(clippy::large_enum_variant)]
pub(crate) enum Role {
    Client(ClientEnd),
    Server(ServerEnd),
}

/// A sign of life that we asked for.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Probing {
    pub(crate) since: Instant,
    pub(crate) sent_at: Instant,
    pub(crate) token: RequestNumber,
}

/// Timers of a handshake or a teardown.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Handshake {
    pub(crate) resend_at: Instant,
    pub(crate) give_up_at: Instant,
    pub(crate) sent_at: Instant,
    pub(crate) attempts: u8,
    pub(crate) cookie: u64,
    pub(crate) token: RequestNumber,
}

impl<R> Session<R> {
    /// See `heard_at`.
    #[inline]
    pub(crate) fn prove_alive(&mut self, now: Instant) {
        self.heard_at = now;
        self.probe = None;
    }

    pub(crate) fn client(&mut self) -> Option<&mut ClientEnd> {
        match &mut self.role {
            Role::Client(client) => Some(client),
            Role::Server(_) => None,
        }
    }

    pub(crate) fn server(&mut self) -> Option<&mut ServerEnd> {
        match &mut self.role {
            Role::Server(server) => Some(server),
            Role::Client(_) => None,
        }
    }

    /// Moves on, or says that the input does not belong here.
    #[must_use]
    pub(crate) fn go(&mut self, input: Input) -> bool {
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
pub(crate) struct SessionTable<R> {
    sessions: Vec<Session<R>>,
    /// Oldest first, so that an index rests before it is used again.
    free: VecDeque<u16>,
    limit: usize,
    /// Sum of the credits of all sessions in use.
    pub(crate) credits: u64,
    /// The server ends by nonce: a CONNECT that comes twice finds its session.
    pub(crate) by_nonce: BTreeMap<u64, u16>,
    /// Nonces of server ends that are over and whose cookies may still be good.
    pub(crate) ended_nonces: BTreeSet<u64>,
}

impl<R: Route> SessionTable<R> {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            sessions: Vec::new(),
            free: VecDeque::new(),
            limit,
            credits: 0,
            by_nonce: BTreeMap::new(),
            ended_nonces: BTreeSet::new(),
        }
    }

    pub(crate) fn has_room(&self) -> bool {
        !self.free.is_empty() || self.sessions.len() < self.limit
    }

    /// Takes an index into use. `make` gets the new session's generation.
    pub(crate) fn insert(&mut self, make: impl FnOnce(u32) -> Session<R>) -> Option<SessionId> {
        if let Some(index) = self.free.pop_front() {
            let place = &mut self.sessions[usize::from(index)];
            let generation = place.generation;
            *place = make(generation);
            return Some(self.opened(index, generation));
        }
        if self.sessions.len() == self.limit {
            return None;
        }
        // The limit is at most SESSIONS_MAX, so the index has 16 bits.
        let index = self.sessions.len() as u16;
        self.sessions.push(make(0));
        Some(self.opened(index, 0))
    }

    fn opened(&mut self, index: u16, generation: u32) -> SessionId {
        self.credits += u64::from(self.sessions[usize::from(index)].terms.credits);
        SessionId { index, generation }
    }

    /// Gives an index back. The caller has ended everything that refers to the session.
    pub(crate) fn release(&mut self, index: u16) {
        let session = &mut self.sessions[usize::from(index)];
        assert!(
            session.state == State::Free,
            "a session was released in the middle of its life"
        );
        session.generation = session.generation.wrapping_add(1);
        self.credits -= u64::from(session.terms.credits);
        if self.by_nonce.get(&session.nonce) == Some(&index) {
            self.by_nonce.remove(&session.nonce);
        }
        session.role = Role::Server(ServerEnd::default());
        session.probe = None;
        self.free.push_back(index);
    }

    /// The session at an index that is in use.
    pub(crate) fn at(&mut self, index: u16) -> Option<&mut Session<R>> {
        self.sessions
            .get_mut(usize::from(index))
            .filter(|session| session.state != State::Free)
    }

    /// The session of this id, if it is not over.
    pub(crate) fn get(&self, id: SessionId) -> Option<&Session<R>> {
        self.sessions
            .get(usize::from(id.index))
            .filter(|session| session.state != State::Free && session.generation == id.generation)
    }

    /// The session of this id, if it is not over.
    pub(crate) fn get_mut(&mut self, id: SessionId) -> Option<&mut Session<R>> {
        self.at(id.index)
            .filter(|session| session.generation == id.generation)
    }

    /// More sessions than a processor's own cache holds.
    pub(crate) fn are_many(&self) -> bool {
        self.sessions.len() > SESSIONS_CACHED
    }

    /// Begins to fetch what a packet of this session needs.
    #[inline]
    pub(crate) fn prefetch(&self, index: u16) {
        if let Some(session) = self.sessions.get(usize::from(index)) {
            prefetch::<_, SESSION_LINES>(session);
        }
    }

    /// Begins to fetch a slot, once the session itself is under way.
    #[inline]
    pub(crate) fn prefetch_slot(&self, index: u16, slot: u8) {
        let Some(session) = self.sessions.get(usize::from(index)) else {
            return;
        };
        match &session.role {
            Role::Server(server) => {
                if let Some(slot) = server.slots.get(usize::from(slot)) {
                    prefetch::<_, 2>(slot);
                }
            }
            Role::Client(client) => {
                if let Some(slot) = client.slots.get(usize::from(slot)) {
                    prefetch::<_, 1>(slot);
                }
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Session<R>> {
        self.sessions
            .iter()
            .filter(|session| session.state != State::Free)
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

impl<R: Route> SessionTable<R> {
    /// A slot of a server end; `None` at a client end and beyond the session's slots.
    pub(crate) fn server_slot(&mut self, session: u16, slot: u8) -> Option<&mut ServerSlot> {
        self[session].server()?.slots.get_mut(usize::from(slot))
    }
}
