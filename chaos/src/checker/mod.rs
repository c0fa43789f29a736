//! Judges of a recorded run. None of them trusts the system under test: the order that its replies
//! claim is used as a hint and then verified.

pub mod backups;
pub mod changes;
pub mod counts;
pub mod coverage;
pub mod exactly_once;
pub mod going_on;
pub mod group_time;
pub mod linearizability;
pub mod liveness;
pub mod log_agreement;
mod model;
pub mod numbers;
pub mod positions;
pub mod seats;
pub mod watches;

use crate::history::Operation;
use std::fmt;

/// The judgement of one checker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The property holds for this run, and that has been verified.
    Pass,
    /// The property does not hold.
    Violation(Violation),
    /// The checker gave up at its limit. This is not a pass.
    Undecided {
        /// The undecided part and the reason.
        reason: String,
    },
}

/// The violation, and the operations that show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The property that was broken, and how.
    pub explanation: String,
    /// The operations that show it, as few as the checker could find.
    pub operations: Vec<Operation>,
}

impl Verdict {
    /// A violation without operations.
    pub fn violation(explanation: impl Into<String>) -> Self {
        Verdict::Violation(Violation {
            explanation: explanation.into(),
            operations: Vec::new(),
        })
    }

    /// A violation of `property`, with the operations that show it.
    fn violation_by(property: &str, explanation: &str, operations: &[&Operation]) -> Self {
        Verdict::Violation(Violation {
            explanation: format!("{property}: {explanation}"),
            operations: operations.iter().copied().cloned().collect(),
        })
    }

    /// Whether the property was verified.
    pub fn is_pass(&self) -> bool {
        matches!(self, Verdict::Pass)
    }

    /// The worse of two judgements: a violation before undecided before a pass.
    #[must_use]
    pub fn and(self, other: Verdict) -> Verdict {
        match (&self, &other) {
            (Verdict::Violation(_), _) | (_, Verdict::Pass) => self,
            (Verdict::Undecided { .. }, Verdict::Undecided { .. }) => self,
            _ => other,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Pass => f.write_str("pass"),
            Verdict::Undecided { reason } => write!(f, "undecided: {reason}"),
            Verdict::Violation(violation) => violation.fmt(f),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VIOLATION: {}", self.explanation)?;
        for operation in &self.operations {
            write!(f, "\n  {operation}")?;
        }
        Ok(())
    }
}
