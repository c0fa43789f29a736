//! How does one thread of a sequencer answer?
//!
//! Requests wait for the end of the turn. Then their numbers are taken together, by one atomic operation, and each request
//! gets its share in the order in which the requests came.
//!
//! The lease is looked at once a turn, with a clock that is read *behind* the taking. The time of the turn would not do: a
//! process may be stopped after the turn has begun, and another server may give out larger numbers meanwhile. A request that
//! was sent after those would come in with the same turn, and get a smaller number. Numbers that were taken too late are
//! thrown away.

use std::sync::Arc;

use trine_canary as canary;
use trine_transport::backend::Route;
use trine_transport::buf::MsgBuf;
use trine_transport::time::{Clock, Instant};
use trine_transport::{App, Completion, Cx, Holder, Reply, Request, ResponseHandle, SessionId};

use crate::config::COUNT_MAX;
use crate::supply::{Supply, Why};
use crate::wire::{Answer, HELLO, Keeping, NEXT, STATS, Stats, count_of};

/// What a request needs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// To look.
    Read,
    /// To take numbers.
    Write,
}

/// The answer to a request that its caller has no right to; none if there is no memory for it.
pub struct Denial(pub Option<MsgBuf>);

/// Who may ask.
pub trait Gate<R: Route> {
    /// Whether the caller may do that.
    ///
    /// # Errors
    /// It may not.
    fn check(&self, cx: &mut Cx<'_, R>, session: SessionId, need: Need) -> Result<(), Denial>;

    /// Whom a session from this route is counted for.
    fn holder(&self, route: &R) -> Holder;
}

/// One thread, the application of its endpoint.
pub struct Dispatch<C, G> {
    supply: Arc<Supply>,
    keeping: Keeping,
    clock: C,
    gate: G,
    /// Wakes the thread that reserves numbers.
    call: Box<dyn Fn() + Send>,
    /// Requests without numbers yet, and how many they ask for.
    waiting: Vec<(ResponseHandle, u32)>,
    /// The sum of the counts of `waiting`.
    total: u64,
    /// The first numbers of the requests of this turn, in their order.
    firsts: Vec<u64>,
    /// Sessions with a request for whose answer there is no memory. The server ends them, and their clients learn from
    /// that.
    given_up: Vec<SessionId>,
    stats: Stats,
}

impl<C: Clock, G> Dispatch<C, G> {
    /// A thread that takes from `supply` and calls `call` when numbers are missing.
    pub fn new(
        supply: Arc<Supply>,
        keeping: Keeping,
        clock: C,
        gate: G,
        call: Box<dyn Fn() + Send>,
    ) -> Self {
        Self {
            supply,
            keeping,
            clock,
            gate,
            call,
            waiting: Vec::new(),
            total: 0,
            firsts: Vec::new(),
            given_up: Vec::new(),
            stats: Stats {
                keeping,
                serving: false,
                next: 0,
                reserved: 0,
                answered: 0,
                numbers: 0,
                turns: 0,
                largest_turn: 0,
                without: 0,
                refused: 0,
            },
        }
    }

    /// The counters, and what the server has now.
    pub fn stats(&self) -> Stats {
        let serving = self
            .supply
            .until()
            .is_none_or(|until| self.clock.now() < until);
        Stats {
            serving,
            next: self.supply.next(),
            reserved: self.supply.left(),
            ..self.stats.clone()
        }
    }

    fn reply(&mut self, session: SessionId, answer: Option<MsgBuf>) -> Reply {
        answer.map_or_else(
            || {
                self.given_up.push(session);
                Reply::Later
            },
            Reply::Now,
        )
    }

    /// Takes the numbers of all waiting requests, or of as many as there are numbers for.
    fn take(&mut self) {
        self.firsts.clear();
        if let Some(mut first) = self.supply.take(self.total) {
            for &(_, count) in &self.waiting {
                self.firsts.push(first);
                first = first.wrapping_add(u64::from(count));
            }
            return;
        }
        let one_by_one = self
            .waiting
            .iter()
            .map_while(|&(_, count)| self.supply.take(count.into()));
        self.firsts.extend(one_by_one);
    }

    /// Whether the lease that ends at `until` has ended. Asked behind the taking, of an end that was read before it: a new
    /// lease that begins in between brings new numbers, and says nothing about those that were taken.
    fn is_too_late<R: Route>(&self, cx: &Cx<'_, R>, until: Option<Instant>) -> bool {
        let Some(until) = until else {
            return false;
        };
        let now = match canary::planted("a lease is looked at too early") {
            true => cx.now(),
            false => self.clock.now(),
        };
        now >= until
    }

    fn on_next<R: Route>(&mut self, cx: &mut Cx<'_, R>, request: &Request<'_>) -> Reply
    where
        G: Gate<R>,
    {
        if let Err(Denial(answer)) = self.gate.check(cx, request.session, Need::Write) {
            self.stats.refused += 1;
            return self.reply(request.session, answer);
        }
        let Some(count) = count_of(request.data) else {
            self.stats.refused += 1;
            return self.reply(request.session, bytes_of(cx, &Answer::Malformed(COUNT_MAX)));
        };
        self.waiting.push((request.handle, count));
        self.total += u64::from(count);
        Reply::Later
    }

    fn on_stats<R: Route>(&mut self, cx: &mut Cx<'_, R>, request: &Request<'_>) -> Reply
    where
        G: Gate<R>,
    {
        if let Err(Denial(answer)) = self.gate.check(cx, request.session, Need::Read) {
            self.stats.refused += 1;
            return self.reply(request.session, answer);
        }
        let text = serde_json::to_vec(&self.stats()).expect("numbers under text keys");
        self.reply(request.session, copied(cx, &text))
    }

    /// Answers the requests of this turn, and those that have waited for numbers.
    fn answer_waiting<R: Route>(&mut self, cx: &mut Cx<'_, R>) {
        let until = self.supply.until();
        self.take();
        if self.is_too_late(cx, until) {
            self.answer_without(cx, 0, Why::Elsewhere);
            return;
        }
        let served = self.firsts.len();
        if served > 0 {
            self.stats.turns += 1;
            self.stats.answered += served as u64;
            self.stats.largest_turn = self.stats.largest_turn.max(served as u64);
        }
        let mut numbers = 0;
        for (&(handle, count), &first) in self.waiting.iter().zip(&self.firsts) {
            numbers += u64::from(count);
            respond(cx, &mut self.given_up, handle, &Answer::First(first));
        }
        self.stats.numbers += numbers;
        if served == self.waiting.len() {
            self.waiting.clear();
            self.total = 0;
        } else if self.supply.is_failing() {
            self.answer_without(cx, served, Why::NotReserved);
        } else {
            self.waiting.drain(..served);
            self.total -= numbers;
            self.supply.want(self.total);
        }
    }

    /// Answers the requests from this one on: they get no number.
    #[cold]
    fn answer_without<R: Route>(&mut self, cx: &mut Cx<'_, R>, from: usize, why: Why) {
        self.stats.without += (self.waiting.len() - from) as u64;
        for (handle, _) in self.waiting.drain(..).skip(from) {
            respond(cx, &mut self.given_up, handle, &Answer::None(why));
        }
        self.total = 0;
    }
}

/// Sends an answer. If there is no memory for it, the session ends.
fn respond<R: Route>(
    cx: &mut Cx<'_, R>,
    given_up: &mut Vec<SessionId>,
    handle: ResponseHandle,
    answer: &Answer,
) {
    match bytes_of(cx, answer) {
        // A stale handle: the requester is gone.
        Some(answer) => drop(cx.enqueue_response(handle, answer)),
        None => given_up.push(handle.session()),
    }
}

fn bytes_of<R: Route>(cx: &mut Cx<'_, R>, answer: &Answer) -> Option<MsgBuf> {
    let mut bytes = cx.alloc(answer.encoded_len())?;
    answer.encode_into(&mut bytes);
    Some(bytes)
}

fn copied<R: Route>(cx: &mut Cx<'_, R>, bytes: &[u8]) -> Option<MsgBuf> {
    let mut answer = cx.alloc(bytes.len())?;
    answer.copy_from_slice(bytes);
    Some(answer)
}

impl<R: Route, C: Clock, G: Gate<R>> App<R> for Dispatch<C, G> {
    fn on_request(&mut self, cx: &mut Cx<'_, R>, request: Request<'_>) -> Reply {
        match request.kind {
            NEXT => self.on_next(cx, &request),
            HELLO => self.reply(request.session, copied(cx, &self.keeping.hello())),
            STATS => self.on_stats(cx, &request),
            _ => {
                self.stats.refused += 1;
                self.reply(request.session, copied(cx, &[]))
            }
        }
    }

    fn on_completion(&mut self, _: &mut Cx<'_, R>, _: u64, _: Completion) {
        unreachable!("a sequencer asks nobody over its own endpoint");
    }

    fn holder(&self, route: &R) -> Holder {
        self.gate.holder(route)
    }

    fn on_turn(&mut self, cx: &mut Cx<'_, R>) {
        if !self.waiting.is_empty() {
            self.answer_waiting(cx);
            if self.supply.missing().is_some() {
                (self.call)();
            }
        }
        for session in self.given_up.drain(..) {
            cx.disconnect(session);
        }
    }
}
