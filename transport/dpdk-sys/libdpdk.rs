//! The work of the build script, with the feature `libdpdk`.

use std::{env, path::PathBuf};

/// Only these are linked: drivers are loaded by EAL at run time from the directory that libdpdk was built with.
const LIBRARIES: [&str; 4] = ["rte_ethdev", "rte_mbuf", "rte_mempool", "rte_eal"];

const EAL_FUNCTIONS: &str =
    "trine_.*|rte_eal_cleanup|rte_log_set_global_level|rte_pktmbuf_pool_create";
const ETH_FUNCTIONS: &str = "rte_eth_(dev_(count_avail|configure|start|stop|close|info_get|get_mtu|set_mtu|\
    adjust_nb_rx_tx_desc|get_name_by_port|get_port_by_name|is_valid_port|socket_id)|[rt]x_queue_setup|macaddr_get|\
    link_get_nowait|stats_get|dev_rss_reta_(update|query)|dev_rss_hash_conf_get|dev_default_mac_addr_set|promiscuous_enable)";
const OTHER_FUNCTIONS: &str = "rte_(mempool_free|mempool_avail_count|strerror|version)";
const CONSTANTS: &str = "TRINE_.*|RTE_MBUF_DEFAULT_BUF_SIZE|RTE_PKTMBUF_HEADROOM|RTE_ETH_NAME_MAX_LEN|RTE_LOG_(ERR|WARNING)";
const OPAQUE: &str = "rte_arp_.*|rte_ipv[46]_.*|rte_l2tpv2_.*|rte_gtp_.*|rte_mbuf|rte_mempool";

pub(super) fn build() {
    println!("cargo:rerun-if-changed=libdpdk.rs");
    println!("cargo:rerun-if-changed=shim");
    let libdpdk = pkg_config::Config::new()
        .atleast_version("22.11")
        .cargo_metadata(false)
        .probe("libdpdk")
        .unwrap_or_else(|error| {
            panic!(
                "libdpdk 22.11 or newer was not found: {error}\n\
                 On Debian: apt-get install --no-install-recommends dpdk dpdk-dev libdpdk-dev libclang-dev pkg-config"
            )
        });
    // pkg-config's crate drops flags that are neither paths nor defines, and rte_config.h comes by such a flag.
    let mut flags: Vec<String> = libdpdk
        .include_paths
        .iter()
        .map(|path| format!("-I{}", path.display()))
        .collect();
    flags.extend(["-include".into(), "rte_config.h".into()]);
    if env::var("CARGO_CFG_TARGET_ARCH").as_deref() == Ok("x86_64") {
        flags.push("-march=corei7".into());
    }

    compile_shim(&flags);
    bind(&flags);

    for path in &libdpdk.link_paths {
        println!("cargo:rustc-link-search=native={}", path.display());
    }
    for library in LIBRARIES {
        println!("cargo:rustc-link-lib=dylib={library}");
    }
}

fn compile_shim(flags: &[String]) {
    let mut build = cc::Build::new();
    build.file("shim/shim.c").opt_level(3).warnings(true);
    // DPDK's headers use deprecated helpers of their own.
    build.flag("-Wno-deprecated-declarations");
    for flag in flags {
        build.flag(flag);
    }
    build.compile("trine_dpdk_shim");
}

fn bind(flags: &[String]) {
    let builder = bindgen::Builder::default()
        .header("shim/shim.h")
        .clang_args(flags)
        .allowlist_function(EAL_FUNCTIONS)
        .allowlist_function(ETH_FUNCTIONS)
        .allowlist_function(OTHER_FUNCTIONS)
        .allowlist_var(CONSTANTS)
        .allowlist_type(
            "rte_eth_(conf|dev_info|link|stats|rxconf|txconf|rss_conf|rss_reta_entry64)",
        )
        .opaque_type(OPAQUE)
        .derive_default(true)
        .layout_tests(false)
        .generate_comments(false);
    let out =
        PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("bindings.rs");
    builder
        .generate()
        .expect("bindgen needs libclang: on Debian, apt-get install libclang-dev")
        .write_to_file(&out)
        .unwrap_or_else(|error| panic!("cannot write {}: {error}", out.display()));
}
