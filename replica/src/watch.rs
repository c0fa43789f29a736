//! Watches as values: who watches a key, and what an answer holds.

pub(crate) mod line;
pub(crate) mod matcher;
pub(crate) mod own;
pub(crate) mod page;
