//! The transport's tests from outside, as one program, because each further program has to be linked and waits for the
//! one before it. The exceptions are `session_memory`, which counts what its whole process allocates, and the tests of
//! backends that need a device: `dpdk`, `verbs`.

mod examples;
mod overcommit;
mod pcap;
mod shaped;
mod udp;
