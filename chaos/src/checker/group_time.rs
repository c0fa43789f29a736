//! Group time as a client can know it: keys expire by it, and it is not the clock of the recorded times.
//!
//! Group time runs with the clock of the leader, and stops while there is none. So only bounds are known for the moment
//! at which a key with a time to live expires, and the checker holds the group to them. It must not expire before the
//! time has passed, on any clock that a leader may have had. Once the group permanently has a leader and a quorum, it
//! must expire at most a little after it.

const MILLION: u64 = 1_000_000;

/// The known relation of group time to the clock of the history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupTime {
    /// How far a replica's clock may run wrong, in millionths.
    pub drift_per_million: u64,
    /// When a replica's clock jumped ahead, and how far.
    pub jumps_ns: Vec<(u64, u64)>,
    /// How far recorded times may differ from the true ones: they are made strictly increasing, some nanoseconds each.
    pub rounding_ns: u64,
    /// From when on group time does not stop any more; `None` promises no end to any key.
    pub steady: Option<Steady>,
}

/// A group that serves.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Steady {
    /// Since when.
    pub from_ns: u64,
    /// How long after its time a key may still be found.
    pub late_ns: u64,
}

impl GroupTime {
    /// No key written by a call at `call_ns` to live for `ttl_ns` expires before this moment.
    pub(crate) fn earliest(&self, call_ns: u64, ttl_ns: u64) -> u64 {
        let after = |left_ns: u64| {
            let passed = scale(left_ns, MILLION, MILLION + self.drift_per_million);
            call_ns.saturating_add(passed)
        };
        let mut jumps: Vec<(u64, u64)> = self.jumps_ns.clone();
        jumps.retain(|&(at_ns, _)| at_ns.saturating_add(self.rounding_ns) >= call_ns);
        jumps.sort_unstable();
        let mut left_ns = ttl_ns;
        let mut earliest = after(left_ns);
        for (at_ns, span_ns) in jumps {
            if at_ns >= earliest {
                break;
            }
            left_ns = left_ns.saturating_sub(span_ns);
            // But not before the jump itself.
            earliest = after(left_ns).max(at_ns);
        }
        earliest.saturating_sub(self.rounding_ns).max(call_ns)
    }

    /// A key that was there at `seen_ns` and had at most `ttl_ns` to live is gone at this moment; nothing if that is
    /// not promised.
    pub(crate) fn latest(&self, seen_ns: u64, ttl_ns: u64) -> Option<u64> {
        let steady = self.steady?;
        let slowest = MILLION.saturating_sub(self.drift_per_million).max(1);
        let lives_ns = scale(ttl_ns, MILLION, slowest);
        let from_ns = seen_ns.max(steady.from_ns);
        let late_ns = steady.late_ns.saturating_add(self.rounding_ns);
        Some(from_ns.saturating_add(lives_ns).saturating_add(late_ns))
    }
}

/// `value * by / of`, rounded down, at most `u64::MAX`.
fn scale(value: u64, by: u64, of: u64) -> u64 {
    let scaled = u128::from(value) * u128::from(by) / u128::from(of);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn without_wrong_clocks_a_key_keeps_its_time() {
        let time = GroupTime::default();
        assert_eq!(time.earliest(5 * MS, 20 * MS), 25 * MS);
        assert_eq!(time.latest(5 * MS, 20 * MS), None);
    }

    #[test]
    fn a_fast_clock_shortens_a_lifetime_and_a_slow_one_makes_it_longer() {
        let time = GroupTime {
            drift_per_million: 10_000,
            steady: Some(Steady {
                from_ns: 0,
                late_ns: 0,
            }),
            ..GroupTime::default()
        };
        assert_eq!(time.earliest(0, 1_010 * MS), 1_000 * MS);
        assert_eq!(time.latest(0, 990 * MS), Some(1_000 * MS));
    }

    #[test]
    fn only_a_jump_while_the_key_exists_shortens_its_lifetime() {
        let time = |jumps_ns: &[(u64, u64)]| GroupTime {
            jumps_ns: jumps_ns.to_vec(),
            ..GroupTime::default()
        };
        let earliest = |jumps: &[(u64, u64)]| time(jumps).earliest(100 * MS, 50 * MS);
        assert_eq!(earliest(&[(90 * MS, 40 * MS)]), 150 * MS, "before");
        assert_eq!(earliest(&[(110 * MS, 20 * MS)]), 130 * MS, "while it lives");
        assert_eq!(earliest(&[(140 * MS, 900 * MS)]), 140 * MS, "at once");
        assert_eq!(earliest(&[(160 * MS, 20 * MS)]), 150 * MS, "after");
        let two = [(135 * MS, 20 * MS), (110 * MS, 20 * MS)];
        assert_eq!(earliest(&two), 130 * MS, "the second comes too late");
    }

    #[test]
    fn nothing_is_promised_before_the_group_serves() {
        let time = GroupTime {
            steady: Some(Steady {
                from_ns: 500,
                late_ns: 7,
            }),
            ..GroupTime::default()
        };
        assert_eq!(time.latest(100, 50), Some(557));
        assert_eq!(time.latest(600, 50), Some(657));
    }
}
