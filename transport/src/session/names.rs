//! Names of server ends, and those that are over, remembered for as long as a cookie could bring them back.
//!
//! A CONNECT that comes late, or twice, may still carry a good cookie. The session that it would make has the nonce of
//! one that is over, so the old packets and their requests would count again.

use std::collections::BTreeSet;

use crate::config::ENDED_NONCES_MAX;

/// What tells a server end from others. An attacker that sees a nonce on the way can ask for a session with it, but not
/// for a sealed one. So sealed sessions have names of their own.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ServerEndName {
    pub(super) nonce: u64,
    pub(super) is_sealed: bool,
}

/// The names of ended server ends. A cookie is good in the period in which it was given and in the next one. So a name is
/// kept for two periods, counted from the last CONNECT before the session's end.
#[derive(Default)]
pub(super) struct EndedNames {
    period: u64,
    /// Those of this period, and of the one before it.
    present: BTreeSet<ServerEndName>,
    before: BTreeSet<ServerEndName>,
}

impl EndedNames {
    /// Forgets the names whose cookies are too old. To be called before a cookie is given or read.
    pub(super) fn advance(&mut self, period: u64) {
        let passed = period.saturating_sub(self.period);
        if passed == 0 {
            return;
        }
        self.period = period;
        self.before = std::mem::take(&mut self.present);
        if passed > 1 {
            self.before.clear();
        }
    }

    pub(super) fn contains(&self, name: &ServerEndName) -> bool {
        self.present.contains(name) || self.before.contains(name)
    }

    /// Remembers a server end that is over. True if others were forgotten too early, for want of room.
    #[must_use]
    pub(super) fn insert(&mut self, name: ServerEndName) -> bool {
        let is_full = self.present.len() >= ENDED_NONCES_MAX;
        if is_full {
            self.present.clear();
        }
        self.present.insert(name);
        is_full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(nonce: u64) -> ServerEndName {
        ServerEndName {
            nonce,
            is_sealed: false,
        }
    }

    #[test]
    fn a_name_is_kept_for_two_periods() {
        let mut ended = EndedNames::default();
        ended.advance(7);
        assert!(!ended.insert(name(1)));
        ended.advance(8);
        assert!(ended.contains(&name(1)));
        assert!(!ended.insert(name(2)));
        ended.advance(9);
        assert!(!ended.contains(&name(1)));
        assert!(ended.contains(&name(2)));
        ended.advance(11);
        assert!(!ended.contains(&name(2)));
    }

    #[test]
    fn the_names_of_a_period_are_bounded_and_whoever_is_forgotten_early_is_told() {
        let mut ended = EndedNames::default();
        for nonce in 0..ENDED_NONCES_MAX as u64 {
            assert!(!ended.insert(name(nonce)));
        }
        assert!(ended.insert(name(u64::MAX)));
        assert!(ended.contains(&name(u64::MAX)));
        assert_eq!(ended.present.len(), 1);
    }
}
