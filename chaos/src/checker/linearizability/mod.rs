//! Linearizability: one order of all operations that respects real time and the model of a register.
//!
//! Keys are judged one by one, since linearizability is local. For each key the first stage that
//! decides wins:
//!
//! 1. `witness`: the order of the positions in the replies. Verified, it is a proof.
//! 2. `zones`: the Gibbons-Korach zone test. It decides registers of unique values exactly, and
//!    finds most violations of richer histories.
//! 3. `search`: the Wing-Gong search in Lowe's just-in-time form, with memory of failed
//!    configurations and a limit on its steps. At the limit the key is undecided.
//!
//! An item that is written for a time brings a step of its own: its expiry. It takes effect once,
//! at some moment between the earliest and the latest that group time allows, and removes the item
//! if it is still there. All stages treat it like an operation whose client was not told its
//! position.

mod expiry;
mod search;
mod shown;
mod witness;
mod zones;

use super::group_time::GroupTime;
use super::model::{AppliedOperation, KeyEffect, steps_of};
use super::{Verdict, Violation};
use crate::history::{History, Operation};
use std::collections::BTreeMap;

/// Limits of a check.
#[derive(Copy, Clone, Debug)]
pub struct Limits {
    /// Steps of the search per key, about 100 ns each.
    pub search_steps: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            search_steps: 20_000_000,
        }
    }
}

/// The judgement, and the stages that made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinearizabilityReport {
    /// The worst over all keys.
    pub verdict: Verdict,
    /// Operations judged.
    pub operations: u64,
    /// Keys that the order of the positions proved.
    pub keys_by_witness: u64,
    /// Keys that the zone test decided.
    pub keys_by_zones: u64,
    /// Keys that needed the search.
    pub keys_by_search: u64,
}

/// Judges a history with the default limits.
pub fn check(history: &History) -> LinearizabilityReport {
    check_with(history, Limits::default())
}

/// Judges a history.
pub fn check_with(history: &History, limits: Limits) -> LinearizabilityReport {
    check_timed(history, limits, &GroupTime::default())
}

/// Judges a history; keys that were written for a time by the known facts of group time.
pub fn check_timed(history: &History, limits: Limits, time: &GroupTime) -> LinearizabilityReport {
    let mut report = LinearizabilityReport {
        verdict: Verdict::Pass,
        operations: history.len() as u64,
        keys_by_witness: 0,
        keys_by_zones: 0,
        keys_by_search: 0,
    };
    for operations in by_key(history).values() {
        let (stage, verdict) = check_key(operations, limits, time);
        match stage {
            CheckStage::Witness => report.keys_by_witness += 1,
            CheckStage::Zones => report.keys_by_zones += 1,
            CheckStage::Search => report.keys_by_search += 1,
        }
        report.verdict = report.verdict.and(verdict);
    }
    report
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum CheckStage {
    Witness,
    Zones,
    Search,
}

fn by_key(history: &History) -> BTreeMap<&[u8], Vec<&Operation>> {
    let mut keys: BTreeMap<&[u8], Vec<&Operation>> = BTreeMap::new();
    for operation in history.operations() {
        keys.entry(&operation.key).or_default().push(operation);
    }
    keys
}

fn check_key(operations: &[&Operation], limits: Limits, time: &GroupTime) -> (CheckStage, Verdict) {
    let steps = steps_of(operations, time);
    if let Some(impossible) = impossible_answer(&steps) {
        return (
            CheckStage::Witness,
            impossible.into_verdict(&steps, operations),
        );
    }
    let (stage, verdict) = judge_key(&steps, operations, limits);
    let verdict = match verdict {
        Verdict::Violation(violation) => {
            Verdict::Violation(expiry::diagnose(violation, steps, operations, limits))
        }
        verdict => verdict,
    };
    (stage, verdict)
}

fn judge_key(
    steps: &[AppliedOperation],
    operations: &[&Operation],
    limits: Limits,
) -> (CheckStage, Verdict) {
    let doubt = match witness::check(steps) {
        Ok(()) => return (CheckStage::Witness, Verdict::Pass),
        Err(doubt) => doubt,
    };
    match zones::check(steps) {
        zones::Finding::Linearizable => return (CheckStage::Zones, Verdict::Pass),
        zones::Finding::Violation(finding) => {
            return (CheckStage::Zones, finding.into_verdict(steps, operations));
        }
        zones::Finding::Open => {}
    }
    let verdict = match search::check(steps, limits.search_steps) {
        search::Finding::Linearizable => Verdict::Pass,
        search::Finding::Violation(finding) => finding.into_verdict(steps, operations),
        search::Finding::Undecided => Verdict::Undecided {
            reason: format!(
                "the search stopped after {} steps on a key of {} operations; what is suspicious: {} {}",
                limits.search_steps,
                operations.len(),
                operations[steps[doubt.step()].operation],
                doubt.explanation()
            ),
        },
    };
    (CheckStage::Search, verdict)
}

fn impossible_answer(steps: &[AppliedOperation]) -> Option<Evidence> {
    let index = steps
        .iter()
        .position(|step| step.kind == KeyEffect::Impossible)?;
    Some(Evidence {
        explanation: "an operation was answered with what it is never answered with".to_owned(),
        steps: vec![index],
    })
}

/// A violation in terms of steps.
#[derive(Debug)]
struct Evidence {
    explanation: String,
    /// Indexes into the steps.
    steps: Vec<usize>,
}

impl Evidence {
    fn into_verdict(self, steps: &[AppliedOperation], operations: &[&Operation]) -> Verdict {
        let mut indexes: Vec<usize> = self
            .steps
            .iter()
            .map(|&index| steps[index].operation)
            .collect();
        indexes.sort_unstable();
        indexes.dedup();
        let operations = indexes
            .into_iter()
            .map(|index| operations[index].clone())
            .collect();
        Verdict::Violation(Violation {
            explanation: format!("not linearizable: {}", self.explanation),
            operations,
        })
    }
}

#[cfg(test)]
mod tests;
