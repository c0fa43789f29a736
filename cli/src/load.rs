//! Driving many clients of one lane: in a closed loop (each asks again when its answer is there),
//! or in an open one (operations are due at a rate, whether the answers come or not).

use trine_kvstore::Command;
use trine_replica::client::{ClientId, Finished, Mode};
use trine_transport::backend::{Backend, MonotonicClock};
use trine_transport::time::{Clock, Duration, Instant};

use crate::failure::Failure;
use crate::interrupt;
use crate::lane::Lane;

/// The loop looks at least this often whether it shall end.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long operations under way are waited for after a Ctrl-C.
const INTERRUPT_PATIENCE: Duration = Duration::from_millis(500);

/// What the clients ask, and who takes the answers.
pub(crate) trait Work {
    /// Calls `submit` with the next operation of the client in `slot`, or not at all when that
    /// client has nothing more to do now.
    fn next(&mut self, slot: usize, submit: &mut dyn FnMut(Mode, &Command<'_>));
    /// The operation of the client in `slot`, due at `due`, is over.
    fn ended(&mut self, slot: usize, due: Instant, finished: Finished);
}

/// Why a loop came to its end.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The time was over, or nobody had anything more to do.
    Done,
    /// The user ended it.
    Interrupted,
}

/// Every client of `clients` asks, waits, and asks again, as long as `go_on` says so of the time
/// and somebody has something to ask; then the operations that are under way are waited for.
pub(crate) fn closed_loop<B: Backend>(
    lane: &mut Lane<B>,
    clients: &[ClientId],
    go_on: impl Fn(Instant) -> bool,
    work: &mut impl Work,
) -> Result<Ended, Failure> {
    let mut idle: Vec<usize> = (0..clients.len()).collect();
    let mut ended = Ended::Done;
    let mut give_up_at = None;
    loop {
        let running = ended == Ended::Done && go_on(lane.now());
        if running {
            for slot in idle.drain(..) {
                submit_next(lane, clients[slot], slot, work)?;
            }
        }
        if lane.in_flight() == 0 || give_up_at.is_some_and(|at| lane.now() >= at) {
            return Ok(ended);
        }
        let look_at = lane.now() + LOOK_EVERY;
        lane.run_until(look_at, |finished| {
            let slot = slot_of(finished.tag);
            idle.push(slot);
            work.ended(slot, finished.started, heard_now(finished));
        })?;
        if interrupt::interrupted() {
            ended = Ended::Interrupted;
            give_up_at.get_or_insert(lane.now() + INTERRUPT_PATIENCE);
        }
    }
}

/// An event loop reads its clock once a turn, before it takes packets in: an answer that arrives
/// while the turn waits for a processor would seem faster than it was.
fn heard_now(finished: Finished) -> Finished {
    let ended = MonotonicClock.now();
    Finished { ended, ..finished }
}

fn submit_next<B: Backend>(
    lane: &mut Lane<B>,
    client: ClientId,
    slot: usize,
    work: &mut impl Work,
) -> Result<(), Failure> {
    let mut refused = None;
    work.next(slot, &mut |mode, command| {
        refused = lane.submit(client, mode, command, slot as u64).err();
    });
    match refused {
        None => Ok(()),
        Some(error) => Err(Failure::usage(
            format!("an operation could not be begun: {error}"),
            "",
        )),
    }
}

fn slot_of(tag: u64) -> usize {
    usize::try_from(tag).expect("tags are slots")
}

/// What an open loop could not do.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lateness {
    /// Operations that were due while every client had as many in flight as it may have, and that
    /// were not sent before the end.
    pub(crate) never_sent: u64,
}

/// Operations fall due `interval` apart from `start` to `until` and go to the clients in turn.
/// Each counts from the moment when it was due, also if it could only be sent later.
pub(crate) fn open_loop<B: Backend>(
    lane: &mut Lane<B>,
    clients: &[ClientId],
    (start, until): (Instant, Instant),
    interval: Duration,
    work: &mut impl Work,
) -> Result<(Ended, Lateness), Failure> {
    let mut pending = Pending::default();
    let mut due = start;
    let mut turn = 0;
    let mut ended = Ended::Done;
    let mut give_up_at = None;
    loop {
        let now = lane.now();
        let running = ended == Ended::Done && now < until;
        while running && due <= now && due < until {
            let slot = turn % clients.len();
            if !pending.submit(lane, clients[slot], slot, due, work) {
                break;
            }
            turn += 1;
            due += interval;
        }
        let over = !running && lane.in_flight() == 0;
        if over || give_up_at.is_some_and(|at| now >= at) {
            break;
        }
        let next_look = if running && due > now {
            due.min(until)
        } else {
            now + LOOK_EVERY
        };
        lane.run_until(next_look, |finished| pending.take(finished, work))?;
        if interrupt::interrupted() {
            ended = Ended::Interrupted;
            give_up_at.get_or_insert(now + INTERRUPT_PATIENCE);
        }
    }
    let left = until.saturating_since(due).as_nanos() / interval.as_nanos().max(1);
    let never_sent = if ended == Ended::Done { left } else { 0 };
    Ok((ended, Lateness { never_sent }))
}

/// Due times of the operations in flight, by tag.
#[derive(Default)]
struct Pending {
    slots: Vec<Option<(usize, Instant)>>,
    free: Vec<usize>,
}

impl Pending {
    /// False when the client has as many operations in flight as it may have.
    fn submit<B: Backend>(
        &mut self,
        lane: &mut Lane<B>,
        client: ClientId,
        slot: usize,
        due: Instant,
        work: &mut impl Work,
    ) -> bool {
        if !lane.has_room(client) {
            return false;
        }
        let tag = self.free.pop().unwrap_or(self.slots.len());
        if tag == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[tag] = Some((slot, due));
        let mut sent = false;
        work.next(slot, &mut |mode, command| {
            sent = lane.submit(client, mode, command, tag as u64).is_ok();
        });
        if !sent {
            self.slots[tag] = None;
            self.free.push(tag);
        }
        sent
    }

    fn take(&mut self, finished: Finished, work: &mut impl Work) {
        let tag = slot_of(finished.tag);
        if let Some((slot, due)) = self.slots[tag].take() {
            self.free.push(tag);
            work.ended(slot, due, heard_now(finished));
        }
    }
}
