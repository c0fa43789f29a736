//! One thread of an index server.
//!
//! Every request is executed as it arrives, in this thread. Scans are the exception if worker threads run them.

use std::sync::Arc;
use std::time::Duration;

use trine_index::ConcurrentMap;
use trine_protocol::route::HolderOf;
use trine_rpc::WithWorkers;
use trine_transport::backend::{Route, Waker};
use trine_transport::buf::{MsgBuf, Pool};
use trine_transport::{App, Completion, Cx, Event, Holder, Reply, Request, SessionId};

use super::wire::{SCAN, execute, role_needed};
use crate::rights::Rights;

/// One dispatch thread.
pub(super) struct Dispatch<R> {
    map: Arc<ConcurrentMap>,
    /// The server's dispatch threads.
    threads: u32,
    /// Whom the sessions from a route are counted for.
    holder_of: HolderOf<R>,
    /// Sessions with a request for whose answer there is no memory. The server ends them, and their clients learn from
    /// that.
    given_up: Vec<SessionId>,
}

impl<R: Route> Dispatch<R> {
    pub(super) fn new(map: Arc<ConcurrentMap>, threads: u32, holder_of: HolderOf<R>) -> Self {
        Self {
            map,
            threads,
            holder_of,
            given_up: Vec::new(),
        }
    }

    /// The same with worker threads for its scans.
    pub(super) fn with_workers(
        self,
        workers: u32,
        spin: Duration,
        pool: &Pool,
        waker: Waker,
    ) -> std::io::Result<WithWorkers<Self>> {
        let (map, threads) = (Arc::clone(&self.map), self.threads);
        let scan = move |kind: u8, request: &[u8], pool: &Pool| {
            copied(&execute(&map, threads, kind, request).encode(), |length| {
                pool.alloc(length)
            })
        };
        let with = WithWorkers::start(self, &[SCAN], workers as usize, pool, waker, scan)?;
        with.set_spin(spin);
        Ok(with)
    }
}

/// A message with these bytes, if there is memory for it.
fn copied(bytes: &[u8], alloc: impl FnOnce(usize) -> Option<MsgBuf>) -> Option<MsgBuf> {
    let mut message = alloc(bytes.len())?;
    message.copy_from_slice(bytes);
    Some(message)
}

impl<R: Route> App<R> for Dispatch<R> {
    fn on_request(&mut self, cx: &mut Cx<'_, R>, request: Request<'_>) -> Reply {
        let answer = execute(&self.map, self.threads, request.kind, request.data).encode();
        copied(&answer, |length| cx.alloc(length)).map_or_else(
            || {
                self.given_up.push(request.session);
                Reply::Later
            },
            Reply::Now,
        )
    }

    fn on_completion(&mut self, _: &mut Cx<'_, R>, _: u64, _: Completion) {
        unreachable!("an index asks nobody");
    }

    fn holder(&self, route: &R) -> Holder {
        (self.holder_of)(route)
    }

    fn on_turn(&mut self, cx: &mut Cx<'_, R>) {
        for session in self.given_up.drain(..) {
            cx.disconnect(session);
        }
    }
}

/// A dispatch thread and the rights of its callers. They are looked at before a request reaches a worker thread.
pub(super) struct DispatchServer<R> {
    rights: Rights,
    threads: Threads<R>,
    /// Sessions with a denied request for whose answer there is no memory. See [`Dispatch`].
    given_up: Vec<SessionId>,
}

impl<R: Route> DispatchServer<R> {
    pub(super) fn new(threads: Threads<R>, rights: Rights) -> Self {
        Self {
            rights,
            threads,
            given_up: Vec::new(),
        }
    }

    /// The answer to a request that its caller has no right to.
    fn denial(&mut self, cx: &mut Cx<'_, R>, request: &Request<'_>) -> Option<Reply> {
        let needed = role_needed(request.kind)?;
        let denied = self.rights.check(cx, request.session, needed).err()?;
        Some(denied.answer(cx).map_or_else(
            || {
                self.given_up.push(request.session);
                Reply::Later
            },
            Reply::Now,
        ))
    }
}

/// A dispatch thread of either kind.
#[allow(
    clippy::large_enum_variant,
    reason = "there is one for each thread, and it does not move"
)]
pub(super) enum Threads<R> {
    /// It runs scans itself.
    Alone(Dispatch<R>),
    /// Worker threads run them.
    WithWorkers(WithWorkers<Dispatch<R>>),
}

/// Calls the application of either kind.
macro_rules! either {
    ($threads:expr, $app:ident => $call:expr) => {
        match $threads {
            Threads::Alone($app) => $call,
            Threads::WithWorkers($app) => $call,
        }
    };
}

impl<R: Route> App<R> for DispatchServer<R> {
    fn on_request(&mut self, cx: &mut Cx<'_, R>, request: Request<'_>) -> Reply {
        if let Some(denial) = self.denial(cx, &request) {
            return denial;
        }
        either!(&mut self.threads, app => app.on_request(cx, request))
    }

    fn on_completion(&mut self, cx: &mut Cx<'_, R>, tag: u64, completion: Completion) {
        either!(&mut self.threads, app => app.on_completion(cx, tag, completion));
    }

    fn on_event(&mut self, cx: &mut Cx<'_, R>, event: Event<R>) {
        either!(&mut self.threads, app => app.on_event(cx, event));
    }

    fn on_turn(&mut self, cx: &mut Cx<'_, R>) {
        either!(&mut self.threads, app => app.on_turn(cx));
        for session in self.given_up.drain(..) {
            cx.disconnect(session);
        }
    }

    fn holder(&self, route: &R) -> Holder {
        either!(&self.threads, app => app.holder(route))
    }
}
