//! The hash table and the deterministic state machine on it.
