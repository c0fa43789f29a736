//! The server's end of its connections: which are in use by which session, and whose slots are read.

use super::Arrivals;
use super::answers::Answers;
use super::names::ConnectionIndex;
use super::slot::{Slots, seed_of};
use super::terms::{ConnectionOffer, Notice, NoticeKind};
use super::window::{ConnectionMemory, SlotCounts, Window};
use crate::config::{IDLE_MAX, WISHES_MAX};
use crate::route::VerbsRoute;
use trine_transport::time::Instant;
use trine_transport::wire::{Accept, Connect};

/// ```text
///   Free -- ACCEPT --> Open -- end of session --> Used -- renewed --> Free
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum ConnectionState {
    Free,
    Open,
    /// A client may still write into the region: the queue pair has to be reset, and the region deregistered.
    Used,
}

/// A queue pair of the server with its request region, and the session that it serves.
struct Connection {
    state: ConnectionState,
    route: VerbsRoute,
    /// The session's index here: requests name it.
    own: u16,
    /// The session's index at the client: answers name it.
    peer: u16,
    nonce: u64,
    /// What the checksums of its slots begin with.
    seed: u32,
    wish: ConnectionOffer,
    window: Window,
    answers: Answers,
    /// The client knows that this end sleeps.
    is_told: bool,
    heard_at: Instant,
}

/// The terms in a CONNECT that no ACCEPT has answered yet. Nothing is known of its sender.
#[derive(Copy, Clone)]
struct PendingConnect {
    route: VerbsRoute,
    peer: u16,
    nonce: u64,
    wish: ConnectionOffer,
}

/// The connection that a session is assigned.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Assignment {
    /// It is granted already: the ACCEPT is a repetition.
    Known(usize),
    /// This one was free. The client's queue pair is in the terms.
    New(usize, ConnectionOffer),
}

/// All connections of an endpoint as a server.
pub(crate) struct Incoming {
    connections: Box<[Connection]>,
    by_own: ConnectionIndex,
    by_peer: ConnectionIndex,
    asked: [Option<PendingConnect>; WISHES_MAX],
    asked_next: usize,
    /// Those in state `Open`: only their slots are read.
    open: Vec<u16>,
    /// Where the next poll begins: none may starve.
    turn: usize,
}

impl Incoming {
    pub(super) fn new(count: usize) -> Self {
        Self {
            connections: (0..count).map(|_| Connection::free()).collect(),
            by_own: ConnectionIndex::with_capacity(count),
            by_peer: ConnectionIndex::with_capacity(count),
            asked: [None; WISHES_MAX],
            asked_next: 0,
            open: Vec::with_capacity(count),
            turn: 0,
        }
    }

    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    /// Terms came with a CONNECT. They are used only if the core accepts the session, and so has seen its cookie.
    pub(super) fn on_wish(&mut self, route: &VerbsRoute, connect: &Connect, wish: ConnectionOffer) {
        if self.connections.is_empty() {
            return;
        }
        self.asked[self.asked_next] = Some(PendingConnect {
            route: *route,
            peer: connect.client_session,
            nonce: connect.nonce,
            wish,
        });
        self.asked_next = (self.asked_next + 1) % WISHES_MAX;
    }

    /// ACCEPT goes to the session `peer` at `route`: its connection, if it has asked for one.
    pub(super) fn on_accept(&mut self, route: &VerbsRoute, peer: u16) -> Option<Assignment> {
        let is_his = |asked: &&PendingConnect| asked.route == *route && asked.peer == peer;
        // The newest one counts: a client's index may have had another session before.
        let newest_first =
            (1..=WISHES_MAX).map(|back| (self.asked_next + WISHES_MAX - back) % WISHES_MAX);
        let asked = newest_first
            .filter_map(|at| self.asked[at].as_ref())
            .find(is_his)
            .copied()?;
        if let Some(number) = self.by_peer.get(route, peer) {
            let known = &self.connections[number];
            if (known.nonce, known.wish) == (asked.nonce, asked.wish) {
                return Some(Assignment::Known(number));
            }
            self.give_back(number);
        }
        let mut connections = self.connections.iter();
        let number =
            connections.position(|connection| connection.state == ConnectionState::Free)?;
        let connection = &mut self.connections[number];
        connection.route = *route;
        connection.peer = peer;
        connection.nonce = asked.nonce;
        connection.seed = seed_of(asked.nonce);
        connection.wish = asked.wish;
        Some(Assignment::New(number, asked.wish))
    }

    /// The queue pair of a new place was connected.
    pub(super) fn opened(&mut self, now: Instant, number: usize, accept: &Accept) {
        let connection = &mut self.connections[number];
        debug_assert!(
            connection.state == ConnectionState::Free,
            "it was a new place"
        );
        connection.state = ConnectionState::Open;
        connection.own = accept.server_session;
        connection.window = Window::new(now);
        connection.answers = Answers::new();
        connection.is_told = false;
        connection.heard_at = now;
        let (route, own, peer) = (connection.route, connection.own, connection.peer);
        if let Some(before) = self.by_own.get(&route, own) {
            self.give_back(before);
        }
        self.by_own.insert(&route, own, number);
        self.by_peer.insert(&route, peer, number);
        self.open.push(number as u16);
    }

    /// The queue pair of a new place could not be connected.
    pub(super) fn refused(&mut self, number: usize) {
        self.connections[number].state = ConnectionState::Used;
    }

    pub(super) fn nonce(&self, number: usize) -> u64 {
        self.connections[number].nonce
    }

    /// The number of the own session `own` with `route`, if it has a connection.
    #[inline]
    pub(super) fn number(&self, route: &VerbsRoute, own: u16) -> Option<usize> {
        self.by_own.get(route, own)
    }

    /// A datagram of the own session `own` came. Slots may have been missed before it.
    #[inline]
    pub(super) fn on_datagram(&mut self, now: Instant, route: &VerbsRoute, own: u16) {
        if let Some(number) = self.by_own.get(route, own) {
            let connection = &mut self.connections[number];
            connection.heard_at = now;
            connection.window.suspect();
        }
    }

    /// A request of the own session `own` came as a datagram, and its answer is to be one: the client may have given up
    /// the connection.
    #[inline]
    pub(super) fn on_request(&mut self, now: Instant, route: &VerbsRoute, own: u16) {
        self.on_datagram(now, route, own);
        if let Some(number) = self.by_own.get(route, own) {
            self.connections[number].window.wants_datagrams();
        }
    }

    /// An answer goes to the session `peer`: its client then takes this end to be awake. Returns the connection if the
    /// client fetches its answers.
    #[inline]
    pub(super) fn on_answer(&mut self, route: &VerbsRoute, peer: u16) -> Option<usize> {
        let number = self.by_peer.get(route, peer)?;
        let connection = &mut self.connections[number];
        connection.is_told = false;
        connection.window.is_fetched().then_some(number)
    }

    /// The answers of a connection, and what their checksums begin with.
    #[inline]
    pub(super) fn answers(&mut self, number: usize) -> (&mut Answers, u32) {
        let connection = &mut self.connections[number];
        (&mut connection.answers, connection.seed)
    }

    /// The client of a connection fetches no more. Its route, if it did: what lies there has to be sent.
    pub(super) fn on_reply(&mut self, number: usize) -> Option<VerbsRoute> {
        let connection = &mut self.connections[number];
        let was_fetched = connection.window.is_fetched();
        connection.window.wants_datagrams();
        was_fetched.then_some(connection.route)
    }

    /// This end has told the session `peer` that it is over, or confirmed it.
    pub(super) fn on_end(&mut self, route: &VerbsRoute, peer: u16) {
        if let Some(number) = self.by_peer.get(route, peer) {
            self.give_back(number);
        }
    }

    /// Reads slots into `arrivals`, as far as there is room. `slots` gives the region of a connection.
    pub(super) fn poll<'a, S: Slots + 'a>(
        &mut self,
        now: Instant,
        slots: impl Fn(usize) -> S + 'a,
        arrivals: &mut Arrivals,
        counts: &mut SlotCounts,
    ) {
        let count = self.open.len();
        for step in 0..count {
            if !arrivals.has_room() {
                self.turn = (self.turn + step) % count;
                return;
            }
            let number = usize::from(self.open[(self.turn + step) % count]);
            let connection = &mut self.connections[number];
            let before = arrivals.len();
            let source = ConnectionMemory {
                slots: &slots(number),
                seed: connection.seed,
                route: connection.route,
            };
            connection.window.poll(now, &source, arrivals, counts);
            if arrivals.len() > before {
                connection.heard_at = now;
            }
        }
    }

    /// All slots are looked at in the next poll.
    pub(super) fn suspect_all(&mut self) {
        for number in &self.open {
            self.connections[usize::from(*number)].window.suspect();
        }
    }

    /// This end is about to sleep: a notice to each client that takes it to be awake.
    pub(super) fn on_sleep(
        &mut self,
        mut notify: impl FnMut(VerbsRoute, [u8; super::NOTICE_BYTES]),
    ) {
        for number in &self.open {
            let connection = &mut self.connections[usize::from(*number)];
            if std::mem::replace(&mut connection.is_told, true) {
                continue;
            }
            let sequence = connection.window.next();
            notify(
                connection.route,
                connection.notice(NoticeKind::Sleeps, sequence),
            );
        }
    }

    /// Gives back one connection of which nothing was heard for long; the notice to its client.
    pub(super) fn expire(
        &mut self,
        now: Instant,
    ) -> Option<(VerbsRoute, [u8; super::NOTICE_BYTES])> {
        let is_idle = |number: &&u16| {
            let connection = &self.connections[usize::from(**number)];
            now.saturating_since(connection.heard_at) > IDLE_MAX
        };
        let number = usize::from(*self.open.iter().find(is_idle)?);
        let connection = &self.connections[number];
        let notice = (connection.route, connection.notice(NoticeKind::Closed, 0));
        self.give_back(number);
        Some(notice)
    }

    fn give_back(&mut self, number: usize) {
        let connection = &mut self.connections[number];
        connection.state = ConnectionState::Used;
        let (route, own, peer) = (connection.route, connection.own, connection.peer);
        self.by_own.remove(&route, own, number);
        self.by_peer.remove(&route, peer, number);
        self.open.retain(|open| usize::from(*open) != number);
        self.turn = 0;
    }

    /// A connection whose queue pair has to be reset, and its region deregistered.
    pub(super) fn used(&self) -> Option<usize> {
        let mut connections = self.connections.iter();
        connections.position(|connection| connection.state == ConnectionState::Used)
    }

    /// That has happened, and the region is zero.
    pub(super) fn renewed(&mut self, number: usize) {
        self.connections[number] = Connection::free();
    }
}

impl Connection {
    fn free() -> Self {
        Self {
            state: ConnectionState::Free,
            route: VerbsRoute::nowhere(),
            own: 0,
            peer: 0,
            nonce: 0,
            seed: 0,
            wish: ConnectionOffer {
                queue_pair: 0,
                psn: 0,
            },
            window: Window::new(Instant::ZERO),
            answers: Answers::new(),
            is_told: false,
            heard_at: Instant::ZERO,
        }
    }

    fn notice(&self, kind: NoticeKind, sequence: u32) -> [u8; super::NOTICE_BYTES] {
        let session = self.peer;
        Notice {
            kind,
            session,
            sequence,
        }
        .write(self.nonce)
    }
}
