//! The application of a node's event loop: takes commands from the inbox, serves requests, ends calls.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::calls::{CallOutcome, Ticket, UnderWay};
use super::error::NotSent;
use super::loop_handle::{LoopHandle, LoopRequest, Submission};
use super::serve::{Caller, Handler};
use super::status::{self, Status};
use super::tasks::Tasks;
use trine_transport::app::{App, Cx};
use trine_transport::backend::Route;
use trine_transport::buf::MsgBuf;
use trine_transport::session::{ConnectParams, Event, SessionId};
use trine_transport::time::Instant;
use trine_transport::{Completion, RefusedReason, Reply, Request, RpcError};

/// Most polls of the inbox in one turn. A handler that calls and is answered at once ends in the
/// turn in which it began, and packets are never shut out.
const ROUNDS_PER_TURN_MAX: usize = 4;

pub(super) struct LoopApplication<R: Route> {
    shared: Arc<LoopHandle<R>>,
    handlers: Box<[Option<Handler<R>>]>,
    tasks: Tasks<R>,
    /// Empty between turns; changes memory with the inbox's queue.
    taken: VecDeque<LoopRequest<R>>,
    connecting: BTreeMap<SessionId, Ticket>,
    /// Established sessions of both modes.
    sessions: BTreeSet<SessionId>,
}

impl<R: Route> LoopApplication<R> {
    pub(super) fn new(
        shared: Arc<LoopHandle<R>>,
        handlers: Box<[Option<Handler<R>>]>,
        tasks: usize,
    ) -> Self {
        Self {
            shared,
            handlers,
            tasks: Tasks::new(tasks),
            taken: VecDeque::new(),
            connecting: BTreeMap::new(),
            sessions: BTreeSet::new(),
        }
    }

    /// The end: peers are told.
    pub(super) fn close(&mut self, cx: &mut Cx<'_, R>) {
        for session in std::mem::take(&mut self.sessions) {
            cx.disconnect(session);
        }
    }

    fn run(&mut self, cx: &mut Cx<'_, R>, command: LoopRequest<R>) {
        match command {
            LoopRequest::Call(submission) => self.call(cx, submission),
            LoopRequest::Connect(ticket, route, params) => self.connect(cx, ticket, route, params),
            // The completion, or the event, frees the cell.
            LoopRequest::TakeBack(UnderWay::Request(request)) => drop(cx.cancel(request)),
            LoopRequest::TakeBack(UnderWay::Session(session))
            | LoopRequest::Disconnect(session) => {
                cx.disconnect(session);
            }
            LoopRequest::Respond(handle, Some(response)) => {
                // The core counts a response that no caller waits for.
                drop(cx.enqueue_response(handle, response));
            }
            LoopRequest::Respond(handle, None) => {
                cx.give_no_response(handle);
            }
            LoopRequest::Poll(task) => self.tasks.poll(task),
            LoopRequest::Stats(ticket) => {
                let stats = Box::new(cx.stats());
                self.shared
                    .calls
                    .complete(ticket, CallOutcome::Stats(stats));
            }
        }
    }

    fn call(&mut self, cx: &mut Cx<'_, R>, submission: Submission) {
        let Submission {
            ticket,
            session,
            kind,
            request,
            response,
            deadline,
        } = submission;
        let calls = &self.shared.calls;
        if !calls.is_wanted(ticket) {
            calls.complete(ticket, CallOutcome::Failed(RpcError::NotSent));
            return;
        }
        match cx.enqueue_request(session, kind, request, response, ticket.to_u64(), deadline) {
            Ok(request) => {
                if !calls.begin(ticket, UnderWay::Request(request)) {
                    cx.cancel(request);
                }
            }
            Err(refused) => {
                calls.complete(ticket, why_refused(refused.reason));
            }
        }
    }

    fn connect(&mut self, cx: &mut Cx<'_, R>, ticket: Ticket, route: R, params: ConnectParams) {
        match cx.connect(route, params) {
            Ok(session) => {
                self.connecting.insert(session, ticket);
                if !self.shared.calls.begin(ticket, UnderWay::Session(session)) {
                    cx.disconnect(session);
                }
            }
            Err(reason) => {
                self.shared
                    .calls
                    .complete(ticket, CallOutcome::ConnectRefused(reason));
            }
        }
    }

    fn answer_with(&self, cx: &mut Cx<'_, R>, session: SessionId, status: Status) -> Reply {
        let response = status::bare(&self.shared.pool, status);
        answer(cx, session, response)
    }
}

/// Without memory even for a status the client learns of it by its session's end.
fn answer<R: Route>(cx: &mut Cx<'_, R>, session: SessionId, response: Option<MsgBuf>) -> Reply {
    match response {
        Some(response) => Reply::Now(response),
        None => {
            cx.disconnect(session);
            Reply::Later
        }
    }
}

fn why_refused(reason: RefusedReason) -> CallOutcome {
    match reason {
        RefusedReason::NoSession => CallOutcome::NotSent(NotSent::SessionOver),
        RefusedReason::QueueFull => CallOutcome::NotSent(NotSent::TooManyCalls),
        RefusedReason::RequestTooLarge => CallOutcome::NotSent(NotSent::RequestTooLarge),
        RefusedReason::DeadlineExceeded => CallOutcome::Failed(RpcError::DeadlineExceeded),
    }
}

impl<R: Route> App<R> for LoopApplication<R> {
    fn on_request(&mut self, cx: &mut Cx<'_, R>, request: Request<'_>) -> Reply {
        let caller = Caller {
            session: request.session,
            deadline: request.deadline,
        };
        let Some(handler) = &mut self.handlers[usize::from(request.kind)] else {
            return self.answer_with(cx, request.session, Status::UnknownType);
        };
        let shared = &self.shared;
        let refusal = match handler {
            Handler::Now(run) => {
                let response = run(request.data, &caller, &shared.pool);
                return answer(cx, request.session, response);
            }
            Handler::Later(run) => run(request.data, &caller, shared, request.handle),
            Handler::Async(_) if !self.tasks.has_room() => Some(Status::Overloaded),
            Handler::Async(make) => match make(request.data, &caller, shared, request.handle) {
                Ok(task) => {
                    self.tasks.spawn(shared, task);
                    None
                }
                Err(status) => Some(status),
            },
        };
        match refusal {
            Some(status) => self.answer_with(cx, request.session, status),
            None => Reply::Later,
        }
    }

    fn on_completion(&mut self, _: &mut Cx<'_, R>, tag: u64, completion: Completion) {
        // A handler forked earlier in this turn.
        if !self.shared.inbox.is_here() {
            return;
        }
        let outcome = match completion.result {
            Ok(()) => CallOutcome::Response(completion.response),
            Err(error) => CallOutcome::Failed(error),
        };
        self.shared.calls.complete(Ticket::from_u64(tag), outcome);
    }

    fn on_event(&mut self, cx: &mut Cx<'_, R>, event: Event<R>) {
        match event {
            Event::Connected { session, .. } => {
                self.sessions.insert(session);
                let ticket = self.connecting.remove(&session);
                let outcome = CallOutcome::Session(session);
                let calls = &self.shared.calls;
                if !ticket.is_some_and(|ticket| calls.complete(ticket, outcome)) {
                    cx.disconnect(session);
                }
            }
            Event::ConnectFailed {
                session, reason, ..
            } => {
                if let Some(ticket) = self.connecting.remove(&session) {
                    let calls = &self.shared.calls;
                    calls.complete(ticket, CallOutcome::ConnectFailed(reason));
                }
            }
            Event::Accepted { session, .. } => drop(self.sessions.insert(session)),
            Event::Down { session, .. } => drop(self.sessions.remove(&session)),
        }
    }

    fn on_turn(&mut self, cx: &mut Cx<'_, R>) {
        for _ in 0..ROUNDS_PER_TURN_MAX {
            let mut taken = std::mem::take(&mut self.taken);
            self.shared.inbox.take(&mut taken);
            let is_over = taken.is_empty();
            for command in taken.drain(..) {
                self.run(cx, command);
            }
            self.taken = taken;
            if is_over {
                return;
            }
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        let may_sleep = self.shared.inbox.prepare_to_sleep();
        (!may_sleep).then_some(Instant::ZERO)
    }
}
