//! Binds the libdpdk that pkg-config finds and compiles the shim with the flags that libdpdk asks for.

#[cfg(feature = "libdpdk")]
mod libdpdk;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    #[cfg(feature = "libdpdk")]
    libdpdk::build();
}
