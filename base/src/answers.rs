//! Turns a store's answer to a command into its response or a failure.

use trine_client::Answer;
use trine_kvstore::{Response, StoreError};

use crate::failure::Failure;

/// Returns the store's response inside an answer; a refusal by the store is a failure.
pub fn response_of(answer: &Answer) -> Result<Response<'_>, Failure> {
    match answer.response() {
        Ok(Response::Error(error)) => Err(store_failure(error)),
        Ok(Response::Denied { reason }) => Err(Failure::negative(
            format!("denied: {reason}; nothing was changed"),
            "`trine user list` shows an administrator the users and their rights",
        )),
        Ok(Response::OtherError(error)) => Err(Failure::negative(error.to_string(), OTHER_ERROR)),
        Ok(response) => Ok(response),
        Err(error) => Err(Failure::usage(
            format!("the reply could not be decoded: {error}"),
            OTHER_RELEASE,
        )),
    }
}

const OTHER_ERROR: &str =
    "a newer release of trine knows the error: `trine status` shows the replicas' release";
/// Where two releases that may talk to each other do not understand each other, one of them is wrong.
const OTHER_RELEASE: &str = "`trine status` shows which release the replicas run: if that is at most two releases from this one, please report a bug";

/// The store refused, on every replica alike; nothing was changed.
pub fn store_failure(error: StoreError) -> Failure {
    match error {
        // Only reads end so, and they change nothing anyway.
        StoreError::SweepBehind => refusal(error, error.to_string()),
        _ => refusal(error, format!("{error}; nothing was changed")),
    }
}

/// The store refused; the caller supplies the message.
pub fn refusal(error: StoreError, message: String) -> Failure {
    match error {
        StoreError::KeyTooLong { .. } | StoreError::ValueTooLong { .. } => {
            Failure::usage(message, "")
        }
        StoreError::Full { .. } => Failure::negative(
            message,
            "delete keys, or raise the limit with `trine config set memory SIZE`",
        ),
        StoreError::VersionNotActive { .. } => {
            Failure::negative(message, "`trine status` shows each member's version")
        }
        StoreError::SwitchWaits { .. } => Failure::negative(
            message,
            "`trine upgrade status` shows what the group waits for",
        ),
        StoreError::MemoryInUse { .. } => {
            Failure::negative(message, "delete keys, or ask for a higher limit")
        }
        StoreError::UserExists => Failure::negative(
            message,
            "choose another name, or make a new key for the user with `trine user rotate NAME`",
        ),
        StoreError::UnknownUser => Failure::negative(message, "`trine user list` shows the users"),
        StoreError::TooManyUsers { .. } => {
            Failure::negative(message, "remove a user with `trine user remove NAME`")
        }
        StoreError::OtherClusterKey { .. } => Failure::negative(
            message,
            "give the group's own file with --key; `trine key show PATH` shows which user root a file has",
        ),
        _ => Failure::negative(message, ""),
    }
}

/// The answer has a kind that the command cannot have: another release, or a defect.
pub fn unexpected(response: &Response<'_>) -> Failure {
    if let Response::OtherError(error) = response {
        return Failure::negative(error.to_string(), OTHER_ERROR);
    }
    Failure::usage(
        "the group sent a reply that does not match the command",
        OTHER_RELEASE,
    )
}
