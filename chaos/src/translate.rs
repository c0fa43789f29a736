//! Translation between histories and the store's types: the same for simulated and real clients, so that both are
//! judged by the same rules.

use crate::history::{Action, Answer};
use crate::workload::Request;
use trine_kvstore::{Command, Position, Response, SetCondition, SetExpiry, SetOptions, StoreError};

/// The store's command for a request of a workload.
#[must_use]
pub fn command_of(request: &Request) -> Command<'_> {
    let key = request.key.as_slice();
    match &request.action {
        Action::Get => Command::Get { key },
        Action::Put { value } => Command::Put { key, value },
        Action::PutFor { value, ttl_ns } => {
            let options = SetOptions {
                expiry: SetExpiry::After(*ttl_ns),
                ..SetOptions::default()
            };
            Command::Set {
                key,
                value,
                options,
            }
        }
        Action::Delete => Command::Delete { key },
        Action::Flush => Command::Flush,
        Action::Cas {
            expected: Some(version),
            value,
        } => Command::CompareAndSwap {
            key,
            expected: Position::from_u64(*version),
            value,
        },
        Action::Cas {
            expected: None,
            value,
        } => {
            let options = SetOptions {
                condition: SetCondition::Absent,
                ..SetOptions::default()
            };
            Command::Set {
                key,
                value,
                options,
            }
        }
        Action::Incr { by } => Command::Increment { key, delta: *by },
    }
}

/// The store's response as a history records it; nothing for one that fits no command of a workload.
#[must_use]
pub fn answer_of(response: &Response<'_>) -> Option<Answer> {
    let told = |version: &Position| Some(version.as_u64());
    Some(match response {
        Response::Value { value, version } => Answer::Value {
            value: value.to_vec(),
            version: told(version),
        },
        Response::NotFound => Answer::NotFound,
        Response::Written { version } => Answer::Written {
            version: told(version),
        },
        Response::Deleted { existed } => Answer::Deleted { existed: *existed },
        Response::Number { value, version } => Answer::Number {
            value: *value,
            version: told(version),
        },
        Response::Conflict { current } => Answer::Mismatch {
            version: current.as_ref().and_then(told),
        },
        // Only a CAS is answered so: it met no item. As a refusal it would be legal at any time.
        Response::Error(StoreError::KeyMissing) => Answer::Mismatch { version: None },
        Response::Error(_) => Answer::Refused,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A live run took the answer to a CAS of a missing key for a refusal, which any moment allows. So it missed a
    /// value that had been lost behind a CAS. The simulator, with a translation of its own, would have seen it.
    #[test]
    fn a_cas_that_met_no_item_is_no_refusal() {
        let missing = Response::Error(StoreError::KeyMissing);
        assert_eq!(
            answer_of(&missing),
            Some(Answer::Mismatch { version: None })
        );
        let refused = Response::Error(StoreError::NotANumber);
        assert_eq!(answer_of(&refused), Some(Answer::Refused));
    }

    #[test]
    fn what_no_workload_asks_for_has_no_answer() {
        let appended = Response::Length {
            bytes: 1,
            version: Position::from_u64(1),
        };
        assert_eq!(answer_of(&appended), None);
    }
}
