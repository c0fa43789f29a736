//! The two kinds of programs in a cluster: replicas, and machines full of clients.

use super::callers::Callers;
use super::{Host, Program};
use trine_replica::Node;
use trine_transport::app::{App, Completion, Cx, Reply, Request};
use trine_transport::session::Event;
use trine_transport::time::Instant;

pub(crate) enum Member {
    Replica(Box<Node<Host>>),
    Callers(Box<Callers>),
}

impl Member {
    pub(crate) fn replica(&self) -> Option<&Node<Host>> {
        match self {
            Member::Replica(node) => Some(node),
            Member::Callers(_) => None,
        }
    }

    pub(crate) fn callers_mut(&mut self) -> Option<&mut Callers> {
        match self {
            Member::Replica(_) => None,
            Member::Callers(callers) => Some(callers),
        }
    }
}

impl App<Host> for Member {
    fn on_request(&mut self, cx: &mut Cx<'_, Host>, request: Request<'_>) -> Reply {
        match self {
            Member::Replica(node) => node.on_request(cx, request),
            Member::Callers(callers) => callers.clients.on_request(cx, request),
        }
    }

    fn on_completion(&mut self, cx: &mut Cx<'_, Host>, tag: u64, completion: Completion) {
        match self {
            Member::Replica(node) => node.on_completion(cx, tag, completion),
            Member::Callers(callers) => callers.clients.on_completion(cx, tag, completion),
        }
    }

    fn on_event(&mut self, cx: &mut Cx<'_, Host>, event: Event<Host>) {
        match self {
            Member::Replica(node) => node.on_event(cx, event),
            Member::Callers(callers) => callers.clients.on_event(cx, event),
        }
    }

    fn on_turn(&mut self, cx: &mut Cx<'_, Host>) {
        match self {
            Member::Replica(node) => node.on_turn(cx),
            Member::Callers(callers) => callers.clients.on_turn(cx),
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        match self {
            Member::Replica(node) => node.next_timeout(),
            Member::Callers(callers) => callers.clients.next_timeout(),
        }
    }
}

impl Program for Member {
    fn before_turn(&mut self, now: Instant, simulated: Instant) {
        if let Member::Callers(callers) = self {
            callers.call(now, simulated);
        }
    }

    fn after_turn(&mut self, _now: Instant, simulated: Instant) {
        if let Member::Callers(callers) = self {
            callers.collect(simulated);
        }
    }

    fn next_call(&self) -> Option<Instant> {
        match self {
            Member::Replica(_) => None,
            Member::Callers(callers) => callers.next_call(),
        }
    }
}
