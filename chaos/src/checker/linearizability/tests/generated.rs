//! Small generated histories: every stage against the brute-force judge. Half are true executions,
//! the other half true ones with an error.

use super::brute_force::is_linearizable;
use super::{operation, search, witness, zones};
use crate::checker::group_time::{GroupTime, Steady};
use crate::checker::model::steps_of;
use crate::history::{Action, Answer, Operation, Outcome};
use proptest::prelude::*;

/// One operation of a generated execution, before it is executed.
#[derive(Clone, Debug)]
struct Draft {
    action: u8,
    early: u64,
    late: u64,
    unknown: bool,
    applied: bool,
    lie: u8,
    of: u8,
}

fn draft(actions: std::ops::Range<u8>) -> impl Strategy<Value = Draft> {
    (
        actions,
        0..40_u64,
        0..40_u64,
        0..6_u8,
        any::<bool>(),
        0..12_u8,
        any::<u8>(),
    )
        .prop_map(|(action, early, late, unknown, applied, lie, of)| Draft {
            action,
            early,
            late,
            unknown: unknown == 0,
            applied,
            lie,
            of,
        })
}

/// Executes the drafts one after the other at fixed instants, each called some time before and
/// answered some time after. Now and then an answer is a lie.
// Long because each kind of action has an arm.
fn execute(drafts: &[Draft], lies: bool, told: bool) -> Vec<Operation> {
    let mut item: Option<(Vec<u8>, u64)> = None;
    let mut ends_at: Option<u64> = None;
    let mut operations = Vec::new();
    for (number, draft) in drafts.iter().enumerate() {
        let instant = 100 + 10 * number as u64;
        let version = (number as u64 + 1) << 16;
        let value = format!("v{number}").into_bytes();
        if ends_at.is_some_and(|ends_at| ends_at <= instant) {
            (item, ends_at) = (None, None);
        }
        let before = (item.clone(), ends_at);
        let takes_effect = !draft.unknown || draft.applied;
        let tell = |version: u64| told.then_some(version);
        let (action, mut answer) = match draft.action {
            0 | 1 => match &item {
                Some((value, version)) => (
                    Action::Get,
                    Answer::Value {
                        value: value.clone(),
                        version: tell(*version),
                    },
                ),
                None => (Action::Get, Answer::NotFound),
            },
            2 | 3 => {
                (item, ends_at) = (Some((value.clone(), version)), None);
                (
                    Action::Put { value },
                    Answer::Written {
                        version: tell(version),
                    },
                )
            }
            4 if draft.of % 3 == 0 => {
                item = None;
                (Action::Flush, Answer::Flushed)
            }
            4 => (
                Action::Delete,
                Answer::Deleted {
                    existed: item.take().is_some(),
                },
            ),
            5 => {
                let current = item.as_ref().map(|(_, version)| *version);
                let expected = if draft.of % 2 == 0 {
                    current
                } else {
                    Some((u64::from(draft.of % 8) + 1) << 16)
                };
                let action = Action::Cas {
                    expected,
                    value: value.clone(),
                };
                if expected == current {
                    item = Some((value, version));
                    (
                        action,
                        Answer::Written {
                            version: Some(version),
                        },
                    )
                } else {
                    (action, Answer::Mismatch { version: current })
                }
            }
            7 | 8 => {
                let ttl_ns = u64::from(draft.of % 5) * 8 + 1;
                // The item stays a little longer, as far as allowed.
                let late_ns = u64::from(draft.of / 5) % (LATE_NS + 1);
                // A number, so that it can be counted on.
                let value = if draft.action == 8 {
                    (1_000 * (number + 1)).to_string().into_bytes()
                } else {
                    value
                };
                (item, ends_at) = (
                    Some((value.clone(), version)),
                    Some(instant + ttl_ns + late_ns),
                );
                (
                    Action::PutFor { value, ttl_ns },
                    Answer::Written {
                        version: tell(version),
                    },
                )
            }
            _ => {
                let by = i64::from(draft.of % 3) - 1;
                let held = item.as_ref().map_or(Some(0), |(value, _)| {
                    std::str::from_utf8(value).ok()?.parse().ok()
                });
                match held {
                    Some(held) => {
                        let sum: i64 = held + by;
                        item = Some((sum.to_string().into_bytes(), version));
                        (
                            Action::Incr { by },
                            Answer::Number {
                                value: sum,
                                version: tell(version),
                            },
                        )
                    }
                    None => (Action::Incr { by }, Answer::Refused),
                }
            }
        };
        if !takes_effect {
            (item, ends_at) = before;
        }
        if item.is_none() {
            ends_at = None;
        }
        if lies && draft.lie == 0 {
            answer = lie(&action, draft, answer);
        }
        let return_ns = (!draft.unknown).then_some(instant + draft.late);
        let mut made = operation(
            number as u64,
            instant - draft.early,
            return_ns,
            action,
            answer,
        );
        if told && !draft.unknown {
            let is_read = made.action.is_read();
            made.position = Some(if is_read {
                (number as u64) << 16
            } else {
                version
            });
        }
        operations.push(made);
    }
    if lies {
        for (operation, draft) in operations.iter_mut().zip(drafts) {
            if draft.lie == 1 && operation.outcome != Outcome::Unknown {
                operation.outcome = Outcome::Failed;
            }
        }
    }
    operations
}

fn lie(action: &Action, draft: &Draft, truth: Answer) -> Answer {
    let value = format!("v{}", draft.of % 8).into_bytes();
    match (action, truth) {
        (Action::Get, Answer::NotFound) => Answer::Value {
            value,
            version: None,
        },
        (Action::Get, _) if draft.of.is_multiple_of(3) => Answer::NotFound,
        (Action::Get, _) => Answer::Value {
            value,
            version: None,
        },
        (Action::Delete, Answer::Deleted { existed }) => Answer::Deleted { existed: !existed },
        (_, Answer::Number { value, version }) => Answer::Number {
            value: value + 1,
            version,
        },
        (_, truth) => truth,
    }
}

/// How much longer than its time an item may be there, in histories where that is bounded.
const LATE_NS: u64 = 12;

fn group_time(bounded: bool) -> GroupTime {
    GroupTime {
        steady: bounded.then_some(Steady {
            from_ns: 0,
            late_ns: LATE_NS,
        }),
        ..GroupTime::default()
    }
}

fn compare(operations: &[Operation]) {
    compare_timed(operations, false);
}

fn compare_timed(operations: &[Operation], bounded: bool) {
    let truth = is_linearizable(operations, bounded.then_some(LATE_NS));
    let references: Vec<&Operation> = operations.iter().collect();
    let steps = steps_of(&references, &group_time(bounded));
    if witness::check(&steps).is_ok() {
        assert!(truth, "the witness proves a history that has no order");
    }
    match zones::check(&steps) {
        zones::Finding::Linearizable => assert!(truth, "zones pass a history that has no order"),
        zones::Finding::Violation(evidence) => {
            assert!(!truth, "zones condemn a good history: {evidence:?}")
        }
        zones::Finding::Open => {}
    }
    match search::check(&steps, 1_000_000) {
        search::Finding::Linearizable => {
            assert!(truth, "the search passes a history that has no order")
        }
        search::Finding::Violation(evidence) => {
            assert!(!truth, "the search condemns a good history: {evidence:?}")
        }
        search::Finding::Undecided => panic!("undecided on a tiny history"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn registers_are_judged_like_brute_force(drafts in prop::collection::vec(draft(0..4), 1..8), lies: bool, told: bool) {
        compare(&execute(&drafts, lies, told));
    }

    #[test]
    fn registers_with_deletions_are_judged_like_brute_force(drafts in prop::collection::vec(draft(0..5), 1..8), lies: bool, told: bool) {
        compare(&execute(&drafts, lies, told));
    }

    #[test]
    fn everything_is_judged_like_brute_force(drafts in prop::collection::vec(draft(0..7), 1..7), lies: bool, told: bool) {
        compare(&execute(&drafts, lies, told));
    }

    #[test]
    fn counters_are_judged_like_brute_force(drafts in prop::collection::vec(prop_oneof![draft(0..1), draft(4..5), draft(6..7)], 1..7), lies: bool, told: bool) {
        compare(&execute(&drafts, lies, told));
    }

    #[test]
    fn items_for_a_time_are_judged_like_brute_force(drafts in prop::collection::vec(prop_oneof![draft(0..3), draft(4..6), draft(7..8), draft(7..8)], 1..7), lies: bool, told: bool, bounded: bool) {
        compare_timed(&execute(&drafts, lies, told), bounded);
    }

    #[test]
    fn numbers_for_a_time_are_judged_like_brute_force(drafts in prop::collection::vec(prop_oneof![draft(0..1), draft(6..7), draft(8..9)], 1..7), lies: bool, told: bool, bounded: bool) {
        compare_timed(&execute(&drafts, lies, told), bounded);
    }

    #[test]
    fn a_true_execution_of_registers_is_proved_by_its_positions(mut drafts in prop::collection::vec(draft(0..4), 1..40)) {
        drafts.iter_mut().for_each(|draft| draft.unknown = false);
        let operations = execute(&drafts, false, true);
        let references: Vec<&Operation> = operations.iter().collect();
        prop_assert_eq!(witness::check(&steps_of(&references, &GroupTime::default())), Ok(()));
    }
}
