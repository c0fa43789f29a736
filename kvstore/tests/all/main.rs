//! The store's tests from outside, as one program: each further one is linked, and waits for the one before it.
//! `allocations` stands beside it, because it counts what its whole process allocates.

mod defragmentation;
mod limits;
mod model;
mod operations;
