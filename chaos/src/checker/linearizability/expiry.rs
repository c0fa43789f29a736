//! Expiry in the search for an order. Used for a key that has no order: perhaps it has one if items may expire
//! before their time, or never have to.

use super::{Limits, judge_key};
use crate::checker::Violation;
use crate::checker::model::{AppliedOperation, KeyEffect};
use crate::history::Operation;

/// Operations that are added to what shows the violation.
const WRITES_SHOWN: usize = 2;

/// Names the broken promise, if it is one about expiry, and shows the writes whose time it was.
pub(super) fn diagnose(
    violation: Violation,
    steps: Vec<AppliedOperation>,
    operations: &[&Operation],
    limits: Limits,
) -> Violation {
    if !steps.iter().any(is_expiry) {
        return violation;
    }
    let mut relaxed = steps.clone();
    for index in 0..relaxed.len() {
        if let KeyEffect::Expiry { of } = relaxed[index].kind {
            relaxed[index].call_ns = relaxed[of as usize].call_ns;
        }
    }
    if judge_key(&relaxed, operations, limits).1.is_pass() {
        return name(
            "a key was gone before its time",
            violation,
            &steps,
            operations,
        );
    }
    relaxed.clone_from(&steps);
    for expiry in relaxed.iter_mut().filter(|step| is_expiry(step)) {
        expiry.return_ns = u64::MAX;
    }
    if judge_key(&relaxed, operations, limits).1.is_pass() {
        return name("a key outlived its time", violation, &steps, operations);
    }
    violation
}

fn is_expiry(step: &AppliedOperation) -> bool {
    matches!(step.kind, KeyEffect::Expiry { .. })
}

fn name(
    promise: &str,
    mut violation: Violation,
    steps: &[AppliedOperation],
    operations: &[&Operation],
) -> Violation {
    violation.explanation = match violation.explanation.split_once(": ") {
        Some((checker, rest)) => format!("{checker}: {promise}: {rest}"),
        None => format!("{promise}: {}", violation.explanation),
    };
    let shown_ns = violation.operations.iter().map(|shown| shown.call_ns).max();
    let written_before = |step: &&AppliedOperation| {
        is_expiry(step) && {
            let write = operations[step.operation];
            shown_ns.is_some_and(|shown_ns| write.call_ns <= shown_ns)
                && !violation.operations.contains(write)
        }
    };
    let writes = steps
        .iter()
        .filter(written_before)
        .map(|step| operations[step.operation]);
    let mut writes: Vec<Operation> = writes.cloned().collect();
    writes.sort_by_key(|write| std::cmp::Reverse(write.call_ns));
    writes.truncate(WRITES_SHOWN);
    violation.operations.extend(writes);
    violation.operations.sort_by_key(|shown| shown.call_ns);
    violation
}
