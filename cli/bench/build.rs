//! Which commit is built? Benchmarks report it.

use std::process::Command;

fn main() {
    // This file changes with every commit and every checkout; it is absent outside of a repository.
    println!("cargo:rerun-if-changed=../../.git/logs/HEAD");
    println!("cargo:rerun-if-env-changed=TRINE_COMMIT");
    let given = std::env::var("TRINE_COMMIT").ok();
    let commit = given.or_else(asked).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo:rustc-env=TRINE_COMMIT={commit}");
}

fn asked() -> Option<String> {
    let output = Command::new("git")
        .args(["rev-parse", "--short=12", "HEAD"])
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}
