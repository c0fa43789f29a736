//! Agreement of the logs, and of the states at every applied index.
//!
//! Fed during a run, because replicas come and go and logs are compacted. The first replica to show
//! an index fixes the entry that every other must show there.

use super::Verdict;
use rustc_hash::FxHashMap;
use std::collections::hash_map;

/// The known part of the log.
#[derive(Clone, Debug, Default)]
pub struct LogAgreement {
    entries: FxHashMap<u64, Entry>,
    states: FxHashMap<u64, AppliedState>,
    compared: u64,
    first_violation: Option<String>,
}

#[derive(Copy, Clone, Debug)]
struct Entry {
    term: u64,
    digest: u64,
    replica: u64,
}

#[derive(Copy, Clone, Debug)]
struct AppliedState {
    hash: u128,
    replica: u64,
}

impl LogAgreement {
    /// Nothing observed yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A replica applied the entry at `index`, of `term`, whose content has this digest.
    pub fn observe_entry(&mut self, replica: u64, index: u64, term: u64, digest: u64) {
        let entry = match self.entries.entry(index) {
            hash_map::Entry::Occupied(seen) => {
                self.compared += 1;
                *seen.get()
            }
            hash_map::Entry::Vacant(unseen) => *unseen.insert(Entry {
                term,
                digest,
                replica,
            }),
        };
        if (entry.term, entry.digest) != (term, digest) {
            self.violate(format!(
                "replicas {} and {replica} applied different entries at index {index} (terms {} and {term})",
                entry.replica, entry.term
            ));
        }
    }

    /// A replica that has applied everything up to `applied` is in the state with this hash.
    pub fn observe_state(&mut self, replica: u64, applied: u64, hash: u128) {
        let state = match self.states.entry(applied) {
            hash_map::Entry::Occupied(seen) => {
                self.compared += 1;
                *seen.get()
            }
            hash_map::Entry::Vacant(unseen) => *unseen.insert(AppliedState { hash, replica }),
        };
        if state.hash != hash {
            self.violate(format!(
                "replicas {} and {replica} are in different states after index {applied}: {:032x} and {hash:032x}",
                state.replica, state.hash
            ));
        }
    }

    /// Whether some replica's state at this index is known.
    pub fn knows_state(&self, applied: u64) -> bool {
        self.states.contains_key(&applied)
    }

    /// Comparisons made: an index seen on one replica alone proves nothing.
    pub fn observed(&self) -> u64 {
        self.compared
    }

    /// The judgement so far.
    pub fn verdict(&self) -> Verdict {
        match &self.first_violation {
            None => Verdict::Pass,
            Some(explanation) => Verdict::violation(format!("no agreement: {explanation}")),
        }
    }

    fn violate(&mut self, explanation: String) {
        self.first_violation.get_or_insert(explanation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_logs_and_states_agree() {
        let mut log = LogAgreement::new();
        for replica in 1..=3 {
            log.observe_entry(replica, 7, 2, 99);
            log.observe_state(replica, 7, 1234);
        }
        assert_eq!(log.verdict(), Verdict::Pass);
        assert_eq!(log.observed(), 4);
    }

    #[test]
    fn another_entry_at_the_same_index_is_a_violation() {
        let mut log = LogAgreement::new();
        log.observe_entry(1, 7, 2, 99);
        log.observe_entry(2, 7, 3, 99);
        assert!(matches!(log.verdict(), Verdict::Violation(_)));
    }

    #[test]
    fn another_state_after_the_same_index_is_a_violation_that_stays() {
        let mut log = LogAgreement::new();
        log.observe_state(1, 7, 1);
        log.observe_state(2, 7, 2);
        log.observe_state(2, 8, 3);
        assert!(matches!(log.verdict(), Verdict::Violation(_)));
    }
}
