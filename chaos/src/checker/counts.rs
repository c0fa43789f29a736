//! Counts of ranges against the state of their positions.
//!
//! Acknowledged writes and deletes up to the position say of each key whether it is there. A key is in doubt if a call
//! about it had an unknown outcome, or if it was written for a time. So the answer is a number from those that are
//! certainly there to those that may be.

use super::Verdict;
use crate::history::{Action, Answer, History, Operation, Outcome};
use std::collections::BTreeMap;

/// An answered COUNT of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeCount {
    /// Every key that the range can have.
    pub keys: Vec<Vec<u8>>,
    /// The answer.
    pub items: u64,
    /// The position that the reply names.
    pub position: u64,
}

/// What is known of a key.
#[derive(Default)]
struct Key<'a> {
    /// Acknowledged changes by their positions, and whether the key is there behind them.
    changes: BTreeMap<u64, (bool, &'a Operation)>,
    /// Whether it may be there, or gone, without a position that a client was told.
    may_appear: bool,
    may_vanish: bool,
}

/// Judges all counts of a history.
pub fn check(history: &History, counts: &[RangeCount]) -> Verdict {
    let mut keys: BTreeMap<&[u8], Key<'_>> = BTreeMap::new();
    for operation in history.operations() {
        keys.entry(&operation.key).or_default().note(operation);
    }
    let verdicts = counts.iter().map(|count| check_count(count, &keys));
    verdicts.fold(Verdict::Pass, Verdict::and)
}

fn check_count(count: &RangeCount, keys: &BTreeMap<&[u8], Key<'_>>) -> Verdict {
    let known: Vec<&Key<'_>> = count
        .keys
        .iter()
        .filter_map(|key| keys.get(key.as_slice()))
        .collect();
    let (mut least, mut most) = (0, 0);
    for key in &known {
        let (certain, possible) = key.at(count.position);
        least += u64::from(certain);
        most += u64::from(possible);
    }
    if (least..=most).contains(&count.items) {
        return Verdict::Pass;
    }
    let last: Vec<&Operation> = known
        .iter()
        .filter_map(|key| key.last(count.position))
        .map(|(_, operation)| operation)
        .collect();
    let explanation = format!(
        "a count at position {} is {}, and {least} to {most} keys were there",
        count.position, count.items
    );
    Verdict::violation_by("not the state of one position", &explanation, &last)
}

impl<'a> Key<'a> {
    fn note(&mut self, operation: &'a Operation) {
        let writes = !matches!(
            operation.action,
            Action::Get | Action::Delete | Action::Flush
        );
        let removes = matches!(operation.action, Action::Delete | Action::Flush);
        self.may_vanish |= matches!(operation.action, Action::PutFor { .. });
        let is_there = match &operation.outcome {
            Outcome::Unknown => None,
            Outcome::Failed => return,
            Outcome::Known(Answer::Written { .. } | Answer::Number { .. }) => Some(true),
            Outcome::Known(Answer::Deleted { .. } | Answer::RangeDeleted | Answer::Flushed) => {
                Some(false)
            }
            Outcome::Known(_) => return,
        };
        match (is_there, operation.position) {
            (Some(is_there), Some(position)) => {
                self.changes.insert(position, (is_there, operation));
            }
            _ => {
                self.may_appear |= writes;
                self.may_vanish |= removes;
            }
        }
    }

    fn last(&self, position: u64) -> Option<(bool, &'a Operation)> {
        let last = self.changes.range(..=position).next_back();
        last.map(|(_, change)| *change)
    }

    /// Whether it is certainly there at a position, and whether it may be.
    fn at(&self, position: u64) -> (bool, bool) {
        let is_there = self.last(position).is_some_and(|(is_there, _)| is_there);
        (is_there && !self.may_vanish, is_there || self.may_appear)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys a and b, written at 1 and 2, and a deleted at 4.
    fn history() -> History {
        let mut history = History::new();
        let put = |value: &[u8]| Action::Put {
            value: value.to_vec(),
        };
        for (key, action, answer, position) in [
            (b"a", put(b"1"), Answer::Written { version: Some(1) }, 1),
            (b"b", put(b"2"), Answer::Written { version: Some(2) }, 2),
            (b"a", Action::Delete, Answer::RangeDeleted, 4),
        ] {
            let index = history.call(1, position, key, action);
            history.complete(index, position, answer, Some(position));
        }
        history
    }

    /// The answers that pass at a position.
    fn passing(history: &History, position: u64) -> Vec<u64> {
        let is_passed = |items: &u64| {
            let keys = [b"a", b"b", b"c"].map(|key| key.to_vec()).to_vec();
            let count = RangeCount {
                keys,
                items: *items,
                position,
            };
            check(history, &[count]).is_pass()
        };
        (0..5).filter(is_passed).collect()
    }

    #[test]
    fn a_count_has_to_be_that_of_its_position() {
        let history = history();
        for (position, items) in [(0, 0), (1, 1), (2, 2), (3, 2), (4, 1), (9, 1)] {
            assert_eq!(passing(&history, position), [items], "at {position}");
        }
    }

    #[test]
    fn doubt_about_a_key_is_doubt_about_the_count() {
        let mut written = history();
        let value = b"3".to_vec();
        written.call(2, 5, b"c", Action::Put { value });
        assert_eq!(passing(&written, 3), [2, 3]);
        let mut deleted = history();
        deleted.call(2, 5, b"b", Action::Delete);
        assert_eq!(passing(&deleted, 3), [1, 2]);
        let mut mortal = history();
        let action = Action::PutFor {
            value: b"4".to_vec(),
            ttl_ns: 1,
        };
        let index = mortal.call(2, 6, b"b", action);
        mortal.complete(index, 6, Answer::Written { version: Some(6) }, Some(6));
        assert_eq!(passing(&mortal, 9), [0, 1]);
        let mut failed = history();
        let index = failed.call(2, 5, b"b", Action::Delete);
        failed.fail(index, 6);
        assert_eq!(passing(&failed, 9), [1]);
    }
}
