//! InfiniBand Unreliable Datagram: InfiniBand, RoCE and soft-RoCE.
//!
//! Routes and addresses are plain code that every build compiles and tests. Code that touches a device is behind the
//! feature `device`. `transport/VERBS.md` says how to run it.

#[cfg(feature = "device")]
mod backend;
pub mod config;
#[cfg(any(feature = "device", test))]
mod herd;
#[cfg(any(feature = "device", test))]
mod immediate;
mod route;

#[cfg(feature = "device")]
pub use backend::{HerdConfig, VerbsBackend, VerbsConfig, VerbsError, VerbsStats};
pub use route::{GRH_BYTES, QUEUE_PAIRS_MAX, VerbsAddress, VerbsRoute};
