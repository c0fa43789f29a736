//! Takes the numbers of a turn's requests.
//!
//! Together, by one atomic operation, and in the order in which the requests came.
//!
//! The lease is looked at once a turn, with a clock that is read *behind* the taking. The time of the turn would not do: a
//! process may be stopped after the turn has begun, and another server may give out larger numbers meanwhile. A request that
//! was sent after those would come in with the same turn, and get a smaller number. Numbers that were taken too late are
//! thrown away.

use std::sync::Arc;

use trine_canary as canary;
use trine_transport::time::{Clock, Instant};

use crate::supply::Supply;

/// Takes numbers out of a supply that other threads share.
pub(crate) struct Taker<C> {
    pub(crate) supply: Arc<Supply>,
    clock: C,
    /// The first numbers of the requests of this turn, in their order.
    firsts: Vec<u64>,
}

impl<C: Clock> Taker<C> {
    pub(crate) fn new(supply: Arc<Supply>, clock: C) -> Self {
        Self {
            supply,
            clock,
            firsts: Vec::new(),
        }
    }

    /// Whether numbers may be given out now.
    pub(crate) fn is_serving(&self) -> bool {
        let until = self.supply.until();
        until.is_none_or(|until| self.clock.now() < until)
    }

    /// Takes numbers for requests that ask for these counts, `total` together. The first number of each, for as many of
    /// them as there are numbers; `None` if the lease has ended. `begun` is when the turn began.
    pub(crate) fn take(
        &mut self,
        total: u64,
        counts: impl Iterator<Item = u64>,
        begun: Instant,
    ) -> Option<&[u64]> {
        // The end that was read before the taking: a new lease that begins in between brings new numbers, and says nothing
        // about those that were taken.
        let until = self.supply.until();
        self.firsts.clear();
        match self.supply.take(total) {
            Some(first) => self.firsts.extend(counts.scan(first, |next, count| {
                let first = *next;
                *next = next.wrapping_add(count);
                Some(first)
            })),
            None => self
                .firsts
                .extend(counts.map_while(|count| self.supply.take(count))),
        }
        let is_too_late = until.is_some_and(|until| {
            let now = match canary::planted("a lease is looked at too early") {
                true => begun,
                false => self.clock.now(),
            };
            now >= until
        });
        (!is_too_late).then_some(&self.firsts)
    }
}
