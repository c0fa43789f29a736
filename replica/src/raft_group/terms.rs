//! A limit on the terms that messages use up.
//!
//! Raft takes whatever greater term a message names, so one message could end a group: at the greatest term of all no
//! replica can be elected any more. So messages draw on an allowance. It is far more than elections ever use, and far
//! too little to get near the end of the numbers. Messages that exceed it are dropped and counted; raft repeats them.

use trine_transport::time::Instant;

use crate::config::{TERM_ALLOWANCE_MAX, TERMS_PER_SECOND};

/// A token bucket of terms.
#[derive(Clone, Copy, Debug)]
pub(super) struct TermAllowance {
    left: u64,
    refilled_at: Instant,
}

impl TermAllowance {
    /// A full bucket.
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            left: TERM_ALLOWANCE_MAX,
            refilled_at: now,
        }
    }

    /// Whether a message may raise the term by `terms`.
    pub(super) fn allows(&mut self, now: Instant, terms: u64) -> bool {
        let passed_ns = now.saturating_since(self.refilled_at).as_nanos();
        let gained = u128::from(passed_ns) * u128::from(TERMS_PER_SECOND) / 1_000_000_000;
        if gained > 0 {
            let gained = u64::try_from(gained).unwrap_or(u64::MAX);
            self.left = self.left.saturating_add(gained).min(TERM_ALLOWANCE_MAX);
            self.refilled_at = now;
        }
        terms <= self.left
    }

    /// A message has raised the term by `terms`, which were allowed.
    pub(super) fn draw(&mut self, terms: u64) {
        self.left = self.left.saturating_sub(terms);
    }
}

#[cfg(test)]
mod tests {
    use trine_transport::time::Duration;

    use super::*;

    #[test]
    fn the_allowance_is_used_up_and_comes_back_with_time() {
        let start = Instant::from_nanos(5);
        let mut allowance = TermAllowance::new(start);
        assert!(allowance.allows(start, TERM_ALLOWANCE_MAX));
        assert!(!allowance.allows(start, TERM_ALLOWANCE_MAX + 1));
        allowance.draw(TERM_ALLOWANCE_MAX);
        assert!(allowance.allows(start, 0) && !allowance.allows(start, 1));
        let second = start + Duration::from_secs(1);
        assert!(allowance.allows(second, TERMS_PER_SECOND));
        assert!(!allowance.allows(second, TERMS_PER_SECOND + 1));
        assert!(!allowance.allows(
            second + Duration::from_secs(1 << 20),
            TERM_ALLOWANCE_MAX + 1
        ));
    }

    /// Time that is too short for a whole term must not be thrown away by asking often.
    #[test]
    fn asking_often_does_not_slow_the_refill() {
        let mut now = Instant::from_nanos(0);
        let mut allowance = TermAllowance::new(now);
        allowance.allows(now, 0);
        allowance.draw(TERM_ALLOWANCE_MAX);
        for _ in 0..2_000 {
            now += Duration::from_nanos(500);
            allowance.allows(now, 0);
        }
        let expected = 2_000 * 500 * TERMS_PER_SECOND / 1_000_000_000;
        assert!(allowance.allows(now, expected / 2));
    }
}
