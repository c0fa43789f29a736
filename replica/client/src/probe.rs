//! Asking replicas for their status, each by itself: it works without a leader, a quorum or a group.

use std::net::SocketAddr;

use trine_protocol::message::{Encode, OtherVersion, StatusForm, StatusReply, StatusRequest, kind};
use trine_protocol::node_status::NodeStatus;
use trine_protocol::release::Release;
use trine_protocol::route::RouteOf;
use trine_transport::backend::{Backend, BackendError, Route};
use trine_transport::event_loop::EventLoop;
use trine_transport::time::{Clock, Duration, Instant};
use trine_transport::{
    App, Completion, ConnectParams, Cx, DownReason, Event, Identity, Reply, Request, SessionId,
};

use super::outcome::Obstacle;
use super::peers::obstacle_of;

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
    session: Option<SessionId>,
    packet_bytes: Option<u16>,
    outcome: Option<Result<Box<NodeStatus>, Obstacle>>,
}

/// Asks several replicas for their status at the same time.
struct Probe<R: Route> {
    targets: Vec<Target<R>>,
    deadline: Instant,
}

impl<R: Route> Probe<R> {
    fn is_done(&self) -> bool {
        self.targets.iter().all(|target| target.outcome.is_some())
    }

    fn of_session(&mut self, session: SessionId) -> Option<&mut Target<R>> {
        self.targets
            .iter_mut()
            .find(|target| target.session == Some(session))
    }

    fn connect(&mut self, cx: &mut Cx<'_, R>) {
        let timeout = Some(self.deadline.saturating_since(cx.now()));
        for target in self
            .targets
            .iter_mut()
            .filter(|target| target.session.is_none() && target.outcome.is_none())
        {
            let params = ConnectParams {
                timeout,
                ..ConnectParams::default()
            };
            match target.route.map(|route| cx.connect(route, params)) {
                Some(Ok(session)) => target.session = Some(session),
                Some(Err(_)) => target.outcome = Some(Err(Obstacle::NoConnection)),
                None => {
                    target.outcome = Some(Err(Obstacle::NoRoute {
                        peer: target.address,
                    }))
                }
            }
        }
    }

    /// Ends every session, so that the replicas need not wait until it times out.
    fn leave(&mut self, cx: &mut Cx<'_, R>) -> Vec<Target<R>> {
        for session in self.targets.iter().filter_map(|target| target.session) {
            cx.disconnect(session);
        }
        std::mem::take(&mut self.targets)
    }

    fn ask(&mut self, cx: &mut Cx<'_, R>, session: SessionId) {
        let Some(index) = self
            .targets
            .iter()
            .position(|target| target.session == Some(session))
        else {
            return;
        };
        let question = StatusRequest {
            form: StatusForm::Json,
        };
        let sent = match (cx.alloc(question.encoded_len()), cx.alloc(STATUS_BYTES_MAX)) {
            (Some(mut request), Some(response)) => {
                question.encode_to_slice(&mut request);
                cx.enqueue_request(
                    session,
                    kind::STATUS,
                    request,
                    response,
                    index as u64,
                    Some(self.deadline),
                )
                .is_ok()
            }
            _ => false,
        };
        if !sent {
            self.targets[index].outcome = Some(Err(Obstacle::NoBuffer));
        }
    }
}

impl<R: Route> Probe<R> {
    /// The answer was too large for the path, which the transport knows now. The next session has smaller packets, and a
    /// status can be asked for again.
    fn ask_again(&mut self, session: SessionId) {
        if let Some(target) = self.of_session(session)
            && !matches!(target.outcome, Some(Ok(_)))
        {
            (target.session, target.outcome) = (None, None);
        }
    }
}

impl<R: Route> App<R> for Probe<R> {
    fn on_request(&mut self, cx: &mut Cx<'_, R>, _request: Request<'_>) -> Reply {
        cx.alloc(0).map_or(Reply::Later, Reply::Now)
    }

    fn on_completion(&mut self, _cx: &mut Cx<'_, R>, tag: u64, completion: Completion) {
        let outcome = match completion.result {
            Ok(()) => read_status(&completion.response),
            Err(_) => Err(Obstacle::NoAnswer),
        };
        // None once the probe has left: its sessions end then, and questions under way with them.
        if let Some(target) = self.targets.get_mut(tag as usize) {
            target.outcome = Some(outcome);
        }
    }

    fn on_event(&mut self, cx: &mut Cx<'_, R>, event: Event<R>) {
        match event {
            Event::Connected { session, .. } => {
                let agreed = cx.session_stats(session).map(|agreed| agreed.mtu);
                if let Some(target) = self.of_session(session) {
                    target.packet_bytes = agreed;
                }
                self.ask(cx, session);
            }
            Event::ConnectFailed {
                session, reason, ..
            } => {
                if let Some(target) = self.of_session(session) {
                    target.outcome = Some(Err(obstacle_of(reason)));
                }
            }
            Event::Down {
                session,
                reason: DownReason::BlackHole,
            } => self.ask_again(session),
            Event::Down { .. } | Event::Accepted { .. } => {}
        }
    }

    fn on_turn(&mut self, cx: &mut Cx<'_, R>) {
        self.connect(cx);
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
    let target = |&address| Target {
        address,
        route: route_of(address),
        session: None,
        packet_bytes: None,
        outcome: None,
    };
    let probe = Probe {
        targets: addresses.iter().map(target).collect(),
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
            targets: vec![Target {
                address: SocketAddr::from(([127, 0, 0, 1], 1)),
                route: None,
                session: None,
                outcome: None,
                packet_bytes: None,
            }],
            deadline: Instant::ZERO,
        };
        assert_eq!(probe.leave(&mut cx).len(), 1);
        let completion = Completion {
            result: Err(RpcError::OutcomeUnknown),
            request: pool.alloc(1).unwrap(),
            response: pool.alloc(1).unwrap(),
        };
        probe.on_completion(&mut cx, 0, completion);
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
