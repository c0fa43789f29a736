//! Scripted replicas and one client endpoint on a ring, on virtual time, in one thread.

use std::net::SocketAddr;

use trine_client::{ClientConfig, ClientId, Clients, Finished, Mode, Submission, SubmitError};
use trine_kvstore::{Command, Position, Response};
use trine_protocol::endpoint_config;
use trine_protocol::message::{
    BatchItems, BatchWriter, ClientReply, ClientRequest, ClientStatus, ClusterId, Discovery,
    Encode, Incarnation, NodeId, Operation, OtherVersion, RoleCode, StatusReply, kind,
};
use trine_transport::backend::Backend;
use trine_transport::backend::{RingBackend, RingRoute};
use trine_transport::buf::Pool;
use trine_transport::event_loop::EventLoop;
use trine_transport::time::{Duration, Instant};
use trine_transport::{App, Completion, Cx, Identity, Reply, Request, ResponseHandle, SessionId};

use crate::support::{ManualClock, address, mesh, route_of};

pub(crate) const CLUSTER: ClusterId = ClusterId(0xc1);
/// How far the clock goes between two turns.
const STEP: Duration = Duration::from_micros(20);

/// A request as a scripted replica saw it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    pub(crate) at: Instant,
    pub(crate) operation: Operation,
    pub(crate) cluster: ClusterId,
    pub(crate) client: u64,
    pub(crate) sequence: u64,
    pub(crate) lowest_awaited: u64,
    pub(crate) check: u32,
    pub(crate) command: Vec<u8>,
}

/// A scripted replica's reaction to a request.
pub(crate) enum Act {
    /// The store's response at a position.
    Ok(Position, Vec<u8>),
    /// A refusal.
    Status(ClientStatus),
    /// Not the leader; who is.
    NotLeader(Option<SocketAddr>),
    /// Proposed, but leadership is lost; who leads now.
    LeadershipLost(Option<SocketAddr>),
    /// As a replica of another cluster.
    Foreign(ClusterId),
    /// As one of another cluster that cannot serve even its own clients.
    ForeignStatus(ClusterId, ClientStatus),
    /// The whole message, a batch too, has a kind or version that is not known.
    OtherVersion(OtherVersion),
    /// Bytes that are no reply.
    Garbage,
    /// No answer, ever.
    Silent,
    /// No answer until [`World::answer_held`].
    Hold,
}

pub(crate) type Script = Box<dyn FnMut(&Seen) -> Act>;

/// The request that an answer is for.
#[derive(Clone, Copy)]
enum Waiting {
    Alone(ResponseHandle),
    InBatch { batch: usize, place: usize },
}

struct Batch {
    handle: ResponseHandle,
    answers: Vec<Option<Vec<u8>>>,
}

pub(crate) struct FakeReplica {
    pub(crate) script: Script,
    pub(crate) seen: Vec<Seen>,
    pub(crate) discovery: Option<Discovery>,
    pub(crate) questions: usize,
    /// Client messages, batches counted once.
    pub(crate) messages: usize,
    pub(crate) sessions: Vec<SessionId>,
    held: Vec<(Waiting, Seen)>,
    /// By the index in [`Waiting::InBatch`]; none once it was answered.
    batches: Vec<Option<Batch>>,
}

impl FakeReplica {
    fn reply(cx: &mut Cx<'_, RingRoute>, message: &impl Encode) -> Reply {
        let mut bytes = cx
            .alloc(message.encoded_len())
            .expect("a test never runs out of buffers");
        message.encode_to_slice(&mut bytes);
        Reply::Now(bytes)
    }

    /// The bytes of an answer, if there is one.
    fn act(act: &Act) -> Option<Vec<u8>> {
        let refusal = |status| ClientReply::refusal(status, CLUSTER);
        let with_leader = |status, leader: &Option<SocketAddr>| ClientReply {
            leader: *leader,
            ..refusal(status)
        };
        Some(match act {
            Act::Ok(position, response) => {
                let position = position.as_u64();
                ClientReply {
                    position,
                    response,
                    ..refusal(ClientStatus::Ok)
                }
                .encode_to_vec()
            }
            Act::Status(status) => refusal(*status).encode_to_vec(),
            Act::NotLeader(leader) => with_leader(ClientStatus::NotLeader, leader).encode_to_vec(),
            Act::LeadershipLost(leader) => {
                with_leader(ClientStatus::LeadershipLost, leader).encode_to_vec()
            }
            Act::Foreign(theirs) => {
                ClientReply::refusal(ClientStatus::WrongCluster, *theirs).encode_to_vec()
            }
            Act::ForeignStatus(theirs, status) => {
                ClientReply::refusal(*status, *theirs).encode_to_vec()
            }
            Act::OtherVersion(other) => other.reply(CLUSTER).encode_to_vec(),
            Act::Garbage => vec![0xff; 3],
            Act::Silent | Act::Hold => return None,
        })
    }

    /// One request, alone or in a batch.
    fn on_client(&mut self, cx: &mut Cx<'_, RingRoute>, waiting: Waiting, request: &[u8]) {
        let envelope = ClientRequest::decode(request).expect("clients encode what can be decoded");
        let seen = Seen {
            at: cx.now(),
            operation: envelope.operation,
            cluster: envelope.cluster,
            client: envelope.client,
            sequence: envelope.sequence,
            lowest_awaited: envelope.lowest_awaited,
            check: envelope.check,
            command: envelope.command.to_vec(),
        };
        self.seen.push(seen.clone());
        let act = (self.script)(&seen);
        if matches!(act, Act::Hold) {
            self.held.push((waiting, seen));
        }
        self.answer(cx, waiting, &act);
    }

    fn answer(&mut self, cx: &mut Cx<'_, RingRoute>, waiting: Waiting, act: &Act) {
        let Some(bytes) = Self::act(act) else { return };
        match waiting {
            Waiting::Alone(handle) => respond(cx, handle, &bytes),
            Waiting::InBatch {
                batch: index,
                place,
            } => {
                let Some(batch) = &mut self.batches[index] else {
                    return;
                };
                if matches!(act, Act::OtherVersion(_)) {
                    respond(cx, batch.handle, &bytes);
                    self.batches[index] = None;
                    return;
                }
                batch.answers[place] = Some(bytes);
                let Some(answers) = batch.answers.iter().cloned().collect::<Option<Vec<_>>>()
                else {
                    return;
                };
                let mut bytes =
                    vec![0; 8 + answers.iter().map(|answer| 4 + answer.len()).sum::<usize>()];
                let mut writer = BatchWriter::new(&mut bytes);
                answers.iter().for_each(|answer| writer.push(answer));
                assert_eq!(writer.finish(), bytes.len());
                respond(cx, batch.handle, &bytes);
                self.batches[index] = None;
            }
        }
    }
}

fn respond(cx: &mut Cx<'_, RingRoute>, handle: ResponseHandle, bytes: &[u8]) {
    // As a replica does: what no message can hold becomes an empty answer.
    let mut response = cx
        .alloc(bytes.len())
        .or_else(|| cx.alloc(0))
        .expect("a test never runs out of buffers");
    let sent = response.len();
    response.copy_from_slice(&bytes[..sent]);
    // No operation may wait any more: some tests are about that.
    drop(cx.enqueue_response(handle, response));
}

impl App<RingRoute> for FakeReplica {
    fn on_request(&mut self, cx: &mut Cx<'_, RingRoute>, request: Request<'_>) -> Reply {
        if !self.sessions.contains(&request.session) {
            self.sessions.push(request.session);
        }
        if request.kind == kind::STATUS {
            self.questions += 1;
            return match self.discovery.clone() {
                Some(discovery) => Self::reply(cx, &StatusReply::Discovery(discovery)),
                None => Reply::Later,
            };
        }
        self.messages += 1;
        match request.kind {
            kind::CLIENT => self.on_client(cx, Waiting::Alone(request.handle), request.data),
            kind::CLIENT_BATCH => {
                let items =
                    BatchItems::decode(request.data).expect("clients encode what can be decoded");
                let batch = self.batches.len();
                self.batches.push(Some(Batch {
                    handle: request.handle,
                    answers: vec![None; items.len()],
                }));
                for (place, item) in items.enumerate() {
                    self.on_client(cx, Waiting::InBatch { batch, place }, item);
                }
            }
            other => panic!("clients send no requests of kind {other}"),
        }
        Reply::Later
    }

    fn on_completion(&mut self, _cx: &mut Cx<'_, RingRoute>, _tag: u64, _completion: Completion) {
        unreachable!("scripted replicas ask nothing");
    }
}

type ClientLoop = EventLoop<RingBackend, ManualClock, Clients<RingRoute>>;
pub(crate) type ReplicaLoop = EventLoop<RingBackend, ManualClock, FakeReplica>;

pub(crate) struct World {
    pub(crate) clock: ManualClock,
    pub(crate) client: ClientLoop,
    /// The client's.
    pub(crate) pool: Pool,
    replicas: Vec<ReplicaLoop>,
    /// A replica that is not alive gets no turn: from outside it looks killed or stopped.
    pub(crate) alive: Vec<bool>,
    pub(crate) finished: Vec<Finished>,
}

impl World {
    /// As many replicas as scripts, and a client endpoint with default settings.
    pub(crate) fn new(scripts: Vec<Script>) -> Self {
        Self::with(scripts, |_| {})
    }

    pub(crate) fn with(scripts: Vec<Script>, change: impl FnOnce(&mut ClientConfig)) -> Self {
        let clock = ManualClock::new();
        let mut backends = mesh(scripts.len() as u16 + 1);
        let client_backend = backends.pop().expect("one more than scripts");
        let mut config = ClientConfig::new((0..scripts.len() as u16).map(address).collect());
        // One message for each command; tests of batches switch them on.
        config.batch_bytes = 0;
        change(&mut config);
        let pool = client_backend.pool().clone();
        let clients =
            Clients::new(config, route_of(), pool.clone(), 7).expect("a sound configuration");
        let client = looped(client_backend, &clock, clients, 100);
        let replicas = scripts
            .into_iter()
            .zip(backends)
            .zip(0..)
            .map(|((script, backend), index)| replica_loop(script, backend, &clock, index + 1));
        let replicas: Vec<_> = replicas.collect();
        let alive = vec![true; replicas.len()];
        Self {
            clock,
            client,
            pool,
            replicas,
            alive,
            finished: Vec::new(),
        }
    }

    pub(crate) fn replica(&mut self, index: usize) -> &mut FakeReplica {
        self.replicas[index].app_mut()
    }

    /// Replica `index` names `leader` when it is asked who leads.
    pub(crate) fn knows_leader(&mut self, index: usize, leader: u16, term: u64) {
        self.replica(index).discovery = Some(Discovery {
            cluster: CLUSTER,
            role: RoleCode::Follower,
            term,
            leader: Some(address(leader)),
            ..Discovery::unattached(NodeId(index as u32), Incarnation(index as u64 + 1))
        });
    }

    /// As `knows_leader`, for a replica of another cluster.
    pub(crate) fn knows_foreign_leader(&mut self, index: usize, leader: u16, term: u64) {
        self.knows_leader(index, leader, term);
        let known = self.replica(index).discovery.as_mut();
        known.expect("just set").cluster = ClusterId(CLUSTER.0 + 1);
    }

    /// Answers everything that replica `index` has held back.
    pub(crate) fn answer_held(&mut self, index: usize, mut act: impl FnMut(&Seen) -> Act) {
        let replica = &mut self.replicas[index];
        let held = std::mem::take(&mut replica.app_mut().held);
        replica.with(|app, cx| {
            for (waiting, seen) in held {
                app.answer(cx, waiting, &act(&seen));
            }
        });
    }

    /// Ends every session that replica `index` serves.
    pub(crate) fn reset_sessions(&mut self, index: usize) {
        let replica = &mut self.replicas[index];
        let sessions = std::mem::take(&mut replica.app_mut().sessions);
        replica.with(|_, cx| {
            sessions
                .into_iter()
                .for_each(|session| cx.disconnect(session))
        });
    }

    pub(crate) fn open(&mut self) -> ClientId {
        self.client.app_mut().open().expect("room for a client")
    }

    pub(crate) fn submit(
        &mut self,
        client: ClientId,
        mode: Mode,
        command: &Command<'_>,
        tag: u64,
    ) -> Result<(), SubmitError> {
        let submission = Submission {
            mode,
            command,
            deadline: None,
            tag,
        };
        self.client
            .with(|clients, cx| clients.submit(cx.now(), client, submission))
    }

    pub(crate) fn submit_until(
        &mut self,
        client: ClientId,
        mode: Mode,
        command: &Command<'_>,
        tag: u64,
        deadline: Instant,
    ) -> Result<(), SubmitError> {
        let submission = Submission {
            mode,
            command,
            deadline: Some(deadline),
            tag,
        };
        self.client
            .with(|clients, cx| clients.submit(cx.now(), client, submission))
    }

    pub(crate) fn put(&mut self, client: ClientId, tag: u64) {
        let command = Command::Put {
            key: b"key",
            value: &tag.to_le_bytes(),
        };
        self.submit(client, Mode::Write, &command, tag)
            .expect("room for a command");
    }

    pub(crate) fn step(&mut self) {
        self.clock.advance(STEP);
        for (replica, _) in self
            .replicas
            .iter_mut()
            .zip(&self.alive)
            .filter(|(_, alive)| **alive)
        {
            replica.turn().expect("rings do not fail");
        }
        self.client.turn().expect("rings do not fail");
        while let Some(finished) = self.client.app_mut().poll_finished() {
            self.finished.push(finished);
        }
    }

    pub(crate) fn run_for(&mut self, span: Duration) {
        for _ in 0..span.as_nanos() / STEP.as_nanos() {
            self.step();
        }
    }

    /// Runs until `count` operations are over; how long that took.
    pub(crate) fn run_until_finished(&mut self, count: usize) -> Duration {
        let start = self.client.now();
        while self.finished.len() < count {
            self.step();
            let waited = self.client.now().saturating_since(start);
            assert!(
                waited < Duration::from_secs(20),
                "{} of {count} operations are over",
                self.finished.len()
            );
        }
        self.client.now().saturating_since(start)
    }
}

/// A replica that follows `script`.
pub(crate) fn replica_loop(
    script: Script,
    backend: RingBackend,
    clock: &ManualClock,
    seed: u64,
) -> ReplicaLoop {
    let (seen, sessions, held, batches) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let app = FakeReplica {
        script,
        seen,
        discovery: None,
        questions: 0,
        messages: 0,
        sessions,
        held,
        batches,
    };
    looped(backend, clock, app, seed)
}

fn looped<A: App<RingRoute>>(
    backend: RingBackend,
    clock: &ManualClock,
    app: A,
    seed: u64,
) -> EventLoop<RingBackend, ManualClock, A> {
    let identity = Identity {
        cluster: 0,
        incarnation: seed,
    };
    EventLoop::new(
        backend,
        clock.clone(),
        app,
        endpoint_config(),
        identity,
        seed,
    )
    .expect("a sound configuration")
}

/// Commits everything: registrations and writes at growing positions, reads find nothing.
pub(crate) fn leader() -> Script {
    let mut index = 0;
    Box::new(move |seen| {
        index += 1;
        commit(seen, index)
    })
}

/// The answer of a leader that has applied `seen` at `index`.
pub(crate) fn commit(seen: &Seen, index: u64) -> Act {
    let position = Position::new(index, 0);
    match seen.operation {
        Operation::Register => Act::Ok(position, Vec::new()),
        Operation::Apply | Operation::ApplyAndClose => {
            ok(position, &Response::Written { version: position })
        }
        Operation::ReadLinearizable | Operation::ReadStale | Operation::ReadHere => {
            ok(position, &Response::NotFound)
        }
    }
}

pub(crate) fn ok(position: Position, response: &Response<'_>) -> Act {
    let mut bytes = Vec::new();
    response.encode(&mut bytes);
    Act::Ok(position, bytes)
}

/// Follows `leader`.
pub(crate) fn follower(leader: u16) -> Script {
    Box::new(move |_| Act::NotLeader(Some(address(leader))))
}

pub(crate) fn always(make: impl Fn() -> Act + 'static) -> Script {
    Box::new(move |_| make())
}
