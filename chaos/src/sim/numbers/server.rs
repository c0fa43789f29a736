//! A simulated server of numbers: the real dispatch, and the reserving that a thread of a real server does.

use crate::sim::Host;
use crate::sim::register::{Register, Sent};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use trine_sequencer::{
    Ask, Denial, Dispatch, Gate, Grant, GroupAnswer, Need, Next, Supply, Tenure, block_of,
    next_epoch,
};
use trine_transport::app::Cx;
use trine_transport::prng::{Prng, Ratio};
use trine_transport::session::{Holder, SessionId};
use trine_transport::time::{Clock, Duration, Instant};

/// Numbers in front of the wrap of the low half, at most.
const BEFORE_WRAP: u64 = 3_000;

/// What outlives servers.
pub(super) struct Kept {
    /// The last epoch that a file names.
    pub(super) epoch: Option<u64>,
    /// No number of the group is less than this.
    pub(super) least: u64,
    pub(super) register: Register,
}

impl Kept {
    pub(super) fn new(prng: &mut Prng) -> Self {
        let near_the_wrap = prng.chance(Ratio::percent(40));
        let before = prng.below(BEFORE_WRAP);
        Self {
            epoch: None,
            least: if near_the_wrap { (1 << 32) - before } else { 0 },
            register: Register::new(prng.fork()),
        }
    }
}

/// A machine's clock as it was read last: the sequencer reads it within a turn.
#[derive(Clone, Default)]
pub(super) struct LastReading(pub(super) Rc<Cell<Instant>>);

impl Clock for LastReading {
    fn now(&self) -> Instant {
        self.0.get()
    }
}

pub(super) struct Everybody;

impl Gate<Host> for Everybody {
    fn check(&self, _: &mut Cx<'_, Host>, _: SessionId, _: Need) -> Result<(), Denial> {
        Ok(())
    }

    fn holder(&self, _: &Host) -> Holder {
        Holder::Shared
    }
}

/// Where a server's numbers come from, and what it waits for.
pub(super) enum Source {
    /// A write of the file: the epoch, and when it is durable.
    File(Option<(u64, Instant)>),
    /// A question to the group, and when it was sent by the machine's clock.
    Group(Tenure, Option<(Ask, Instant, Sent)>),
}

pub(super) struct Server {
    pub(super) dispatch: Dispatch<LastReading, Everybody>,
    pub(super) supply: Arc<Supply>,
    pub(super) clock: LastReading,
    pub(super) source: Source,
    pub(super) kept: Rc<RefCell<Kept>>,
    /// How long a question to the group may take.
    pub(super) patience: Duration,
    /// When to reserve again, by the machine's clock.
    pub(super) wake: Option<Instant>,
    /// When an answer is there, in simulated time.
    pub(super) call_at: Option<Instant>,
}

impl Server {
    /// Goes on with reserving numbers, as the thread of a real server does.
    pub(super) fn reserve(&mut self, now: Instant, simulated: Instant) {
        self.wake = None;
        self.call_at = match self.source {
            Source::File(_) => self.reserve_in_file(simulated),
            Source::Group(..) => self.reserve_in_group(now, simulated),
        };
    }

    fn reserve_in_file(&mut self, simulated: Instant) -> Option<Instant> {
        let Source::File(writing) = &mut self.source else {
            return None;
        };
        let mut kept = self.kept.borrow_mut();
        if let Some((epoch, _)) = writing.filter(|&(_, durable)| durable <= simulated) {
            *writing = None;
            kept.epoch = Some(epoch);
            let block = block_of(epoch);
            let until = Instant::FAR_FUTURE;
            self.supply.add(&Grant {
                start: block.start,
                end: block.end,
                until,
            });
        }
        if writing.is_none() && self.supply.missing().is_some() {
            let epoch = next_epoch(kept.epoch, 0)?;
            *writing = Some((epoch, simulated + kept.register.sync_time()));
        }
        writing.map(|(_, durable)| durable)
    }

    fn reserve_in_group(&mut self, now: Instant, simulated: Instant) -> Option<Instant> {
        let Source::Group(tenure, under_way) = &mut self.source else {
            return None;
        };
        let register = &mut self.kept.borrow_mut().register;
        loop {
            if let Some((ask, asked, sent)) = *under_way {
                if simulated < sent.answered {
                    return Some(sent.answered);
                }
                let told = register.answer(simulated, sent);
                *under_way = None;
                match tenure.tell(asked, now, &ask, &told) {
                    Ok(Some(grant)) => self.supply.add(&grant),
                    Ok(None) if told == GroupAnswer::Nothing => self.supply.set_failing(),
                    Ok(None) | Err(_) => {}
                }
            }
            match tenure.next(now, self.supply.missing().unwrap_or(0)) {
                Ok(Next::Ask(ask)) => {
                    *under_way = Some((ask, now, register.send(simulated, ask, self.patience)));
                }
                Ok(Next::Wait(until)) => {
                    self.wake = Some(until);
                    return None;
                }
                Err(_) => return None,
            }
        }
    }
}
