//! The requests of the index's benchmark: it checks their answers and records their latency.
//!
//! In a closed loop a request is sent when an answer arrives. In an open loop requests fall due at a rate, even if
//! answers are missing. Their latency counts from the due time.

use std::mem;

use trine_base::failure::Failure;
use trine_base::latency::Latencies;
use trine_transport::backend::MonotonicClock;
use trine_transport::prng::Prng;
use trine_transport::time::{Clock, Duration, Instant};

use crate::bench::{Work, median};
use crate::config::INDEX_IN_FLIGHT_MAX;
use crate::index::client::{INDEX, refused};
use crate::index::wire::{ANSWER_BYTES_MAX, Encoded, IndexRequest, IndexResponse};
use crate::line::{SAME_RELEASE, Service};
use crate::rights::Denied;

/// Requests in flight while the keys are written.
const FILL_WINDOW: usize = 64;
/// How long a slice is, and the fewest GETs whose p99 says something.
const SLICE: Duration = Duration::from_millis(1);
const SLICE_GETS_MIN: u64 = 200;

/// When requests are sent.
#[derive(Copy, Clone, Debug)]
pub(super) enum IndexLoad {
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
pub(super) struct RequestMix {
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
    pub(super) slices: Slices,
    pub(super) scans: Latencies,
    /// Requests that were answered before the load's end.
    pub(super) in_time: u64,
}

/// The p99 of GETs in each slice of time. A pause of the machine itself is in the slices that it hits, and not in the others.
pub(super) struct Slices {
    /// GETs since the last slice's end.
    open: Latencies,
    end: Option<Instant>,
    p99_ns: Vec<f64>,
}

impl Default for Slices {
    fn default() -> Self {
        Self {
            open: Latencies::coarse(),
            end: None,
            p99_ns: Vec::new(),
        }
    }
}

impl Slices {
    fn record(&mut self, latency: u64, now: Instant) {
        let end = *self.end.get_or_insert(now + SLICE);
        if now >= end {
            if self.open.count() >= SLICE_GETS_MIN {
                self.p99_ns.push(self.open.at(0.99) as f64);
            }
            self.open.clear();
            self.end = Some(now + SLICE);
        }
        self.open.record_ns(latency);
    }

    /// Of the slice in the middle; zero if no slice has enough GETs.
    pub(super) fn median_p99_ns(&self) -> f64 {
        median(self.p99_ns.iter().copied())
    }
}

/// GETs, scans and PUTs.
pub(super) struct Asks {
    draw: Prng,
    load: Option<IndexLoad>,
    mix: RequestMix,
    began: Instant,
    /// Requests of this load so far.
    sent: u64,
    measured: Measured,
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

impl Asks {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            draw: Prng::new(seed),
            load: None,
            mix: RequestMix {
                keys: 1,
                scans: 0,
                scan_keys: 1,
            },
            began: MonotonicClock.now(),
            sent: 0,
            measured: Measured::default(),
        }
    }

    /// When a request of an open loop falls due.
    fn due_of(&self, number: u64) -> Option<Instant> {
        match self.load? {
            IndexLoad::Open { interval, .. } => {
                let after = (number as f64 * interval) as u64;
                Some(self.began + Duration::from_nanos(after))
            }
            IndexLoad::Fill | IndexLoad::Closed { .. } => None,
        }
    }
}

impl Work for Asks {
    type Load = (IndexLoad, RequestMix);
    type Asked = IndexRequest;
    type Bytes = Encoded;
    type Measured = Measured;

    const SERVICE: Service = INDEX;
    const SERVER: &'static str = "the index";
    const ANSWER_BYTES: usize = ANSWER_BYTES_MAX;

    fn begin(&mut self, (load, mix): (IndexLoad, RequestMix)) {
        self.load = Some(load);
        self.mix = mix;
        self.began = MonotonicClock.now();
        self.sent = 0;
    }

    fn is_sent(&self) -> bool {
        self.load.is_none()
    }

    fn next_due(&mut self, now: Instant, in_flight: usize) -> Option<Instant> {
        let (due, is_last) = match self.load? {
            IndexLoad::Fill => (now, self.sent == self.mix.keys),
            IndexLoad::Closed { until, .. } => (now, now >= until),
            IndexLoad::Open { until, .. } => {
                let due = self.due_of(self.sent)?;
                (due, due >= until)
            }
        };
        if is_last {
            self.load = None;
            return None;
        }
        let room = match self.load? {
            IndexLoad::Fill => FILL_WINDOW,
            IndexLoad::Closed { window, .. } => window,
            IndexLoad::Open { .. } => INDEX_IN_FLIGHT_MAX,
        };
        (due <= now && in_flight < room).then_some(due)
    }

    fn next_ask(&mut self) -> IndexRequest {
        let mix = self.mix;
        if let Some(IndexLoad::Fill) = self.load {
            let (key, value) = pair_of(self.sent);
            return IndexRequest::Put(key, value);
        }
        let key = key_of(self.draw.below(mix.keys));
        match self.draw.below(100) < u64::from(mix.scans) {
            true => IndexRequest::Scan(key, mix.scan_keys),
            false => IndexRequest::Get(key),
        }
    }

    fn encode(&self, ask: IndexRequest) -> (u8, Encoded) {
        (ask.kind(), ask.encode())
    }

    fn on_sent(&mut self) {
        self.sent += 1;
    }

    fn record(
        &mut self,
        ask: IndexRequest,
        bytes: &[u8],
        latency: u64,
        now: Instant,
    ) -> Result<(), Failure> {
        match (ask, IndexResponse::decode(ask, bytes)) {
            (IndexRequest::Get(key), Some(IndexResponse::Value(value)))
                if value == value_of(key) =>
            {
                self.measured.gets.record_ns(latency);
                self.measured.slices.record(latency, now);
            }
            (IndexRequest::Scan(_, limit), Some(IndexResponse::Scan(scan)))
                if scan.keys <= limit =>
            {
                self.measured.scans.record_ns(latency);
            }
            (IndexRequest::Put(..), Some(IndexResponse::Done)) => {}
            (ask, answer) => return Err(wrong(ask, answer, bytes)),
        }
        let until = match self.load {
            Some(IndexLoad::Closed { until, .. } | IndexLoad::Open { until, .. }) => Some(until),
            Some(IndexLoad::Fill) | None => None,
        };
        self.measured.in_time += u64::from(until.is_some_and(|until| now < until));
        Ok(())
    }

    fn take_measured(&mut self) -> Measured {
        mem::take(&mut self.measured)
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.due_of(self.sent)
    }
}

/// An answer that the benchmark cannot go on from.
fn wrong(ask: IndexRequest, answer: Option<IndexResponse>, bytes: &[u8]) -> Failure {
    if let Some(denied) = Denied::decode(bytes) {
        return denied.failure();
    }
    match (ask, answer) {
        (IndexRequest::Get(_), Some(IndexResponse::Absent)) => Failure::usage(
            "a key that the benchmark needs is not in the index",
            "leave --filled away, or give the --keys of the run that filled it",
        ),
        (IndexRequest::Get(_), Some(IndexResponse::Value(_))) => {
            Failure::negative("a GET returned a value that was never written", "")
        }
        (IndexRequest::Put(key, _) | IndexRequest::Scan(key, _), Some(answer)) => {
            refused(key, answer)
        }
        _ => Failure::usage("a reply could not be decoded", SAME_RELEASE),
    }
}
