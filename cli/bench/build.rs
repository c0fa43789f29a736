//! Tells the benchmark how far it is optimized, so that its figures can say so.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let level = std::env::var("OPT_LEVEL").expect("cargo sets it");
    println!("cargo:rustc-env=TRINE_OPT_LEVEL={level}");
}
