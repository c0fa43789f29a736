//! One thread of a sequencer.
//!
//! Requests wait for the end of the turn. Then their numbers are taken together (`taker.rs`), and each request gets its share
//! in the order in which the requests came.

use std::sync::Arc;

use trine_transport::backend::Route;
use trine_transport::buf::MsgBuf;
use trine_transport::time::Clock;
use trine_transport::{App, Completion, Cx, Holder, Reply, Request, ResponseHandle, SessionId};

use crate::config::COUNT_MAX;
use crate::speculative::{Published, high_half};
use crate::supply::{Supply, Why};
use crate::taker::Taker;
use crate::wire::{Answer, HELLO, Keeping, NEXT, SPECULATE, STATS, Speculation, Stats, count_of};

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
    taker: Taker<C>,
    keeping: Keeping,
    gate: G,
    /// Wakes the thread that reserves numbers.
    call: Box<dyn Fn() + Send>,
    /// Requests without numbers yet, and how many they ask for.
    waiting: Vec<(ResponseHandle, u32)>,
    /// The sum of the counts of `waiting`.
    total: u64,
    /// Sessions with a request for whose answer there is no memory. The server ends them, and their clients learn from
    /// that.
    given_up: Vec<SessionId>,
    stats: Stats,
    /// Where this thread takes requests of four bytes, and how many it has had.
    speculative: Option<(u16, Arc<Published>)>,
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
            taker: Taker::new(supply, clock),
            keeping,
            gate,
            call,
            waiting: Vec::new(),
            total: 0,
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
                speculative: None,
            },
            speculative: None,
        }
    }

    /// Tells callers that requests of four bytes are taken at this port, and how many there were.
    #[must_use]
    pub fn with_speculation(mut self, port: u16, published: Arc<Published>) -> Self {
        self.speculative = Some((port, published));
        self
    }

    /// The counters, and what the server has now.
    pub fn stats(&self) -> Stats {
        let supply = &self.taker.supply;
        Stats {
            serving: self.taker.is_serving(),
            next: supply.next(),
            reserved: supply.left(),
            speculative: self
                .speculative
                .as_ref()
                .map(|(_, published)| published.get()),
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

    /// The answer to a caller who may not do that.
    fn denied<R: Route>(
        &mut self,
        cx: &mut Cx<'_, R>,
        session: SessionId,
        need: Need,
    ) -> Option<Reply>
    where
        G: Gate<R>,
    {
        let Denial(answer) = self.gate.check(cx, session, need).err()?;
        self.stats.refused += 1;
        Some(self.reply(session, answer))
    }

    fn on_next<R: Route>(&mut self, cx: &mut Cx<'_, R>, request: &Request<'_>) -> Reply
    where
        G: Gate<R>,
    {
        if let Some(denial) = self.denied(cx, request.session, Need::Write) {
            return denial;
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
        if let Some(denial) = self.denied(cx, request.session, Need::Read) {
            return denial;
        }
        let text = serde_json::to_vec(&self.stats()).expect("numbers under text keys");
        self.reply(request.session, copied(cx, &text))
    }

    fn on_speculate<R: Route>(&mut self, cx: &mut Cx<'_, R>, request: &Request<'_>) -> Reply
    where
        G: Gate<R>,
    {
        if let Some(denial) = self.denied(cx, request.session, Need::Write) {
            return denial;
        }
        let answer = self.speculative.as_ref().map(|&(port, _)| Speculation {
            port,
            guess: high_half(self.taker.supply.next()),
        });
        let answer = answer.map(Speculation::encode);
        let bytes = answer.as_ref().map_or(&[][..], |bytes| bytes);
        self.reply(request.session, copied(cx, bytes))
    }

    /// Answers the requests of this turn, and those that have waited for numbers.
    fn answer_waiting<R: Route>(&mut self, cx: &mut Cx<'_, R>) {
        let counts = self.waiting.iter().map(|&(_, count)| u64::from(count));
        let Some(firsts) = self.taker.take(self.total, counts, cx.now()) else {
            self.answer_without(cx, 0, Why::Elsewhere);
            return;
        };
        let served = firsts.len();
        if served > 0 {
            self.stats.turns += 1;
            self.stats.answered += served as u64;
            self.stats.largest_turn = self.stats.largest_turn.max(served as u64);
        }
        let mut numbers = 0;
        for (&(handle, count), &first) in self.waiting.iter().zip(firsts) {
            numbers += u64::from(count);
            respond(cx, &mut self.given_up, handle, &Answer::First(first));
        }
        self.stats.numbers += numbers;
        if served == self.waiting.len() {
            self.waiting.clear();
            self.total = 0;
        } else if self.taker.supply.is_failing() {
            self.answer_without(cx, served, Why::NotReserved);
        } else {
            self.waiting.drain(..served);
            self.total -= numbers;
            self.taker.supply.want(self.total);
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
            SPECULATE => self.on_speculate(cx, &request),
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
            if self.taker.supply.missing().is_some() {
                (self.call)();
            }
        }
        for session in self.given_up.drain(..) {
            cx.disconnect(session);
        }
    }
}
