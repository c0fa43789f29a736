//! A hundred thousand operations on one key, decided by each stage.

use super::{Action, Answer, History, LinearizabilityReport, Operation, Verdict, check};
use crate::history::Outcome;

/// A deterministic execution on one hot key: `clients` keep one operation open each.
struct Execution {
    clients: u64,
    operations: u64,
    deletions: bool,
    positions: bool,
}

impl Execution {
    /// Every client's call and return surround an instant at which the operation happens.
    fn run(&self) -> Vec<Operation> {
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut draw = |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        let mut item: Option<(Vec<u8>, u64)> = None;
        let mut free_at = vec![0_u64; self.clients as usize];
        let mut operations = Vec::new();
        for number in 0..self.operations {
            let instant = (number + 1) * 100;
            let client = number % self.clients;
            let earliest = free_at[client as usize] + 1;
            let call_ns = (instant - draw(100 * self.clients / 2).min(instant - 1)).max(earliest);
            let return_ns = instant + 1 + draw(100 * self.clients / 2);
            free_at[client as usize] = return_ns;
            let version = (number + 1) << 16;
            let (action, answer) = match draw(if self.deletions { 5 } else { 4 }) {
                0 | 1 => {
                    let value = number.to_string().into_bytes();
                    item = Some((value.clone(), version));
                    (Action::Put { value }, Answer::Written { version: None })
                }
                2 | 3 => match &item {
                    Some((value, _)) => (
                        Action::Get,
                        Answer::Value {
                            value: value.clone(),
                            version: None,
                        },
                    ),
                    None => (Action::Get, Answer::NotFound),
                },
                _ => (
                    Action::Delete,
                    Answer::Deleted {
                        existed: item.take().is_some(),
                    },
                ),
            };
            operations.push(Operation {
                client,
                call_ns: call_ns.min(instant),
                return_ns: Some(return_ns),
                key: b"hot".to_vec(),
                action,
                outcome: Outcome::Known(answer),
                position: self.positions.then_some(version),
            });
        }
        operations
    }
}

fn judge(operations: Vec<Operation>) -> LinearizabilityReport {
    check(&History::from_operations(operations))
}

const HOT: Execution = Execution {
    clients: 16,
    operations: 100_000,
    deletions: false,
    positions: true,
};

#[test]
fn a_hot_key_is_proved_by_positions() {
    let report = judge(HOT.run());
    assert_eq!(report.verdict, Verdict::Pass);
    assert_eq!(report.keys_by_witness, 1);
}

#[test]
fn a_hot_key_is_decided_by_zones() {
    let report = judge(
        Execution {
            positions: false,
            ..HOT
        }
        .run(),
    );
    assert_eq!(report.verdict, Verdict::Pass);
    assert_eq!(report.keys_by_zones, 1);
}

#[test]
fn one_stale_read_among_a_hundred_thousand_is_found() {
    for deletions in [false, true] {
        let mut operations = Execution { deletions, ..HOT }.run();
        let first = operations[..1000]
            .iter()
            .find_map(|operation| operation.action.written_value())
            .unwrap()
            .to_vec();
        let late = operations[50_000..]
            .iter_mut()
            .find(|operation| operation.action.is_read())
            .unwrap();
        late.outcome = Outcome::Known(Answer::Value {
            value: first,
            version: None,
        });
        let Verdict::Violation(violation) = judge(operations).verdict else {
            panic!("a stale read")
        };
        assert!(violation.operations.len() <= 4, "{violation}");
    }
}

#[test]
fn a_hot_key_with_deletions_and_no_positions_is_decided_by_the_search() {
    let report = judge(
        Execution {
            clients: 8,
            deletions: true,
            positions: false,
            ..HOT
        }
        .run(),
    );
    assert_eq!(report.verdict, Verdict::Pass);
    assert_eq!(report.keys_by_search, 1);
}

#[test]
fn a_hot_key_with_deletions_and_positions_needs_no_search() {
    let report = judge(
        Execution {
            deletions: true,
            ..HOT
        }
        .run(),
    );
    assert_eq!(report.verdict, Verdict::Pass);
    assert_eq!(report.keys_by_witness, 1);
}
