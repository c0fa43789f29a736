//! The memory of all connections together, and what happens at its limit.
//!
//! Above half of the limit no connection gets further commands done while it has unread replies. So clients that read
//! go on, and those that do not read hold what they have. At the limit the connections that hold most are closed, as
//! with Redis's `maxmemory-clients`.

use trine_resp::Limits;
use trine_transport::slab::Key;
use trine_transport::time::Instant;

use super::reports::Topic;
use super::{Options, Server};

/// Bytes that may be received ahead while memory is short.
const AHEAD_BYTES: usize = 4 * 1024;

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
        if self.seats.held() > self.options.memory + self.options.memory / 16 {
            self.relieve(now);
        }
    }

    /// Gives back what is not needed. If that is not enough, closes the connections that hold most.
    pub(super) fn relieve(&mut self, now: Instant) {
        for key in self.seats.keys() {
            if let Some(client) = self.seats.get_mut(key) {
                client.connection.release();
            }
            self.seats.count_at(key);
        }
        if self.seats.held() <= self.options.memory {
            return;
        }
        let held = self.seats.iter().map(|(key, client)| (client.held, key));
        let mut largest: Vec<(usize, Key)> = held.collect();
        largest.sort_unstable_by_key(|(held, key)| (*held, key.index));
        while self.seats.held() > self.options.memory
            && let Some((_, key)) = largest.pop()
            && let Some(client) = self.seats.take(key)
        {
            self.stats.evicted += 1;
            self.close(key, client);
        }
        if self.reports.allows(Topic::Memory, now) {
            tracing::warn!(
                closed = self.stats.evicted,
                limit = self.options.memory,
                "connections of Redis clients are closed: all of them held more than --resp-memory"
            );
        }
    }
}
