//! A server's answer to a datagram of four bytes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use trine_transport::time::{Clock, Instant};

use super::{Reply, guess_of};
use crate::config::{SPECULATIVE_LATE_MAX, SPECULATIVE_WAITING_MAX};
use crate::supply::{Supply, Why};
use crate::taker::Taker;

/// What a thread has done since its start.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerCounters {
    /// Requests that got numbers.
    pub answered: u64,
    /// Those of them whose guess was wrong.
    pub corrected: u64,
    /// Requests that were told that there are none.
    pub without: u64,
    /// Datagrams that were no request.
    pub refused: u64,
    /// Requests that were dropped because they, or too many, waited for numbers.
    pub dropped: u64,
}

/// Counters of a thread, for others to read.
#[derive(Debug, Default)]
pub struct Published([AtomicU64; 5]);

impl Published {
    fn set(&self, counters: AnswerCounters) {
        let AnswerCounters {
            answered,
            corrected,
            without,
            refused,
            dropped,
        } = counters;
        let values = [answered, corrected, without, refused, dropped];
        for (place, value) in self.0.iter().zip(values) {
            place.store(value, Ordering::Relaxed);
        }
    }

    /// The counters as they were at the end of some turn each.
    pub fn get(&self) -> AnswerCounters {
        let [answered, corrected, without, refused, dropped] =
            [0, 1, 2, 3, 4].map(|at| self.0[at].load(Ordering::Relaxed));
        AnswerCounters {
            answered,
            corrected,
            without,
            refused,
            dropped,
        }
    }
}

/// A request without a number.
#[derive(Copy, Clone)]
struct PendingRequest<R> {
    from: R,
    guess: u32,
    /// When it came.
    since: Instant,
}

/// The requests of one thread.
pub struct Answerer<R, C> {
    taker: Taker<C>,
    /// In the order in which they came.
    waiting: VecDeque<PendingRequest<R>>,
    counters: AnswerCounters,
    published: Arc<Published>,
}

impl<R: Copy, C: Clock> Answerer<R, C> {
    /// A thread that takes from `supply`.
    pub fn new(supply: Arc<Supply>, clock: C) -> Self {
        Self {
            taker: Taker::new(supply, clock),
            waiting: VecDeque::new(),
            counters: AnswerCounters::default(),
            published: Arc::default(),
        }
    }

    /// The counters.
    pub fn counters(&self) -> AnswerCounters {
        self.counters
    }

    /// The counters, for other threads.
    pub fn published(&self) -> Arc<Published> {
        Arc::clone(&self.published)
    }

    /// A datagram has come in the turn that has `begun` then.
    #[inline]
    pub fn on_datagram(&mut self, begun: Instant, from: R, bytes: &[u8]) {
        let Some(guess) = guess_of(bytes) else {
            self.counters.refused += 1;
            return;
        };
        if self.waiting.len() == SPECULATIVE_WAITING_MAX {
            // Its client is the first to give up.
            self.waiting.pop_front();
            self.counters.dropped += 1;
        }
        self.waiting.push_back(PendingRequest {
            from,
            guess,
            since: begun,
        });
    }

    /// Answers the requests of a turn that has `begun` then, and those that have waited for numbers. True if more numbers
    /// have to be reserved.
    pub fn turn(&mut self, begun: Instant, send: impl FnMut(R, &[u8])) -> bool {
        let before = self.published.get();
        self.drop_old(begun);
        let missing = !self.waiting.is_empty() && self.answer_waiting(begun, send);
        if self.counters != before {
            self.published.set(self.counters);
        }
        missing
    }

    /// Drops requests whose clients have given up: their numbers would be nobody's.
    fn drop_old(&mut self, now: Instant) {
        let is_old = |waiting: &PendingRequest<R>| {
            now.saturating_since(waiting.since) >= SPECULATIVE_LATE_MAX
        };
        while self.waiting.front().is_some_and(is_old) {
            self.waiting.pop_front();
            self.counters.dropped += 1;
        }
    }

    fn answer_waiting(&mut self, begun: Instant, mut send: impl FnMut(R, &[u8])) -> bool {
        let mut answer = |to, reply: Reply| {
            let mut bytes = [0; 8];
            let length = reply.encode_into(&mut bytes);
            send(to, &bytes[..length]);
        };
        let requests = self.waiting.len();
        let ones = std::iter::repeat_n(1, requests);
        let (served, why) = match self.taker.take(requests as u64, ones, begun) {
            None => (0, Some(Why::Elsewhere)),
            Some(numbers) => {
                for (waiting, &number) in self.waiting.iter().zip(numbers) {
                    let reply = Reply::of(number, waiting.guess);
                    self.counters.corrected += u64::from(matches!(reply, Reply::Whole(_)));
                    answer(waiting.from, reply);
                }
                (numbers.len(), None)
            }
        };
        self.counters.answered += served as u64;
        self.waiting.drain(..served);
        let supply = &self.taker.supply;
        let why = why.or_else(|| supply.is_failing().then_some(Why::NotReserved));
        match why {
            Some(why) => {
                self.counters.without += self.waiting.len() as u64;
                for waiting in self.waiting.drain(..) {
                    answer(waiting.from, Reply::None(why));
                }
            }
            None => supply.want(self.waiting.len() as u64),
        }
        supply.missing().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::speculative::request;
    use crate::tenure::Grant;

    struct Stopped;

    impl Clock for Stopped {
        fn now(&self) -> Instant {
            Instant::from_nanos(100)
        }
    }

    fn grant(start: u64, end: u64, until: Instant) -> Grant {
        Grant { start, end, until }
    }

    fn turn(answerer: &mut Answerer<u8, Stopped>) -> (Vec<(u8, Reply)>, bool) {
        let mut sent = Vec::new();
        let missing = answerer.turn(Instant::ZERO, |to, bytes| {
            sent.push((to, Reply::decode(bytes).expect("an answer")));
        });
        (sent, missing)
    }

    #[test]
    fn requests_get_numbers_in_their_order_and_wait_if_there_are_none() {
        let supply = Arc::new(Supply::new(0));
        let mut answerer = Answerer::new(Arc::clone(&supply), Stopped);
        let wrap = 1 << 32;
        supply.add(&grant(wrap - 1, wrap + 1, Instant::FAR_FUTURE));
        for from in 0..3 {
            answerer.on_datagram(Instant::ZERO, from, &request(0));
        }
        answerer.on_datagram(Instant::ZERO, 9, b"12345");
        let served = vec![(0, Reply::Half(u32::MAX)), (1, Reply::Whole(wrap))];
        assert_eq!(turn(&mut answerer), (served, true));
        assert_eq!(turn(&mut answerer), (vec![], true));
        supply.add(&grant(wrap + 1, wrap + 9, Instant::FAR_FUTURE));
        assert_eq!(
            turn(&mut answerer),
            (vec![(2, Reply::Whole(wrap + 1))], false)
        );
        let counters = answerer.counters();
        assert_eq!(
            (counters.answered, counters.corrected, counters.refused),
            (3, 2, 1)
        );
        assert_eq!(turn(&mut answerer), (vec![], false), "nobody waits");
    }

    #[test]
    fn who_may_not_give_out_numbers_says_so_and_numbers_that_were_taken_too_late_go_to_nobody() {
        let supply = Arc::new(Supply::new(0));
        let mut answerer = Answerer::new(Arc::clone(&supply), Stopped);
        supply.add(&grant(0, 9, Instant::from_nanos(100)));
        answerer.on_datagram(Instant::ZERO, 1, &request(0));
        assert_eq!(
            turn(&mut answerer).0,
            [(1, Reply::None(Why::Elsewhere))],
            "the lease ends now"
        );
        supply.add(&grant(20, 21, Instant::FAR_FUTURE));
        supply.set_failing();
        answerer.on_datagram(Instant::ZERO, 1, &request(0));
        answerer.on_datagram(Instant::ZERO, 2, &request(0));
        let told = [(1, Reply::Half(20)), (2, Reply::None(Why::NotReserved))];
        assert_eq!(turn(&mut answerer).0[..], told);
        assert_eq!(answerer.counters().without, 2);
    }

    #[test]
    fn the_oldest_requests_are_dropped_and_everybody_can_see_how_many() {
        let supply = Arc::new(Supply::new(0));
        supply.add(&grant(0, 0, Instant::FAR_FUTURE));
        let mut answerer = Answerer::new(Arc::clone(&supply), Stopped);
        let published = answerer.published();
        for number in 0..SPECULATIVE_WAITING_MAX + 5 {
            answerer.on_datagram(Instant::ZERO, u8::from(number >= 5), &request(0));
        }
        answerer.on_datagram(Instant::ZERO, 1, b"5");
        assert_eq!(turn(&mut answerer), (vec![], true));
        assert_eq!((published.get().dropped, published.get().refused), (5, 1));
        let late = Instant::ZERO + SPECULATIVE_LATE_MAX;
        answerer.on_datagram(late, 7, &request(0));
        supply.add(&grant(0, 9, Instant::FAR_FUTURE));
        let mut sent = Vec::new();
        answerer.turn(late, |to, _| sent.push(to));
        assert_eq!(sent, [7], "the others have given up");
        assert_eq!(published.get().dropped, 5 + SPECULATIVE_WAITING_MAX as u64);
    }
}
