//! Drives many clients of a target. In a closed loop each sends its next operation when its answer arrives. In an open loop
//! operations fall due at a rate, even if answers are missing. Their latency counts from the due time.

use trine_client::{ClientId, Finished, Mode};
use trine_kvstore::Command;
use trine_transport::backend::{Backend, MonotonicClock};
use trine_transport::slab::{Key, Slab};
use trine_transport::time::{Clock, Duration, Instant};

use crate::client_endpoint::ClientEndpoint;
use crate::config::INTERRUPT_PATIENCE;
use crate::failure::Failure;
use crate::interrupt;

/// The loop checks at least this often whether it has to end.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// What the clients ask.
pub trait Target {
    /// How an operation ends.
    type Outcome;

    /// Whether a client may begin one more operation.
    fn has_room(&self, client: usize) -> bool;

    /// Sends the begun operations, then waits for results, at most until `until`, and returns them by their tags.
    fn poll(
        &mut self,
        until: Instant,
        finished: &mut Vec<(u64, Self::Outcome)>,
    ) -> Result<(), Failure>;

    /// How long the target may be silent while operations are in flight and no others follow, and what they have come to then.
    /// `None`: the target itself ends each operation in time.
    fn patience(&self) -> Option<(Duration, Self::Outcome)> {
        None
    }
}

/// The operations of the clients, and the consumer of the answers.
pub trait Work<T: Target> {
    /// One operation.
    type Operation;

    /// The next operation of a client; `None` when it has nothing more to do.
    fn next(&mut self, client: usize) -> Option<Self::Operation>;

    /// Begins an operation of a client.
    fn send(
        &mut self,
        target: &mut T,
        client: usize,
        tag: u64,
        operation: &Self::Operation,
    ) -> Result<(), Failure>;

    /// An operation has ended, at `ended` by this thread's clock. Returns what the client has to do next to complete it.
    fn over(
        &mut self,
        operation: Self::Operation,
        due: Instant,
        ended: Instant,
        outcome: T::Outcome,
    ) -> Option<Self::Operation>;

    /// Called about twenty times a second.
    fn on_poll(&mut self, _now: Instant) {}
}

/// Clients of the library on one endpoint, as a target.
pub struct Clients<'a, B: Backend> {
    endpoint: &'a mut ClientEndpoint<B>,
    open: Vec<ClientId>,
}

impl<'a, B: Backend> Clients<'a, B> {
    /// Opens so many clients.
    pub fn open(endpoint: &'a mut ClientEndpoint<B>, count: usize) -> Self {
        let open = (0..count).map(|_| endpoint.open()).collect();
        Self { endpoint, open }
    }

    /// Begins an operation of a client.
    pub fn submit(
        &mut self,
        client: usize,
        tag: u64,
        mode: Mode,
        command: &Command<'_>,
    ) -> Result<(), Failure> {
        let begun = self.endpoint.submit(self.open[client], mode, command, tag);
        let refused =
            |error| Failure::usage(format!("an operation could not be started: {error}"), "");
        begun.map_err(refused)
    }

    /// Forgets the clients, whose operations have ended.
    pub fn close(self) {
        let Self { endpoint, open } = self;
        open.into_iter().for_each(|client| endpoint.close(client));
    }
}

impl<B: Backend> Target for Clients<'_, B> {
    type Outcome = Finished;

    fn has_room(&self, client: usize) -> bool {
        self.endpoint.has_room(self.open[client])
    }

    fn poll(&mut self, until: Instant, finished: &mut Vec<(u64, Finished)>) -> Result<(), Failure> {
        self.endpoint
            .run_until(until, |over| finished.push((over.tag, over)))
    }
}

/// The start times of operations.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Every client has this many in flight.
    Closed {
        /// How many.
        pipeline: usize,
    },
    /// This many a second are due, all clients together.
    Open {
        /// How many.
        rate: u64,
    },
}

/// How a stretch of load ended.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadEnd {
    /// The user ended it.
    pub interrupted: bool,
    /// Operations that were due in an open loop and not sent before the end. Every client had its limit of operations
    /// in flight meanwhile.
    pub never_sent: u64,
    /// Operations that were in flight when they were waited for no longer. Their answers may still come, so the target
    /// serves no further load.
    pub unanswered: u64,
}

/// Runs `work` with `clients` clients of `target` from `start` until `until`, or until no operation is left. At the end it waits
/// for operations in flight, but only as long as the target's patience, or for a moment after a Ctrl-C.
pub fn drive<T: Target>(
    target: &mut T,
    clients: usize,
    pace: Pace,
    (start, until): (Instant, Option<Instant>),
    work: &mut impl Work<T>,
) -> Result<LoadEnd, Failure> {
    let patience = target.patience().map(|(patience, _)| patience);
    let mut driver = Driver {
        target,
        work,
        // The target's room is the limit.
        flights: Slab::new(usize::MAX),
        finished: Vec::new(),
        freed: Vec::new(),
        next_poll: start,
        patience,
        last_answer: MonotonicClock.now(),
    };
    match pace {
        Pace::Closed { pipeline } => driver.closed(clients, pipeline, until),
        Pace::Open { rate } => driver.open(
            clients,
            rate,
            start,
            until.expect("an open loop has an end"),
        ),
    }
}

/// An operation in flight.
struct Flight<O> {
    client: usize,
    operation: O,
    due: Instant,
}

struct Driver<'a, T: Target, W: Work<T>> {
    target: &'a mut T,
    work: &'a mut W,
    /// Operations in flight. Their keys are the tags.
    flights: Slab<Flight<W::Operation>>,
    finished: Vec<(u64, T::Outcome)>,
    /// Clients whose operations ended in the last poll, once for each operation.
    freed: Vec<usize>,
    next_poll: Instant,
    /// See [`Target::patience`].
    patience: Option<Duration>,
    /// When an operation ended last; before the first one, the beginning.
    last_answer: Instant,
}

impl<T: Target, W: Work<T>> Driver<'_, T, W> {
    fn closed(
        &mut self,
        clients: usize,
        pipeline: usize,
        until: Option<Instant>,
    ) -> Result<LoadEnd, Failure> {
        self.freed = (0..pipeline).flat_map(|_| 0..clients).collect();
        let (mut interrupted, mut interrupt_ends) = (false, None);
        loop {
            let now = MonotonicClock.now();
            if !interrupted && until.is_none_or(|until| now < until) {
                for client in std::mem::take(&mut self.freed) {
                    self.begin(client, MonotonicClock.now())?;
                }
            }
            let unanswered = self.flights.len() as u64;
            if unanswered == 0 || self.gives_up(now, until, interrupt_ends) {
                return Ok(LoadEnd {
                    interrupted,
                    never_sent: 0,
                    unanswered,
                });
            }
            self.poll(now + POLL_INTERVAL)?;
            if interrupt::interrupted() {
                interrupted = true;
                interrupt_ends.get_or_insert(now + INTERRUPT_PATIENCE.into());
            }
        }
    }

    fn open(
        &mut self,
        clients: usize,
        rate: u64,
        start: Instant,
        until: Instant,
    ) -> Result<LoadEnd, Failure> {
        let mut begun = 0;
        let (mut interrupted, mut interrupt_ends) = (false, None);
        let unanswered = loop {
            let now = MonotonicClock.now();
            let running = !interrupted && now < until;
            while running
                && due_at(start, begun, rate) <= now.min(until)
                && due_at(start, begun, rate) < until
            {
                let client = (begun % clients as u64) as usize;
                if !self.target.has_room(client) {
                    break;
                }
                self.begin(client, due_at(start, begun, rate))?;
                begun += 1;
            }
            let under_way = self.flights.len() as u64;
            let is_over = !running && under_way == 0;
            if is_over || self.gives_up(now, Some(until), interrupt_ends) {
                break under_way;
            }
            let next_due = due_at(start, begun, rate);
            let wake_at = match running && next_due > now {
                true => next_due.min(until).min(now + POLL_INTERVAL),
                false => now + POLL_INTERVAL,
            };
            self.poll(wake_at)?;
            self.freed.clear();
            if interrupt::interrupted() {
                interrupted = true;
                interrupt_ends.get_or_insert(now + INTERRUPT_PATIENCE.into());
            }
        };
        let due = due_count(until.saturating_since(start), rate);
        let never_sent = if interrupted {
            0
        } else {
            due.saturating_sub(begun)
        };
        Ok(LoadEnd {
            interrupted,
            never_sent,
            unanswered,
        })
    }

    /// Whether what is in flight is waited for no longer: a Ctrl-C was long ago, or the target is silent for too long. In the
    /// second case the work hears what has become of its operations.
    fn gives_up(
        &mut self,
        now: Instant,
        until: Option<Instant>,
        interrupt_ends: Option<Instant>,
    ) -> bool {
        if interrupt_ends.is_some_and(|at| now >= at) {
            return true;
        }
        let Some(patience) = self.patience else {
            return false;
        };
        // Until its end a load waits for a target that may come back. A load without an end would wait for ever.
        let silent_since = until.map_or(self.last_answer, |until| until.max(self.last_answer));
        let is_silent = now.saturating_since(silent_since) >= patience;
        if is_silent {
            self.end_unanswered(now);
        }
        is_silent
    }

    /// Ends what is in flight.
    fn end_unanswered(&mut self, now: Instant) {
        let keys: Vec<Key> = self.flights.iter().map(|(key, _)| key).collect();
        for flight in keys.into_iter().filter_map(|key| self.flights.remove(key)) {
            let Some((_, outcome)) = self.target.patience() else {
                return;
            };
            let Flight { operation, due, .. } = flight;
            // Nothing more is done to complete it.
            let _further = self.work.over(operation, due, now, outcome);
        }
    }

    /// Begins the next operation, if there is one.
    fn begin(&mut self, client: usize, due: Instant) -> Result<(), Failure> {
        match self.work.next(client) {
            Some(operation) => self.send(Flight {
                client,
                operation,
                due,
            }),
            None => Ok(()),
        }
    }

    fn send(&mut self, flight: Flight<W::Operation>) -> Result<(), Failure> {
        let key = self.flights.insert(flight).ok().expect("it has no limit");
        let Flight {
            client, operation, ..
        } = self.flights.get(key).expect("it was just put there");
        self.work
            .send(self.target, *client, key.to_u64(), operation)
    }

    /// Waits until an operation has ended, at most until `until`, and takes it.
    fn poll(&mut self, until: Instant) -> Result<(), Failure> {
        self.target.poll(until, &mut self.finished)?;
        // All these answers have arrived by now. Answers that came together waited for nothing but this thread.
        let now = MonotonicClock.now();
        if !self.finished.is_empty() {
            self.last_answer = now;
        }
        for (tag, outcome) in std::mem::take(&mut self.finished) {
            let flight = self.flights.remove(Key::from_u64(tag));
            let Flight {
                client,
                operation,
                due,
            } = flight.expect("an answer ends what is under way");
            match self.work.over(operation, due, now, outcome) {
                Some(operation) => self.send(Flight {
                    client,
                    operation,
                    due,
                })?,
                None => self.freed.push(client),
            }
        }
        if now >= self.next_poll {
            self.next_poll = now + POLL_INTERVAL;
            self.work.on_poll(now);
        }
        Ok(())
    }
}

/// The due time of operation number `index`.
fn due_at(start: Instant, index: u64, rate: u64) -> Instant {
    let ns = u128::from(index) * 1_000_000_000 / u128::from(rate.max(1));
    start + Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}

/// The number of operations that fall due in a time.
fn due_count(time: Duration, rate: u64) -> u64 {
    let count = (u128::from(time.as_nanos()) * u128::from(rate)).div_ceil(1_000_000_000);
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers nothing for a while, then everything at once.
    #[derive(Default)]
    struct Stalling {
        under_way: Vec<u64>,
        under_way_most: usize,
        until: Option<Instant>,
        stall: Duration,
        patience: Option<Duration>,
    }

    impl Target for Stalling {
        type Outcome = ();

        fn has_room(&self, _client: usize) -> bool {
            true
        }

        fn poll(&mut self, until: Instant, finished: &mut Vec<(u64, ())>) -> Result<(), Failure> {
            let stalled = *self.until.get_or_insert(MonotonicClock.now() + self.stall);
            while MonotonicClock.now() < until.min(stalled) {
                std::hint::spin_loop();
            }
            if MonotonicClock.now() >= stalled {
                finished.extend(self.under_way.drain(..).map(|tag| (tag, ())));
            }
            Ok(())
        }

        fn patience(&self) -> Option<(Duration, ())> {
            self.patience.map(|patience| (patience, ()))
        }
    }

    /// Operations of one request, or of as many as `requests` says by turns.
    #[derive(Default)]
    struct Counting {
        requests: Vec<u32>,
        next: usize,
        most: Option<usize>,
        sent: usize,
        latencies: Vec<Duration>,
    }

    impl Work<Stalling> for Counting {
        /// Requests that are left.
        type Operation = u32;

        fn next(&mut self, _: usize) -> Option<u32> {
            if self.most.is_some_and(|most| self.next >= most) {
                return None;
            }
            self.next += 1;
            Some(self.requests[self.next % self.requests.len()])
        }

        fn send(
            &mut self,
            target: &mut Stalling,
            _: usize,
            tag: u64,
            _: &u32,
        ) -> Result<(), Failure> {
            self.sent += 1;
            target.under_way.push(tag);
            target.under_way_most = target.under_way_most.max(target.under_way.len());
            Ok(())
        }

        fn over(&mut self, requests: u32, due: Instant, ended: Instant, (): ()) -> Option<u32> {
            if requests > 1 {
                return Some(requests - 1);
            }
            self.latencies.push(ended.saturating_since(due));
            None
        }
    }

    #[test]
    fn an_open_loop_counts_what_a_stall_held_up_from_when_it_was_due() {
        let stall = Duration::from_millis(40);
        let mut target = Stalling {
            stall,
            ..Stalling::default()
        };
        let mut work = Counting {
            requests: vec![1],
            ..Counting::default()
        };
        let start = MonotonicClock.now();
        let until = start + Duration::from_millis(60);
        let ended = drive(
            &mut target,
            2,
            Pace::Open { rate: 1_000 },
            (start, Some(until)),
            &mut work,
        )
        .expect("runs");
        let all = work.latencies.len() as u64 + ended.never_sent;
        assert!((59..=60).contains(&all), "{all}");
        // Forty operations fell due in the stall, and each waited for the rest of it. Twenty of them waited for more
        // than half.
        let long = work
            .latencies
            .iter()
            .filter(|latency| latency.as_nanos() > stall.as_nanos() / 2);
        // An operation that could not be sent in time, because this thread itself was delayed, waited as well.
        assert!(long.count() as u64 + ended.never_sent >= 20);
    }

    #[test]
    fn a_closed_loop_asks_again_when_the_answer_is_there() {
        let mut target = Stalling::default();
        let mut work = Counting {
            requests: vec![2, 1],
            most: Some(1_000),
            ..Counting::default()
        };
        let pace = Pace::Closed { pipeline: 2 };
        let span = (MonotonicClock.now(), None);
        drive(&mut target, 3, pace, span, &mut work).expect("runs");
        assert_eq!(work.latencies.len(), 1_000, "each that began is over once");
        assert_eq!(work.sent, 1_500);
        assert!(target.under_way.is_empty() && target.under_way_most == 6);
    }

    /// A server that fell silent held `trine bench` up for ever, whatever `--for` and `--timeout` said.
    #[test]
    fn a_target_that_is_silent_for_too_long_is_given_up() {
        let closed = Pace::Closed { pipeline: 1 };
        for (pace, has_end) in [
            (closed, true),
            (closed, false),
            (Pace::Open { rate: 1_000 }, true),
        ] {
            let mut target = Stalling {
                stall: Duration::from_secs(3_600),
                patience: Some(Duration::from_millis(5)),
                ..Stalling::default()
            };
            let mut work = Counting {
                requests: vec![1],
                ..Counting::default()
            };
            let start = MonotonicClock.now();
            let span = (start, has_end.then_some(start + Duration::from_millis(5)));
            let ended = drive(&mut target, 2, pace, span, &mut work).expect("runs");
            assert!(!ended.interrupted);
            // The work hears of each.
            assert_eq!(ended.unanswered, work.sent as u64, "{pace:?}");
            assert_eq!(work.latencies.len(), work.sent, "{pace:?}");
            if !has_end {
                assert_eq!(work.sent, 2);
            }
        }
    }

    #[test]
    fn operations_are_due_evenly() {
        let start = Instant::ZERO;
        assert_eq!(
            due_at(start, 3, 3),
            start + Duration::from_nanos(1_000_000_000)
        );
        assert_eq!(due_count(Duration::from_millis(300), 200), 60);
        assert_eq!(due_count(Duration::from_nanos(1), 1), 1);
    }
}
