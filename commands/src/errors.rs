//! Errors in Redis's words, by which clients tell them apart.

use trine_kvstore::StoreError;

use crate::limits::OPERATIONS_MAX;

/// Why a request is answered with an error immediately.
pub type Refusal = String;

/// The error for words that do not fit.
pub const SYNTAX: &str = "ERR syntax error";
/// The error for a number that is none, or too large.
pub const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";

/// The error for an answer that says nothing about the command.
pub const NO_ANSWER: &str = "ERR the replica's answer does not belong to this command";

/// The error for a request with too few or too many parts.
pub fn wrong_arity(name: &str) -> Refusal {
    format!("ERR wrong number of arguments for '{name}' command")
}

/// The error for a command that names more than the store takes in one.
pub fn too_many(what: &str) -> Refusal {
    format!("ERR too many {what} in one command: at most {OPERATIONS_MAX}")
}

/// The error for a caller without the right.
pub(crate) fn denied_text(reason: &str) -> String {
    format!("NOPERM {reason}")
}

/// The store's errors in Redis's words, if it has words for them.
pub(crate) fn error_text(error: StoreError) -> String {
    match error {
        StoreError::NotANumber => NOT_AN_INTEGER.to_owned(),
        StoreError::Overflow => "ERR increment or decrement would overflow".to_owned(),
        StoreError::Full { .. } => {
            "OOM command not allowed when used memory > 'maxmemory'.".to_owned()
        }
        StoreError::ValueTooLong { .. } => {
            "ERR string exceeds maximum allowed size (proto-max-bulk-len)".to_owned()
        }
        other => format!("ERR {other}"),
    }
}
