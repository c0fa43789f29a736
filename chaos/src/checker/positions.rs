//! Reads against the state of the position that their replies name.
//!
//! The keys of a page share one position. So a page whose keys pass is the state of one moment, and no mixture of two.
//! A single read is judged by the same rule. Only acknowledged writes count, whose positions are known: a write of
//! unknown outcome may lie anywhere.

use super::Verdict;
use crate::history::{Action, Answer, History, Operation, Outcome};
use std::collections::BTreeMap;

/// What is known of a key.
#[derive(Default)]
struct Key<'a> {
    /// Acknowledged writes that left an item, by their positions.
    writes: BTreeMap<u64, &'a Operation>,
    /// Acknowledged deletes, by their positions.
    deletes: BTreeMap<u64, &'a Operation>,
    /// Whether an item may be gone at a position that no client was told.
    may_vanish: bool,
    reads: Vec<&'a Operation>,
}

/// Judges a history.
pub fn check(history: &History) -> Verdict {
    let mut keys: BTreeMap<&[u8], Key<'_>> = BTreeMap::new();
    for operation in history.operations() {
        keys.entry(&operation.key).or_default().note(operation);
    }
    let verdicts = keys.values().map(Key::check);
    verdicts.fold(Verdict::Pass, Verdict::and)
}

impl<'a> Key<'a> {
    fn note(&mut self, operation: &'a Operation) {
        // It ends at a moment of group time, and so does what CAS and INCR make of it.
        self.may_vanish |= matches!(operation.action, Action::PutFor { .. });
        let unknown = operation.outcome == Outcome::Unknown;
        self.may_vanish |= unknown && matches!(operation.action, Action::Delete | Action::Flush);
        let (Some(answer), Some(position)) = (operation.answer(), operation.position) else {
            return;
        };
        match (&operation.action, answer) {
            (Action::Get, Answer::Value { .. } | Answer::NotFound) => self.reads.push(operation),
            (_, Answer::Written { .. } | Answer::Number { .. }) => {
                self.writes.insert(position, operation);
            }
            (_, Answer::Deleted { .. } | Answer::RangeDeleted | Answer::Flushed) => {
                self.deletes.insert(position, operation);
            }
            _ => {}
        }
    }

    fn check(&self) -> Verdict {
        let verdicts = self.reads.iter().map(|read| self.check_read(read));
        verdicts.fold(Verdict::Pass, Verdict::and)
    }

    fn check_read(&self, read: &Operation) -> Verdict {
        let Some(at) = read.position else {
            return Verdict::Pass;
        };
        let last_write = self.writes.range(..=at).next_back();
        match read.answer() {
            Some(Answer::Value {
                version: Some(version),
                ..
            }) => {
                if *version > at {
                    return violation("a read saw a write from behind its own position", &[read]);
                }
                match last_write {
                    Some((written, write)) if written > version => violation(
                        "a read saw less than what was written up to its own position",
                        &[write, read],
                    ),
                    _ => Verdict::Pass,
                }
            }
            Some(Answer::NotFound) if !self.may_vanish => match last_write {
                Some((written, write)) if self.deletes.range(*written..=at).next().is_none() => {
                    violation(
                        "a read missed what was written up to its own position",
                        &[write, read],
                    )
                }
                _ => Verdict::Pass,
            },
            _ => Verdict::Pass,
        }
    }
}

fn violation(explanation: &str, operations: &[&Operation]) -> Verdict {
    Verdict::violation_by("not the state of one position", explanation, operations)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Draft(History);

    impl Draft {
        fn add(&mut self, key: &[u8], action: Action, answer: Answer, position: u64) -> &mut Self {
            let index = self.0.call(1, position, key, action);
            self.0.complete(index, position, answer, Some(position));
            self
        }

        fn put(&mut self, key: &[u8], position: u64) -> &mut Self {
            let version = Some(position);
            let value = position.to_string().into_bytes();
            self.add(
                key,
                Action::Put { value },
                Answer::Written { version },
                position,
            )
        }

        fn read(&mut self, key: &[u8], version: Option<u64>, position: u64) -> &mut Self {
            let answer = match version {
                None => Answer::NotFound,
                Some(version) => Answer::Value {
                    value: version.to_string().into_bytes(),
                    version: Some(version),
                },
            };
            self.add(key, Action::Get, answer, position)
        }

        fn says(&self, part: &str) {
            match check(&self.0) {
                Verdict::Violation(violation) => {
                    let text = violation.explanation;
                    assert!(text.contains(part), "{text}");
                }
                other => panic!("{other}"),
            }
        }
    }

    fn draft() -> Draft {
        Draft(History::new())
    }

    #[test]
    fn a_page_of_one_position_passes_also_between_writes() {
        let mut draft = draft();
        draft.put(b"a", 1).put(b"b", 2).put(b"a", 3).put(b"c", 5);
        draft.read(b"a", Some(3), 4).read(b"b", Some(2), 4);
        draft.read(b"c", None, 4);
        assert_eq!(check(&draft.0), Verdict::Pass);
    }

    /// Each key is linearizable by itself, if both writes are under way at the same time as the page.
    #[test]
    fn a_page_of_two_moments_is_found() {
        let mut torn = draft();
        torn.put(b"a", 1).put(b"b", 2).put(b"a", 3).put(b"b", 4);
        torn.read(b"a", Some(1), 4).read(b"b", Some(4), 4);
        torn.says("less than what was written");
        let mut ahead = draft();
        ahead.put(b"a", 1).put(b"a", 3).read(b"a", Some(3), 2);
        ahead.says("behind its own position");
    }

    #[test]
    fn a_missing_key_is_found_unless_something_may_have_removed_it() {
        let mut missed = draft();
        missed.put(b"a", 1).read(b"a", None, 2);
        missed.says("missed what was written");
        let mut deleted = draft();
        deleted.put(b"a", 1);
        deleted.add(b"a", Action::Delete, Answer::RangeDeleted, 2);
        deleted.read(b"a", None, 3);
        assert_eq!(check(&deleted.0), Verdict::Pass);
        let mut flushed = draft();
        flushed.put(b"a", 1);
        flushed.add(b"a", Action::Flush, Answer::Flushed, 2);
        flushed.read(b"a", None, 3);
        assert_eq!(check(&flushed.0), Verdict::Pass);
        let mut later = draft();
        later.put(b"a", 1).read(b"a", None, 2);
        later.add(b"a", Action::Delete, Answer::Deleted { existed: true }, 3);
        later.says("missed what was written");
        let mut unknown = draft();
        unknown.put(b"a", 1).read(b"a", None, 2);
        unknown.0.call(2, 1, b"a", Action::Delete);
        assert_eq!(check(&unknown.0), Verdict::Pass);
        let mut mortal = draft();
        mortal.put(b"a", 1).read(b"a", None, 2);
        let action = Action::PutFor {
            value: b"x".to_vec(),
            ttl_ns: 1,
        };
        mortal.0.call(2, 1, b"a", action);
        assert_eq!(check(&mortal.0), Verdict::Pass);
    }
}
