//! Asking replicas for their status, each by itself: it works without a leader, a quorum or a group.

use std::net::SocketAddr;

use trine_protocol::message::{OtherVersion, StatusForm, StatusReply, StatusRequest, kind};
use trine_protocol::node_status::NodeStatus;
use trine_protocol::release::Release;
use trine_protocol::route::RouteOf;
use trine_transport::backend::{Backend, BackendError, Route};
use trine_transport::event_loop::EventLoop;
use trine_transport::time::{Clock, Duration, Instant};
use trine_transport::{App, Completion, Cx, DownReason, Event, Identity, Reply, Request};

use super::conversation::{Conversation, Due, Question, SessionChange};
use super::outcome::Obstacle;

/// Room for the longest status in JSON.
const STATUS_BYTES_MAX: usize = 256 << 10;

/// One replica's status, or why it gave none.
#[derive(Debug)]
pub struct Probed {
    /// The address that was asked.
    pub address: SocketAddr,
    /// Bytes of the largest packet of the session with it. `None` if there was no session.
    pub packet_bytes: Option<u16>,
    /// Its status.
    pub status: Result<Box<NodeStatus>, Obstacle>,
}

struct Target<R> {
    address: SocketAddr,
    route: Option<R>,
    conversation: Conversation,
    packet_bytes: Option<u16>,
    /// Some as soon as nothing more is asked.
    outcome: Option<Result<Box<NodeStatus>, Obstacle>>,
}

/// Asks several replicas for their status at the same time.
struct Probe<R: Route> {
    targets: Vec<Target<R>>,
    deadline: Instant,
}

impl<R: Route> Target<R> {
    /// `index` tells its questions apart from those of the others.
    fn new(index: usize, address: SocketAddr, route: Option<R>) -> Self {
        Self {
            address,
            route,
            conversation: Conversation::after((index as u64) << 32),
            packet_bytes: None,
            outcome: None,
        }
    }

    fn connect(&mut self, cx: &mut Cx<'_, R>, patience: Duration) {
        let began = self.conversation.connect(cx, self.route, patience);
        let obstacle = match self.route {
            Some(_) => Obstacle::NoConnection,
            None => Obstacle::NoRoute { peer: self.address },
        };
        self.outcome = (!began).then_some(Err(obstacle));
    }

    fn ask(&mut self, cx: &mut Cx<'_, R>, deadline: Instant) {
        let question = Question {
            kind: kind::STATUS,
            room: STATUS_BYTES_MAX,
            deadline,
        };
        let form = StatusForm::Json;
        if !self.conversation.ask(cx, question, &StatusRequest { form }) {
            self.outcome = Some(Err(Obstacle::NoBuffer));
        }
    }

    fn on_change(&mut self, cx: &mut Cx<'_, R>, change: SessionChange, deadline: Instant) {
        match change {
            SessionChange::Up(session) => {
                self.packet_bytes = cx.session_stats(session).map(|agreed| agreed.mtu);
                self.ask(cx, deadline);
            }
            SessionChange::NotReached(reason) => self.outcome = Some(Err(reason.into())),
            // The answer was too large for the path, which the transport knows now. The next session has smaller packets,
            // and a status can be asked for again.
            SessionChange::Lost(DownReason::BlackHole) => {
                self.outcome = self.outcome.take().filter(Result::is_ok);
            }
            SessionChange::Lost(_) => {
                self.outcome.get_or_insert(Err(Obstacle::NoAnswer));
            }
        }
    }
}

impl<R: Route> Probe<R> {
    fn is_done(&self) -> bool {
        self.targets.iter().all(|target| target.outcome.is_some())
    }

    /// Ends every session, so that the replicas need not wait until it times out.
    fn leave(&mut self, cx: &mut Cx<'_, R>) -> Vec<Target<R>> {
        let mut targets = std::mem::take(&mut self.targets);
        targets
            .iter_mut()
            .for_each(|target| target.conversation.leave(cx));
        targets
    }
}

impl<R: Route> App<R> for Probe<R> {
    fn on_request(&mut self, cx: &mut Cx<'_, R>, _request: Request<'_>) -> Reply {
        cx.alloc(0).map_or(Reply::Later, Reply::Now)
    }

    fn on_completion(&mut self, _cx: &mut Cx<'_, R>, tag: u64, completion: Completion) {
        // None once the probe has left: its sessions end then, and questions under way with them.
        for target in &mut self.targets {
            if target.conversation.on_completion(tag) {
                target.outcome = Some(match completion.result {
                    Ok(()) => read_status(&completion.response),
                    Err(_) => Err(Obstacle::NoAnswer),
                });
            }
        }
    }

    fn on_event(&mut self, cx: &mut Cx<'_, R>, event: Event<R>) {
        for target in &mut self.targets {
            if let Some(change) = target.conversation.on_event(&event) {
                target.on_change(cx, change, self.deadline);
            }
        }
    }

    fn on_turn(&mut self, cx: &mut Cx<'_, R>) {
        let (now, patience) = (cx.now(), self.deadline.saturating_since(cx.now()));
        let open = |target: &&mut Target<R>| target.outcome.is_none();
        for target in self.targets.iter_mut().filter(open) {
            if target.conversation.due(now) == Some(Due::Connection) {
                target.connect(cx, patience);
            }
        }
    }
}

fn read_status(reply: &[u8]) -> Result<Box<NodeStatus>, Obstacle> {
    if reply.is_empty() {
        return Err(Obstacle::Denied);
    }
    if let Some(other) = OtherVersion::in_reply(reply) {
        return Err(Obstacle::OtherVersion(other));
    }
    match StatusReply::decode(reply) {
        Ok(StatusReply::Json(text)) => {
            serde_json::from_slice(text).map_err(|_| Obstacle::UnreadableStatus {
                release: release_in(text),
            })
        }
        _ => Err(Obstacle::UnreadableStatus { release: None }),
    }
}

/// The release in a status whose other parts mean nothing to this one.
fn release_in(status: &[u8]) -> Option<Release> {
    let status: serde_json::Value = serde_json::from_slice(status).ok()?;
    let release = status.get("program")?.get("release")?.as_str()?;
    Release::try_from(release.to_owned()).ok()
}

/// Asks each of `addresses` for its status and waits for the answers, at most for `timeout`.
///
/// # Errors
/// When the backend is unusable or `transport` contradicts it.
pub fn probe_status<B: Backend, C: Clock>(
    backend: B,
    clock: C,
    transport: trine_transport::Config,
    route_of: &RouteOf<B::Route>,
    addresses: &[SocketAddr],
    timeout: Duration,
    seed: u64,
) -> Result<Vec<Probed>, ProbeError> {
    let deadline = clock.now() + timeout;
    let target = |(index, &address)| Target::new(index, address, route_of(address));
    let probe = Probe {
        targets: addresses.iter().enumerate().map(target).collect(),
        deadline,
    };
    let identity = Identity {
        cluster: 0,
        incarnation: seed.max(1),
    };
    let mut event_loop = EventLoop::new(backend, clock, probe, transport, identity, seed)
        .map_err(ProbeError::Transport)?;
    event_loop
        .run_until(Some(deadline), |probe| probe.is_done())
        .map_err(ProbeError::Backend)?;
    let targets = event_loop.with(Probe::leave);
    event_loop.turn().map_err(ProbeError::Backend)?;
    let probed = |target: Target<B::Route>| Probed {
        address: target.address,
        packet_bytes: target.packet_bytes,
        status: target.outcome.unwrap_or(Err(Obstacle::NoConnection)),
    };
    Ok(targets.into_iter().map(probed).collect())
}

/// Why no replica could be asked.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProbeError {
    /// The transport's settings contradict themselves or the backend.
    #[error("{0}")]
    Transport(trine_transport::ConfigError),
    /// The socket is unusable.
    #[error("{0}")]
    Backend(BackendError),
}

#[cfg(test)]
mod tests {
    use trine_protocol::message::Encode;
    use trine_transport::backend::{RingBackend, RingConfig, RingRoute};
    use trine_transport::{Endpoint, RpcError};

    use super::*;
    use trine_protocol::endpoint_config;

    /// `trine demo` on a slow machine: a question was still under way when the probe's time was
    /// over. Ending the session completed it, for a target that had been removed already, and the
    /// program panicked with an index out of bounds.
    #[test]
    fn a_question_that_ends_after_the_probe_has_left_is_nothing() {
        let (backend, _) = RingBackend::pair(RingConfig::default());
        let (pool, identity) = (backend.pool().clone(), Identity::default());
        let (caps, config) = (backend.caps(), endpoint_config());
        let mut endpoint = Endpoint::new(config, &caps, pool.clone(), identity, 1).unwrap();
        let mut cx: Cx<'_, RingRoute> = Cx::new(&mut endpoint, Instant::ZERO);
        let mut probe = Probe {
            targets: vec![Target::new(0, SocketAddr::from(([127, 0, 0, 1], 1)), None)],
            deadline: Instant::ZERO,
        };
        assert_eq!(probe.leave(&mut cx).len(), 1);
        let completion = Completion {
            result: Err(RpcError::OutcomeUnknown),
            request: pool.alloc(1).unwrap(),
            response: pool.alloc(1).unwrap(),
        };
        probe.on_completion(&mut cx, 1, completion);
        assert!(probe.is_done());
    }
    #[test]
    fn a_status_that_cannot_be_read_names_its_release() {
        let of = |text: &str| {
            let reply = StatusReply::Json(text.as_bytes()).encode_to_vec();
            read_status(&reply).expect_err("no status").to_string()
        };
        let error = of(r#"{ "replica": [], "program": { "release": "1.258.3", "commit": 7 } }"#);
        assert!(error.contains("replica of release 1.258.3"), "{error}");
        for unnamed in ["", "{", r#"{ "program": { "release": "new" } }"#] {
            let error = of(unnamed);
            assert!(error.contains("not even which release"), "{error}");
        }
    }
}
