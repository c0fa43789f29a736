//! Exactly once: each acknowledged write was applied once.
//!
//! Works on the history alone. Values are written once, so an item that shows one value under two
//! versions was written twice by one operation. Two acknowledged writes at one position cannot both
//! have been applied. A version told in a reply must be the version that reads see.

use super::Verdict;
use crate::history::{Answer, History, Operation};
use rustc_hash::FxHashMap;

/// Judges a history.
pub fn check(history: &History) -> Verdict {
    let positions = positions_are_unique(history);
    positions.and(values_keep_their_version(history))
}

fn positions_are_unique(history: &History) -> Verdict {
    let mut writes: FxHashMap<u64, &Operation> = FxHashMap::default();
    for operation in history
        .operations()
        .iter()
        .filter(|operation| operation.is_acknowledged_write())
    {
        let Some(position) = operation.position else {
            continue;
        };
        if let Some(other) = writes.insert(position, operation) {
            return violation(
                "two acknowledged writes have the same position",
                &[other, operation],
            );
        }
    }
    Verdict::Pass
}

/// A value, the version it was first seen under, and the operation that told so.
type Seen<'a> = FxHashMap<(&'a [u8], &'a [u8]), (u64, &'a Operation)>;

fn values_keep_their_version(history: &History) -> Verdict {
    let mut writers: FxHashMap<(&[u8], &[u8]), u32> = FxHashMap::default();
    for operation in history.operations() {
        if let Some(value) = operation.action.written_value() {
            *writers.entry((&operation.key, value)).or_default() += 1;
        }
    }
    let mut seen: Seen<'_> = FxHashMap::default();
    for operation in history.operations() {
        let (value, version) = match operation.answer() {
            Some(Answer::Value {
                value,
                version: Some(version),
            }) => (value.as_slice(), *version),
            Some(Answer::Written {
                version: Some(version),
            }) => match operation.action.written_value() {
                Some(value) => (value, *version),
                None => continue,
            },
            _ => continue,
        };
        let place = (operation.key.as_slice(), value);
        // A value that several operations wrote, or that counting made, has several versions.
        if writers.get(&place) != Some(&1) {
            continue;
        }
        let (first, teller) = *seen.entry(place).or_insert((version, operation));
        if first != version {
            return violation(
                "one write shows under two versions: it was applied twice",
                &[teller, operation],
            );
        }
    }
    Verdict::Pass
}

fn violation(explanation: &str, operations: &[&Operation]) -> Verdict {
    Verdict::violation_by("not exactly once", explanation, operations)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Action;

    fn put(history: &mut History, at: u64, value: &[u8], version: u64) {
        let index = history.call(
            1,
            at,
            b"k",
            Action::Put {
                value: value.to_vec(),
            },
        );
        history.complete(
            index,
            at + 1,
            Answer::Written {
                version: Some(version),
            },
            Some(version),
        );
    }

    fn get(history: &mut History, at: u64, value: &[u8], version: u64) {
        let index = history.call(2, at, b"k", Action::Get);
        let answer = Answer::Value {
            value: value.to_vec(),
            version: Some(version),
        };
        history.complete(index, at + 1, answer, Some(version));
    }

    #[test]
    fn a_write_seen_under_its_own_version_is_fine() {
        let mut history = History::new();
        put(&mut history, 10, b"a", 65536);
        get(&mut history, 20, b"a", 65536);
        put(&mut history, 30, b"b", 65537);
        assert_eq!(check(&history), Verdict::Pass);
    }

    #[test]
    fn a_retry_that_was_applied_again_shows_a_second_version() {
        let mut history = History::new();
        put(&mut history, 10, b"a", 65536);
        get(&mut history, 20, b"a", 131072);
        let Verdict::Violation(violation) = check(&history) else {
            panic!("applied twice")
        };
        assert_eq!(violation.operations.len(), 2);
    }

    #[test]
    fn two_writes_cannot_share_a_position() {
        let mut history = History::new();
        put(&mut history, 10, b"a", 65536);
        put(&mut history, 20, b"b", 65536);
        assert!(matches!(check(&history), Verdict::Violation(_)));
    }
}
