//! Whether this leader's disk has stopped while the others commit without it.
//!
//! Raft gives entries out only once they are on this disk too, so such a leader answers nothing. Where no majority can do
//! without this disk, the commit index does not run ahead, and nothing is handed over. Where all disks are slow it does,
//! for as long as a sync takes: so what this disk took lately counts, too.

use trine_transport::time::{Duration, Instant};

/// Election timeouts that a disk may stand still before leadership is handed over, and again between attempts.
const HANG_ELECTION_TIMEOUTS: u64 = 4;
/// But not less than this, however short the election timeout is: healthy disks have such moments.
const LIMIT_MIN: Duration = Duration::from_millis(200);
/// A disk that was slow lately may take so many times as long as then.
const SLOWER: u64 = 2;
/// But not longer than this.
const LIMIT_MAX: Duration = Duration::from_secs(2);

/// Where the log of a replica ends.
#[derive(Clone, Copy)]
pub(super) struct Ends {
    /// The last entry that is durable here.
    pub(super) persisted: u64,
    /// The last entry that is committed.
    pub(super) committed: u64,
    /// The last entry.
    pub(super) last: u64,
}

/// How the durable end of a replica's log has moved.
#[derive(Default)]
pub(super) struct HangingDisk {
    /// A durable index with entries behind it, and since when it has stood there.
    still: Option<(u64, Instant)>,
    /// Since when it has stood still behind the commit index, or leadership was handed over for that.
    behind: Option<Instant>,
    /// The longest of the last times that it stood still. Each shorter one takes a quarter of it away.
    usual: Duration,
}

impl HangingDisk {
    /// Called at each tick, in any role. Whether a leader has to hand over now; the time begins again if so.
    pub(super) fn follow(&mut self, now: Instant, ends: Ends, election_timeout: Duration) -> bool {
        let stands = |(at, since): (u64, Instant)| (at == ends.persisted).then_some(since);
        let since = self.still.and_then(stands);
        if since.is_none() {
            if let Some((_, before)) = self.still {
                self.note(now.saturating_since(before));
            }
            self.behind = None;
        }
        self.still = (ends.persisted < ends.last).then(|| (ends.persisted, since.unwrap_or(now)));
        if ends.persisted >= ends.committed {
            self.behind = None;
            return false;
        }
        let limit = (election_timeout * HANG_ELECTION_TIMEOUTS).max(self.usual * SLOWER);
        let behind = *self.behind.get_or_insert(now);
        let due = now.saturating_since(behind) >= limit.clamp(LIMIT_MIN, LIMIT_MAX);
        if due {
            self.behind = Some(now);
        }
        due
    }

    fn note(&mut self, took: Duration) {
        let quarter = Duration::from_nanos(self.usual.as_nanos() / 4);
        self.usual = self.usual.saturating_sub(quarter).max(took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ELECTION: Duration = Duration::from_millis(120);

    /// What a disk says at a time in milliseconds, with its durable index, the commit index and the last one.
    fn at(disk: &mut HangingDisk, ms: u64, (persisted, committed, last): (u64, u64, u64)) -> bool {
        let ends = Ends {
            persisted,
            committed,
            last,
        };
        disk.follow(Instant::ZERO + Duration::from_millis(ms), ends, ELECTION)
    }

    #[test]
    fn a_disk_that_stands_still_behind_the_commit_index_is_due_once_per_limit() {
        let mut disk = HangingDisk::default();
        assert!(!at(&mut disk, 0, (4, 11, 11)));
        assert!(!at(&mut disk, 479, (4, 12, 13)));
        assert!(at(&mut disk, 480, (4, 12, 13)));
        assert!(!at(&mut disk, 959, (4, 13, 13)));
        assert!(at(&mut disk, 960, (4, 13, 13)));
    }

    #[test]
    fn progress_and_a_commit_index_that_waits_begin_the_time_again() {
        let mut disk = HangingDisk::default();
        assert!(!at(&mut disk, 0, (4, 4, 11)), "nobody commits without it");
        assert!(!at(&mut disk, 300, (4, 11, 11)));
        assert!(!at(&mut disk, 600, (5, 11, 11)), "progress");
        assert!(!at(&mut disk, 1_000, (5, 11, 11)));
        assert!(!at(&mut disk, 1_050, (11, 11, 11)), "all is durable");
        assert!(!at(&mut disk, 9_000, (11, 12, 12)), "since now");
    }

    /// Syncs of half a second at all replicas: with a fixed limit of 480 ms each leader would hand over again and again,
    /// and each election waits for two such syncs.
    #[test]
    fn slow_disks_are_not_taken_for_hanging_ones() {
        let mut disk = HangingDisk::default();
        // As a follower: nothing is committed that is not durable here.
        assert!(!at(&mut disk, 0, (1, 1, 2)));
        for sync in 1..20 {
            let index = sync + 1;
            for ms in (0..500).step_by(8) {
                assert!(!at(
                    &mut disk,
                    sync * 500 + ms,
                    (index, index + 1, index + 2)
                ));
            }
        }
        // It hangs now.
        assert!(!at(&mut disk, 10_000, (21, 22, 23)));
        assert!(!at(&mut disk, 10_990, (21, 22, 23)));
        assert!(at(&mut disk, 11_010, (21, 22, 23)));
    }

    #[test]
    fn a_hang_of_the_past_is_soon_forgotten_and_never_allows_more_than_two_seconds() {
        let mut disk = HangingDisk::default();
        assert!(!at(&mut disk, 0, (1, 1, 2)));
        assert!(!at(&mut disk, 60_000, (2, 3, 3)), "it hung for a minute");
        assert!(!at(&mut disk, 61_990, (2, 3, 3)));
        assert!(at(&mut disk, 62_000, (2, 3, 3)));
        for write in 0..30 {
            at(&mut disk, 62_010 + write, (3 + write, 3, 4 + write));
        }
        assert!(!at(&mut disk, 62_040, (40, 40, 40)));
        assert!(!at(&mut disk, 70_000, (40, 41, 41)));
        assert!(at(&mut disk, 70_500, (40, 41, 41)));
    }
}
