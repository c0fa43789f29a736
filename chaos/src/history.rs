//! The record of a run as clients saw it; all checkers work on it.

mod codec;

pub use codec::{HistoryError, VERSION};

use serde::{Deserialize, Serialize};
use std::fmt;

/// The request of a client about one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Read the key.
    Get,
    /// Set the key. Workloads write every value at most once, which makes checking cheap.
    Put {
        /// The value written.
        value: Vec<u8>,
    },
    /// Set the key for a time: later it is absent.
    PutFor {
        /// The value written.
        value: Vec<u8>,
        /// Its lifetime, in nanoseconds of group time.
        ttl_ns: u64,
    },
    /// Remove the key.
    Delete,
    /// Remove all keys. A history has one such operation for each key, with one position.
    Flush,
    /// Set the key if its version still is the expected one.
    Cas {
        /// Version the item must have; `None` means that the key must be absent.
        expected: Option<u64>,
        /// The value written on success.
        value: Vec<u8>,
    },
    /// Add to the number stored under the key; an absent key counts as zero.
    Incr {
        /// The summand.
        by: i64,
    },
}

impl Action {
    /// Whether the action cannot change the store, whatever its answer.
    pub fn is_read(&self) -> bool {
        matches!(self, Action::Get)
    }

    /// The value this action writes when it takes effect, if it names one.
    pub fn written_value(&self) -> Option<&[u8]> {
        match self {
            Action::Put { value } | Action::PutFor { value, .. } | Action::Cas { value, .. } => {
                Some(value)
            }
            Action::Get | Action::Delete | Action::Flush | Action::Incr { .. } => None,
        }
    }
}

/// The store's answer. Versions are `None` if the recording client was not told.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// A read found this value.
    Value {
        /// The bytes read.
        value: Vec<u8>,
        /// Version of the item read.
        version: Option<u64>,
    },
    /// A read found no item.
    NotFound,
    /// A PUT or CAS took effect.
    Written {
        /// Version of the item now.
        version: Option<u64>,
    },
    /// A DELETE took effect.
    Deleted {
        /// Whether there was an item to remove.
        existed: bool,
    },
    /// A DELETE of a range took effect on this key, if the key was there.
    RangeDeleted,
    /// All keys were removed.
    Flushed,
    /// A CAS met another version and changed nothing.
    Mismatch {
        /// The version it met; `None` means that the key was absent.
        version: Option<u64>,
    },
    /// An INCR took effect.
    Number {
        /// The number stored now.
        value: i64,
        /// Version of the item now.
        version: Option<u64>,
    },
    /// The state machine refused the command (full, too large, not a number) and changed nothing.
    Refused,
}

/// How an operation ended, as far as its client can tell.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The store answered.
    Known(Answer),
    /// No answer: the operation took effect at some time after its call, or never.
    Unknown,
    /// The operation certainly had and will have no effect.
    Failed,
}

/// One operation of one client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Operation {
    /// The client that called. A client may have several operations open at a time.
    pub client: u64,
    /// When the call began.
    pub call_ns: u64,
    /// When the answer arrived; `None` exactly when the outcome is unknown.
    pub return_ns: Option<u64>,
    /// The key asked for.
    pub key: Vec<u8>,
    /// What was asked.
    pub action: Action,
    /// The result.
    pub outcome: Outcome,
    /// Position told in the reply: a write's own position in the log, or the applied position that a
    /// read saw. It is a claim of the system under test, so checkers only ever use it as a hint.
    pub position: Option<u64>,
}

impl Operation {
    /// The answer, if there was one.
    pub fn answer(&self) -> Option<&Answer> {
        match &self.outcome {
            Outcome::Known(answer) => Some(answer),
            Outcome::Unknown | Outcome::Failed => None,
        }
    }

    /// Whether this operation certainly changed the store and its client was told so.
    pub fn is_acknowledged_write(&self) -> bool {
        matches!(
            self.answer(),
            Some(Answer::Written { .. } | Answer::Deleted { .. } | Answer::Number { .. })
        )
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = codec::to_text(&self.key);
        write!(f, "client {} [{} .. ", self.client, self.call_ns)?;
        match self.return_ns {
            Some(return_ns) => write!(f, "{return_ns}]")?,
            None => f.write_str("?]")?,
        }
        match &self.action {
            Action::Get => write!(f, " get {key}")?,
            Action::Put { value } => write!(f, " put {key} {}", brief(value))?,
            Action::PutFor { value, ttl_ns } => {
                write!(f, " put {key} {} for {ttl_ns} ns", brief(value))?;
            }
            Action::Delete => write!(f, " delete {key}")?,
            Action::Flush => write!(f, " flush {key} and all others")?,
            Action::Cas {
                expected: Some(version),
                value,
            } => {
                write!(f, " cas {key} version {version} to {}", brief(value))?;
            }
            Action::Cas {
                expected: None,
                value,
            } => write!(f, " cas {key} absent to {}", brief(value))?,
            Action::Incr { by } => write!(f, " incr {key} {by}")?,
        }
        match &self.outcome {
            Outcome::Unknown => f.write_str(" -> unknown")?,
            Outcome::Failed => f.write_str(" -> failed, no effect")?,
            Outcome::Known(answer) => write!(f, " -> {answer}")?,
        }
        match self.position {
            Some(position) => write!(f, " at position {}.{}", position >> 16, position & 0xffff),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Value { value, .. } => f.write_str(&brief(value)),
            Answer::NotFound => f.write_str("not found"),
            Answer::Written { .. } => f.write_str("written"),
            Answer::Flushed => f.write_str("flushed"),
            Answer::Deleted { existed: true } => f.write_str("deleted"),
            Answer::Deleted { existed: false } => f.write_str("nothing to delete"),
            Answer::RangeDeleted => f.write_str("deleted with its range"),
            Answer::Mismatch {
                version: Some(version),
            } => write!(f, "mismatch, version {version}"),
            Answer::Mismatch { version: None } => f.write_str("mismatch, absent"),
            Answer::Number { value, .. } => write!(f, "{value}"),
            Answer::Refused => f.write_str("refused"),
        }
    }
}

/// Enough of a value to know it by.
fn brief(value: &[u8]) -> String {
    const SHOWN: usize = 24;
    if value.len() <= SHOWN {
        return codec::to_text(value);
    }
    format!(
        "{}... ({} bytes)",
        codec::to_text(&value[..SHOWN]),
        value.len()
    )
}

/// Index of an operation in its history.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OperationIndex(pub usize);

/// The operations of a run, in the order of their calls.
///
/// Recorded times are strictly increasing: two events at the same clock reading are one nanosecond
/// apart, in the order in which they were recorded. So a client that calls in the very instant in
/// which its previous answer arrived has its two operations ordered, not concurrent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    operations: Vec<Operation>,
    last_ns: u64,
}

impl History {
    /// An empty history.
    pub fn new() -> Self {
        Self::default()
    }

    /// A history of operations recorded elsewhere; they are put into the order of their calls.
    pub fn from_operations(mut operations: Vec<Operation>) -> Self {
        operations.sort_by_key(|operation| operation.call_ns);
        let last_ns = operations
            .iter()
            .map(|operation| operation.return_ns.unwrap_or(operation.call_ns))
            .max()
            .unwrap_or(0);
        Self {
            operations,
            last_ns,
        }
    }

    /// One history out of several that were recorded against the same clock, one a thread.
    pub fn merge(histories: impl IntoIterator<Item = History>) -> Self {
        let operations = histories
            .into_iter()
            .flat_map(|history| history.operations)
            .collect();
        Self::from_operations(operations)
    }

    /// Records a call. Until its end is recorded the outcome is unknown.
    pub fn call(&mut self, client: u64, now_ns: u64, key: &[u8], action: Action) -> OperationIndex {
        let call_ns = self.stamp(now_ns);
        self.operations.push(Operation {
            client,
            call_ns,
            return_ns: None,
            key: key.to_vec(),
            action,
            outcome: Outcome::Unknown,
            position: None,
        });
        OperationIndex(self.operations.len() - 1)
    }

    /// Records the answer to a call.
    pub fn complete(
        &mut self,
        index: OperationIndex,
        now_ns: u64,
        answer: Answer,
        position: Option<u64>,
    ) {
        self.end(index, now_ns, Outcome::Known(answer));
        self.operations[index.0].position = position;
    }

    /// Records what a read was answered whose position was fixed when it was completed. Until now it said nothing.
    ///
    /// # Panics
    /// If it was not completed, or with something.
    pub fn tell(&mut self, index: OperationIndex, answer: Answer) {
        let operation = &mut self.operations[index.0];
        assert_eq!(operation.outcome, Outcome::Known(Answer::Refused));
        operation.outcome = Outcome::Known(answer);
    }

    /// Records that the call certainly had no effect.
    pub fn fail(&mut self, index: OperationIndex, now_ns: u64) {
        self.end(index, now_ns, Outcome::Failed);
    }

    fn end(&mut self, index: OperationIndex, now_ns: u64, outcome: Outcome) {
        let return_ns = self.stamp(now_ns);
        let operation = &mut self.operations[index.0];
        assert!(
            operation.return_ns.is_none(),
            "operation {} ended twice",
            index.0
        );
        operation.return_ns = Some(return_ns);
        operation.outcome = outcome;
    }

    fn stamp(&mut self, now_ns: u64) -> u64 {
        self.last_ns = now_ns.max(self.last_ns + 1);
        self.last_ns
    }

    /// All operations, in the order of their calls.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// How many operations were called.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether nothing was called.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// How many operations ended in which way.
    pub fn tally(&self) -> Tally {
        let mut tally = Tally {
            called: self.len() as u64,
            ..Tally::default()
        };
        for operation in &self.operations {
            match operation.outcome {
                Outcome::Known(_) => tally.completed += 1,
                Outcome::Unknown => tally.unknown += 1,
                Outcome::Failed => tally.failed += 1,
            }
            tally.acknowledged_writes += u64::from(operation.is_acknowledged_write());
        }
        tally
    }
}

/// Counts of a history.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Operations called.
    pub called: u64,
    /// Operations that were answered.
    pub completed: u64,
    /// Operations whose effect is not known.
    pub unknown: u64,
    /// Operations that certainly had no effect.
    pub failed: u64,
    /// Answered operations that changed the store.
    pub acknowledged_writes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_at_one_clock_reading_keep_their_order() {
        let mut history = History::new();
        let put = history.call(
            1,
            100,
            b"k",
            Action::Put {
                value: b"a".to_vec(),
            },
        );
        history.complete(put, 100, Answer::Written { version: None }, None);
        let get = history.call(1, 100, b"k", Action::Get);
        history.complete(get, 100, Answer::NotFound, None);
        let [put, get] = history.operations() else {
            panic!("two operations")
        };
        assert!(put.return_ns.unwrap() < get.call_ns);
    }

    #[test]
    fn an_operation_without_an_end_is_unknown() {
        let mut history = History::new();
        history.call(1, 5, b"k", Action::Delete);
        let failed = history.call(2, 6, b"k", Action::Delete);
        history.fail(failed, 7);
        let tally = history.tally();
        assert_eq!((tally.called, tally.unknown, tally.failed), (2, 1, 1));
        assert_eq!(tally.completed, 0);
    }

    #[test]
    #[should_panic(expected = "ended twice")]
    fn an_operation_ends_once() {
        let mut history = History::new();
        let index = history.call(1, 5, b"k", Action::Get);
        history.fail(index, 6);
        history.fail(index, 7);
    }

    #[test]
    fn merged_histories_are_in_the_order_of_their_calls() {
        let mut one = History::new();
        one.call(1, 10, b"k", Action::Get);
        one.call(1, 30, b"k", Action::Get);
        let mut two = History::new();
        two.call(2, 20, b"k", Action::Get);
        let merged = History::merge([one, two]);
        let calls: Vec<u64> = merged
            .operations()
            .iter()
            .map(|operation| operation.call_ns)
            .collect();
        assert_eq!(calls, [10, 20, 30]);
    }
}
