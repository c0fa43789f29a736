//! Glue: the transport's events become the replica's inputs, the replica's outputs go out over the endpoint.
//!
//! A node holds no opinion about consensus. It keeps a session to each peer and class (`links`), puts appends of
//! one peer back into order (`reorder`), and remembers which request waits for which answer.

mod batch;
mod callers;
mod config;
mod disk;
mod keys;
mod link_news;
mod links;
mod reorder;
mod rights;
mod send;
mod status;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use trine_kvstore::Position;
use trine_protocol::message::{
    AppendFrame, ClientReply, ClientStatus, ClusterId, DEATH_NOTICE, Encode, Incarnation,
    MESSAGE_VERSION, OtherVersion, ReplyToken, RunSecret, StatusForm, StatusReply, StatusRequest,
    kind, stream_position,
};
use trine_protocol::node_status::MemberRoots;
use trine_protocol::route::{HolderOf, IsAt, RouteOf, is_same_address};
use trine_transport::backend::Route;
use trine_transport::buf::MsgBuf;
use trine_transport::keys::KeyId;
use trine_transport::prng::Prng;
use trine_transport::slab::{Key, Slab};
use trine_transport::time::Instant;
use trine_transport::{
    App, Completion, Cx, DownReason, Event, Holder, Identity, PeerInfo, Reply, Request,
    ResponseHandle, SessionId,
};

pub use config::WAITING_REQUESTS_MAX;
pub use keys::UnsealedMember;
pub use link_news::LinkNews;

use self::batch::Batch;
use self::config::REQUESTS_MAX;
use self::disk::NodeDisk;
use self::links::Links;
use self::reorder::{AppendVerdict, Load, Reorder};
use self::rights::caller_in;
use self::send::Sent;
use crate::disk::WriteQueue;
use crate::output::Class;
use crate::replica::{Replica, is_for_anybody};

/// Requests that made no sense and were answered with nothing.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct NodeStats {
    /// Of a kind that no replica knows.
    pub unknown_kind: u64,
    /// Whose layout is none.
    pub unreadable: u64,
    /// Appends that came after their stream was over.
    pub appends_old: u64,
    /// Appends that had to wait for an earlier one.
    pub appends_early: u64,
    /// Requests turned away because too many wait for their answer.
    pub overloaded: u64,
}

/// One replica on one endpoint.
pub struct Node<R: Route> {
    replica: Replica,
    /// Tells at which address the other end of a session is.
    is_at: IsAt<R>,
    holder_of: HolderOf<R>,
    /// That address for sessions that replicas have opened: finding it out may cost something, and may fail for a while.
    origins: BTreeMap<SessionId, SocketAddr>,
    links: Links<R>,
    link_news: link_news::PendingNews,
    rng: Prng,
    /// Requests that the replica answers later.
    tokens: Slab<ReplyTarget>,
    /// Batches of which not every request is answered yet.
    batches: Slab<Batch>,
    /// Vectors of earlier batches, for reuse.
    spare: Vec<Vec<Option<MsgBuf>>>,
    /// Requests to peers whose completion the transport owes.
    sent: Slab<Sent>,
    /// Appends that arrive, by the session that brings them.
    streams: BTreeMap<SessionId, Reorder>,
    /// The total that waits in all of `streams`.
    early: Load,
    /// The cluster that the endpoint names in handshakes.
    cluster: ClusterId,
    /// Tags of messages that could not be sent; the replica hears of them at the end of the turn.
    unsent: Vec<u64>,
    /// Where writes go, in disk mode.
    disk: Option<NodeDisk>,
    /// Where the users' table was changed last, when their sessions were looked at.
    users_seen: Option<Position>,
    /// Which keys of members its endpoint has; nothing without keys.
    member_roots: Option<MemberRoots>,
    stats: NodeStats,
}

impl<R: Route> Node<R> {
    /// Puts `replica` on an endpoint whose routes `route_of` and `is_at` know.
    pub fn new(replica: Replica, route_of: RouteOf<R>, is_at: IsAt<R>, seed: u64) -> Self {
        Self {
            cluster: replica.cluster(),
            replica,
            is_at,
            holder_of: Box::new(|_| Holder::Shared),
            origins: BTreeMap::new(),
            links: Links::new(route_of),
            link_news: link_news::PendingNews::default(),
            rng: Prng::new(seed),
            tokens: Slab::new(WAITING_REQUESTS_MAX),
            batches: Slab::new(WAITING_REQUESTS_MAX),
            spare: Vec::new(),
            sent: Slab::new(REQUESTS_MAX),
            streams: BTreeMap::new(),
            early: Load::default(),
            unsent: Vec::new(),
            disk: None,
            users_seen: None,
            member_roots: None,
            stats: NodeStats::default(),
        }
    }

    /// What happened to the packets of a link, if nobody was told yet.
    pub fn next_link_news(&mut self) -> Option<LinkNews> {
        self.link_news.pop()
    }

    /// Counts sessions of callers that are no members by their routes. Without it nothing tells them apart.
    #[must_use]
    pub fn with_holders(mut self, holder_of: HolderOf<R>) -> Self {
        self.holder_of = holder_of;
        self
    }

    /// Gives the replica's writes somewhere to go; the replica is in disk mode.
    #[must_use]
    pub fn with_disk(mut self, queue: Box<dyn WriteQueue>) -> Self {
        self.disk = Some(NodeDisk::new(queue));
        self
    }

    /// The replica.
    #[must_use]
    pub const fn replica(&self) -> &Replica {
        &self.replica
    }

    /// The replica, for its owner: above all to stop it.
    pub const fn replica_mut(&mut self) -> &mut Replica {
        &mut self.replica
    }

    /// The handshake data of an endpoint under this node.
    #[must_use]
    pub fn identity(&self) -> Identity {
        Identity {
            cluster: self.replica.cluster().0,
            incarnation: self.replica.incarnation().0,
        }
    }

    /// Appends that wait for an earlier one, over all sessions.
    #[must_use]
    pub const fn appends_waiting(&self) -> usize {
        self.early.appends()
    }

    /// Counters since the start.
    #[must_use]
    pub const fn stats(&self) -> NodeStats {
        self.stats
    }

    fn on_append(
        &mut self,
        cx: &mut Cx<'_, R>,
        session: SessionId,
        token: ReplyToken,
        frame: &[u8],
    ) {
        let now = cx.now();
        let Some((stream, sequence)) = stream_position(frame) else {
            self.stats.unreadable += 1;
            return self.answer_nothing(cx, token);
        };
        let Some(origin) = self.origin(cx, session) else {
            return self.replica.refuse_unknown_address(token);
        };
        let comes_from = |address| is_same_address(origin, address);
        let reorder = self.streams.entry(session).or_default();
        let (replica, early) = (&self.replica, self.early);
        // What waits takes memory: only members' appends may.
        let may_wait = || {
            early.leaves_room_for(frame)
                && AppendFrame::decode(frame)
                    .is_ok_and(|append| replica.is_from_member(&append.header, comes_from))
        };
        let before = reorder.load();
        match reorder.on_append(now, stream, sequence, frame, may_wait) {
            AppendVerdict::InOrder => {
                self.replica
                    .on_trusted_peer(now, token, kind::APPEND, frame, comes_from);
                while let Some(early) = reorder.next_ready() {
                    self.replica.on_early_append(now, &early.frame, comes_from);
                }
            }
            AppendVerdict::Kept => {
                self.stats.appends_early += 1;
                self.answer_nothing(cx, token);
            }
            AppendVerdict::Old => {
                self.stats.appends_old += 1;
                self.answer_nothing(cx, token);
            }
        }
        self.note_load(session, before);
    }

    fn on_peer(
        &mut self,
        cx: &mut Cx<'_, R>,
        session: SessionId,
        token: ReplyToken,
        kind: u8,
        request: &[u8],
    ) {
        let Some(PeerInfo { route, .. }) = cx.peer(session) else {
            return self.answer_nothing(cx, token);
        };
        let origin = self.origin(cx, session);
        if origin.is_none() && !is_for_anybody(kind) {
            return self.replica.refuse_unknown_address(token);
        }
        let is_at = &self.is_at;
        let comes_from = |address| match origin {
            Some(origin) => is_same_address(origin, address),
            None => is_at(&route, address),
        };
        self.replica
            .on_trusted_peer(cx.now(), token, kind, request, comes_from);
    }

    /// The address of a replica that this one trusts, if the other end of the session is there.
    fn origin(&mut self, cx: &Cx<'_, R>, session: SessionId) -> Option<SocketAddr> {
        let known = self.origins.get(&session).copied();
        let trusted = known.and_then(|known| self.replica.origin(|address| address == known));
        if trusted.is_some() {
            return trusted;
        }
        let route = cx.peer(session)?.route;
        let is_at = &self.is_at;
        let found = self.replica.origin(|address| is_at(&route, address));
        match found {
            Some(address) => self.origins.insert(session, address),
            None => self.origins.remove(&session),
        };
        found
    }

    /// Updates the total of waiting requests for a session that had `before`.
    fn note_load(&mut self, session: SessionId, before: Load) {
        let after = self.streams.get(&session).map(Reorder::load);
        self.early = self.early.changed(before, after.unwrap_or_default());
    }

    fn answer_nothing(&mut self, cx: &mut Cx<'_, R>, token: ReplyToken) {
        match cx.alloc(0) {
            Some(empty) => self.answer(cx, token, empty),
            // Without a buffer no answer is sent, and the client finds out by its timeout.
            None => drop(self.tokens.remove(Key::from_u64(token.0))),
        }
    }

    fn answer(&mut self, cx: &mut Cx<'_, R>, token: ReplyToken, bytes: MsgBuf) {
        match self.tokens.remove(Key::from_u64(token.0)) {
            Some(ReplyTarget::Alone(handle)) => respond(cx, handle, bytes),
            Some(ReplyTarget::InBatch { batch, place }) => {
                self.answer_part(cx, batch, place, bytes)
            }
            None => debug_assert!(false, "each token is answered once"),
        }
    }

    fn on_status_request(
        &mut self,
        cx: &mut Cx<'_, R>,
        session: SessionId,
        request: &[u8],
    ) -> Reply {
        let Ok(request) = StatusRequest::decode(request) else {
            self.stats.unreadable += 1;
            return reply_with(
                cx,
                &ClientReply::refusal(ClientStatus::Malformed, self.cluster),
            );
        };
        match request.form {
            StatusForm::Discovery => {
                let mut discovery = self.replica.discovery();
                discovery.promised = self.promised_in(cx, session);
                reply_with(cx, &StatusReply::Discovery(discovery))
            }
            StatusForm::Json => {
                let Some(status) = self.status_for(cx, session) else {
                    return reply_empty(cx);
                };
                let text = serde_json::to_vec(&status).unwrap_or_default();
                reply_with(cx, &StatusReply::Json(&text))
            }
        }
    }

    /// A message of a later release is not read, and its sender is told which messages this release knows.
    fn refuse_version(&self, cx: &mut Cx<'_, R>, request: &Request<'_>) -> Reply {
        let other = OtherVersion::of_message(request.kind, request.data);
        reply_with(cx, &other.reply(self.replica.cluster()))
    }

    /// Too many requests wait for their answer: a client is asked to come back later.
    fn on_overload(&mut self, cx: &mut Cx<'_, R>, request_kind: u8) -> Reply {
        self.stats.overloaded += 1;
        match request_kind {
            kind::CLIENT => reply_with(
                cx,
                &ClientReply::refusal(ClientStatus::Busy, self.replica.cluster()),
            ),
            _ => reply_empty(cx),
        }
    }
}

/// Where the answer to a request goes.
#[derive(Clone, Copy, Debug)]
enum ReplyTarget {
    /// Out at once.
    Alone(ResponseHandle),
    /// Into the answer to a batch.
    InBatch { batch: Key, place: usize },
}

fn respond<R: Route>(cx: &mut Cx<'_, R>, handle: ResponseHandle, bytes: MsgBuf) {
    // Stale: the session has ended, and the client has been told so.
    drop(cx.enqueue_response(handle, bytes));
}

/// Whether the first bytes of a kind are a peer header. Its sender reads an empty answer as the refusal of a message.
fn is_between_members(message_kind: u8) -> bool {
    matches!(
        message_kind,
        kind::APPEND | kind::RAFT | kind::SNAPSHOT | kind::AGREE | kind::LEADER_SECRET
    )
}

fn reply_empty<R: Route>(cx: &mut Cx<'_, R>) -> Reply {
    cx.alloc(0).map_or(Reply::Later, Reply::Now)
}

fn reply_with<R: Route>(cx: &mut Cx<'_, R>, message: &impl Encode) -> Reply {
    let Some(mut bytes) = cx.alloc(message.encoded_len()) else {
        return reply_empty(cx);
    };
    message.encode_to_slice(&mut bytes);
    Reply::Now(bytes)
}

impl<R: Route> App<R> for Node<R> {
    fn on_request(&mut self, cx: &mut Cx<'_, R>, request: Request<'_>) -> Reply {
        let is_newer = request.data.first() > Some(&MESSAGE_VERSION);
        if is_newer && !is_between_members(request.kind) {
            self.stats.unreadable += 1;
            return self.refuse_version(cx, &request);
        }
        match request.kind {
            kind::STATUS => return self.on_status_request(cx, request.session, request.data),
            kind::CLIENT_BATCH => return self.on_batch(cx, request.handle, request.data),
            kind::CLIENT..=kind::JOIN
            | kind::ADMIN
            | kind::AGREE
            | kind::BACKUP
            | kind::WATCH
            | kind::LEADER_SECRET => {}
            _ => {
                self.stats.unknown_kind += 1;
                return self.refuse_version(cx, &request);
            }
        }
        if let Some(refusal) = self.denial(cx, request.session, request.kind) {
            return refusal;
        }
        let Ok(key) = self.tokens.insert(ReplyTarget::Alone(request.handle)) else {
            return self.on_overload(cx, request.kind);
        };
        let token = ReplyToken(key.to_u64());
        match request.kind {
            kind::CLIENT => {
                let caller = caller_in(cx, request.session);
                let holder = || caller_of(&self.holder_of, cx, request.session);
                self.replica
                    .on_client_from(cx.now(), token, caller, request.data, &holder);
                let address = || address_of(cx, request.session);
                self.replica.came_from(kind::CLIENT, address);
            }
            kind::ADMIN => {
                let caller = caller_in(cx, request.session);
                self.replica.on_admin(cx.now(), token, caller, request.data);
                let address = || address_of(cx, request.session);
                self.replica.came_from(kind::ADMIN, address);
            }
            kind::BACKUP => {
                let caller = caller_in(cx, request.session);
                self.replica
                    .on_backup(cx.now(), token, caller, request.data);
                let address = || address_of(cx, request.session);
                self.replica.came_from(kind::BACKUP, address);
            }
            kind::WATCH => {
                let caller = caller_in(cx, request.session);
                let holder = caller_of(&self.holder_of, cx, request.session);
                self.replica
                    .on_watch(cx.now(), token, caller, holder, request.data);
            }
            kind::APPEND => self.on_append(cx, request.session, token, request.data),
            other => self.on_peer(cx, request.session, token, other, request.data),
        }
        Reply::Later
    }

    fn on_completion(&mut self, cx: &mut Cx<'_, R>, tag: u64, completion: Completion) {
        let Some(sent) = self.sent.remove(Key::from_u64(tag)) else {
            debug_assert!(false, "each request completes once");
            return;
        };
        let answer = completion.result.is_ok().then(|| &completion.response[..]);
        if answer.is_none() {
            self.note_lost(&sent);
        }
        self.replica.on_peer_reply(cx.now(), sent.tag, answer);
    }

    fn on_event(&mut self, cx: &mut Cx<'_, R>, event: Event<R>) {
        let now = cx.now();
        match event {
            Event::Connected { session, peer } => {
                if let Some(index) = self.links.of_session(session) {
                    self.links
                        .on_connected(index, session, Incarnation(peer.identity.incarnation));
                    let agreed = cx.session_stats(session);
                    if let Some(agreed) = agreed
                        && let Some(news) = self.links.on_packet_size(index, agreed.mtu)
                    {
                        self.link_news.push(news);
                    }
                    self.note_session(index, agreed.map(|agreed| usize::from(agreed.slots)));
                    self.send_queued(cx, index);
                }
            }
            Event::ConnectFailed { session, .. } => {
                if let Some(index) = self.links.of_session(session) {
                    self.links.on_failed(index, now, &mut self.rng);
                    self.fail_queued(index);
                    self.note_unreachable(now, index);
                }
            }
            Event::Down { session, reason } => {
                if reason == DownReason::BlackHole
                    && let Some(index) = self.links.of_session(session)
                {
                    self.link_news.push(self.links.black_hole(index));
                }
                self.on_session_down(cx, session);
            }
            Event::Accepted { .. } => {}
        }
    }

    fn on_notice(&mut self, cx: &mut Cx<'_, R>, kind: u8, body: &[u8]) -> bool {
        if kind != DEATH_NOTICE {
            return false;
        }
        match RunSecret::read(body) {
            Some(secret) => self.replica.on_death_notice(cx.now(), &secret),
            None => self.stats.unreadable += 1,
        }
        true
    }

    fn on_turn(&mut self, cx: &mut Cx<'_, R>) {
        // The replica first has to hear of messages that found no session, and of durable writes.
        self.fail_overdue(cx.now());
        self.hear_of_writes(cx.now());
        self.replica.on_turn(cx.now());
        self.drain(cx);
        // After the messages: appends to followers are on their way before the leader's own write is.
        self.submit_writes(cx.now());
        // Last: the turn may have made this replica a member of a cluster.
        self.follow_cluster(cx);
        self.end_revoked(cx);
    }

    /// Members get a session also where others took all that they may have.
    fn holder(&self, route: &R) -> Holder {
        let is_at = &self.is_at;
        match self.replica.is_of_group(|address| is_at(route, address)) {
            true => Holder::Privileged,
            false => (self.holder_of)(route),
        }
    }

    fn admits(&self, key: &KeyId) -> bool {
        !self.is_void(key)
    }

    fn next_timeout(&self) -> Option<Instant> {
        if !self.unsent.is_empty() {
            return Some(Instant::ZERO);
        }
        let due = [self.replica.next_timeout(), self.links.next_timeout()];
        due.into_iter().flatten().min()
    }
}

impl<R: Route> Node<R> {
    fn hear_of_writes(&mut self, now: Instant) {
        let Some(disk) = &mut self.disk else { return };
        match disk.poll() {
            Some(Ok(number)) => self.replica.on_written(now, number),
            Some(Err(error)) => self.replica.on_write_failed(&error),
            None => {}
        }
    }

    fn submit_writes(&mut self, now: Instant) {
        let Some(disk) = &mut self.disk else { return };
        while let Some((number, write)) = self.replica.poll_write() {
            disk.submit(now, number, write);
        }
    }

    fn on_session_down(&mut self, cx: &mut Cx<'_, R>, session: SessionId) {
        self.origins.remove(&session);
        if let Some(reorder) = self.streams.remove(&session) {
            self.note_load(session, reorder.load());
        }
        if let Some(index) = self.links.of_session(session) {
            self.links.on_down(index, cx.now());
            self.fail_queued(index);
            self.note_unreachable(cx.now(), index);
        }
    }

    /// The session of a link is established, with so many slots, or has ended.
    fn note_session(&mut self, index: usize, slots: Option<usize>) {
        let link = self.links.get_mut(index);
        if link.class == Class::Raft {
            self.replica.on_peer_session(link.address, slots);
        }
    }

    fn note_unreachable(&mut self, now: Instant, index: usize) {
        self.note_session(index, None);
        let address = self.links.get_mut(index).address;
        self.replica.on_peer_unreachable(now, address);
    }

    /// Handshakes name the replica's cluster as soon as it has one.
    fn follow_cluster(&mut self, cx: &mut Cx<'_, R>) {
        if self.cluster != self.replica.cluster() {
            self.cluster = self.replica.cluster();
            cx.set_identity(self.identity());
        }
    }
}

/// Where the other end of a session is, if the backend's routes are addresses.
fn address_of<R: Route>(cx: &Cx<'_, R>, session: SessionId) -> Option<SocketAddr> {
    let route = cx.peer(session)?.route;
    format!("{route:?}").parse().ok()
}

/// Whom what a session's client registers is counted for. Members are callers like others here.
fn caller_of<R: Route>(holder_of: &HolderOf<R>, cx: &Cx<'_, R>, session: SessionId) -> Holder {
    if let Some(key) = cx.key(session) {
        return Holder::of_key(&key);
    }
    cx.peer(session)
        .map_or(Holder::Shared, |peer| holder_of(&peer.route))
}
