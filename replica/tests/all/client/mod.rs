//! The client's core against replicas that follow a script: its outcome of each operation has to be true.

mod batches;
mod blocking;
mod deadlines;
mod leaders;
mod numbered;
mod other_release;
mod sessions;
mod world;
