//! Packets straight from the NIC's queues: the DPDK backend.
//!
//! Reading and writing Ethernet, ARP, IPv4 and UDP headers is plain code that every build compiles and tests. Code that
//! touches DPDK itself is behind the feature `dpdk`. `DPDK.md` says how to run it.

pub mod arguments;
pub mod arp;
mod checksum;
pub mod config;
#[cfg(feature = "device")]
mod eal;
mod error;
pub mod ethernet;
pub mod frame;
#[cfg(feature = "device")]
mod lease;
pub mod mac;
pub mod neighbours;
#[cfg(feature = "device")]
mod port;
#[cfg(feature = "device")]
mod ports;
#[cfg(feature = "device")]
mod queue;
#[cfg(feature = "device")]
pub mod raw;
pub mod rss;
pub mod template;
pub mod templates;

pub use config::DpdkConfig;
#[cfg(feature = "device")]
pub use eal::Eal;
pub use error::DpdkError;
#[cfg(feature = "device")]
pub use ports::DpdkPorts;
#[cfg(feature = "device")]
pub use queue::{DpdkBackend, DpdkStats};
