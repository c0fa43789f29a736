//! Raw bindings to the libdpdk that is installed on the building machine, and to the shim in `shim/`.
//!
//! Nothing here is safe to use by itself; `trine_transport::backend::dpdk` is the safe wrapper. The bindings are made
//! at build time because the layouts of DPDK's structures change from release to release. What DPDK defines as an
//! inline function, and every access to a field of an mbuf, is in the shim: one call a burst, not one a packet.

#![allow(
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unsafe_op_in_unsafe_fn
)]
#![allow(clippy::all, rust_2018_idioms)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
