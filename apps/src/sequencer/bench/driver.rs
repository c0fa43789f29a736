//! The benchmark's client: it keeps requests in flight and checks that their numbers grow.
//!
//! A request that is sent after an answer has come must get larger numbers than that answer. Of requests that are in flight
//! together each may be the first.

use std::mem;

use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::latency::Latencies;
use trine_sequencer::Why;
use trine_sequencer::wire::{ANSWER_BYTES_MAX, Answer, NEXT, next_request};
use trine_transport::backend::{MonotonicClock, Route};
use trine_transport::time::{Clock, Duration, Instant};
use trine_transport::{
    App, Completion, ConnectError, Cx, Event, RefusedReason, Reply, Request, RpcError, SessionId,
};

use crate::line::SAME_RELEASE;
use crate::rights::{DENIED_BYTES_MAX, Denied};

/// How long requests are sent.
#[derive(Copy, Clone, Debug)]
pub(super) enum Load {
    /// So many are.
    Requests(u64),
    /// They are until then.
    Until(Instant),
}

/// What a load has shown.
#[derive(Default)]
pub(super) struct Measured {
    pub(super) latencies: Latencies,
}

#[derive(Copy, Clone)]
struct Flight {
    sent: Instant,
    /// The least number that its answer may have.
    least: u64,
}

/// The client.
pub(super) struct Driver {
    session: Option<SessionId>,
    refusal: Option<ConnectError>,
    failure: Option<Failure>,
    timeout: Duration,
    count: u32,
    load: Option<Load>,
    /// Requests of this load so far.
    sent: u64,
    /// Behind all numbers that have come.
    least: u64,
    /// Requests in flight, by their tags.
    flights: Vec<Option<Flight>>,
    free: Vec<usize>,
    measured: Measured,
}

impl Driver {
    pub(super) fn new(window: usize, count: u32, timeout: Duration) -> Self {
        Self {
            session: None,
            refusal: None,
            failure: None,
            timeout,
            count,
            load: None,
            sent: 0,
            least: 0,
            flights: vec![None; window],
            free: (0..window).rev().collect(),
            measured: Measured::default(),
        }
    }

    /// Whether a session came about, or why none did.
    pub(super) fn connected(&self) -> Option<Result<(), ConnectError>> {
        match self.refusal {
            Some(error) => Some(Err(error)),
            None => self.session.map(|_| Ok(())),
        }
    }

    /// Begins a load.
    pub(super) fn begin(&mut self, load: Load) {
        self.load = Some(load);
        self.sent = 0;
    }

    /// Whether the load is over, or cannot go on.
    pub(super) fn is_over(&self) -> bool {
        let is_idle = self.load.is_none() && self.free.len() == self.flights.len();
        is_idle || self.failure.is_some() || interrupt::interrupted()
    }

    /// What the load has shown.
    pub(super) fn finish(&mut self) -> Result<Measured, Failure> {
        if interrupt::interrupted() {
            return Err(Failure::interrupted());
        }
        match self.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(mem::take(&mut self.measured)),
        }
    }

    /// Whether another request is to be sent now.
    fn goes_on(&mut self, now: Instant) -> bool {
        let goes_on = match self.load {
            Some(Load::Requests(requests)) => self.sent < requests,
            Some(Load::Until(until)) => now < until,
            None => false,
        };
        if !goes_on {
            self.load = None;
        }
        goes_on && !self.free.is_empty()
    }

    fn send<R: Route>(&mut self, cx: &mut Cx<'_, R>, session: SessionId, sent: Instant) -> bool {
        let bytes = next_request(self.count);
        let (Some(mut request), Some(response)) = (
            cx.alloc(bytes.len()),
            cx.alloc(ANSWER_BYTES_MAX.max(DENIED_BYTES_MAX)),
        ) else {
            self.failure = Some(Failure::usage("no memory for requests", "lower --window"));
            return false;
        };
        request.copy_from_slice(&bytes);
        let Some(tag) = self.free.pop() else {
            return false;
        };
        let deadline = Some(cx.deadline(self.timeout));
        match cx.enqueue_request(session, NEXT, request, response, tag as u64, deadline) {
            Ok(_) => {
                self.flights[tag] = Some(Flight {
                    sent,
                    least: self.least,
                });
                self.sent += 1;
                true
            }
            Err(refused) => {
                self.free.push(tag);
                if refused.reason != RefusedReason::QueueFull {
                    self.fail(RpcError::NotSent);
                }
                false
            }
        }
    }

    fn fail(&mut self, error: RpcError) {
        let failure = || {
            Failure::not_reachable(
                format!("the sequencer does not answer any more: {error}"),
                "see whether it still runs",
            )
        };
        self.failure.get_or_insert_with(failure);
    }

    /// Checks an answer and records its latency.
    fn record(&mut self, flight: Flight, bytes: &[u8], now: Instant) {
        let wrong = match Answer::decode(bytes) {
            Some(Answer::First(first)) if first >= flight.least => {
                self.least = self.least.max(first + u64::from(self.count));
                self.measured
                    .latencies
                    .record_ns(now.saturating_since(flight.sent).as_nanos());
                return;
            }
            other => wrong(other, flight, bytes),
        };
        self.failure.get_or_insert(wrong);
    }
}

/// An answer that the benchmark cannot go on from.
fn wrong(answer: Option<Answer>, flight: Flight, bytes: &[u8]) -> Failure {
    if let Some(denied) = Denied::decode(bytes) {
        return denied.failure();
    }
    match answer {
        Some(Answer::First(first)) => {
            let before = flight.least - 1;
            let message =
                format!("a request that was sent after the number {before} had come got {first}");
            Failure::negative(message, "")
        }
        Some(Answer::None(Why::Elsewhere)) => Failure::usage(
            "this server gives out no numbers: another one does",
            "name the other one with --connect",
        ),
        Some(Answer::None(Why::NotReserved)) => Failure::not_reachable(
            "this server gives out no numbers: it cannot reserve any",
            "its output says why",
        ),
        Some(Answer::Malformed(most)) => {
            let message = format!("the server gives 1 to {most} numbers at a time");
            Failure::usage(message, "take another --count")
        }
        None => Failure::usage("an answer could not be read", SAME_RELEASE),
    }
}

impl<R: Route> App<R> for Driver {
    fn on_request(&mut self, cx: &mut Cx<'_, R>, _: Request<'_>) -> Reply {
        cx.alloc(0).map_or(Reply::Later, Reply::Now)
    }

    fn on_completion(&mut self, _: &mut Cx<'_, R>, tag: u64, completion: Completion) {
        let tag = usize::try_from(tag).expect("a tag of ours");
        let flight = self.flights[tag].take().expect("a request ends once");
        self.free.push(tag);
        match completion.result {
            Ok(()) => self.record(flight, &completion.response, MonotonicClock.now()),
            Err(error) => self.fail(error),
        }
    }

    fn on_event(&mut self, _: &mut Cx<'_, R>, event: Event<R>) {
        match event {
            Event::Connected { session, .. } => self.session = Some(session),
            Event::ConnectFailed { reason, .. } => self.refusal = Some(reason),
            Event::Accepted { .. } => {}
            Event::Down { .. } => self.fail(RpcError::NotSent),
        }
    }

    fn on_turn(&mut self, cx: &mut Cx<'_, R>) {
        let Some(session) = self.session.filter(|_| self.failure.is_none()) else {
            return;
        };
        let now = MonotonicClock.now();
        while self.goes_on(now) {
            if !self.send(cx, session, now) {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(driver: &mut Driver, least: u64, first: u64) {
        let answer = Answer::First(first);
        let mut bytes = [0; ANSWER_BYTES_MAX];
        answer.encode_into(&mut bytes);
        let sent = Instant::ZERO;
        driver.record(Flight { sent, least }, &bytes, sent);
    }

    #[test]
    fn a_number_that_went_back_is_noticed_and_overtaking_is_not() {
        let mut driver = Driver::new(4, 3, Duration::from_secs(1));
        answered(&mut driver, 0, 10);
        assert_eq!(driver.least, 13);
        // It was in flight beside the one before.
        answered(&mut driver, 0, 4);
        assert_eq!((driver.least, driver.measured.latencies.count()), (13, 2));
        answered(&mut driver, 13, 13);
        assert!(driver.failure.is_none());
        answered(&mut driver, 16, 15);
        let failure = driver.finish().map(drop).expect_err("it went back");
        assert!(
            failure.is_negative() && failure.message().contains("15"),
            "{failure}"
        );
    }
}
