//! How far is this program optimized? Its figures say so.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let level = std::env::var("OPT_LEVEL").expect("cargo sets it");
    println!("cargo:rustc-env=TRINE_OPT_LEVEL={level}");
}
