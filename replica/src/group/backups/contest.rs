//! When an image goes to another caller that waits for one.
//!
//! A replica has one image at a time. Whoever begins one and asks for a piece now and then could keep it from all others
//! for good, and needs no key for that where callers without one are let in.

use trine_transport::time::Instant;

use crate::audit::By;
use crate::config::{BACKUP_CONTEST, BACKUP_CONTEST_BYTES_PER_SECOND, BACKUP_CONTEST_GAP_MAX};

/// How far the reader of an image has come, and since when another caller waits.
#[derive(Debug)]
pub(super) struct ReaderProgress {
    reader: By,
    /// Bytes of the pieces that were handed out, each counted once.
    bytes: u64,
    /// The first piece that was not handed out yet.
    next: u32,
    contest: Option<Contest>,
}

#[derive(Copy, Clone, Debug)]
struct Contest {
    since: Instant,
    /// When one of the waiting callers has asked last.
    asked: Instant,
    /// What the reader had by the beginning.
    bytes: u64,
}

impl ReaderProgress {
    pub(super) fn of(reader: By) -> Self {
        Self {
            reader,
            bytes: 0,
            next: 0,
            contest: None,
        }
    }

    /// A piece was handed out, perhaps once more.
    pub(super) fn on_piece(&mut self, number: u32, bytes: usize) {
        if number >= self.next {
            self.next = number + 1;
            self.bytes += bytes as u64;
        }
    }

    /// Another caller asks for an image. Whether it gets the one place there is for it.
    pub(super) fn gives_way_to(&mut self, other: By, now: Instant) -> bool {
        match (has_key(self.reader), has_key(other)) {
            (false, true) => return true,
            (true, false) => return false,
            _ => {}
        }
        let goes_on =
            |contest: &Contest| now.saturating_since(contest.asked) <= BACKUP_CONTEST_GAP_MAX;
        let contest = self.contest.filter(goes_on).unwrap_or(Contest {
            since: now,
            asked: now,
            bytes: self.bytes,
        });
        self.contest = Some(Contest {
            asked: now,
            ..contest
        });
        let waited = now.saturating_since(contest.since);
        let due = waited.as_secs() * BACKUP_CONTEST_BYTES_PER_SECOND;
        waited >= BACKUP_CONTEST && self.bytes - contest.bytes < due
    }
}

fn has_key(by: By) -> bool {
    !matches!(by, By::NoUser | By::Stranger { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_transport::time::Duration;

    const STRANGER: By = By::Stranger { from: None };

    /// Asks once a second, and lets the reader have so many bytes of a new piece in between. Tells after how many seconds
    /// the image goes to the asking one.
    fn held_for(reader: By, other: By, bytes: usize, is_new: bool) -> Option<u64> {
        let mut progress = ReaderProgress::of(reader);
        (0..60).find(|&second| {
            let now = Instant::ZERO + Duration::from_secs(second);
            let number = if is_new { second as u32 } else { 0 };
            progress.on_piece(number, bytes);
            progress.gives_way_to(other, now)
        })
    }

    /// A stranger asked for the first piece again and again, and nobody else made a backup.
    #[test]
    fn a_reader_that_does_not_go_on_gives_way() {
        let enough = BACKUP_CONTEST_BYTES_PER_SECOND as usize;
        let limit = Some(BACKUP_CONTEST.as_secs());
        for by in [STRANGER, By::Holder] {
            assert_eq!(held_for(by, by, enough, true), None);
            assert_eq!(held_for(by, by, enough, false), limit);
            assert_eq!(held_for(by, by, enough / 2, true), limit);
        }
    }

    #[test]
    fn a_caller_with_a_key_does_not_wait_for_one_without() {
        assert_eq!(held_for(STRANGER, By::Holder, 1 << 20, true), Some(0));
        assert_eq!(held_for(By::Holder, STRANGER, 0, false), None);
    }

    /// Two who ask once each, a long time apart, do not wait.
    #[test]
    fn a_wait_that_was_broken_off_does_not_count() {
        let mut progress = ReaderProgress::of(STRANGER);
        for round in 0..10 {
            let now = Instant::ZERO + (BACKUP_CONTEST_GAP_MAX + Duration::from_secs(1)) * round;
            assert!(!progress.gives_way_to(STRANGER, now));
        }
    }
}
