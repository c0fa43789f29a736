//! Drives a target's clients. In a closed loop each sends its next operation when its answer arrives. In an open loop
//! operations fall due at a rate, even if answers are missing. Their latency counts from the due time.

use trine_transport::backend::MonotonicClock;
use trine_transport::time::{Clock, Duration, Instant};

use super::stores::{Finished, IN_FLIGHT_MAX, Outcome, Request, Target};
use super::workload::Kind;
use trine_base::failure::Failure;
use trine_base::interrupt;

/// The loop checks at least this often whether it has to end.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long the loop waits for operations in flight after a Ctrl-C.
const INTERRUPT_PATIENCE: Duration = Duration::from_millis(500);

/// The operations of the clients, and the consumer of the answers.
pub(super) trait Work {
    /// The next operation; `None` when all are done.
    fn next(&mut self) -> Option<(Kind, u64)>;
    /// An operation has ended, at `ended` by this thread's clock.
    fn over(&mut self, operation: (Kind, u64), due: Instant, ended: Instant, outcome: &Outcome);
    /// The name of a key.
    fn key(&self, number: u64) -> [u8; KEY_BYTES];
    /// The written value.
    fn value(&self) -> &[u8];
    /// Called about twenty times a second.
    fn on_poll(&mut self, now: Instant);
}

/// Bytes of each key.
pub(super) const KEY_BYTES: usize = 16;

/// The start times of operations.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// Every client has this many in flight.
    Closed { pipeline: usize },
    /// This many a second are due, all clients together.
    Open { rate: u64 },
}

/// How a stretch of load ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) interrupted: bool,
    /// Operations that were due in an open loop and not sent before the end. Every client had its limit of operations
    /// in flight meanwhile.
    pub(super) never_sent: u64,
}

/// Runs `work` with `clients` clients of `target` from `start` until `until`, or until no operation is left.
pub(super) fn drive(
    target: &mut impl Target,
    clients: usize,
    pace: Pace,
    (start, until): (Instant, Option<Instant>),
    work: &mut impl Work,
) -> Result<Ended, Failure> {
    let mut driver = Driver {
        target,
        work,
        flights: Flights::default(),
        finished: Vec::new(),
        freed: Vec::new(),
        next_poll: start,
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
#[derive(Copy, Clone, Debug)]
struct Flight {
    client: usize,
    kind: Kind,
    key: u64,
    due: Instant,
    /// For a read-modify-write: the read has ended.
    written: bool,
}

/// Operations in flight, by tag.
#[derive(Default)]
struct Flights {
    slots: Vec<Option<Flight>>,
    free: Vec<usize>,
}

impl Flights {
    fn insert(&mut self, flight: Flight) -> usize {
        let slot = self.free.pop().unwrap_or(self.slots.len());
        match self.slots.get_mut(slot) {
            Some(empty) => *empty = Some(flight),
            None => self.slots.push(Some(flight)),
        }
        slot
    }

    fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

struct Driver<'a, T, W> {
    target: &'a mut T,
    work: &'a mut W,
    flights: Flights,
    finished: Vec<Finished>,
    /// Clients whose operations ended in the last poll, once for each operation.
    freed: Vec<usize>,
    next_poll: Instant,
}

impl<T: Target, W: Work> Driver<'_, T, W> {
    fn closed(
        &mut self,
        clients: usize,
        pipeline: usize,
        until: Option<Instant>,
    ) -> Result<Ended, Failure> {
        self.freed = (0..pipeline).flat_map(|_| 0..clients).collect();
        let (mut interrupted, mut give_up_at) = (false, None);
        loop {
            let now = MonotonicClock.now();
            if !interrupted && until.is_none_or(|until| now < until) {
                for client in std::mem::take(&mut self.freed) {
                    self.begin(client, MonotonicClock.now())?;
                }
            }
            if self.flights.count() == 0 || give_up_at.is_some_and(|at| now >= at) {
                return Ok(Ended {
                    interrupted,
                    never_sent: 0,
                });
            }
            self.poll(now + POLL_INTERVAL)?;
            if interrupt::interrupted() {
                interrupted = true;
                give_up_at.get_or_insert(now + INTERRUPT_PATIENCE);
            }
        }
    }

    fn open(
        &mut self,
        clients: usize,
        rate: u64,
        start: Instant,
        until: Instant,
    ) -> Result<Ended, Failure> {
        let mut begun = 0;
        let (mut interrupted, mut give_up_at) = (false, None);
        loop {
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
            if !running && self.flights.count() == 0 || give_up_at.is_some_and(|at| now >= at) {
                break;
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
                give_up_at.get_or_insert(now + INTERRUPT_PATIENCE);
            }
        }
        let due = due_count(until.saturating_since(start), rate);
        let never_sent = if interrupted {
            0
        } else {
            due.saturating_sub(begun)
        };
        Ok(Ended {
            interrupted,
            never_sent,
        })
    }

    /// Begins the next operation, if there is one.
    fn begin(&mut self, client: usize, due: Instant) -> Result<(), Failure> {
        let Some((kind, key)) = self.work.next() else {
            return Ok(());
        };
        self.send(Flight {
            client,
            kind,
            key,
            due,
            written: false,
        })
    }

    fn send(&mut self, flight: Flight) -> Result<(), Failure> {
        let key = self.work.key(flight.key);
        let write = match flight.kind {
            Kind::Read => false,
            Kind::Update | Kind::Insert => true,
            Kind::ReadModifyWrite => flight.written,
        };
        let client = flight.client;
        let tag = self.flights.insert(flight) as u64;
        let request = match write {
            false => Request::Read { key: &key },
            true => Request::Write {
                key: &key,
                value: self.work.value(),
            },
        };
        self.target.submit(client, tag, request)
    }

    /// Waits until an operation has ended, at most until `until`, and takes it.
    fn poll(&mut self, until: Instant) -> Result<(), Failure> {
        self.target.poll(until, &mut self.finished)?;
        // All these answers have arrived by now. Answers that came together waited for nothing but this thread.
        let now = MonotonicClock.now();
        for (tag, outcome) in std::mem::take(&mut self.finished) {
            let slot = usize::try_from(tag).expect("tags are slots");
            let flight = self.flights.slots[slot]
                .take()
                .expect("an answer ends what is under way");
            self.flights.free.push(slot);
            if flight.kind == Kind::ReadModifyWrite && !flight.written && outcome == Outcome::Done {
                self.send(Flight {
                    written: true,
                    ..flight
                })?;
                continue;
            }
            self.work
                .over((flight.kind, flight.key), flight.due, now, &outcome);
            self.freed.push(flight.client);
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

const _: () = assert!(IN_FLIGHT_MAX >= 1);

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
    }

    impl Target for Stalling {
        fn has_room(&self, _client: usize) -> bool {
            true
        }

        fn submit(
            &mut self,
            _client: usize,
            tag: u64,
            _request: Request<'_>,
        ) -> Result<(), Failure> {
            self.under_way.push(tag);
            self.under_way_most = self.under_way_most.max(self.under_way.len());
            Ok(())
        }

        fn poll(&mut self, until: Instant, finished: &mut Vec<Finished>) -> Result<(), Failure> {
            let stalled = *self.until.get_or_insert(MonotonicClock.now() + self.stall);
            while MonotonicClock.now() < until.min(stalled) {
                std::hint::spin_loop();
            }
            if MonotonicClock.now() >= stalled {
                finished.extend(self.under_way.drain(..).map(|tag| (tag, Outcome::Done)));
            }
            Ok(())
        }
    }

    #[derive(Default)]
    struct Counting {
        kinds: Vec<Kind>,
        next: usize,
        most: Option<usize>,
        latencies: Vec<Duration>,
    }

    impl Work for Counting {
        fn next(&mut self) -> Option<(Kind, u64)> {
            if self.most.is_some_and(|most| self.next >= most) {
                return None;
            }
            self.next += 1;
            let kinds = self.kinds.len();
            Some((self.kinds[self.next % kinds], 1))
        }

        fn over(
            &mut self,
            _operation: (Kind, u64),
            due: Instant,
            ended: Instant,
            _outcome: &Outcome,
        ) {
            self.latencies.push(ended.saturating_since(due));
        }

        fn key(&self, _number: u64) -> [u8; KEY_BYTES] {
            [0; KEY_BYTES]
        }

        fn value(&self) -> &[u8] {
            b"v"
        }

        fn on_poll(&mut self, _now: Instant) {}
    }

    #[test]
    fn an_open_loop_counts_what_a_stall_held_up_from_when_it_was_due() {
        let stall = Duration::from_millis(40);
        let mut target = Stalling {
            stall,
            ..Stalling::default()
        };
        let mut work = Counting {
            kinds: vec![Kind::Read],
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
        let kinds = vec![Kind::ReadModifyWrite, Kind::Read];
        let mut work = Counting {
            kinds,
            most: Some(1_000),
            ..Counting::default()
        };
        let pace = Pace::Closed { pipeline: 2 };
        let span = (MonotonicClock.now(), None);
        drive(&mut target, 3, pace, span, &mut work).expect("runs");
        assert_eq!(work.latencies.len(), 1_000, "each that began is over once");
        assert!(target.under_way.is_empty() && target.under_way_most == 6);
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
