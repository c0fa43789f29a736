//! Copies of clients, in a part of the seeds: one that goes on in the session of its original, as a virtual machine does that
//! was copied while it ran. Both give commands with the same numbers. The group must execute each or say that it did not.
//!
//! The copy writes values alone that nobody else writes: two commands that are alike in all are one to the group.

use super::Host;
use crate::history::Action;
use std::collections::BTreeMap;
use trine_client::{ClientId, Clients, Mode};
use trine_transport::prng::{Prng, Ratio};
use trine_transport::time::Instant;

/// How often a client is copied ahead of a write.
const COPIED: Ratio = Ratio::percent(5);
/// How often the copy writes.
const OF_COPY: Ratio = Ratio::percent(50);

/// One seed of four has them, where the group knows checks from the beginning.
pub(crate) fn is_drawn(seed: u64) -> bool {
    Prng::new(seed ^ 0x0c0b_1e50_0c0b_1e50).below(4) == 0
}

/// The copies on one machine, at most one of each client.
pub(crate) struct Copies {
    prng: Prng,
    of: BTreeMap<u64, ClientId>,
    /// From then on every write has to be answered.
    until: Instant,
}

impl Copies {
    /// For the clients of one machine, while there are faults.
    pub(crate) fn new(seed: u64, until: Instant) -> Self {
        Self {
            until,
            prng: Prng::new(seed ^ 0x0c0b_1e51_0c0b_1e51),
            of: BTreeMap::new(),
        }
    }

    /// Who calls: client `number`, which is `id`, or its copy.
    pub(crate) fn caller(
        &mut self,
        (clients, simulated): (&mut Clients<Host>, Instant),
        (number, id): (u64, ClientId),
        (action, mode): (&Action, Mode),
    ) -> ClientId {
        let is_over = simulated >= self.until;
        if is_over || mode != Mode::Write || action.written_value().is_none() {
            return id;
        }
        if self.prng.chance(COPIED)
            && let Some(copy) = clients.copy_of(id)
            && let Some(before) = self.of.insert(number, copy)
        {
            clients.close(before);
        }
        match self.of.get(&number) {
            Some(&copy) if self.prng.chance(OF_COPY) => copy,
            _ => id,
        }
    }
}
