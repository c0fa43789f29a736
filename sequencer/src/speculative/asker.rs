//! What a client makes of answers that name no request.
//!
//! A client sends its requests on one **way**: from one queue pair of its own, which the server answers to. All requests of a
//! way have the same guess, and the answers of a way are those to its requests. Each goes to the request that has waited
//! longest.
//!
//! **No number comes twice.** The server gives out none twice, and says the low half alone to who has guessed the high one.
//! The guess of a way never changes, so a half is joined with the guess of its own request, however late it comes.
//!
//! **Numbers grow in real time.** An answer that is not larger than the last is dropped. When the k-th answer of a way is
//! taken, k answers with growing numbers have come. So the server had taken k requests of the way when it took the number
//! of the k-th. The k-th request had been sent by then. It gets that number, and so it was sent before the number was taken.
//!
//! A request that is given up breaks that count. So do a new guess and an answer without a number. After each of them the
//! client moves to a **fresh way**, where no answer of the old one arrives, and asks anew.
//!
//! Both proofs need that ways have different names: nobody may get the name of a way while an answer to it is under way. On
//! InfiniBand the name is a queue pair number. `ends.rs` keeps the queue pairs of old ways for a second, and a server drops
//! requests that have waited for as long. It does not know how long they lay in its device while it stood still, and what a
//! process leaves behind at its end is the device's affair, too: a device must not hand out these numbers again so soon.

use std::collections::VecDeque;

use trine_canary as canary;
use trine_transport::time::{Duration, Instant};

use super::{Reply, high_half, request};
use crate::config::SPECULATIVE_LATE_MAX;
use crate::supply::Why;

/// What an answer brings.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum AnswerEffect {
    /// A number for the request that was first sent then.
    Number(u64, Instant),
    /// No number. All requests under way are over.
    None(Why),
    /// Nothing: the answer is late, or none.
    Nothing,
}

#[derive(Copy, Clone, Debug)]
struct OutstandingRequest {
    /// When it was sent for the first time.
    first: Instant,
    /// When it was sent on this way.
    last: Instant,
}

/// A client's requests.
#[derive(Debug)]
pub struct Asker {
    /// The guess of this way, or of the next one if this way is over.
    guess: u32,
    /// The ways of before.
    way: u64,
    /// No request is sent on this way any more, and no low half is taken.
    is_over: bool,
    /// Numbers below came before, or are smaller than one that did.
    least: u64,
    /// The requests that have no answer, in the order in which they were sent.
    under_way: VecDeque<OutstandingRequest>,
    /// How long an answer may take, at least.
    least_patience: Duration,
    /// The same now: more if answers are slow, or have not come at all.
    patience: Duration,
    /// When an answer came last.
    answered_at: Instant,
}

impl Asker {
    /// With a first guess of the high half of numbers. A way is given up if `patience` passes without an answer, or twice
    /// the time that answers took lately. It doubles with each way that is given up so.
    pub fn new(guess: u32, patience: Duration) -> Self {
        Self {
            guess,
            way: 0,
            is_over: false,
            least: 0,
            under_way: VecDeque::new(),
            least_patience: patience,
            patience,
            answered_at: Instant::ZERO,
        }
    }

    /// Requests without an answer.
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// The bytes of a request that is sent now; `None` until the client has moved to a fresh way.
    pub fn ask(&mut self, now: Instant) -> Option<[u8; 4]> {
        if self.is_over {
            return None;
        }
        self.under_way.push_back(OutstandingRequest {
            first: now,
            last: now,
        });
        Some(request(self.guess))
    }

    /// A datagram has come from the server, on this way.
    pub fn on_datagram(&mut self, now: Instant, bytes: &[u8]) -> AnswerEffect {
        let Some(reply) = Reply::decode(bytes) else {
            return AnswerEffect::Nothing;
        };
        let number = match reply {
            Reply::Half(_) if self.is_over => return AnswerEffect::Nothing,
            Reply::Half(low) => u64::from(self.guess) << 32 | u64::from(low),
            Reply::Whole(number) => number,
            Reply::None(_) if self.under_way.is_empty() => return AnswerEffect::Nothing,
            Reply::None(why) => {
                self.is_over = true;
                self.under_way.clear();
                return AnswerEffect::None(why);
            }
        };
        if number < self.least {
            return AnswerEffect::Nothing;
        }
        let Some(asked) = self.under_way.pop_front() else {
            return AnswerEffect::Nothing;
        };
        self.learn(now, now.saturating_since(asked.last));
        // The last number of all is never given out.
        self.least = number.saturating_add(1);
        if high_half(number) != self.guess {
            self.guess = high_half(number);
            self.is_over = !canary::planted("a half is joined with a newer guess");
        }
        AnswerEffect::Number(number, asked.first)
    }

    /// The number of the way on which it sends, from 0. Each is another endpoint.
    pub fn way(&self) -> u64 {
        self.way
    }

    /// Whether the client has to move to a fresh way before it can send requests.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// When the way is given up, if nothing comes until then; `None` if nothing is awaited.
    pub fn timeout(&self) -> Option<Instant> {
        let since = self.under_way.front()?.last.max(self.answered_at);
        Some(since + self.patience)
    }

    /// An answer has taken so long.
    fn learn(&mut self, now: Instant, took: Duration) {
        self.answered_at = now;
        let slowly_less = Duration::from_nanos(self.patience.as_nanos() / 8 * 7);
        self.set_patience(slowly_less.max(took * 2));
    }

    fn set_patience(&mut self, patience: Duration) {
        let most = SPECULATIVE_LATE_MAX.max(self.least_patience);
        self.patience = patience.max(self.least_patience).min(most);
    }

    /// Whether the client has to move to a fresh way now, because requests wait that this one does not answer.
    pub fn needs_fresh_way(&self, now: Instant) -> bool {
        let timeout = self.timeout();
        timeout.is_some_and(|timeout| self.is_over || timeout <= now)
    }

    /// The client moves to a fresh way. Returns the requests to be sent on it: those that are under way, once more.
    pub fn move_to_fresh_way(&mut self, now: Instant) -> impl Iterator<Item = [u8; 4]> + use<> {
        self.way += u64::from(!canary::planted("a request is repeated on its way"));
        // A way that is over has brought its last answer: it was not silent.
        if !self.is_over {
            self.set_patience(self.patience * 2);
        }
        self.is_over = false;
        for asked in &mut self.under_way {
            asked.last = now;
        }
        std::iter::repeat_n(request(self.guess), self.under_way.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_millis(10);

    fn at(milliseconds: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(milliseconds)
    }

    /// At once.
    fn told(asker: &mut Asker, reply: Reply) -> AnswerEffect {
        let now = asker.under_way.front().map_or(at(0), |asked| asked.last);
        told_at(asker, now, reply)
    }

    fn told_at(asker: &mut Asker, now: Instant, reply: Reply) -> AnswerEffect {
        let mut bytes = [0; 8];
        let length = reply.encode_into(&mut bytes);
        asker.on_datagram(now, &bytes[..length])
    }

    #[test]
    fn a_wrong_guess_is_corrected_once_and_no_half_is_joined_with_the_new_one() {
        let mut asker = Asker::new(0, PATIENCE);
        for time in 0..3 {
            assert_eq!(asker.ask(at(time)), Some(request(0)));
        }
        let last = Reply::Half(u32::MAX);
        assert_eq!(
            told(&mut asker, last),
            AnswerEffect::Number(u64::from(u32::MAX), at(0))
        );
        let wrapped = 1 << 32;
        assert_eq!(
            told(&mut asker, Reply::Whole(wrapped)),
            AnswerEffect::Number(wrapped, at(1))
        );
        // The half of a number in front of the wrap, overtaken. Joined with the new guess it would be another's number.
        assert_eq!(told(&mut asker, Reply::Half(7)), AnswerEffect::Nothing);
        assert!(asker.needs_fresh_way(at(2)) && asker.ask(at(2)).is_none());
        assert_eq!(
            asker.move_to_fresh_way(at(2)).collect::<Vec<_>>(),
            [request(1)],
            "the third request, with the new guess"
        );
        assert_eq!(
            told(&mut asker, Reply::Half(7)),
            AnswerEffect::Number(wrapped + 7, at(2))
        );
        assert_eq!(told(&mut asker, Reply::Half(8)), AnswerEffect::Nothing);
    }

    #[test]
    fn numbers_that_do_not_grow_are_dropped() {
        let mut asker = Asker::new(0, PATIENCE);
        for _ in 0..3 {
            asker.ask(at(0));
        }
        assert_eq!(
            told(&mut asker, Reply::Half(5)),
            AnswerEffect::Number(5, at(0))
        );
        for late in [5, 4, 0] {
            assert_eq!(told(&mut asker, Reply::Half(late)), AnswerEffect::Nothing);
        }
        assert_eq!(asker.under_way(), 2);
        assert_eq!(
            told(&mut asker, Reply::Half(6)),
            AnswerEffect::Number(6, at(0))
        );
    }

    #[test]
    fn who_waits_too_long_asks_anew_elsewhere() {
        let mut asker = Asker::new(3, PATIENCE);
        assert_eq!(asker.timeout(), None);
        asker.ask(at(0));
        asker.ask(at(4));
        assert!(!asker.needs_fresh_way(at(9)) && asker.needs_fresh_way(at(10)));
        assert_eq!(asker.move_to_fresh_way(at(10)).count(), 2);
        assert_eq!(asker.timeout(), Some(at(30)), "twice as long");
        assert_eq!(asker.move_to_fresh_way(at(30)).count(), 2);
        assert_eq!(asker.timeout(), Some(at(70)));
        let number = 3 << 32 | 1;
        assert_eq!(
            told(&mut asker, Reply::Half(1)),
            AnswerEffect::Number(number, at(0)),
            "it waits since the first time"
        );
        for _ in 0..70 {
            asker.move_to_fresh_way(at(50)).for_each(drop);
        }
        assert_eq!(asker.timeout(), Some(at(1_050)), "a second at most");
    }

    /// Answers that take longer than the patience at the beginning, but come: after some ways given up none is any more.
    #[test]
    fn a_server_that_is_slow_is_borne_with() {
        let (mut asker, mut number) = (Asker::new(0, PATIENCE), 0);
        let mut given_up = 0;
        for round in 0..50 {
            let mut sent = at(1_000 * round);
            for _ in 0..4 {
                asker.ask(sent);
            }
            let takes = Duration::from_millis(35);
            while asker.needs_fresh_way(sent + takes) {
                given_up += 1;
                sent = asker.timeout().expect("requests are under way");
                asker.move_to_fresh_way(sent).for_each(drop);
            }
            let answered = sent + takes;
            for _ in 0..4 {
                number += 1;
                let reply = Reply::Half(number);
                assert!(matches!(
                    told_at(&mut asker, answered, reply),
                    AnswerEffect::Number(..)
                ));
                assert!(!asker.needs_fresh_way(answered));
            }
        }
        assert!(given_up <= 3, "{given_up} ways were given up");
        for round in 50..80 {
            asker.ask(at(1_000 * round));
            number += 1;
            told(&mut asker, Reply::Half(number));
        }
        asker.ask(at(99_000));
        assert_eq!(
            asker.timeout(),
            Some(at(99_010)),
            "the server is quick again"
        );
    }

    #[test]
    fn no_number_ends_all_requests() {
        let mut asker = Asker::new(0, PATIENCE);
        let none = Reply::None(Why::Elsewhere);
        assert_eq!(told(&mut asker, none), AnswerEffect::Nothing);
        asker.ask(at(0));
        asker.ask(at(0));
        assert_eq!(told(&mut asker, none), AnswerEffect::None(Why::Elsewhere));
        assert_eq!((asker.under_way(), asker.ask(at(0))), (0, None));
        assert!(
            asker.is_over() && !asker.needs_fresh_way(at(99)),
            "nobody waits"
        );
        assert_eq!(asker.move_to_fresh_way(at(1)).count(), 0);
        assert_eq!(asker.ask(at(1)), Some(request(0)));
    }

    #[test]
    fn what_is_no_answer_changes_nothing() {
        let mut asker = Asker::new(0, PATIENCE);
        asker.ask(at(0));
        for bytes in [&b""[..], b"1", b"\x02\x09", b"12345", b"123456789"] {
            assert_eq!(asker.on_datagram(at(0), bytes), AnswerEffect::Nothing);
        }
        assert_eq!(asker.under_way(), 1);
    }
}
