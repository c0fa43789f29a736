//! Fault injection at run time: a replica started with `--lab` lets its user change what its network does.
//!
//! The pieces: [`Injector`] holds the rules and hands them to the fault injector of the replica's present incarnation;
//! [`serve`] takes admin commands over a Unix socket. [`trine_local::faults`] gives one.

mod injector;
mod service;

pub use self::injector::Injector;
pub use self::service::serve;
