//! The benchmark's client: it sends requests of a load, checks their answers and records how long they took.
//!
//! In a closed loop a request is sent when an answer arrives. In an open loop requests fall due at a rate, even if
//! answers are missing. Their latency counts from the due time.

use std::mem;

use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::latency::Latencies;
use trine_transport::backend::{MonotonicClock, Route};
use trine_transport::prng::Prng;
use trine_transport::time::{Clock, Duration, Instant};
use trine_transport::{
    App, Completion, ConnectError, Cx, Event, RefusedReason, Reply, Request, RpcError, SessionId,
};

use crate::config::INDEX_IN_FLIGHT_MAX;
use crate::index::client::refused;
use crate::index::wire::{ANSWER_BYTES_MAX, Answer, Ask};
use crate::line::SAME_RELEASE;
use crate::rights::Denied;

/// Requests in flight while the keys are written.
const FILL_WINDOW: usize = 64;

/// When requests are sent.
#[derive(Copy, Clone, Debug)]
pub(super) enum Load {
    /// All keys are written once.
    Fill,
    /// So many requests are in flight all the time.
    Closed {
        /// Their number.
        window: usize,
        /// No request is sent from then on.
        until: Instant,
    },
    /// A request falls due each time that this many nanoseconds have passed.
    Open {
        /// The nanoseconds.
        interval: f64,
        /// No request falls due from then on.
        until: Instant,
    },
}

/// What is asked.
#[derive(Copy, Clone, Debug)]
pub(super) struct Mix {
    /// The keys that were written.
    pub(super) keys: u64,
    /// Scans in a hundred requests.
    pub(super) scans: u32,
    /// Keys of a scan.
    pub(super) scan_keys: u32,
}

/// What a load has shown.
#[derive(Default)]
pub(super) struct Measured {
    pub(super) gets: Latencies,
    pub(super) scans: Latencies,
    /// Requests that were answered before the load's end.
    pub(super) in_time: u64,
}

/// The client.
pub(super) struct Driver {
    session: Option<SessionId>,
    refusal: Option<ConnectError>,
    failure: Option<Failure>,
    timeout: Duration,
    draw: Prng,
    load: Option<Load>,
    mix: Mix,
    began: Instant,
    /// Requests of this load so far.
    sent: u64,
    /// Requests in flight, by their tags.
    flights: Vec<Option<Flight>>,
    free: Vec<usize>,
    measured: Measured,
}

#[derive(Copy, Clone)]
struct Flight {
    ask: Ask,
    due: Instant,
}

/// A key for each number: random, and the same in every run.
fn key_of(number: u64) -> u64 {
    let mut bits = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// The key and its value.
pub(super) fn pair_of(number: u64) -> (u64, u64) {
    let key = key_of(number);
    (key, value_of(key))
}

fn value_of(key: u64) -> u64 {
    key_of(!key)
}

impl Driver {
    pub(super) fn new(seed: u64, timeout: Duration) -> Self {
        Self {
            session: None,
            refusal: None,
            failure: None,
            timeout,
            draw: Prng::new(seed),
            load: None,
            mix: Mix {
                keys: 1,
                scans: 0,
                scan_keys: 1,
            },
            began: MonotonicClock.now(),
            sent: 0,
            flights: vec![None; INDEX_IN_FLIGHT_MAX],
            free: (0..INDEX_IN_FLIGHT_MAX).rev().collect(),
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
    pub(super) fn begin(&mut self, load: Load, mix: Mix) {
        self.load = Some(load);
        self.mix = mix;
        self.began = MonotonicClock.now();
        self.sent = 0;
    }

    /// Whether the load is over, or cannot go on.
    pub(super) fn is_over(&self) -> bool {
        let is_idle = self.load.is_none() && self.in_flight() == 0;
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

    fn in_flight(&self) -> usize {
        self.flights.len() - self.free.len()
    }

    /// When the next request is due; `None` if there is none now.
    fn next_due(&mut self, now: Instant) -> Option<Instant> {
        let (due, is_last) = match self.load? {
            Load::Fill => (now, self.sent == self.mix.keys),
            Load::Closed { until, .. } => (now, now >= until),
            Load::Open { until, .. } => {
                let due = self.due_of(self.sent)?;
                (due, due >= until)
            }
        };
        if is_last {
            self.load = None;
            return None;
        }
        let room = match self.load? {
            Load::Fill => FILL_WINDOW,
            Load::Closed { window, .. } => window,
            Load::Open { .. } => INDEX_IN_FLIGHT_MAX,
        };
        (due <= now && self.in_flight() < room).then_some(due)
    }

    /// When a request of an open loop falls due.
    fn due_of(&self, number: u64) -> Option<Instant> {
        match self.load? {
            Load::Open { interval, .. } => {
                let after = (number as f64 * interval) as u64;
                Some(self.began + Duration::from_nanos(after))
            }
            Load::Fill | Load::Closed { .. } => None,
        }
    }

    fn next_ask(&mut self) -> Ask {
        let mix = self.mix;
        if let Some(Load::Fill) = self.load {
            let (key, value) = pair_of(self.sent);
            return Ask::Put(key, value);
        }
        let key = key_of(self.draw.below(mix.keys));
        match self.draw.below(100) < u64::from(mix.scans) {
            true => Ask::Scan(key, mix.scan_keys),
            false => Ask::Get(key),
        }
    }

    fn send<R: Route>(&mut self, cx: &mut Cx<'_, R>, session: SessionId, due: Instant) -> bool {
        let ask = self.next_ask();
        let bytes = ask.encode();
        let (Some(mut request), Some(response)) =
            (cx.alloc(bytes.len()), cx.alloc(ANSWER_BYTES_MAX))
        else {
            self.failure = Some(Failure::usage("no memory for requests", "lower --window"));
            return false;
        };
        request.copy_from_slice(&bytes);
        let Some(tag) = self.free.pop() else {
            return false;
        };
        let deadline = Some(cx.deadline(self.timeout));
        match cx.enqueue_request(session, ask.kind(), request, response, tag as u64, deadline) {
            Ok(_) => {
                self.flights[tag] = Some(Flight { ask, due });
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
                format!("the index does not answer any more: {error}"),
                "see whether it still runs",
            )
        };
        self.failure.get_or_insert_with(failure);
    }

    /// Checks an answer and records its latency.
    fn record(&mut self, flight: Flight, bytes: &[u8], now: Instant) {
        let latency = now.saturating_since(flight.due).as_nanos();
        match (flight.ask, Answer::decode(flight.ask, bytes)) {
            (Ask::Get(key), Some(Answer::Value(value))) if value == value_of(key) => {
                self.measured.gets.record_ns(latency);
            }
            (Ask::Scan(_, limit), Some(Answer::Scan(scan))) if scan.keys <= limit => {
                self.measured.scans.record_ns(latency);
            }
            (Ask::Put(..), Some(Answer::Done)) => {}
            (ask, answer) => {
                self.failure
                    .get_or_insert_with(|| wrong(ask, answer, bytes));
            }
        }
        let until = match self.load {
            Some(Load::Closed { until, .. } | Load::Open { until, .. }) => Some(until),
            Some(Load::Fill) | None => None,
        };
        self.measured.in_time += u64::from(until.is_some_and(|until| now < until));
    }
}

/// An answer that the benchmark cannot go on from.
fn wrong(ask: Ask, answer: Option<Answer>, bytes: &[u8]) -> Failure {
    if let Some(denied) = Denied::decode(bytes) {
        return denied.failure();
    }
    match (ask, answer) {
        (Ask::Get(_), Some(Answer::Absent)) => Failure::usage(
            "a key that the benchmark needs is not in the index",
            "leave --filled away, or give the --keys of the run that filled it",
        ),
        (Ask::Get(_), Some(Answer::Value(_))) => {
            Failure::negative("a GET had a value that nobody wrote", "")
        }
        (Ask::Put(key, _) | Ask::Scan(key, _), Some(answer)) => refused(key, answer),
        _ => Failure::usage("an answer could not be read", SAME_RELEASE),
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
        while let Some(due) = self.next_due(now) {
            if !self.send(cx, session, due) {
                break;
            }
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.due_of(self.sent)
    }
}
