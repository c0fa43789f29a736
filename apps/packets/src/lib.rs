//! Packet applications, written one packet at a time, that hide the latency of memory from each other.
//!
//! A handler is `async` code in a straight line for one packet. Where it reads memory that may be far away, it awaits the
//! access, and the other packets of its batch take turns ([`trine_kvstore::interleave`]). The same handler with a batch of
//! one is what it is compared with. Tables, handlers, generators and checks need no DPDK. Ports do (feature `dpdk`).

#![allow(
    clippy::manual_async_fn,
    reason = "an `async fn` keeps its arguments twice, and every lane of a batch would be larger"
)]

pub mod application;
pub mod check;
pub mod config;
pub mod cuckoo;
pub mod echo;
pub mod error;
#[cfg(feature = "dpdk")]
pub mod forwarding;
pub mod frame;
pub mod generate;
pub mod hash;
pub mod hops;
pub mod ipv4;
pub mod ipv6;
pub mod names;
pub mod patterns;
pub mod ports;
pub mod reference;
pub mod scenario;
pub mod switch;
pub mod verdict;
