//! InfiniBand Unreliable Datagram: InfiniBand, RoCE and soft-RoCE.
//!
//! Routes and addresses are plain code that every build compiles and tests. Code that touches a device is behind the
//! feature `device`. `transport/VERBS.md` says how to run it.

#[cfg(feature = "device")]
mod backend;
pub mod config;
#[cfg(any(feature = "device", test))]
mod immediate;
#[cfg(any(feature = "device", test))]
mod one_sided;
mod one_sided_path;
mod route;

#[cfg(feature = "device")]
pub use backend::{
    ConnectionFault, CounterClient, CounterServer, OneSidedConfig, VerbsBackend, VerbsConfig,
    VerbsError, VerbsStats,
};
pub use one_sided_path::OneSidedPath;
pub use route::{GRH_BYTES, QUEUE_PAIRS_MAX, VerbsAddress, VerbsRoute};
