//! Fault injection at run time: a replica started with `--fault-injection` lets its user change what its network does.
//!
//! [`Injector`] holds the rules and passes them to the fault injector of the replica's present incarnation. [`serve`]
//! takes requests over a Unix socket. [`trine_local::faults`] sends one.

mod injector;
mod service;

pub use self::injector::Injector;
pub use self::service::serve;
