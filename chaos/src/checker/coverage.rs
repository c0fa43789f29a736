//! Checks that a run tested something: one with few operations, or whose faults never fired, is no proof.

use super::Verdict;
use crate::history::{Answer, History, Operation, Outcome};
use std::collections::{BTreeMap, BTreeSet};

/// The minimum that a run must have done to count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Required {
    /// Operations that must have been answered.
    pub completed_operations: u64,
    /// Time that the run took.
    pub passed_ns: u64,
    /// Time that it must have taken.
    pub least_ns: u64,
    /// Faults by name, with how often each fired; each must have fired at least once.
    pub faults_fired: BTreeMap<String, u64>,
    /// Different faults that must have fired.
    pub fault_kinds: u64,
    /// Times at which a failover (or another outage) ended; a write called after each one, and
    /// before the next, must have succeeded.
    pub failovers_ns: Vec<u64>,
    /// From this time on every acknowledged key must have been read again; `None` asks for nothing.
    pub reread_from_ns: Option<u64>,
}

/// Judges whether a run did what it was asked to do.
pub fn check(history: &History, required: &Required) -> Verdict {
    let completed = history.tally().completed;
    if completed < required.completed_operations.max(1) {
        return Verdict::violation(format!(
            "nothing proved: {completed} operations completed, at least {} are needed",
            required.completed_operations.max(1)
        ));
    }
    if required.passed_ns < required.least_ns {
        return Verdict::violation(format!(
            "nothing proved: {} ns passed, at least {} are needed",
            required.passed_ns, required.least_ns
        ));
    }
    faults(required)
        .and(failovers(history, required))
        .and(reread(history, required))
}

fn faults(required: &Required) -> Verdict {
    if let Some((name, _)) = required.faults_fired.iter().find(|(_, fired)| **fired == 0) {
        return Verdict::violation(format!(
            "nothing proved: the fault `{name}` was requested and never fired"
        ));
    }
    let kinds = required.faults_fired.len() as u64;
    if kinds < required.fault_kinds {
        return Verdict::violation(format!(
            "nothing proved: {kinds} kinds of fault fired, {} are needed",
            required.fault_kinds
        ));
    }
    Verdict::Pass
}

fn failovers(history: &History, required: &Required) -> Verdict {
    let writes: Vec<u64> = history
        .operations()
        .iter()
        .filter(|operation| operation.is_acknowledged_write())
        .map(|operation| operation.call_ns)
        .collect();
    for (number, &from) in required.failovers_ns.iter().enumerate() {
        let until = required
            .failovers_ns
            .get(number + 1)
            .copied()
            .unwrap_or(u64::MAX);
        let first = writes.partition_point(|&call_ns| call_ns < from);
        if writes.get(first).is_none_or(|&call_ns| call_ns >= until) {
            return Verdict::violation(format!(
                "nothing proved: no write succeeded after the failover at {from} ns"
            ));
        }
    }
    Verdict::Pass
}

fn reread(history: &History, required: &Required) -> Verdict {
    let Some(from) = required.reread_from_ns else {
        return Verdict::Pass;
    };
    let was_read = |operation: &&Operation| {
        operation.call_ns >= from
            && matches!(
                operation.outcome,
                Outcome::Known(Answer::Value { .. } | Answer::NotFound)
            )
    };
    let read: BTreeSet<&[u8]> = history
        .operations()
        .iter()
        .filter(was_read)
        .map(|operation| operation.key.as_slice())
        .collect();
    let missing = history.operations().iter().find(|operation| {
        operation.is_acknowledged_write() && !read.contains(operation.key.as_slice())
    });
    match missing {
        None => Verdict::Pass,
        Some(operation) => Verdict::violation(format!(
            "nothing proved: the key of an acknowledged write was not read again at the end: {operation}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Action;

    fn put_at(history: &mut History, at: u64) {
        let index = history.call(
            1,
            at,
            b"k",
            Action::Put {
                value: at.to_string().into_bytes(),
            },
        );
        history.complete(index, at + 1, Answer::Written { version: None }, None);
    }

    fn required() -> Required {
        Required {
            completed_operations: 1,
            ..Required::default()
        }
    }

    #[test]
    fn an_empty_run_proves_nothing_whatever_is_asked() {
        assert!(matches!(
            check(&History::new(), &Required::default()),
            Verdict::Violation(_)
        ));
    }

    #[test]
    fn a_fault_that_never_fired_fails_the_run() {
        let mut history = History::new();
        put_at(&mut history, 10);
        let mut required = required();
        required.faults_fired.insert("loss".into(), 4);
        assert_eq!(check(&history, &required), Verdict::Pass);
        required.faults_fired.insert("duplication".into(), 0);
        let Verdict::Violation(violation) = check(&history, &required) else {
            panic!("never fired")
        };
        assert!(violation.explanation.contains("duplication"));
    }

    #[test]
    fn too_few_kinds_of_fault_or_too_short_a_time_fail_the_run() {
        let mut history = History::new();
        put_at(&mut history, 10);
        let mut required = Required {
            fault_kinds: 3,
            passed_ns: 60,
            least_ns: 60,
            ..required()
        };
        let explained = |required: &Required| match check(&history, required) {
            Verdict::Violation(violation) => violation.explanation,
            verdict => verdict.to_string(),
        };
        required.faults_fired = [("loss".into(), 400), ("crash".into(), 1)].into();
        let two = "nothing proved: 2 kinds of fault fired, 3 are needed";
        assert_eq!(explained(&required), two);
        required.faults_fired.insert("pause".into(), 1);
        assert_eq!(check(&history, &required), Verdict::Pass);
        required.passed_ns = 59;
        let short = "nothing proved: 59 ns passed, at least 60 are needed";
        assert_eq!(explained(&required), short);
    }

    #[test]
    fn each_failover_needs_a_write_of_its_own() {
        let mut history = History::new();
        put_at(&mut history, 10);
        put_at(&mut history, 30);
        let at = |failovers_ns: &[u64]| {
            check(
                &history,
                &Required {
                    failovers_ns: failovers_ns.to_vec(),
                    ..required()
                },
            )
            .is_pass()
        };
        assert!(at(&[5, 20]));
        assert!(!at(&[5, 7]));
        assert!(!at(&[40]));
    }

    #[test]
    fn acknowledged_keys_must_be_read_again() {
        let mut history = History::new();
        put_at(&mut history, 10);
        let required = Required {
            reread_from_ns: Some(50),
            ..required()
        };
        assert!(matches!(check(&history, &required), Verdict::Violation(_)));
        let get = history.call(1, 60, b"k", Action::Get);
        history.complete(
            get,
            61,
            Answer::Value {
                value: b"10".to_vec(),
                version: None,
            },
            None,
        );
        assert_eq!(check(&history, &required), Verdict::Pass);
    }
}
