//! The memory of all connections together, and what happens at its limit.
//!
//! Above half of the limit no connection gets further commands done while it has unread replies. So clients that read
//! go on, and those that do not read hold what they have. At the limit the connections that hold most are closed, as
//! with Redis's `maxmemory-clients`.

use trine_resp::Limits;
use trine_transport::time::Instant;

use super::{Client, Options, REPORT_PAUSE, Server};

/// Bytes that may be received ahead while memory is short.
const AHEAD_BYTES: usize = 4 * 1024;

/// Counts what a connection holds now.
pub(super) fn count(client: &mut Client, all: &mut usize) {
    let held = client.connection.held_bytes() + client.stream.held_bytes();
    *all = *all - client.held + held;
    client.held = held;
}

/// The limits of each connection while all hold `held` bytes.
pub(super) fn limits_now(options: &Options, held: usize) -> Limits {
    let limits = options.limits;
    match held > options.memory / 2 {
        true => Limits {
            output_bytes: 0,
            ahead_bytes: limits.ahead_bytes.min(AHEAD_BYTES),
            ..limits
        },
        false => limits,
    }
}

impl Server {
    /// The same as at the end of the turn, where the replies of many clients in one turn would be far beyond the limit. It
    /// costs a look at all connections, so it is not done for every client at the limit.
    pub(super) fn relieve_within_turn(&mut self, now: Instant) {
        if self.held > self.options.memory + self.options.memory / 16 {
            self.relieve(now);
        }
    }

    /// Gives back what is not needed. If that is not enough, closes the connections that hold most.
    pub(super) fn relieve(&mut self, now: Instant) {
        for client in self
            .slots
            .iter_mut()
            .filter_map(|slot| slot.client.as_mut())
        {
            client.connection.release();
            count(client, &mut self.held);
        }
        if self.held <= self.options.memory {
            return;
        }
        let clients = self.slots.iter().enumerate();
        let held = clients.filter_map(|(index, slot)| Some((slot.client.as_ref()?.held, index)));
        let mut largest: Vec<(usize, usize)> = held.collect();
        largest.sort_unstable();
        while self.held > self.options.memory
            && let Some((_, index)) = largest.pop()
            && let Some(client) = self.slots[index].client.take()
        {
            self.stats.evicted += 1;
            self.dirty.retain(|dirty| *dirty != index);
            self.close(index, client);
        }
        if now >= self.report_memory_at {
            self.report_memory_at = now + REPORT_PAUSE;
            tracing::warn!(
                closed = self.stats.evicted,
                limit = self.options.memory,
                "connections of Redis clients are closed: all of them held more than --resp-memory"
            );
        }
    }
}
