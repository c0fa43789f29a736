//! The requests of the sequencer's benchmark: it checks that the numbers grow.
//!
//! A request that is sent after an answer has come must get larger numbers than that answer. Of requests that are in flight
//! together each may be the first.

use std::mem;

use trine_base::failure::Failure;
use trine_base::latency::Latencies;
use trine_sequencer::Why;
use trine_sequencer::wire::{ANSWER_BYTES_MAX, Answer, NEXT, next_request};
use trine_transport::time::Instant;

use crate::bench::Work;
use crate::line::{SAME_RELEASE, Service};
use crate::rights::{DENIED_BYTES_MAX, Denied};
use crate::sequencer::service::SEQUENCER;

/// How long requests are sent.
#[derive(Copy, Clone, Debug)]
pub(super) enum LoadLimit {
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

/// Requests for numbers.
pub(super) struct Numbers {
    count: u32,
    load: Option<LoadLimit>,
    /// Requests of this load so far.
    sent: u64,
    /// Behind all numbers that have come.
    least: u64,
    measured: Measured,
}

impl Numbers {
    /// Each request asks for `count`.
    pub(super) fn new(count: u32) -> Self {
        Self {
            count,
            load: None,
            sent: 0,
            least: 0,
            measured: Measured::default(),
        }
    }

    /// How many requests are to be sent now, where there is room for so many.
    pub(super) fn wanted(&mut self, now: Instant, room: usize) -> usize {
        let left = match self.load {
            Some(LoadLimit::Requests(requests)) => requests - self.sent,
            Some(LoadLimit::Until(until)) if now < until => u64::MAX,
            Some(LoadLimit::Until(_)) | None => 0,
        };
        if left == 0 {
            self.load = None;
        }
        room.min(usize::try_from(left).unwrap_or(usize::MAX))
    }

    /// A request has got numbers from `first` on. They may be no less than `least`.
    pub(super) fn record_first(
        &mut self,
        least: u64,
        first: u64,
        latency: u64,
    ) -> Result<(), Failure> {
        if first < least {
            let before = least - 1;
            let message =
                format!("a request sent after the number {before} had arrived got {first}");
            return Err(Failure::negative(message, ""));
        }
        self.least = self.least.max(first + u64::from(self.count));
        self.measured.latencies.record_ns(latency);
        Ok(())
    }
}

impl Work for Numbers {
    type Load = LoadLimit;
    /// The least number that its answer may have.
    type Asked = u64;
    type Bytes = [u8; 4];
    type Measured = Measured;

    const SERVICE: Service = SEQUENCER;
    const SERVER: &'static str = "the sequencer";
    const ANSWER_BYTES: usize = if ANSWER_BYTES_MAX > DENIED_BYTES_MAX {
        ANSWER_BYTES_MAX
    } else {
        DENIED_BYTES_MAX
    };

    fn begin(&mut self, load: LoadLimit) {
        self.load = Some(load);
        self.sent = 0;
    }

    fn is_sent(&self) -> bool {
        self.load.is_none()
    }

    fn next_due(&mut self, now: Instant, _: usize) -> Option<Instant> {
        (self.wanted(now, 1) > 0).then_some(now)
    }

    fn next_ask(&mut self) -> u64 {
        self.least
    }

    fn encode(&self, _: u64) -> (u8, [u8; 4]) {
        (NEXT, next_request(self.count))
    }

    fn on_sent(&mut self) {
        self.sent += 1;
    }

    fn record(
        &mut self,
        least: u64,
        bytes: &[u8],
        latency: u64,
        _: Instant,
    ) -> Result<(), Failure> {
        match Answer::decode(bytes) {
            Some(Answer::First(first)) => self.record_first(least, first, latency),
            Some(Answer::None(why)) => Err(without(why)),
            Some(Answer::Malformed(most)) => {
                let message = format!("the server gives 1 to {most} numbers at a time");
                Err(Failure::usage(message, "take another --count"))
            }
            None => Err(match Denied::decode(bytes) {
                Some(denied) => denied.failure(),
                None => Failure::usage("a reply could not be decoded", SAME_RELEASE),
            }),
        }
    }

    fn take_measured(&mut self) -> Measured {
        mem::take(&mut self.measured)
    }
}

/// The benchmark cannot go on without numbers.
pub(super) fn without(why: Why) -> Failure {
    match why {
        Why::Elsewhere => Failure::usage(
            "this server gives out no numbers: another one does",
            "name the other one with --connect",
        ),
        Why::NotReserved => Failure::not_reachable(
            "this server gives out no numbers: it cannot reserve any",
            "its output says why",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(numbers: &mut Numbers, least: u64, first: u64) -> Result<(), Failure> {
        let answer = Answer::First(first);
        let mut bytes = [0; ANSWER_BYTES_MAX];
        answer.encode_into(&mut bytes);
        numbers.record(least, &bytes, 0, Instant::ZERO)
    }

    #[test]
    fn a_number_that_went_back_is_noticed_and_overtaking_is_not() {
        let mut numbers = Numbers::new(3);
        answered(&mut numbers, 0, 10).expect("the first");
        assert_eq!(numbers.least, 13);
        // It was in flight beside the one before.
        answered(&mut numbers, 0, 4).expect("it overtook nobody");
        assert_eq!((numbers.least, numbers.measured.latencies.count()), (13, 2));
        answered(&mut numbers, 13, 13).expect("the next one");
        let failure = answered(&mut numbers, 16, 15).expect_err("it went back");
        assert!(
            failure.is_negative() && failure.message().contains("15"),
            "{failure}"
        );
    }
}
