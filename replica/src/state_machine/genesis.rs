//! The first entry: the settings that change answers and are therefore the same on every replica from the beginning.

use trine_kvstore::Limits;
use trine_kvstore::command::{ORDERED_VERSION, STATE_VERSION, STATE_VERSION_FIRST};

use super::codec::{Cursor, StateError, put_u32, put_u64};
use crate::config::{ReplicaConfig, SessionLimits};

/// Version of the layout below.
const GENESIS_VERSION: u8 = 1;

/// Index and term of the first entry. Every voter has it by construction, so the log begins after it.
pub(crate) const FIRST_INDEX: u64 = 1;
/// Term of the first entry.
pub(crate) const FIRST_TERM: u64 = 1;

/// The settings of the first entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Genesis {
    /// Drawn at the bootstrap: an outsider must not choose which keys meet in a bucket.
    pub(crate) hash_seed: [u64; 2],
    /// The state-machine version that the group begins with; a command raises it later.
    pub(crate) state_version: u8,
    /// The store's limits.
    pub(crate) store_limits: Limits,
    /// Whether the group keeps an ordered index from the beginning.
    pub(crate) ordered: bool,
    /// The sessions' limits.
    pub(crate) session_limits: SessionLimits,
    /// For so long after it has heard from a leader no replica gives its vote to another one: a lease relies on this.
    pub(crate) vote_refusal_ns: u64,
}

impl Genesis {
    /// The settings of a new group.
    #[must_use]
    pub(crate) fn new(config: &ReplicaConfig, hash_seed: [u64; 2]) -> Self {
        Self {
            hash_seed,
            state_version: config.state_version,
            store_limits: config.store_limits,
            ordered: config.ordered,
            session_limits: config.session_limits,
            // A follower's first tick may come at once, so one of them does not count.
            vote_refusal_ns: config.tick.as_nanos() * (config.election_ticks as u64 - 1),
        }
    }

    /// The settings of a replica of this group: its own election timeout is lengthened, never shortened, to what the
    /// group has promised its leaders.
    #[must_use]
    pub(crate) fn adapt(&self, config: &ReplicaConfig) -> ReplicaConfig {
        let ticks = self.vote_refusal_ns.div_ceil(config.tick.as_nanos()) + 1;
        let election_ticks = config
            .election_ticks
            .max(usize::try_from(ticks).unwrap_or(usize::MAX / 4));
        ReplicaConfig {
            election_ticks,
            ..*config
        }
    }

    /// The entry's bytes.
    #[must_use]
    pub(crate) fn encode(&self) -> Vec<u8> {
        let ordered = u8::from(self.ordered);
        let mut out = vec![GENESIS_VERSION, self.state_version, ordered, 0];
        put_u64(&mut out, self.hash_seed[0]);
        put_u64(&mut out, self.hash_seed[1]);
        put_u64(&mut out, self.store_limits.memory_bytes);
        put_u32(&mut out, self.store_limits.key_bytes);
        put_u32(&mut out, self.store_limits.value_bytes);
        put_u32(&mut out, self.session_limits.count_max);
        put_u64(&mut out, self.session_limits.reply_bytes_max);
        put_u64(&mut out, self.session_limits.ttl_ns);
        put_u64(&mut out, self.vote_refusal_ns);
        out
    }

    /// Reads the entry's bytes.
    ///
    /// # Errors
    /// When they are of another version, or set limits that no store can hold to.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, StateError> {
        let mut cursor = Cursor::new(bytes, "the group's settings");
        if cursor.u8()? != GENESIS_VERSION {
            return Err(cursor.error());
        }
        let state_version = cursor.u8()?;
        if state_version > STATE_VERSION {
            return Err(StateError::newer(state_version));
        }
        let ordered = match cursor.u8()? {
            0 => false,
            1 if state_version >= ORDERED_VERSION => true,
            _ => return Err(cursor.error()),
        };
        cursor.take(1)?;
        let hash_seed = [cursor.u64()?, cursor.u64()?];
        let store_limits = Limits {
            memory_bytes: cursor.u64()?,
            key_bytes: cursor.u32()?,
            value_bytes: cursor.u32()?,
        };
        let session_limits = SessionLimits {
            count_max: cursor.u32()?,
            reply_bytes_max: cursor.u64()?,
            ttl_ns: cursor.u64()?,
        };
        let vote_refusal_ns = cursor.u64()?;
        let genesis = Self {
            hash_seed,
            state_version,
            store_limits,
            ordered,
            session_limits,
            vote_refusal_ns,
        };
        /// Longer than any group could bear to be without a leader.
        const VOTE_REFUSAL_MAX_NS: u64 = 3_600_000_000_000;
        let usable = vote_refusal_ns <= VOTE_REFUSAL_MAX_NS
            && (STATE_VERSION_FIRST..=STATE_VERSION).contains(&state_version)
            && store_limits.check().is_ok()
            && session_limits.count_max > 0
            && session_limits.reply_bytes_max > 0;
        if !usable {
            return Err(cursor.error());
        }
        cursor.finish()?;
        Ok(genesis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_of_the_group_never_votes_sooner_than_the_group_has_promised() {
        let genesis = Genesis::new(&ReplicaConfig::default(), [1, 2]);
        assert_eq!(
            genesis.adapt(&ReplicaConfig::default()),
            ReplicaConfig::default()
        );
        let tick = trine_transport::time::Duration::from_millis(3);
        let hasty = ReplicaConfig {
            election_ticks: 10,
            tick,
            ..ReplicaConfig::default()
        };
        let adapted = genesis.adapt(&hasty);
        assert!((adapted.election_ticks as u64 - 1) * tick.as_nanos() >= genesis.vote_refusal_ns);
        let patient = ReplicaConfig {
            election_ticks: 100,
            ..ReplicaConfig::default()
        };
        assert_eq!(genesis.adapt(&patient), patient);
    }

    #[test]
    fn settings_survive_and_bad_ones_are_refused() {
        let genesis = Genesis::new(&ReplicaConfig::default(), [1, 2]);
        let bytes = genesis.encode();
        assert_eq!(Genesis::decode(&bytes), Ok(genesis));
        assert!(Genesis::decode(&bytes[..bytes.len() - 1]).is_err());
        let no_sessions = Genesis {
            session_limits: SessionLimits {
                count_max: 0,
                ..genesis.session_limits
            },
            ..genesis
        };
        assert!(Genesis::decode(&no_sessions.encode()).is_err());
        let ordered = Genesis {
            ordered: true,
            ..genesis
        };
        assert_eq!(Genesis::decode(&ordered.encode()), Ok(ordered));
        let older = Genesis {
            state_version: ORDERED_VERSION - 1,
            ..ordered
        };
        assert!(Genesis::decode(&older.encode()).is_err());
    }
}
