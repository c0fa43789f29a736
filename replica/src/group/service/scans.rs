//! When a scan may begin. Scans run in the thread of the group, and must not starve its writers.
//!
//! A scan is charged when it comes, by the keys that it may look at. While commands are applied, the next one has to wait
//! until the time since then is ten times the charge. So scans take a tenth of the time at most. A group that applies
//! nothing serves scans as fast as it can.

use trine_kvstore::Command;
use trine_kvstore::config::{COUNT_AT_KEYS_MAX, SCAN_KEYS_MAX};
use trine_transport::time::{Duration, Instant};

use crate::config::{SCAN_KEY_NS, SCAN_SHARE};

/// What scans have taken.
#[derive(Debug)]
pub(super) struct ScanBudget {
    free_at: Instant,
    /// Commands that were applied when the last scan came.
    applied: u64,
}

impl ScanBudget {
    pub(super) fn new() -> Self {
        Self {
            free_at: Instant::from_nanos(0),
            applied: 0,
        }
    }

    /// Whether this command may be taken; if it is a scan, it is charged. `applied` counts the commands that the replica
    /// has applied so far.
    pub(super) fn admit(&mut self, now: Instant, applied: u64, command: &Command<'_>) -> bool {
        let keys = match command {
            Command::Scan { options, .. } | Command::ScanAt { options, .. } => options.limit,
            Command::CountAt { .. } => COUNT_AT_KEYS_MAX,
            _ => return true,
        };
        let is_idle = applied == self.applied;
        if !is_idle && now < self.free_at {
            return false;
        }
        let charge = u64::from(keys.min(SCAN_KEYS_MAX)) * SCAN_KEY_NS;
        // An idle group's scans cost nobody anything: only the last one counts.
        self.free_at = now + Duration::from_nanos(charge * SCAN_SHARE);
        self.applied = applied;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_kvstore::{KeyRange, ScanOptions};

    const SCAN: Command<'static> = Command::Scan {
        range: KeyRange::Prefix(b""),
        options: ScanOptions {
            limit: 1_000,
            reverse: false,
            keys_only: false,
        },
    };
    const CHARGE_NS: u64 = 1_000 * SCAN_KEY_NS;

    /// A scanner that never rests, and a group that applies a command between any two scans.
    #[test]
    fn scans_take_a_tenth_of_the_time_of_a_group_that_writes() {
        let mut budget = ScanBudget::new();
        let (mut scans, end_ns) = (0, 1_000 * CHARGE_NS);
        for (applied, now_ns) in (0..end_ns).step_by(CHARGE_NS as usize / 4).enumerate() {
            let now = Instant::from_nanos(now_ns);
            scans += u64::from(budget.admit(now, applied as u64 + 1, &SCAN));
            let other = Command::Get { key: b"k" };
            assert!(budget.admit(now, applied as u64 + 1, &other));
        }
        let share = scans * CHARGE_NS * 100 / end_ns;
        assert!((9..=10).contains(&share), "{share} %");
    }

    #[test]
    fn a_group_that_writes_nothing_serves_all_scans_and_they_leave_no_debt_behind() {
        let mut budget = ScanBudget::new();
        let now = Instant::from_nanos(5);
        assert!((0..1_000).all(|_| budget.admit(now, 7, &SCAN)));
        let later = now + Duration::from_nanos(CHARGE_NS * SCAN_SHARE);
        assert!(budget.admit(later, 8, &SCAN));
        assert!(!budget.admit(later, 9, &SCAN));
    }
}
