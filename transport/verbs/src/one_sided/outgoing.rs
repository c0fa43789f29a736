//! The client's end of its connections: which are in use by which session, and which packets they carry now.

use super::Arrivals;
use super::device::OneSidedDevice;
use super::fetcher::{FetchContext, FetchCounts, FetchResult, Fetcher};
use super::names::ConnectionIndex;
use super::slot::{HEAD_BYTES, TAIL_BYTES, seed_of};
use super::terms::{Grant, NoticeKind};
use crate::config::{IDLE_MAX, REST_FIRST, RESTS_MAX, STRIKES_MAX, UNANSWERED};
use crate::route::VerbsRoute;
use trine_transport::time::Instant;
use trine_transport::wire::{Accept, Connect, Outline, PacketType, outlines};

/// ```text
///   Free -- CONNECT --> Asked -- ACCEPT with a grant --> Open
///    ^                    |                               |
///    +----- renewed ----- Used <----- end of session -----+
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum ConnectionState {
    Free,
    /// The terms are with a server.
    Asked,
    Open,
    /// The queue pair may still be known to a server: it has to be reset.
    Used,
}

/// A queue pair of the client, and the session that it serves.
struct Connection {
    state: ConnectionState,
    route: VerbsRoute,
    /// The session's index here: answers name it.
    own: u16,
    /// The session's index at the server: requests name it.
    peer: u16,
    nonce: u64,
    /// What the checksums of its slots begin with.
    seed: u32,
    grant: Grant,
    /// The sequence of the next write.
    next: u32,
    /// The server has said that it sleeps, and has not answered since.
    peer_sleeps: bool,
    /// When the first packet was written that no answer has followed.
    unanswered_since: Option<Instant>,
    /// A datagram was sent instead of a write since then.
    was_nudged: bool,
    strikes: u8,
    rests: u32,
    /// Packets go as datagrams until then.
    rests_until: Instant,
    used_at: Instant,
    fetcher: Fetcher,
}

/// How a request travels.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum RequestPath {
    /// As a datagram.
    Datagram,
    /// Into a slot of the connection with this number.
    Write { number: usize },
}

/// What the device needs for a write.
#[derive(Copy, Clone, Debug)]
pub(super) struct WriteTarget {
    pub(super) seed: u32,
    pub(super) sequence: u32,
    pub(super) grant: Grant,
    /// The request says that its answer will be fetched.
    pub(super) is_fetched: bool,
}

/// All connections of an endpoint as a client.
pub(crate) struct Outgoing {
    connections: Box<[Connection]>,
    by_own: ConnectionIndex,
    by_peer: ConnectionIndex,
    /// Those in state `Open`: mostly the only ones that cost anything.
    open: usize,
    /// How clients fetch; absent if answers are datagrams in any case.
    fetching: Option<Fetching>,
}

/// Path rfp.
struct Fetching {
    /// See [`super::sizes::Sizes::new`].
    size: Option<u16>,
    /// Connections whose fetchers do not rest.
    active: Vec<u16>,
}

/// What has to be said or done after fetchers were polled.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Trouble {
    /// The server of this connection has to send its answers: they are slow.
    Slow(usize),
    /// The queue pair of this connection does not work any more.
    Broken(usize),
}

impl Outgoing {
    /// `fetching`: answers are fetched, with READs of this size if one is given.
    pub(super) fn new(count: usize, fetching: Option<Option<u16>>) -> Self {
        Self {
            fetching: fetching.map(|size| Fetching {
                size,
                active: Vec::with_capacity(count),
            }),
            connections: (0..count).map(|_| Connection::free()).collect(),
            by_own: ConnectionIndex::with_capacity(count),
            by_peer: ConnectionIndex::with_capacity(count),
            open: 0,
        }
    }

    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// A CONNECT with a cookie goes to `route`: the connection whose terms it takes along, if one is free.
    pub(super) fn on_connect(
        &mut self,
        now: Instant,
        route: &VerbsRoute,
        connect: &Connect,
    ) -> Option<usize> {
        let own = connect.client_session;
        if let Some(number) = self.by_own.get(route, own) {
            let known = &mut self.connections[number];
            if known.nonce == connect.nonce {
                known.used_at = now;
                return (known.state == ConnectionState::Asked).then_some(number);
            }
            // The index has a new session.
            self.give_back(number);
        }
        let number = self.free(now)?;
        self.connections[number] = Connection {
            state: ConnectionState::Asked,
            route: *route,
            own,
            nonce: connect.nonce,
            seed: seed_of(connect.nonce),
            used_at: now,
            fetcher: Fetcher::new(self.fetching.as_ref().and_then(|fetching| fetching.size)),
            ..Connection::free()
        };
        self.by_own.insert(route, own, number);
        Some(number)
    }

    /// A free connection. If there is none, the one that was used least recently is given back, for the next session.
    fn free(&mut self, now: Instant) -> Option<usize> {
        let mut connections = self.connections.iter();
        let free = connections.position(|connection| connection.state == ConnectionState::Free);
        if free.is_none() {
            let in_use = |state| matches!(state, ConnectionState::Asked | ConnectionState::Open);
            let mut numbers = 0..self.connections.len();
            let idle = numbers.find(|number| {
                let connection = &self.connections[*number];
                in_use(connection.state) && now.saturating_since(connection.used_at) > IDLE_MAX
            });
            if let Some(number) = idle {
                self.give_back(number);
            }
        }
        free
    }

    /// ACCEPT came from `route` for the own session `own`: the connection that waits for its grant, and the session's
    /// nonce.
    pub(super) fn asked(&self, route: &VerbsRoute, own: u16) -> Option<(usize, u64)> {
        let number = self.by_own.get(route, own)?;
        let connection = &self.connections[number];
        (connection.state == ConnectionState::Asked).then_some((number, connection.nonce))
    }

    /// The queue pair was connected as the server's grant says.
    pub(super) fn opened(&mut self, now: Instant, number: usize, accept: &Accept, grant: Grant) {
        let connection = &mut self.connections[number];
        debug_assert!(
            connection.state == ConnectionState::Asked,
            "it was asked for"
        );
        connection.state = ConnectionState::Open;
        connection.peer = accept.server_session;
        connection.grant = grant;
        connection.used_at = now;
        self.by_peer
            .insert(&connection.route, connection.peer, number);
        self.open += 1;
    }

    /// How a request to the session `peer` at `route` travels now.
    #[inline]
    pub(super) fn request_path(
        &mut self,
        now: Instant,
        route: &VerbsRoute,
        peer: u16,
    ) -> RequestPath {
        let Some(number) = self.by_peer.get(route, peer) else {
            return RequestPath::Datagram;
        };
        let connection = &mut self.connections[number];
        connection.used_at = now;
        if connection.peer_sleeps || now < connection.rests_until {
            return RequestPath::Datagram;
        }
        let waits = |since| now.saturating_since(since) > UNANSWERED;
        if connection.unanswered_since.is_some_and(waits) {
            connection.was_nudged = true;
            return RequestPath::Datagram;
        }
        RequestPath::Write { number }
    }

    /// Where the next packet of a connection goes.
    pub(super) fn target(&self, number: usize) -> WriteTarget {
        let connection = &self.connections[number];
        WriteTarget {
            seed: connection.seed,
            sequence: connection.next,
            grant: connection.grant,
            is_fetched: self.fetching.is_some() && connection.fetcher.is_fetching(),
        }
    }

    /// A request leaves for the session `peer` at `route`, in whatever way.
    #[inline]
    pub(super) fn on_request(&mut self, now: Instant, route: &VerbsRoute, outline: &Outline) {
        let Some(fetching) = &mut self.fetching else {
            return;
        };
        let Some(number) = self.by_peer.get(route, outline.session) else {
            return;
        };
        let fetcher = &mut self.connections[number].fetcher;
        if fetcher.on_request(now, outline.request) {
            fetching.active.push(number as u16);
        }
    }

    /// Whether a fetcher does not rest.
    #[inline]
    pub(super) fn is_fetching(&self) -> bool {
        !self.active().is_empty()
    }

    /// Whether answers come only to who polls.
    pub(super) fn must_poll(&self) -> bool {
        let mut active = self.active().iter();
        active.any(|number| {
            let fetcher = &self.connections[usize::from(*number)].fetcher;
            fetcher.is_fetching()
        })
    }

    #[inline]
    fn active(&self) -> &[u16] {
        let fetching = self.fetching.as_ref();
        fetching.map_or(&[], |fetching| &fetching.active)
    }

    /// Polls fetchers until one is in trouble, or there is no room for further answers.
    pub(super) fn fetch<D: OneSidedDevice>(
        &mut self,
        now: Instant,
        device: &mut D,
        arrivals: &mut Arrivals,
        counts: &mut FetchCounts,
    ) -> Option<Trouble> {
        let fetching = self.fetching.as_mut()?;
        let mut at = 0;
        while at < fetching.active.len() && arrivals.has_room() {
            let number = usize::from(fetching.active[at]);
            let connection = &mut self.connections[number];
            if connection.fetcher.rests() {
                fetching.active.swap_remove(at);
                continue;
            }
            at += 1;
            let mut reader = FetchContext {
                now,
                device: &mut *device,
                counts: &mut *counts,
                number,
                grant: &connection.grant,
                seed: connection.seed,
                copy: arrivals.place(),
            };
            match connection.fetcher.poll(&mut reader) {
                FetchResult::Nothing => {}
                FetchResult::Slow => return Some(Trouble::Slow(number)),
                FetchResult::Broken => return Some(Trouble::Broken(number)),
                FetchResult::Answer(head) => {
                    let packet = HEAD_BYTES..head.bytes - TAIL_BYTES;
                    for outline in outlines(&arrivals.place()[packet.clone()]) {
                        connection.on_outline(now, &outline);
                    }
                    arrivals.push(connection.route, packet.len());
                }
            }
        }
        None
    }

    /// A connection whose READ takes so long that its end may as well sleep.
    pub(super) fn stuck(&self, now: Instant) -> Option<usize> {
        let mut numbers = self.active().iter().map(|number| usize::from(*number));
        numbers.find(|number| {
            let fetcher = &self.connections[*number].fetcher;
            fetcher.is_fetching() && fetcher.is_stuck(now)
        })
    }

    /// The server is asked to send its answers from now on: the first that was not fetched.
    pub(super) fn reply(&mut self, number: usize, counts: &mut FetchCounts) -> u32 {
        let fetcher = &mut self.connections[number].fetcher;
        fetcher.reply(counts);
        fetcher.next()
    }

    /// The packet was written.
    pub(super) fn written(&mut self, now: Instant, number: usize) {
        let connection = &mut self.connections[number];
        connection.next = connection.next.wrapping_add(1);
        connection.unanswered_since.get_or_insert(now);
    }

    /// A datagram with answers to requests of the own session `own` came.
    #[inline]
    pub(super) fn on_answer(
        &mut self,
        now: Instant,
        route: &VerbsRoute,
        own: u16,
        datagram: &[u8],
    ) {
        if let Some(number) = self.by_own.get(route, own) {
            let connection = &mut self.connections[number];
            if self.fetching.is_none() {
                connection.on_answer(now);
                return;
            }
            for outline in outlines(datagram) {
                connection.on_outline(now, &outline);
            }
        }
    }

    /// A notice of the server. Returns the connection if the server has to be told to look at its slots.
    pub(super) fn on_notice(
        &mut self,
        route: &VerbsRoute,
        own: u16,
        kind: NoticeKind,
        sequence: u32,
    ) -> Option<usize> {
        let number = self.by_own.get(route, own)?;
        let connection = &mut self.connections[number];
        match kind {
            NoticeKind::Sleeps => {
                connection.peer_sleeps = true;
                return (connection.next != sequence).then_some(number);
            }
            NoticeKind::Closed => self.give_back(number),
            NoticeKind::Look | NoticeKind::Reply => {}
        }
        None
    }

    /// The nonce of the own session `own`, if it has a connection.
    pub(super) fn nonce(&self, route: &VerbsRoute, own: u16) -> Option<u64> {
        let number = self.by_own.get(route, own)?;
        Some(self.connections[number].nonce)
    }

    /// Who is at the other end of a connection: route, session index there, nonce.
    pub(super) fn peer(&self, number: usize) -> (VerbsRoute, u16, u64) {
        let connection = &self.connections[number];
        (connection.route, connection.peer, connection.nonce)
    }

    /// A packet other than a request goes to the session `peer`.
    pub(super) fn on_sign_of_life(&mut self, now: Instant, route: &VerbsRoute, peer: u16) {
        if let Some(number) = self.by_peer.get(route, peer) {
            self.connections[number].used_at = now;
        }
    }

    /// The own end closes the session `peer` at `route`, or confirms its end.
    pub(super) fn on_end(&mut self, route: &VerbsRoute, peer: u16) {
        if let Some(number) = self.by_peer.get(route, peer) {
            self.give_back(number);
        }
    }

    /// The session of this connection uses datagrams alone from now on.
    pub(super) fn give_back(&mut self, number: usize) {
        let connection = &mut self.connections[number];
        self.open -= usize::from(connection.state == ConnectionState::Open);
        connection.state = ConnectionState::Used;
        let (route, own, peer) = (connection.route, connection.own, connection.peer);
        self.by_own.remove(&route, own, number);
        self.by_peer.remove(&route, peer, number);
        if let Some(fetching) = &mut self.fetching {
            fetching
                .active
                .retain(|active| usize::from(*active) != number);
        }
    }

    /// The open connections write under each other's keys from now on; for tests.
    #[cfg(feature = "device")]
    pub(super) fn exchange_grants(&mut self) {
        let mut open = self.connections.iter_mut();
        let is_open = |connection: &&mut Connection| connection.state == ConnectionState::Open;
        while let (Some(one), Some(other)) =
            (open.by_ref().find(is_open), open.by_ref().find(is_open))
        {
            std::mem::swap(&mut one.grant, &mut other.grant);
        }
    }

    /// The open connections use other keys, or other addresses, than those that they were given; for tests.
    #[cfg(any(feature = "device", test))]
    pub(super) fn spoil_grants(&mut self, spoil: impl Fn(&mut Grant)) {
        let connections = self.connections.iter_mut();
        let open = connections.filter(|connection| connection.state == ConnectionState::Open);
        open.for_each(|connection| spoil(&mut connection.grant));
    }

    /// A connection whose queue pair has to be reset.
    pub(super) fn used(&self) -> Option<usize> {
        let mut connections = self.connections.iter();
        connections.position(|connection| connection.state == ConnectionState::Used)
    }

    /// It was reset.
    pub(super) fn renewed(&mut self, number: usize) {
        self.connections[number] = Connection::free();
    }
}

impl Connection {
    fn free() -> Self {
        Self {
            fetcher: Fetcher::new(None),
            state: ConnectionState::Free,
            route: VerbsRoute::nowhere(),
            own: 0,
            peer: 0,
            nonce: 0,
            seed: 0,
            grant: Grant::default(),
            next: 1,
            peer_sleeps: false,
            unanswered_since: None,
            was_nudged: false,
            strikes: 0,
            rests: 0,
            rests_until: Instant::ZERO,
            used_at: Instant::ZERO,
        }
    }

    /// An answer came, datagram or not.
    #[inline]
    fn on_outline(&mut self, now: Instant, outline: &Outline) {
        use PacketType as T;
        match outline.packet_type {
            T::Response => self.fetcher.on_answer(now, outline.request),
            T::CreditReturn | T::Busy => {}
            _ => return,
        }
        self.on_answer(now);
    }

    #[inline]
    fn on_answer(&mut self, now: Instant) {
        self.peer_sleeps = false;
        if self.unanswered_since.take().is_none() {
            return;
        }
        if !std::mem::take(&mut self.was_nudged) {
            (self.strikes, self.rests) = (0, 0);
            return;
        }
        self.strikes += 1;
        if self.strikes >= STRIKES_MAX {
            self.strikes = 0;
            self.rests_until = now + REST_FIRST * (1 << self.rests);
            self.rests = (self.rests + 1).min(RESTS_MAX);
        }
    }
}
