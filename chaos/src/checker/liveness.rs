//! Liveness: the group serves again within a bound once the faults have stopped.

use super::Verdict;
use crate::history::{Action, History, Operation, Outcome};

/// The promises of a run after its last fault.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// When the last fault was taken away.
    pub healed_at_ns: u64,
    /// How long the group may take from then on until it serves all clients.
    pub recovery_ns: u64,
    /// When the run ended: operations that were called too late before it may still be open.
    pub ended_at_ns: u64,
    /// How long one operation may take once the group serves.
    pub operation_ns: u64,
}

/// Every operation called after the recovery must have been answered in time, and at least one
/// read and one write must have been.
pub fn check(history: &History, bound: &Bound) -> Verdict {
    let serving_from = bound.healed_at_ns.saturating_add(bound.recovery_ns);
    let judged_until = bound.ended_at_ns.saturating_sub(bound.operation_ns);
    let (mut reads, mut writes) = (0_u64, 0_u64);
    for operation in history.operations() {
        if operation.call_ns < serving_from || operation.call_ns > judged_until {
            continue;
        }
        if !served_in_time(operation, bound.operation_ns) {
            return violation(
                "an operation was not answered in time after the faults had stopped",
                operation,
            );
        }
        if matches!(operation.action, Action::Get) {
            reads += 1
        } else {
            writes += 1
        }
    }
    if reads == 0 || writes == 0 {
        return Verdict::violation(format!(
            "not live: {reads} reads and {writes} writes were called after the recovery; both are needed to judge"
        ));
    }
    Verdict::Pass
}

fn served_in_time(operation: &Operation, operation_ns: u64) -> bool {
    matches!(operation.outcome, Outcome::Known(_))
        && operation
            .return_ns
            .is_some_and(|return_ns| return_ns - operation.call_ns <= operation_ns)
}

fn violation(explanation: &str, operation: &Operation) -> Verdict {
    Verdict::violation_by("not live", explanation, &[operation])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Answer;

    const BOUND: Bound = Bound {
        healed_at_ns: 100,
        recovery_ns: 50,
        ended_at_ns: 1000,
        operation_ns: 20,
    };

    fn run(calls: &[(u64, u64)]) -> Verdict {
        let mut history = History::new();
        for (number, &(call, took)) in calls.iter().enumerate() {
            let write = number % 2 == 0;
            let action = if write {
                Action::Put {
                    value: vec![number as u8],
                }
            } else {
                Action::Get
            };
            let index = history.call(1, call, b"k", action);
            let answer = if write {
                Answer::Written { version: None }
            } else {
                Answer::NotFound
            };
            history.complete(index, call + took, answer, None);
        }
        check(&history, &BOUND)
    }

    #[test]
    fn slow_operations_during_faults_and_recovery_are_forgiven() {
        assert_eq!(
            run(&[(10, 90), (110, 39), (200, 5), (300, 5)]),
            Verdict::Pass
        );
    }

    #[test]
    fn slow_operations_afterwards_are_not() {
        assert!(matches!(run(&[(200, 21), (300, 5)]), Verdict::Violation(_)));
    }

    #[test]
    fn an_operation_left_open_is_a_violation_unless_called_at_the_very_end() {
        let mut history = History::new();
        history.call(1, 500, b"k", Action::Get);
        assert!(matches!(check(&history, &BOUND), Verdict::Violation(_)));

        let mut history = History::new();
        let put = history.call(
            1,
            200,
            b"k",
            Action::Put {
                value: b"v".to_vec(),
            },
        );
        history.complete(put, 205, Answer::Written { version: None }, None);
        let get = history.call(1, 300, b"k", Action::Get);
        history.complete(get, 305, Answer::NotFound, None);
        history.call(1, 995, b"k", Action::Get);
        assert_eq!(check(&history, &BOUND), Verdict::Pass);
    }

    #[test]
    fn silence_after_the_recovery_is_not_a_pass() {
        assert!(matches!(run(&[(10, 5), (20, 5)]), Verdict::Violation(_)));
    }
}
