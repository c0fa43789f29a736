//! Raw bindings to the libdpdk that is installed on the building machine, and to the shim in `shim/`.
//!
//! Nothing here is safe to use by itself; `trine_dpdk` is the safe wrapper. The bindings are made
//! at build time because the layouts of DPDK's structures change from release to release. What DPDK defines as an
//! inline function, and every access to a field of an mbuf, is in the shim: one call a burst, not one a packet.
//!
//! Without the feature `libdpdk` the crate is empty.

#[cfg(feature = "libdpdk")]
#[allow(
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unsafe_code,
    unsafe_op_in_unsafe_fn,
    clippy::all,
    rust_2018_idioms
)]
mod bindings {
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}

#[cfg(feature = "libdpdk")]
pub use bindings::*;
