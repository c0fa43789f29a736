//! Many logical clients over one endpoint, without I/O: operations in, outcomes out.
//!
//! The steps are files of their own: `submit` begins an operation, `numbered` one in a session that the caller keeps,
//! `admission` lets it go, `dispatch` and `batch` send what
//! is ready, `reply` handles answers, `expire` gives up overdue operations. `GroupView` knows whom to ask, `Operations` has
//! what is not over.

mod admission;
mod batch;
mod dispatch;
mod expire;
mod numbered;
mod reply;
mod submit;

use std::collections::VecDeque;

use trine_protocol::message::{ClusterId, Operation};
use trine_protocol::route::RouteOf;
use trine_transport::Origin;
use trine_transport::app::{App, Completion, Cx, Reply, Request};
use trine_transport::backend::Route;
use trine_transport::buf::{MsgBuf, Pool};
use trine_transport::session::Event;
use trine_transport::slab::{Key, Slab};
use trine_transport::time::{Duration, Instant};

use super::config::{ClientConfig, ClientConfigError, LOGICAL_CLIENTS_MAX};
use super::group_view::{GroupView, LeaderNews, QUESTION_BIT};
use super::logical::{Logical, NamedSession, Registration};
use super::operation::{
    OperationQueue, OperationStage, OperationTimes, Pending, ResponseRoom, SoFar,
};
use super::operations::Operations;
use super::outcome::{Answer, Error, Obstacle};
use super::sent_batch::BATCH_BIT;
use super::window::Window;
use batch::Batches;
pub use numbered::Numbered;
pub use submit::{EncodedCommand, Submission, SubmitError};

/// Names a logical client of one [`Clients`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ClientId(Key);

/// The end of an operation.
#[derive(Debug)]
pub struct Finished {
    /// Whose it was.
    pub client: ClientId,
    /// The tag that it was submitted with.
    pub tag: u64,
    /// When it was submitted.
    pub started: Instant,
    /// When its end was known, by the clock of that turn. A measurement reads the clock itself: a turn's time is taken
    /// before its packets are, and a thread may lose the processor in between.
    pub ended: Instant,
    /// The result.
    pub result: Result<Answer, Error>,
}

/// Counters of a client endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ClientStats {
    /// Operations that got an answer.
    pub answered: u64,
    /// Operations that ended in an error.
    pub failed: u64,
    /// Attempts beyond the first of an operation.
    pub retries: u64,
    /// Times that another replica than before was taken for the leader.
    pub leader_changes: u64,
    /// Sessions with the group that were evicted and had to be opened again.
    pub sessions_lost: u64,
    /// Replies and requests from peers that made no sense.
    pub unreadable: u64,
}

/// The client side of one endpoint.
pub struct Clients<R: Route> {
    config: ClientConfig,
    pool: Pool,
    group: GroupView<R>,
    logical: Slab<Logical>,
    operations: Operations,
    batches: Batches,
    /// Writes until the next one that is timed.
    until_timed: u32,
    finished: VecDeque<Finished>,
    stats: ClientStats,
    /// A forked child has a copy of these clients, with their sequences. It must begin nothing.
    origin: Origin,
}

impl<R: Route> Clients<R> {
    /// A client endpoint that has not yet spoken to any replica. `pool` is the backend's.
    ///
    /// # Errors
    /// When the settings contradict themselves.
    pub fn new(
        config: ClientConfig,
        route_of: RouteOf<R>,
        pool: Pool,
        seed: u64,
    ) -> Result<Self, ClientConfigError> {
        config.validate()?;
        Ok(Self {
            group: GroupView::new(&config, route_of, seed),
            operations: Operations::new(&config),
            config,
            pool,
            logical: Slab::new(LOGICAL_CLIENTS_MAX),
            batches: Batches::new(),
            until_timed: 0,
            finished: VecDeque::new(),
            stats: ClientStats::default(),
            origin: Origin::here(),
        })
    }

    /// The same clients, which send nothing before [`Clients::pin`] names their cluster.
    #[must_use]
    pub fn awaiting_pin(mut self) -> Self {
        self.group.await_pin();
        self
    }

    /// Whether nothing is sent yet because no cluster is named.
    #[must_use]
    pub const fn is_awaiting_pin(&self) -> bool {
        self.group.is_awaiting_pin()
    }

    /// Whether the present sessions with replicas are sealed, all of them. Nothing while there is none.
    #[must_use]
    pub fn is_sealed(&self, cx: &Cx<'_, R>) -> Option<bool> {
        let sealed = self
            .group
            .sessions()
            .map(|session| cx.key(session).is_some());
        sealed.reduce(|all, one| all && one)
    }

    /// Talks to this cluster alone from now on. Returns whether it talked to another one before. The logical clients
    /// of that one have no session with this one: the caller opens new ones.
    pub fn pin(&mut self, cluster: ClusterId) -> bool {
        self.group.pin(cluster)
    }

    /// A new logical client, or nothing if there are too many. It registers with the group when it first writes.
    pub fn open(&mut self) -> Option<ClientId> {
        self.logical.insert(Logical::new()).ok().map(ClientId)
    }

    /// Forgets a logical client once its operations are over. Its session with the group is left to expire:
    /// [`Mode::WriteAndClose`](super::Mode::WriteAndClose) ends it in an orderly way.
    pub fn close(&mut self, client: ClientId) {
        if let Some(logical) = self.logical.get_mut(client.0) {
            logical.closing = true;
            self.release_if_closed(client.0);
        }
    }

    /// Whether this is the process that made these clients, and not a child that it has forked.
    #[inline(always)]
    fn is_here(&self) -> bool {
        self.origin.is_here()
    }

    /// The next operation that is over.
    pub fn poll_finished(&mut self) -> Option<Finished> {
        self.finished.pop_front()
    }

    /// Operations that are not over yet.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.operations.len()
    }

    /// Operations of one logical client that are not over yet.
    #[must_use]
    pub fn in_flight_of(&self, client: ClientId) -> usize {
        self.logical
            .get(client.0)
            .map_or(0, |logical| logical.in_flight)
    }

    /// Whether a logical client takes operations.
    #[must_use]
    pub fn is_open(&self, client: ClientId) -> bool {
        self.logical
            .get(client.0)
            .is_some_and(|logical| !logical.closing)
    }

    /// The client id and the number of a logical client's session with the group. For tests and the simulator.
    #[doc(hidden)]
    #[must_use]
    pub fn group_session(&self, client: ClientId) -> Option<(u64, u64)> {
        match self.logical.get(client.0)?.registration {
            Registration::Done(session) => Some((session.client, session.number)),
            Registration::None | Registration::Pending(_) => None,
        }
    }

    /// Lets a logical client that has not called yet use a session that may be another's, as a thief would. For tests
    /// and the simulator.
    #[doc(hidden)]
    pub fn use_group_session(&mut self, client: ClientId, (id, number): (u64, u64)) {
        if let Some(logical) = self.logical.get_mut(client.0) {
            let session = NamedSession { client: id, number };
            logical.registration = Registration::Done(session);
            logical.window = Window::behind(1 << 20);
        }
    }

    /// Another logical client in the same session and at the same place in it, as a copy of the virtual machine would have it.
    /// Nothing without a session, or while operations are under way. For tests and the simulator.
    #[doc(hidden)]
    pub fn copy_of(&mut self, client: ClientId) -> Option<ClientId> {
        let original = self.logical.get(client.0)?;
        let has_session = matches!(original.registration, Registration::Done(_));
        if !has_session || original.in_flight > 0 || original.closing {
            return None;
        }
        let copy = Logical {
            registration: original.registration,
            window: original.window,
            ..Logical::new()
        };
        self.logical.insert(copy).ok().map(ClientId)
    }

    /// The cluster that this client talks to, [`ClusterId::NONE`] before the first answer.
    #[must_use]
    pub const fn cluster(&self) -> ClusterId {
        self.group.cluster()
    }

    /// A replica may be at this address, too, as when a name stands for another one than it did. If there is no
    /// room, one that was asked in vain gives way.
    pub fn add_peer(&mut self, address: std::net::SocketAddr) {
        self.group.add(address);
    }

    /// The replica that is taken for the leader.
    #[must_use]
    pub fn leader(&self) -> Option<std::net::SocketAddr> {
        self.group.leader()
    }

    /// Counters since the start.
    #[must_use]
    pub const fn stats(&self) -> ClientStats {
        ClientStats {
            leader_changes: self.group.leader_changes(),
            ..self.stats
        }
    }

    /// How long an operation may take if its caller names no deadline.
    pub(super) const fn operation_timeout(&self) -> Duration {
        self.config.operation_timeout
    }

    /// Why nothing can be sent, if that is so.
    pub(super) fn obstacle(&self) -> Obstacle {
        self.group.obstacle()
    }

    fn pending(
        &self,
        owner: Key,
        operation: Operation,
        request: MsgBuf,
        now: Instant,
        deadline: Instant,
        tag: u64,
    ) -> Pending {
        Pending {
            owner,
            tag,
            operation,
            queue: OperationQueue::Write,
            stage: OperationStage::Waiting,
            request: Some(request),
            room: ResponseRoom {
                bytes: self.config.response_bytes,
                reserved: 0,
                expected: 0,
                alone: false,
            },
            ticket: None,
            times: OperationTimes {
                started: now,
                sent_at: now,
                timed: false,
                deadline,
            },
            so_far: SoFar::default(),
        }
    }

    /// Ends an operation and tells its caller.
    fn finish(&mut self, now: Instant, key: Key, result: Result<Answer, Error>) {
        let Some(pending) = self.operations.remove(key) else {
            return;
        };
        assert!(
            !matches!(pending.stage, OperationStage::Sent { .. }),
            "the transport still owns its buffers"
        );
        match result.is_ok() {
            true => self.stats.answered += 1,
            false => self.stats.failed += 1,
        }
        if let Some(logical) = self.logical.get_mut(pending.owner) {
            assert!(logical.in_flight > 0, "an operation ends once");
            logical.in_flight -= 1;
            if let Some(ticket) = pending
                .ticket
                .filter(|ticket| ticket.is_of_epoch(logical.epoch))
            {
                logical.window.close(ticket.sequence);
            }
        }
        let Pending {
            owner, tag, times, ..
        } = pending;
        self.finished.push_back(Finished {
            client: ClientId(owner),
            tag,
            started: times.started,
            ended: now,
            result,
        });
        self.admit(now, owner);
        self.operations.admit_large();
        self.drop_unwanted_registration(owner);
        self.release_if_closed(owner);
    }

    /// Ends a registration, with the client id that the group gave or without one.
    fn finish_registration(&mut self, now: Instant, key: Key, registration: Registration) {
        let Some(pending) = self.operations.remove(key) else {
            return;
        };
        let operation = pending.operation;
        assert_eq!(operation, Operation::Register, "a write ends otherwise");
        if let Some(logical) = self.logical.get_mut(pending.owner) {
            logical.registration = registration;
            self.admit(now, pending.owner);
        }
    }

    fn release_if_closed(&mut self, owner: Key) {
        if self
            .logical
            .get(owner)
            .is_some_and(|logical| logical.closing && logical.in_flight == 0)
        {
            self.logical.remove(owner);
        }
    }

    #[cfg(test)]
    pub(super) fn operations(&mut self) -> &mut Operations {
        &mut self.operations
    }

    fn note_unreadable(&mut self) {
        self.stats.unreadable += 1;
    }
}

impl<R: Route> App<R> for Clients<R> {
    /// Clients serve nothing: a request to them gets an empty answer.
    fn on_request(&mut self, cx: &mut Cx<'_, R>, _request: Request<'_>) -> Reply {
        self.note_unreadable();
        cx.alloc(0).map_or(Reply::Later, Reply::Now)
    }

    fn on_completion(&mut self, cx: &mut Cx<'_, R>, tag: u64, completion: Completion) {
        if tag & QUESTION_BIT != 0 {
            self.on_leader_answer(cx, tag, &completion);
        } else if tag & BATCH_BIT != 0 {
            self.on_batch_ended(cx, Key::from_u64(tag & !BATCH_BIT), completion);
        } else {
            self.on_attempt_ended(cx, Key::from_u64(tag), completion);
        }
    }

    fn on_event(&mut self, cx: &mut Cx<'_, R>, event: Event<R>) {
        let now = cx.now();
        if self.group.on_event(now, &event) {
            self.fail_if_all_foreign(now);
        }
    }

    fn on_turn(&mut self, cx: &mut Cx<'_, R>) {
        self.expire(cx);
        if !self.operations.is_empty() && !self.group.is_awaiting_pin() {
            self.group.connect(cx);
            let waits = self.operations.has_ready_for_leader();
            self.group.ask_if_silent(cx, waits);
            self.dispatch(cx);
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        if self.operations.is_empty() {
            return None;
        }
        let check_at = self.operations.check_at();
        if self.group.is_awaiting_pin() {
            return Some(check_at);
        }
        let waits_for_leader = self.operations.has_ready_for_leader();
        let sends = waits_for_leader && self.group.has_target();
        let dues = [
            Some(check_at),
            sends.then(|| self.group.resume_at()),
            self.spread_resumes_at(),
            self.group.silence_ends_at(waits_for_leader),
            self.group.next_connection(),
        ];
        dues.into_iter().flatten().min()
    }
}

impl<R: Route> Clients<R> {
    fn on_leader_answer(&mut self, cx: &mut Cx<'_, R>, tag: u64, completion: &Completion) {
        match self.group.on_leader_answer(tag, completion) {
            LeaderNews::Nothing => {}
            LeaderNews::Unreadable => self.note_unreadable(),
            LeaderNews::NoLonger(peer) => self.take_back(cx, peer),
        }
    }

    /// Cancels every attempt that is under way at a replica that no longer leads; each is repeated elsewhere.
    fn take_back(&self, cx: &mut Cx<'_, R>, peer: usize) {
        for (_, pending) in self.operations.iter() {
            match pending.stage {
                OperationStage::Sent {
                    peer: at, request, ..
                } if at == peer => {
                    cx.cancel(request);
                }
                _ => {}
            }
        }
    }

    /// Ends every operation immediately if no replica is left that belongs to this client's cluster.
    fn fail_if_all_foreign(&mut self, now: Instant) {
        let Some(obstacle) = self.group.all_foreign() else {
            return;
        };
        let idle = |pending: &Pending| !matches!(pending.stage, OperationStage::Sent { .. });
        let keys: Vec<Key> = self
            .operations
            .iter()
            .filter(|(_, pending)| idle(pending))
            .map(|(key, _)| key)
            .collect();
        for key in keys {
            self.refuse(now, key, obstacle);
        }
    }

    /// Ends an operation because `obstacle` is permanent.
    pub(super) fn refuse(&mut self, now: Instant, key: Key, obstacle: Obstacle) {
        let Some(pending) = self.operations.get(key) else {
            return;
        };
        if pending.is_own_registration() {
            let owner = pending.owner;
            self.finish_refused_registration(now, key, owner, obstacle);
        } else {
            let error = pending.refusal(now, obstacle);
            self.finish(now, key, Err(error));
        }
    }

    /// The group does not accept this client: everything that waited for its session ends.
    fn finish_refused_registration(
        &mut self,
        now: Instant,
        key: Key,
        owner: Key,
        obstacle: Obstacle,
    ) {
        self.operations.remove(key);
        let Some(logical) = self.logical.get_mut(owner) else {
            return;
        };
        logical.registration = Registration::None;
        let waiting = std::mem::take(&mut logical.waiting);
        for key in waiting {
            self.refuse(now, key, obstacle);
        }
    }
}
