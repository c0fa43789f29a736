//! An admin command, from the first question to its end. It finds the leader, asks it, and asks again until the command
//! is done or refused.
//!
//! Only a replica that has named itself as the leader of a named cluster gets the command. So a list of peers that
//! mixes two groups changes one of them, not both. The member to be removed or replaced is fixed before the command is
//! first given, so that a repetition cannot hit its successor.

mod whom;

use std::net::SocketAddr;

use trine_protocol::message::{
    AdminCommand, AdminReply, AdminRequest, AdminStatus, Discovery, Incarnation, Member,
    MemberRole, OtherVersion, RoleCode, StatusForm, StatusReply, StatusRequest, kind,
};
use trine_protocol::route::RouteOf;
use trine_transport::app::{App, Completion, Cx, Reply, Request, RpcError};
use trine_transport::backend::{Backend, BackendError, Route};
use trine_transport::event_loop::EventLoop;
use trine_transport::prng::Prng;
use trine_transport::session::Event;
use trine_transport::time::{Clock, Duration, Instant};

use super::blocking::client_identity;
use super::config::{ClientConfig, ClientConfigError};
use super::conversation::Question;
use super::outcome::Obstacle;
use super::peers::Peers;
use whom::Whom;

/// Room for a discovery with every member, and for a command's progress in words.
const RESPONSE_BYTES: usize = 4 << 10;
/// If no leader was found for this long, the group is taken for unreachable; elections take a tenth of it.
const FIND_LEADER_MAX: Duration = Duration::from_secs(5);
/// Pause before a command that is under way is given again.
const REPEAT_EVERY: Duration = Duration::from_millis(50);

/// The end of a command that was done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdminDone {
    /// The leader's answer.
    pub text: String,
    /// The leader that said so.
    pub leader: SocketAddr,
}

/// Why a command has not been done, as far as that is known.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AdminError {
    /// No leader has got it: nothing was changed and nothing will be.
    #[error("nothing was changed, the group was not reachable within {}: {obstacle}", .waited.rounded())]
    NotReachable {
        /// The obstacle of the last attempt.
        obstacle: Obstacle,
        /// How long it was tried.
        waited: Duration,
    },
    /// The leader refuses it.
    #[error("refused: {why}")]
    Refused {
        /// Its reason.
        why: String,
        /// Whether a leader had begun it: the change may be in the log already.
        begun: bool,
    },
    /// It was given, and its end was not seen in time: it may have been done, or may still be.
    #[error("outcome unknown after {}: {progress}", .waited.rounded())]
    OutcomeUnknown {
        /// The last answer about it.
        progress: String,
        /// How long it was tried.
        waited: Duration,
    },
    /// The client's settings contradict themselves.
    #[error(transparent)]
    Client(#[from] ClientConfigError),
    /// The transport's settings contradict themselves or the backend.
    #[error("{0}")]
    Transport(trine_transport::ConfigError),
    /// The socket became unusable: the command may have been done.
    #[error("outcome unknown: {0}")]
    Backend(BackendError),
}

/// Gives `request` to the leader, until it is done or refused, at most for the configured operation timeout.
///
/// Without an incarnation, a removal or replacement concerns the member that has the node id at the first question. If
/// no member has the node id then, a removal is refused. Without a cluster, the command concerns the first cluster that
/// is found to have a leader.
///
/// # Errors
/// [`AdminError`] says what is certain about the command.
pub fn run_admin<B: Backend, C: Clock>(
    backend: B,
    clock: C,
    config: ClientConfig,
    transport: trine_transport::Config,
    route_of: RouteOf<B::Route>,
    request: AdminRequest,
    seed: u64,
) -> Result<AdminDone, AdminError> {
    config.validate()?;
    let identity = client_identity(&config, seed);
    let started = clock.now();
    let deadline = started + config.operation_timeout;
    let find_until = deadline.min(started + FIND_LEADER_MAX);
    let giver = AdminClient::new(config, route_of, request, deadline, seed);
    let mut event_loop = EventLoop::new(backend, clock, giver, transport, identity, seed)
        .map_err(AdminError::Transport)?;
    event_loop
        .run_until(Some(find_until), |giver| giver.is_over())
        .map_err(AdminError::Backend)?;
    if event_loop.app().found_leader {
        event_loop
            .run_until(Some(deadline), |giver| giver.is_over())
            .map_err(AdminError::Backend)?;
    }
    let waited = event_loop.now().saturating_since(started);
    let end = event_loop.with(|giver, cx| giver.end(cx, waited));
    // The answer is certain; telling the replicas that the sessions end is only polite.
    let _ = event_loop.turn();
    end
}

/// The present question to a replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AdminQuestion {
    WhoLeads,
    AdminCommand,
}

/// How the admin command ended.
#[derive(Debug)]
enum AdminOutcome {
    Done(AdminDone),
    Refused(String),
    /// No replica is left that belongs to the cluster.
    Foreign(Obstacle),
}

/// The program behind [`run_admin`], for callers that drive an endpoint by other means.
pub struct AdminClient<R: Route> {
    config: ClientConfig,
    peers: Peers<R>,
    rng: Prng,
    request: AdminRequest,
    deadline: Instant,
    whom: Whom,
    found_leader: bool,
    asking: Option<AdminQuestion>,
    ask_at: Instant,
    /// When `on_turn` has to run again without input.
    wake_at: Option<Instant>,
    course: Course,
}

/// What is known of the command.
///
/// Invariant: a command that may have been done stays one.
#[derive(Debug, Default)]
struct Course {
    /// Whether the command may have been done.
    begun: bool,
    /// The last answer about it.
    progress: Option<String>,
    /// Of the last attempt.
    obstacle: Option<Obstacle>,
    end: Option<AdminOutcome>,
}

impl<R: Route> AdminClient<R> {
    /// Begins with no question asked. The caller gives up at `deadline`.
    pub fn new(
        config: ClientConfig,
        route_of: RouteOf<R>,
        request: AdminRequest,
        deadline: Instant,
        seed: u64,
    ) -> Self {
        let request = AdminRequest {
            cluster: match request.cluster.is_none() {
                true => config.cluster,
                false => request.cluster,
            },
            ..request
        };
        Self {
            peers: Peers::new(&config, route_of),
            config,
            rng: Prng::new(seed),
            request,
            deadline,
            whom: Whom::default(),
            found_leader: false,
            asking: None,
            ask_at: Instant::ZERO,
            wake_at: None,
            course: Course::default(),
        }
    }

    /// Whether the command was done, or permanently refused.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.course.end.is_some()
    }

    /// Ends every session and returns the result of the command.
    fn end(&mut self, cx: &mut Cx<'_, R>, waited: Duration) -> Result<AdminDone, AdminError> {
        for (_, peer) in self.peers.iter() {
            if let Some(session) = peer.session() {
                cx.disconnect(session);
            }
        }
        let is_given = self.asking == Some(AdminQuestion::AdminCommand);
        let obstacle = self.peers.obstacle();
        std::mem::take(&mut self.course).result(is_given, obstacle, waited)
    }

    fn ask(&mut self, cx: &mut Cx<'_, R>) {
        let now = cx.now();
        self.wake_at = Some(self.ask_at).filter(|&at| self.asking.is_none() && at > now);
        if self.asking.is_some() || self.wake_at.is_some() || self.is_over() {
            return;
        }
        // A replica that becomes reachable later causes an event.
        let Some((index, session)) = self.whom.choose(&self.peers) else {
            return;
        };
        let request = |kind| Question {
            kind,
            room: RESPONSE_BYTES,
            deadline: self.deadline.min(now + self.config.attempt_timeout),
        };
        let (tag, form) = (index as u64, StatusForm::Discovery);
        let (asking, sent) = match self.whom.is_leader(index, session) {
            true => (
                AdminQuestion::AdminCommand,
                request(kind::ADMIN).send(cx, session, tag, &self.request),
            ),
            false => (
                AdminQuestion::WhoLeads,
                request(kind::STATUS).send(cx, session, tag, &StatusRequest { form }),
            ),
        };
        if sent {
            self.asking = Some(asking);
        } else {
            self.course.obstacle = Some(Obstacle::NoBuffer);
            self.pause(now, REPEAT_EVERY);
            self.wake_at = Some(self.ask_at);
        }
    }

    fn pause(&mut self, now: Instant, pause: Duration) {
        self.ask_at = now + pause;
    }

    /// This replica cannot help at the moment: another one is asked after a pause.
    fn try_another(&mut self, now: Instant, obstacle: Obstacle) {
        self.course.obstacle = Some(obstacle);
        self.whom.lead_nowhere();
        self.pause(now, REPEAT_EVERY);
    }

    /// Another replica leads, as far as this one knows.
    fn follow_hint(&mut self, now: Instant, index: usize, hint: Option<SocketAddr>) {
        self.try_another(now, Obstacle::NoLeader);
        let named = hint.and_then(|address| self.peers.add(address));
        if let Some(named) = named.filter(|&named| named != index) {
            self.whom.name(named);
            // Two that name each other are asked alternately, not in a storm.
            self.pause(now, self.config.pause_min);
        }
    }

    fn on_discovery(&mut self, now: Instant, index: usize, discovery: &Discovery) {
        let theirs = discovery.cluster;
        if theirs.is_none() {
            return self.try_another(now, Obstacle::NotAttached);
        }
        if !self.request.cluster.admits(theirs) {
            let obstacle = Obstacle::WrongCluster { theirs };
            self.peers.get_mut(index).obstacle = Some(obstacle);
            self.try_another(now, obstacle);
            return self.end_if_all_foreign();
        }
        for member in &discovery.members.0 {
            self.peers.add(member.address);
        }
        let leaderless = discovery.role != RoleCode::Leader && discovery.leader.is_none();
        if leaderless && self.request.address.is_some() && self.whom.tell(index) {
            self.whom.lead(index, &self.peers);
            return self.pause(now, Duration::ZERO);
        }
        if discovery.role != RoleCode::Leader {
            return self.follow_hint(now, index, discovery.leader);
        }
        if !self.found_leader {
            self.found_leader = true;
            self.request.cluster = theirs;
            self.fix_holder(discovery);
        }
        self.whom.lead(index, &self.peers);
        self.pause(now, Duration::ZERO);
    }

    /// Fixes the member that a removal or a replacement means, before it is given for the first time.
    fn fix_holder(&mut self, discovery: &Discovery) {
        let node_id = self.request.node_id;
        if !matches!(
            self.request.command,
            AdminCommand::Remove | AdminCommand::Replace
        ) || !self.request.incarnation.is_none()
        {
            return;
        }
        match holder(&discovery.members.0, self.request) {
            Incarnation::NONE if self.request.command == AdminCommand::Remove => {
                let why = format!("node {node_id} is not a member of the group");
                self.course.end = Some(AdminOutcome::Refused(why));
            }
            holder => self.request.incarnation = holder,
        }
    }

    fn on_reply(&mut self, now: Instant, index: usize, reply: &AdminReply<'_>) {
        let text = reply.text.to_owned();
        match reply.status {
            AdminStatus::Done => {
                let leader = self.peers.get(index).address;
                self.course.end = Some(AdminOutcome::Done(AdminDone { text, leader }));
            }
            AdminStatus::Refused => self.course.end = Some(AdminOutcome::Refused(text)),
            AdminStatus::InProgress => {
                self.course.begun = true;
                self.course.progress = Some(text);
                self.pause(now, REPEAT_EVERY);
            }
            AdminStatus::NotLeader => self.follow_hint(now, index, reply.leader),
        }
    }

    fn end_if_all_foreign(&mut self) {
        if let Some(obstacle) = self.peers.all_foreign() {
            self.course
                .end
                .get_or_insert(AdminOutcome::Foreign(obstacle));
        }
    }
}

impl Course {
    /// What is certain at the end. `is_given`: an answer to the command is still awaited.
    fn result(
        self,
        is_given: bool,
        obstacle: Obstacle,
        waited: Duration,
    ) -> Result<AdminDone, AdminError> {
        let begun = self.begun || is_given;
        let obstacle = self.obstacle.unwrap_or(obstacle);
        match self.end {
            Some(AdminOutcome::Done(done)) => Ok(done),
            Some(AdminOutcome::Refused(why)) => Err(AdminError::Refused { why, begun }),
            Some(AdminOutcome::Foreign(obstacle)) if !begun => {
                Err(AdminError::NotReachable { obstacle, waited })
            }
            None if !begun => Err(AdminError::NotReachable { obstacle, waited }),
            Some(AdminOutcome::Foreign(_)) | None => {
                let progress = self.progress.unwrap_or_else(|| obstacle.to_string());
                Err(AdminError::OutcomeUnknown { progress, waited })
            }
        }
    }
}

/// The member with the node id that `request` concerns. While one member replaces another, it is the voter.
fn holder(members: &[Member], request: AdminRequest) -> Incarnation {
    let at_node = || members.iter().filter(|m| m.node_id == request.node_id);
    let voter = at_node().find(|member| member.role == MemberRole::Voter);
    let found = voter.or_else(|| at_node().next());
    found.map_or(Incarnation::NONE, |member| member.incarnation)
}

impl<R: Route> App<R> for AdminClient<R> {
    fn on_request(&mut self, cx: &mut Cx<'_, R>, _request: Request<'_>) -> Reply {
        cx.alloc(0).map_or(Reply::Later, Reply::Now)
    }

    fn on_completion(&mut self, cx: &mut Cx<'_, R>, tag: u64, completion: Completion) {
        let (now, index) = (cx.now(), tag as usize);
        let Some(question) = self.asking.take() else {
            return;
        };
        if let Err(error) = completion.result {
            self.course.begun |=
                question == AdminQuestion::AdminCommand && error != RpcError::NotSent;
            return self.try_another(now, Obstacle::NoAnswer);
        }
        if let Some(other) = OtherVersion::in_reply(&completion.response) {
            return self.try_another(now, Obstacle::OtherVersion(other));
        }
        match question {
            AdminQuestion::WhoLeads => match StatusReply::decode(&completion.response) {
                Ok(StatusReply::Discovery(discovery)) => self.on_discovery(now, index, &discovery),
                _ => self.try_another(now, Obstacle::UnreadableReply),
            },
            AdminQuestion::AdminCommand => match AdminReply::decode(&completion.response) {
                Ok(reply) => self.on_reply(now, index, &reply),
                Err(_) => {
                    // The replica had no memory to answer, or it runs another release: it may have done the command.
                    self.course.begun = true;
                    self.try_another(now, Obstacle::UnreadableReply);
                }
            },
        }
    }

    fn on_event(&mut self, cx: &mut Cx<'_, R>, event: Event<R>) {
        if self.peers.on_event(cx.now(), &event, &mut self.rng) {
            self.end_if_all_foreign();
        }
    }

    fn on_turn(&mut self, cx: &mut Cx<'_, R>) {
        if !self.is_over() {
            self.peers.connect(cx, &mut self.rng);
            self.ask(cx);
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        if self.is_over() {
            return None;
        }
        let due = [self.wake_at, self.peers.next_timeout()];
        due.into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests;
