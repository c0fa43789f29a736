//! How a command fails: its words and its exit status.
//!
//! | status | means |
//! |---|---|
//! | 0 | done |
//! | 1 | a clear negative answer: no such key, the store refused, the check failed |
//! | 2 | wrong usage or configuration; nothing was done |
//! | 3 | the cluster was not reached (nothing was done), or the outcome is unknown, or a server's port stayed in use; the text says which |

use std::fmt;
use std::io;

use serde::Serialize;

/// The kind of failure, which decides the exit status.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The answer is no.
    Negative,
    /// The command, its options or its surroundings are wrong.
    Usage,
    /// No replica that could do it was reached; nothing was done.
    NotReachable,
    /// It may or may not have been done.
    OutcomeUnknown,
    /// What this process needs of its machine is taken; nothing was done, and it may be free later.
    Unavailable,
    /// The user ended it.
    Interrupted,
}

/// A failed command: what happened, and what can be done about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    kind: FailureKind,
    message: String,
    /// Empty when there is nothing sensible to advise.
    #[serde(skip_serializing_if = "String::is_empty")]
    hint: String,
    /// What keeps the process from listening, where that may change by itself.
    #[serde(skip)]
    trouble: Option<Trouble>,
}

/// Why an address cannot be opened yet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It belongs to no interface of this machine, or its name has no address.
    AddressMissing,
    /// Another process has it.
    AddressInUse,
}

impl Trouble {
    /// The trouble behind an error of the system, if it is one of these.
    pub fn of(error: &io::Error) -> Option<Self> {
        match error.kind() {
            io::ErrorKind::AddrNotAvailable => Some(Self::AddressMissing),
            io::ErrorKind::AddrInUse => Some(Self::AddressInUse),
            _ => None,
        }
    }
}

impl Failure {
    /// The command worked, and its result is negative: exit status 1.
    pub fn negative(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            kind: FailureKind::Negative,
            message: message.into(),
            hint: hint.into(),
            trouble: None,
        }
    }

    /// The command was not right, or this machine cannot do it: exit status 2.
    pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            kind: FailureKind::Usage,
            message: message.into(),
            hint: hint.into(),
            trouble: None,
        }
    }

    /// Makes this the negative answer to a question, such as whether a configuration is valid.
    pub fn into_negative(self) -> Self {
        Self {
            kind: FailureKind::Negative,
            ..self
        }
    }

    /// No replica could do it in time.
    pub fn not_reachable(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            kind: FailureKind::NotReachable,
            message: message.into(),
            hint: hint.into(),
            trouble: None,
        }
    }

    /// It may have happened or may still happen.
    pub fn outcome_unknown(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            kind: FailureKind::OutcomeUnknown,
            message: message.into(),
            hint: hint.into(),
            trouble: None,
        }
    }

    /// Ctrl-C: not an error, but the answer is incomplete.
    pub fn interrupted() -> Self {
        Self {
            kind: FailureKind::Interrupted,
            message: "interrupted".into(),
            hint: String::new(),
            trouble: None,
        }
    }

    /// Ctrl-C, and how much was done by then.
    pub fn interrupted_after(done: impl fmt::Display, hint: impl Into<String>) -> Self {
        Self {
            kind: FailureKind::Interrupted,
            message: format!("interrupted: {done}"),
            hint: hint.into(),
            trouble: None,
        }
    }

    /// The same failure of an address that cannot be opened, with the reason.
    pub fn with_trouble(self, trouble: Option<Trouble>) -> Self {
        Self { trouble, ..self }
    }

    /// What keeps the process from listening, where that may change by itself.
    pub fn trouble(&self) -> Option<Trouble> {
        self.trouble
    }

    /// The address stayed unavailable. The command may be right, and is worth another try: exit status 3.
    pub fn into_unavailable(self) -> Self {
        Self {
            kind: FailureKind::Unavailable,
            ..self
        }
    }

    /// Returns the same failure for a line of a script.
    pub fn at_line(self, number: u64) -> Self {
        Self {
            message: format!("line {number}: {}", self.message),
            ..self
        }
    }

    /// Returns the same failure for a part of something larger, which `what` names.
    pub fn while_doing(self, what: &str) -> Self {
        Self {
            message: format!("{what}: {}", self.message),
            ..self
        }
    }

    /// Returns the same failure with a reason that was found later.
    pub fn because(self, why: &str) -> Self {
        Self {
            message: format!("{}\n  {why}", self.message),
            ..self
        }
    }

    /// Whether the outcome is neither confirmed nor refused.
    pub fn is_without_answer(&self) -> bool {
        matches!(
            self.kind,
            FailureKind::NotReachable | FailureKind::OutcomeUnknown
        )
    }

    /// Whether what failed may have been done, or may still be.
    pub fn may_be_done(&self) -> bool {
        self.kind == FailureKind::OutcomeUnknown
    }

    /// The message and the advice, where one line holds both.
    pub fn in_one_line(&self) -> String {
        match self.hint.is_empty() {
            true => self.message.clone(),
            false => format!("{}; {}", self.message, self.hint),
        }
    }

    /// The message without the advice.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The advice; empty where there is none.
    pub fn hint(&self) -> &str {
        &self.hint
    }

    /// Whether the answer is no, and nothing else is wrong.
    pub fn is_negative(&self) -> bool {
        self.kind == FailureKind::Negative
    }

    /// Whether the user ended it.
    pub fn is_interrupted(&self) -> bool {
        self.kind == FailureKind::Interrupted
    }

    /// The process's exit status; 130 is what shells expect after a Ctrl-C.
    pub fn exit_status(&self) -> u8 {
        match self.kind {
            FailureKind::Negative => 1,
            FailureKind::Usage => 2,
            FailureKind::NotReachable | FailureKind::OutcomeUnknown | FailureKind::Unavailable => 3,
            FailureKind::Interrupted => 130,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = match self.kind {
            FailureKind::Negative
            | FailureKind::Usage
            | FailureKind::Interrupted
            | FailureKind::Unavailable => "",
            FailureKind::NotReachable => "not reachable: ",
            FailureKind::OutcomeUnknown => "outcome unknown: ",
        };
        write!(f, "trine: {prefix}{}", self.message)?;
        if !self.hint.is_empty() {
            write!(f, "\n  {}", self.hint)?;
        }
        Ok(())
    }
}
