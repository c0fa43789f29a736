//! Limits of live fault injection.

/// A chaos run that completed fewer operations proves nothing.
pub(crate) const CHAOS_OPERATIONS_LEAST: u64 = 1_000;
