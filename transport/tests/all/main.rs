//! The transport's tests from outside, as one program: each further one is linked, and waits for the one before it. Two
//! tests beside it are `allocations` and `session_memory`, which count what their whole process allocates, and the
//! tests of backends that need a device: `dpdk`, `verbs`.

mod examples;
mod overcommit;
mod pcap;
mod udp;
