//! Packets straight from the NIC's queues: the DPDK backend.
//!
//! Reading and writing Ethernet, ARP, IPv4 and UDP headers is plain code that every build compiles and tests. What
//! touches DPDK itself is behind the feature `dpdk`. `DPDK.md` says how to run it.

pub mod arguments;
pub mod arp;
mod checksum;
pub mod config;
#[cfg(feature = "dpdk")]
mod eal;
mod error;
pub mod ethernet;
pub mod frame;
#[cfg(feature = "dpdk")]
mod lease;
pub mod mac;
pub mod neighbours;
#[cfg(feature = "dpdk")]
mod port;
#[cfg(feature = "dpdk")]
mod ports;
#[cfg(feature = "dpdk")]
mod queue;
#[cfg(feature = "dpdk")]
pub mod raw;
pub mod rss;
pub mod template;
pub mod templates;

pub use config::DpdkConfig;
#[cfg(feature = "dpdk")]
pub use eal::Eal;
pub use error::DpdkError;
#[cfg(feature = "dpdk")]
pub use ports::DpdkPorts;
#[cfg(feature = "dpdk")]
pub use queue::{DpdkBackend, DpdkStats};
