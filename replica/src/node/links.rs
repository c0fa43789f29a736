//! Links: the session to one peer and class, made when there is something to send, made again after a pause.

use std::collections::VecDeque;
use std::net::SocketAddr;

use trine_protocol::message::Incarnation;
use trine_protocol::route::RouteOf;
use trine_transport::backend::Route;
use trine_transport::buf::MsgBuf;
use trine_transport::prng::Prng;
use trine_transport::time::{Duration, Instant};
use trine_transport::{ConnectParams, Cx, SessionId};

use super::config::{
    BULK_SLOTS, CONNECT_TIMEOUT, LINK_IDLE, LINK_QUEUE_MAX, LINKS_MAX, RAFT_SLOTS, RECONNECT_MAX,
    RECONNECT_MIN,
};
use super::link_news::LinkNews;
use crate::output::Class;

/// The state of the session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LinkState {
    /// None; the next attempt may begin at this moment.
    Down { retry_at: Instant },
    /// Under way; messages wait in the queue.
    Connecting(SessionId),
    /// Messages go out at once. The queue is empty.
    Up(SessionId),
}

/// A message that goes to a peer.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) expect: Option<Incarnation>,
    pub(super) kind: u8,
    pub(super) bytes: MsgBuf,
    pub(super) tag: u64,
    pub(super) deadline: Instant,
    pub(super) answer_bytes_max: usize,
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) address: SocketAddr,
    pub(super) class: Class,
    pub(super) state: LinkState,
    /// Attempts to connect that failed since the last success.
    failures: u32,
    /// Established sessions that have ended.
    pub(super) sessions_lost: u64,
    /// Bytes of the largest packet of the present session, or of the last one; 0 before the first.
    packet_bytes: u16,
    /// The replica that answered the session's handshake; zero while no session is established.
    pub(super) peer: Incarnation,
    /// Messages that wait until the session is established, at most [`LINK_QUEUE_MAX`].
    pub(super) queue: VecDeque<Outgoing>,
    /// The stream of appends that is being written, and the place in it of the next one.
    pub(super) stream: u32,
    pub(super) next_sequence: u64,
    /// When it was last used, to make room for others and to tell what is idle.
    used_at: Instant,
}

impl Link {
    /// The stream has lost an append: the next one begins a new stream.
    pub(super) fn begin_stream(&mut self) {
        self.stream = self.stream.wrapping_add(1);
        self.next_sequence = 0;
    }

    /// Whether nothing was sent over it for longer than a leader with this election timeout would be silent.
    pub(super) fn is_idle(&self, now: Instant, election_timeout: Duration) -> bool {
        now.saturating_since(self.used_at) >= election_timeout.max(LINK_IDLE)
    }

    pub(super) fn session(&self) -> Option<SessionId> {
        match self.state {
            LinkState::Up(session) => Some(session),
            LinkState::Down { .. } | LinkState::Connecting(_) => None,
        }
    }
}

/// Whether a message can go over a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LinkReadiness {
    /// At once, over this session.
    Open(SessionId),
    /// Into the queue until the session is established.
    Queue,
    /// Not now.
    Closed,
}

pub(super) struct Links<R> {
    list: Vec<Link>,
    route_of: RouteOf<R>,
}

impl<R: Route> Links<R> {
    pub(super) fn new(route_of: RouteOf<R>) -> Self {
        Self {
            list: Vec::new(),
            route_of,
        }
    }

    pub(super) fn get_mut(&mut self, index: usize) -> &mut Link {
        &mut self.list[index]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Link> {
        self.list.iter()
    }

    pub(super) fn of_session(&self, session: SessionId) -> Option<usize> {
        let is_its = |link: &Link| matches!(link.state, LinkState::Connecting(s) | LinkState::Up(s) if s == session);
        self.list.iter().position(is_its)
    }

    /// The link to this peer; nothing if all places are taken and none is idle. See [`Self::spare`].
    pub(super) fn find_or_add(
        &mut self,
        address: SocketAddr,
        class: Class,
        now: Instant,
    ) -> Option<usize> {
        let known = self
            .list
            .iter()
            .position(|link| link.address == address && link.class == class);
        let index = known.or_else(|| self.place_for_new())?;
        if known.is_none() {
            let link = Self::fresh(address, class);
            if index == self.list.len() {
                self.list.push(link);
            } else {
                self.list[index] = link;
            }
        }
        assert!(self.list.len() <= LINKS_MAX);
        self.list[index].used_at = now;
        Some(index)
    }

    /// A new place, or that of the link that was unused for longest, if it is idle.
    fn place_for_new(&self) -> Option<usize> {
        if self.list.len() < LINKS_MAX {
            return Some(self.list.len());
        }
        let idle =
            |link: &Link| matches!(link.state, LinkState::Down { .. }) && link.queue.is_empty();
        let candidates = self.list.iter().enumerate().filter(|(_, link)| idle(link));
        candidates
            .min_by_key(|(_, link)| link.used_at)
            .map(|(index, _)| index)
    }

    /// Whose place a peer may take when there is no other: of the links that are not to members, that which was unused for
    /// longest. For a member's link any of them has to go, for another one that was unused for [`LINK_IDLE`].
    ///
    /// An operator without a key can name as many addresses as the table has places, and run an endpoint at each.
    pub(super) fn spare(
        &self,
        to: SocketAddr,
        now: Instant,
        is_member: impl Fn(SocketAddr) -> bool,
    ) -> Option<usize> {
        let unused_for = if is_member(to) {
            Duration::ZERO
        } else {
            LINK_IDLE
        };
        let links = self.list.iter().enumerate();
        let spare = links.filter(|(_, link)| {
            now.saturating_since(link.used_at) >= unused_for && !is_member(link.address)
        });
        spare
            .min_by_key(|(_, link)| link.used_at)
            .map(|(index, _)| index)
    }

    /// Ends the link's session, or the attempt to make one, so that its place is free. Returns the session to end.
    pub(super) fn vacate(&mut self, index: usize) -> Option<SessionId> {
        let link = &mut self.list[index];
        let down = LinkState::Down {
            retry_at: Instant::ZERO,
        };
        match std::mem::replace(&mut link.state, down) {
            LinkState::Up(session) | LinkState::Connecting(session) => Some(session),
            LinkState::Down { .. } => None,
        }
    }

    fn fresh(address: SocketAddr, class: Class) -> Link {
        Link {
            address,
            class,
            state: LinkState::Down {
                retry_at: Instant::ZERO,
            },
            failures: 0,
            sessions_lost: 0,
            packet_bytes: 0,
            peer: Incarnation::NONE,
            queue: VecDeque::new(),
            stream: 0,
            next_sequence: 0,
            used_at: Instant::ZERO,
        }
    }

    /// How a message can go now; starts to connect if that is due.
    pub(super) fn way(
        &mut self,
        index: usize,
        cx: &mut Cx<'_, R>,
        rng: &mut Prng,
    ) -> LinkReadiness {
        if let LinkState::Down { retry_at } = self.list[index].state
            && retry_at <= cx.now()
        {
            self.connect(index, cx, rng);
        }
        let link = &self.list[index];
        match link.state {
            LinkState::Up(session) => LinkReadiness::Open(session),
            LinkState::Connecting(_) if link.queue.len() < LINK_QUEUE_MAX => LinkReadiness::Queue,
            LinkState::Connecting(_) | LinkState::Down { .. } => LinkReadiness::Closed,
        }
    }

    fn connect(&mut self, index: usize, cx: &mut Cx<'_, R>, rng: &mut Prng) {
        let link = &mut self.list[index];
        let slots = match link.class {
            Class::Raft => RAFT_SLOTS,
            Class::Bulk => BULK_SLOTS,
        };
        let params = ConnectParams {
            slots: Some(slots),
            timeout: Some(CONNECT_TIMEOUT),
            ..ConnectParams::default()
        };
        // Looked up each time: on some backends a restarted peer has another route.
        let route = (self.route_of)(link.address);
        match route.map(|route| cx.connect(route, params)) {
            Some(Ok(session)) => link.state = LinkState::Connecting(session),
            Some(Err(_)) | None => self.on_failed(index, cx.now(), rng),
        }
    }

    pub(super) fn on_connected(&mut self, index: usize, session: SessionId, peer: Incarnation) {
        let link = &mut self.list[index];
        assert_eq!(
            link.state,
            LinkState::Connecting(session),
            "this session was asked for"
        );
        link.state = LinkState::Up(session);
        link.failures = 0;
        link.peer = peer;
        link.begin_stream();
    }

    /// The packets of the session that is up have so many bytes. Returns what is worth telling.
    pub(super) fn on_packet_size(&mut self, index: usize, bytes: u16) -> Option<LinkNews> {
        let link = &mut self.list[index];
        let before = std::mem::replace(&mut link.packet_bytes, bytes);
        let (address, differs) = (link.address, before != 0 && before != bytes);
        differs.then_some(LinkNews::PacketSize {
            address,
            bytes,
            before,
        })
    }

    /// Packets of the link's session vanished for their size.
    pub(super) fn black_hole(&self, index: usize) -> LinkNews {
        let link = &self.list[index];
        LinkNews::BlackHole {
            address: link.address,
            bytes: link.packet_bytes,
        }
    }

    /// The session could not be made: the next attempt follows after a pause that doubles, less a random half.
    pub(super) fn on_failed(&mut self, index: usize, now: Instant, rng: &mut Prng) {
        let link = &mut self.list[index];
        let pause = RECONNECT_MIN.as_nanos() << link.failures.min(8);
        let pause = pause.min(RECONNECT_MAX.as_nanos());
        let jittered = pause / 2 + rng.below(pause / 2);
        link.failures = link.failures.saturating_add(1);
        link.state = LinkState::Down {
            retry_at: now + Duration::from_nanos(jittered),
        };
    }

    /// The session that stood is over.
    pub(super) fn on_down(&mut self, index: usize, now: Instant) {
        let link = &mut self.list[index];
        link.state = LinkState::Down { retry_at: now };
        link.peer = Incarnation::NONE;
        link.sessions_lost += 1;
    }

    /// Drops the waiting messages of which `keep` says no.
    pub(super) fn retain_queued(&mut self, mut keep: impl FnMut(&Outgoing) -> bool) {
        for link in &mut self.list {
            link.queue.retain(&mut keep);
        }
    }

    /// When the first message in a queue is overdue.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.list
            .iter()
            .flat_map(|link| &link.queue)
            .map(|outgoing| outgoing.deadline)
            .min()
    }
}
