//! Whole endpoints over this path, with memory in the place of a device: every build runs them.
//!
//! Time is virtual. A [`World`] is the network: datagrams in queues, writes that arrive at once, late, torn or not at all.

mod fetching;
mod paths;
mod world;
