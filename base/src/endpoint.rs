//! Every endpoint needs a seed beside its backend, and messages for a backend that fails.

use trine_transport::backend::BackendError;

use crate::failure::{Failure, Trouble};

/// 64 bits from the operating system.
pub fn random_seed() -> Result<u64, Failure> {
    getrandom::u64().map_err(|error| {
        Failure::usage(
            format!("the operating system gives no random numbers: {error}"),
            "",
        )
    })
}

/// A socket that cannot be opened or used.
pub fn backend_failure(error: BackendError) -> Failure {
    let trouble = match &error {
        BackendError::AddressNotAvailable { .. } => Some(Trouble::AddressMissing),
        BackendError::AddressInUse { .. } => Some(Trouble::AddressInUse),
        _ => None,
    };
    Failure::usage(error.to_string(), "").with_trouble(trouble)
}

impl From<BackendError> for Failure {
    fn from(error: BackendError) -> Self {
        backend_failure(error)
    }
}
