//! Simulator, fault injection, checkers.
