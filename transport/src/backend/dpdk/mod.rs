//! Packets straight from the NIC's queues: the DPDK backend.
//!
//! Reading and writing Ethernet, ARP, IPv4 and UDP headers is plain code that every build compiles and tests. What
//! touches DPDK itself is behind the feature `dpdk`. `DPDK.md` says how to run it.

pub mod arp;
mod checksum;
pub mod frame;
pub mod mac;
pub mod neighbours;
pub mod template;
