//! EXEC: conditions and operations at one position.

use super::Store;
use crate::codec::{Field, List, length_u32};
use crate::command::{Command, Condition, ExecuteMode};
use crate::config::{LIST_ITEMS_MAX, LIST_RESPONSE_BYTES_MAX};
use crate::error::StoreError;
use crate::position::Position;
use crate::response::{AbortCause, Response};
use std::borrow::Cow;

/// Room for the answer of one operation, to begin with: those of writes need no more.
const RESPONSE_BYTES: usize = 16;

/// Why an EXEC is undone.
enum Undo {
    Aborted(AbortCause),
    Refused(StoreError),
}

impl Store {
    pub(super) fn execute(
        &mut self,
        at: Position,
        mode: ExecuteMode,
        conditions: &List<'_, Condition<'_>>,
        operations: &List<'_, Command<'_>>,
    ) -> Response<'_> {
        if let Some(refusal) = self.refusal(conditions, operations) {
            return refusal;
        }
        let mut responses = Vec::with_capacity(operations.len() * RESPONSE_BYTES);
        self.begin_undoable();
        let mut result = self.run(at, mode, operations, &mut responses);
        if self.makes_room_to_retry() {
            responses.clear();
            result = self.run(at, mode, operations, &mut responses);
        }
        self.end_undoable(result.is_ok());
        match result {
            Ok(()) => Response::List(List::from_encoded(
                length_u32(operations.len()),
                Cow::Owned(responses),
            )),
            Err(Undo::Aborted(cause)) => Response::Aborted { cause },
            Err(Undo::Refused(error)) => Response::Error(error),
        }
    }

    /// An EXEC whose operations only read, answered from the state as it is.
    pub(super) fn read_operations(
        &self,
        conditions: &List<'_, Condition<'_>>,
        operations: &List<'_, Command<'_>>,
        now_ns: u64,
    ) -> Response<'_> {
        if let Some(refusal) = self.refusal(conditions, operations) {
            return refusal;
        }
        let mut responses = Vec::with_capacity(operations.len() * RESPONSE_BYTES);
        for operation in operations.iter() {
            if !operation.is_read_only() {
                return Response::Error(StoreError::NotReadOnly);
            }
            let response = match &operation {
                Command::Count => self.count_stored(),
                operation => self.read_at(operation, now_ns),
            };
            response.write_field(&mut responses);
            if responses.len() > LIST_RESPONSE_BYTES_MAX {
                return Response::Error(StoreError::ResponseTooLarge);
            }
        }
        Response::List(List::from_encoded(
            length_u32(operations.len()),
            Cow::Owned(responses),
        ))
    }

    /// Why the operations are not even begun.
    fn refusal(
        &self,
        conditions: &List<'_, Condition<'_>>,
        operations: &List<'_, Command<'_>>,
    ) -> Option<Response<'static>> {
        if conditions.len().max(operations.len()) > LIST_ITEMS_MAX as usize {
            return Some(Response::Error(StoreError::ListTooLong));
        }
        let broken = conditions
            .iter()
            .position(|condition| !self.holds(&condition))?;
        let index = length_u32(broken);
        Some(Response::Aborted {
            cause: AbortCause::Condition { index },
        })
    }

    fn holds(&self, condition: &Condition<'_>) -> bool {
        let version = self
            .live(self.items.find(condition.key()))
            .map(|item| item.stamp.version);
        match condition {
            Condition::Absent { .. } => version.is_none(),
            Condition::Present { .. } => version.is_some(),
            Condition::VersionIs {
                version: expected, ..
            } => version == Some(*expected),
        }
    }

    fn run(
        &mut self,
        at: Position,
        mode: ExecuteMode,
        operations: &List<'_, Command<'_>>,
        responses: &mut Vec<u8>,
    ) -> Result<(), Undo> {
        for (index, operation) in operations.iter().enumerate() {
            self.begin_operation(operation.kind());
            let response = match &operation {
                Command::MultiPut { pairs } => self.put_all(at, pairs),
                Command::Count => self.count_stored(),
                operation => self.apply_to_key(at, operation),
            };
            response.write_field(responses);
            let cause = failure(&response, length_u32(index));
            match cause {
                // Too much to undo is no failure of one operation: no operation could continue
                // after it.
                Some(AbortCause::Refused {
                    error: StoreError::ExecuteTooLarge,
                    ..
                }) => {
                    return Err(Undo::Refused(StoreError::ExecuteTooLarge));
                }
                Some(cause) if mode == ExecuteMode::AllOrNothing => {
                    return Err(Undo::Aborted(cause));
                }
                _ => {}
            }
            if responses.len() > LIST_RESPONSE_BYTES_MAX {
                return Err(Undo::Refused(StoreError::ResponseTooLarge));
            }
        }
        Ok(())
    }
}

/// Whether an operation's answer is one that all-or-nothing does not accept.
fn failure(response: &Response<'_>, index: u32) -> Option<AbortCause> {
    match response {
        Response::Error(error) => Some(AbortCause::Refused {
            index,
            error: *error,
        }),
        Response::Conflict { .. } | Response::Exchanged { written: None, .. } => {
            Some(AbortCause::Conflict { index })
        }
        _ => None,
    }
}
