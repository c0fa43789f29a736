//! Drives many clients of one client endpoint in a closed loop. Each client sends its next operation when it has an
//! answer.

use trine_client::{ClientId, Finished, Mode};
use trine_kvstore::Command;
use trine_transport::backend::{Backend, MonotonicClock};
use trine_transport::time::{Clock, Duration, Instant};

use crate::client_endpoint::ClientEndpoint;
use crate::failure::Failure;
use crate::interrupt;

/// The loop checks at least this often whether it has to end.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long the loop waits for operations in flight after a Ctrl-C.
const INTERRUPT_PATIENCE: Duration = Duration::from_millis(500);

/// The operations of the clients, and the consumer of the answers.
pub trait Work {
    /// Calls `submit` with the next operation of the client in `slot`. Does not call it when that client has nothing
    /// more to do now.
    fn next(&mut self, slot: usize, submit: &mut dyn FnMut(Mode, &Command<'_>));
    /// The operation of the client in `slot`, due at `due`, has ended.
    fn ended(&mut self, slot: usize, due: Instant, finished: Finished);
    /// Called about twenty times a second.
    fn on_poll(&mut self) {}
}

/// Why a loop ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The time was over, or no client had anything more to do.
    Done,
    /// The user ended it.
    Interrupted,
}

/// Every client of `clients` sends an operation, waits, and sends the next. This lasts while `go_on` allows it for the
/// time and a client has something to send. Then the loop waits for the operations in flight.
pub fn closed_loop<B: Backend>(
    endpoint: &mut ClientEndpoint<B>,
    clients: &[ClientId],
    go_on: impl Fn(Instant) -> bool,
    work: &mut impl Work,
) -> Result<Ended, Failure> {
    let mut idle: Vec<usize> = (0..clients.len()).collect();
    let mut ended = Ended::Done;
    let mut give_up_at = None;
    let mut next_poll = endpoint.now() + POLL_INTERVAL;
    loop {
        let running = ended == Ended::Done && go_on(endpoint.now());
        if running {
            for slot in idle.drain(..) {
                submit_next(endpoint, clients[slot], slot, work)?;
            }
        }
        if endpoint.in_flight() == 0 || give_up_at.is_some_and(|at| endpoint.now() >= at) {
            return Ok(ended);
        }
        endpoint.run_until(next_poll, |finished| {
            let slot = slot_of(finished.tag);
            idle.push(slot);
            work.ended(slot, finished.started, heard_now(finished));
        })?;
        if endpoint.now() >= next_poll {
            work.on_poll();
            next_poll = endpoint.now() + POLL_INTERVAL;
        }
        if interrupt::interrupted() {
            ended = Ended::Interrupted;
            give_up_at.get_or_insert(endpoint.now() + INTERRUPT_PATIENCE);
        }
    }
}

/// An event loop reads its clock once a turn, before it takes packets in. An answer that arrives while the turn waits
/// for a processor would seem faster than it was.
fn heard_now(finished: Finished) -> Finished {
    let ended = MonotonicClock.now();
    Finished { ended, ..finished }
}

fn submit_next<B: Backend>(
    endpoint: &mut ClientEndpoint<B>,
    client: ClientId,
    slot: usize,
    work: &mut impl Work,
) -> Result<(), Failure> {
    let mut refused = None;
    work.next(slot, &mut |mode, command| {
        refused = endpoint.submit(client, mode, command, slot as u64).err();
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
