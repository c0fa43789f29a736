//! The fewest operations that still show a violation, for people to read.
//!
//! The operations that a checker names are mostly enough. If they are not a violation by themselves, operations of the
//! key are removed as long as the rest is one. An operation is only removed if its absence cannot create a violation.
//! Such operations are observers. On keys that are only read and put, writes that no remaining operation has seen can
//! be removed too.

use trine_chaos::checker::linearizability::{Limits, check_with};
use trine_chaos::checker::{Verdict, Violation};
use trine_chaos::history::{Action, Answer, History, Operation, Outcome};

/// The step limit of one search; it is low because many searches are made.
const STEPS: u64 = 200_000;
/// The most checks; the operations left then are shown.
const CHECKS_MAX: usize = 5_000;

/// The operations to show for `violation`, in the order of their calls.
pub(super) fn minimal(history: &History, violation: &Violation) -> Vec<Operation> {
    let mut named = violation.operations.clone();
    named.sort_by_key(|operation| operation.call_ns);
    let Some(first) = named.first() else {
        return named;
    };
    let of_key = history.operations().iter();
    let all: Vec<Operation> = of_key
        .filter(|operation| operation.key == first.key)
        .cloned()
        .collect();
    // A part that is no violation by itself explains nothing, however small it is.
    if !is_violated(&all) || (is_sound(&named, &all) && is_violated(&named)) {
        return named;
    }
    reduce(all)
}

/// Removes operations in ever smaller pieces.
fn reduce(mut left: Vec<Operation>) -> Vec<Operation> {
    let mut checks = 0;
    let mut piece = left.len().div_ceil(2).max(1);
    loop {
        let before = left.len();
        let mut at = 0;
        while at < left.len() && checks < CHECKS_MAX {
            let mut fewer = left.clone();
            fewer.drain(at..(at + piece).min(left.len()));
            checks += 1;
            match is_sound(&fewer, &left) && is_violated(&fewer) {
                true => left = fewer,
                false => at += piece,
            }
        }
        if checks >= CHECKS_MAX || (piece == 1 && left.len() == before) {
            return left;
        }
        piece = (piece / 2).max(1);
    }
}

/// Whether a violation among `fewer` is certainly one among `all`.
fn is_sound(fewer: &[Operation], all: &[Operation]) -> bool {
    let simple =
        |operation: &Operation| matches!(operation.action, Action::Get | Action::Put { .. });
    let simple_key = all.iter().all(simple);
    let gone = all.iter().filter(|operation| !fewer.contains(operation));
    gone.into_iter()
        .all(|operation| is_observer(operation) || (simple_key && !is_seen(operation, fewer)))
}

/// Whether it certainly changed nothing.
fn is_observer(operation: &Operation) -> bool {
    match &operation.outcome {
        Outcome::Failed => true,
        Outcome::Known(Answer::Mismatch { .. } | Answer::Refused) => true,
        _ => operation.action.is_read(),
    }
}

/// Whether one of `others` read the value that it wrote.
fn is_seen(write: &Operation, others: &[Operation]) -> bool {
    others.iter().any(|other| match other.answer() {
        Some(Answer::Value { value, .. }) => write.action.written_value() == Some(value),
        _ => false,
    })
}

fn is_violated(operations: &[Operation]) -> bool {
    let limits = Limits {
        search_steps: STEPS,
    };
    let verdict = check_with(&history_of(operations), limits).verdict;
    matches!(verdict, Verdict::Violation(_))
}

/// Makes a separate history from the operations: calls and answers in the order of time.
fn history_of(operations: &[Operation]) -> History {
    let mut events: Vec<(u64, bool, usize)> = Vec::new();
    for (index, operation) in operations.iter().enumerate() {
        events.push((operation.call_ns, false, index));
        events.extend(operation.return_ns.map(|at| (at, true, index)));
    }
    events.sort_unstable();
    let mut history = History::new();
    let mut recorded = vec![None; operations.len()];
    for (at, is_end, index) in events {
        let operation = &operations[index];
        if !is_end {
            let action = operation.action.clone();
            recorded[index] = Some(history.call(operation.client, at, &operation.key, action));
            continue;
        }
        let Some(own) = recorded[index] else { continue };
        match &operation.outcome {
            Outcome::Known(answer) => {
                history.complete(own, at, answer.clone(), operation.position);
            }
            Outcome::Failed => history.fail(own, at),
            Outcome::Unknown => {}
        }
    }
    history
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One client puts 60 values and reads each. Another client reads an old value in between.
    fn stale_read() -> History {
        let mut history = History::new();
        let mut at = 10;
        for number in 1..=60_u64 {
            let value = number.to_string().into_bytes();
            let index = history.call(
                1,
                at,
                b"k",
                Action::Put {
                    value: value.clone(),
                },
            );
            history.complete(index, at + 5, Answer::Written { version: None }, None);
            let index = history.call(1, at + 10, b"k", Action::Get);
            let answer = Answer::Value {
                value,
                version: None,
            };
            history.complete(index, at + 15, answer, None);
            at += 20;
        }
        let index = history.call(2, at, b"k", Action::Get);
        let value = b"7".to_vec();
        history.complete(
            index,
            at + 5,
            Answer::Value {
                value,
                version: None,
            },
            None,
        );
        history
    }

    #[test]
    fn a_long_history_is_reduced_to_what_shows_the_violation() {
        let history = stale_read();
        let all = history.operations().to_vec();
        let left = reduce(all.clone());
        assert!((3..=4).contains(&left.len()), "{left:?}");
        assert!(is_violated(&left) && is_sound(&left, &all));
        // The result is as small if the checker names only the read, which explains nothing.
        let violation = Violation {
            explanation: "not linearizable".into(),
            operations: vec![all.last().expect("the read").clone()],
        };
        assert_eq!(minimal(&history, &violation), left);
    }

    #[test]
    fn a_write_that_somebody_saw_is_not_taken_away() {
        let history = stale_read();
        let all = history.operations();
        assert!(!is_sound(&all[1..], all), "the first value was read");
        assert!(is_sound(&all[2..], all));
    }
}
