//! Backups against the state of their positions, and restored groups against their backups.
//!
//! The reference applies the log that the replicas have applied to a state of its own. So it asks nothing that makes images
//! of a state, or reads them.

use super::Verdict;
use super::changes::items_of;
use crate::history::{History, Operation};
use std::collections::VecDeque;
use trine_kvstore::{Store, User};
use trine_replica::backup::{Content, Header};
use trine_replica::replay::{AppliedEntry, Replay};

/// The state of a group at each position from some position on.
#[derive(Debug, Default)]
pub struct Reference {
    /// Nothing before the group has begun.
    replay: Option<Replay>,
    /// What comes behind it.
    waiting: VecDeque<AppliedEntry>,
    /// The last entry that any replica has applied.
    applied: u64,
}

impl Reference {
    /// Entries that a replica has applied, one after the other. Those that another one has applied before are known.
    ///
    /// # Panics
    /// If one comes before its predecessor has come from any replica.
    pub fn note(&mut self, entries: &[AppliedEntry], begin: impl FnOnce() -> Option<Replay>) {
        let Some(first) = entries.first() else {
            return;
        };
        if self.replay.is_none() {
            self.replay = begin();
            self.applied = first.index - 1;
        }
        for entry in entries {
            let next = self.applied + 1;
            assert!(entry.index <= next, "entry {} before {next}", entry.index);
            if entry.index == next {
                self.waiting.push_back(entry.clone());
                self.applied = next;
            }
        }
    }

    /// Nobody asks for an earlier state than that of this entry from here on.
    pub fn forget_before(&mut self, index: u64) {
        while let (Some(replay), Some(entry)) = (&mut self.replay, self.waiting.front())
            && entry.index <= index
        {
            replay.apply(entry, |_, _, _| {});
            self.waiting.pop_front();
        }
    }

    /// Judges the content of a backup that has everything up to the entry `at_least`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn judge(
        &mut self,
        header: &Header,
        content: &Content,
        at_least: u64,
    ) -> Result<(), String> {
        let index = header.head.index;
        if index < at_least {
            return Err(format!(
                "a backup misses what was acknowledged: it is of entry {index}, and entry {at_least} was committed when it began"
            ));
        }
        if index > self.applied {
            return Err(format!(
                "a backup is of entry {index}, and no replica has applied more than {}",
                self.applied
            ));
        }
        self.forget_before(index);
        let Some(replay) = &self.replay else {
            return Err("a backup is of a group that has not begun".to_owned());
        };
        let (expected, found) = (replay.store(), content.store());
        let wrong = difference(expected, found).or_else(|| {
            let is_same = expected.state_hash() == found.state_hash();
            (!is_same).then(|| "the rest of the states differs".to_owned())
        });
        match wrong {
            None => Ok(()),
            Some(wrong) => Err(format!(
                "a backup is not the state of its entry {index}: {wrong}"
            )),
        }
    }
}

/// Judges the store that a restored group begins with: the state of the backup, with all times to live as they were.
///
/// # Errors
/// What is wrong with it.
pub fn judge_beginning(backup: &Store, begins: &Store) -> Result<(), String> {
    match difference(backup, begins) {
        None => Ok(()),
        Some(wrong) => Err(format!(
            "a restored group does not begin with the state of its backup: {wrong}"
        )),
    }
}

/// The first difference between two stores that users can see.
fn difference(expected: &Store, found: &Store) -> Option<String> {
    let (items, others) = (items_of(expected), items_of(found));
    for (key, item) in &items {
        let name = String::from_utf8_lossy(key);
        match others.get(key) {
            None => return Some(format!("key {name} is missing: {item:?}")),
            Some(other) if other != item => {
                return Some(format!("key {name} is {other:?}, and it was {item:?}"));
            }
            Some(_) => {}
        }
    }
    if let Some(key) = others.keys().find(|key| !items.contains_key(*key)) {
        let name = String::from_utf8_lossy(key);
        return Some(format!("there was no key {name}"));
    }
    let users = |store: &Store| format!("{:?}", store.users().iter().collect::<Vec<User<'_>>>());
    let settings = |store: &Store| {
        let (limits, ordered) = (store.limits(), store.ordered());
        format!("{limits:?} {ordered:?}, version {}", store.state_version())
    };
    let parts = [
        (
            "group time",
            expected.group_time().to_string(),
            found.group_time().to_string(),
        ),
        ("users", users(expected), users(found)),
        ("settings", settings(expected), settings(found)),
    ];
    let different = parts.into_iter().find(|(_, one, other)| one != other);
    different.map(|(what, one, other)| format!("{what}: {other}, and it was {one}"))
}

/// In a restored group's history, who has written what the backup holds.
pub const RESTORED: u64 = 0;

/// When and where a restored group has begun.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// All replicas of the old group were dead by then.
    pub at_ns: u64,
    /// The new group's positions are not before this one.
    pub first: u64,
}

/// Judges what the clients of a group were told, and those of the group that was restored from its backup. No position comes in
/// both, and the restored group answers no client of the old one.
pub fn judge_two_lives(old: &History, restored: &History, began: Beginning) -> Verdict {
    let Beginning { at_ns, first } = began;
    let late = |operation: &Operation| operation.return_ns.is_some_and(|at| at > at_ns);
    let behind = answered(old).filter(|(_, position)| *position >= first);
    let (foreign, again): (Vec<_>, Vec<_>) = behind.partition(|(operation, _)| late(operation));
    let early = answered(restored)
        .find(|(operation, position)| operation.client != RESTORED && *position < first);
    let findings = [
        ("a position of the old group comes again", again.first()),
        (
            "the restored group has answered a client of the old one",
            foreign.first(),
        ),
        (
            "the restored group has answered from before it began",
            early.as_ref(),
        ),
    ];
    let wrong = findings
        .into_iter()
        .find_map(|(what, found)| Some((what, found?)));
    wrong.map_or(Verdict::Pass, |(what, (operation, _))| {
        Verdict::violation_by("restore", what, &[operation])
    })
}

/// The operations that were answered, with their positions.
fn answered(history: &History) -> impl Iterator<Item = (&Operation, u64)> {
    let operations = history.operations().iter();
    let known = operations.filter(|operation| operation.answer().is_some());
    known.filter_map(|operation| Some((operation, operation.position?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Action, Answer};
    use trine_kvstore::{Command, Limits, Position, SetExpiry, SetOptions};

    fn store(commands: &[Command<'_>]) -> Store {
        let mut store = Store::new(Limits::default(), [1, 2]);
        store.set_group_time(1);
        for (index, command) in (1..).zip(commands) {
            store.apply(Position::new(index, 0), command);
        }
        store
    }

    fn put(key: &'static [u8], value: &'static [u8]) -> Command<'static> {
        Command::Put { key, value }
    }

    fn put_for(after_ns: u64) -> Command<'static> {
        let expiry = SetExpiry::After(after_ns);
        let options = SetOptions {
            expiry,
            ..SetOptions::default()
        };
        Command::Set {
            key: b"b",
            value: b"2",
            options,
        }
    }

    #[test]
    fn each_difference_between_a_backup_and_what_begins_with_it_is_found() {
        let backup = store(&[put(b"a", b"1"), put_for(50)]);
        let same = store(&[put(b"a", b"1"), put_for(50)]);
        assert_eq!(judge_beginning(&backup, &same), Ok(()));
        let others = [
            ("is missing", store(&[put(b"a", b"1")])),
            ("key a is", store(&[put(b"a", b"2"), put_for(50)])),
            ("key b is", store(&[put(b"a", b"1"), put_for(51)])),
            (
                "no key c",
                store(&[put(b"a", b"1"), put_for(50), put(b"c", b"")]),
            ),
            (
                "key a is",
                store(&[put(b"c", b""), put_for(50), put(b"a", b"1")]),
            ),
        ];
        for (words, other) in others {
            let wrong = judge_beginning(&backup, &other).expect_err(words);
            assert!(wrong.contains(words), "{wrong}");
        }
        let mut later = same;
        later.set_group_time(2);
        let wrong = judge_beginning(&backup, &later).expect_err("time has passed");
        assert!(
            wrong.contains("key b is") || wrong.contains("group time"),
            "{wrong}"
        );
    }

    fn history(client: u64, position: u64) -> History {
        let mut history = History::new();
        let index = history.call(client, 1, b"k", Action::Get);
        history.complete(index, 2, Answer::NotFound, Some(position));
        history.call(client, 3, b"k", Action::Delete);
        history
    }

    #[test]
    fn two_lives_share_no_position() {
        let judge = |old, restored, at_ns| {
            let first = 100;
            let verdict = judge_two_lives(&old, &restored, Beginning { at_ns, first });
            verdict.to_string()
        };
        let of_old = || history(1, 99);
        assert_eq!(judge(of_old(), history(2, 100), 50), "pass");
        assert_eq!(judge(of_old(), history(RESTORED, 50), 50), "pass");
        let again = judge(history(1, 100), history(2, 101), 50);
        assert!(again.contains("comes again"), "{again}");
        let foreign = judge(history(1, 100), history(2, 101), 1);
        assert!(foreign.contains("a client of the old one"), "{foreign}");
        let early = judge(of_old(), history(2, 99), 50);
        assert!(early.contains("from before it began"), "{early}");
    }
}
