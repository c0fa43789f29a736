//! The store's tests from outside, as one program: each further program is linked, and waits for the one before it.
//! `allocations` is a second program, because it counts what its whole process allocates.

mod defragmentation;
mod expiry;
mod flush;
mod limits;
mod model;
mod operations;
mod walk;
