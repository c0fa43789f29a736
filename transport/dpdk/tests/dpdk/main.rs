//! Processes of its own, because DPDK starts once in each: the backend against real DPDK, without a NIC.
//! `cargo test -p trine-transport --features dpdk --test dpdk`.
//!
//! EAL starts once in a process, so every case runs in processes of its own: this program starts itself again with a
//! role. A case passes when all its processes end well in time. `-- NAME` runs the cases whose names contain NAME;
//! cases that need root (network devices) are skipped, and said to be, for others.

mod bridge;
mod errors;
mod memif;
mod process;
mod rpc;

use std::process::ExitCode;

/// A case: its name, and the work of the directing process.
type Case = (&'static str, fn());
/// A role: its name, and the work of a started process, given its arguments.
type Role = (&'static str, fn(&[String]));

fn main() -> ExitCode {
    let cases: Vec<Case> = [errors::CASES, memif::CASES, bridge::CASES].concat();
    let roles: Vec<Role> = [errors::ROLES, memif::ROLES, bridge::ROLES].concat();
    if let Some((role, arguments)) = process::own_role() {
        let (_, run) = roles
            .iter()
            .find(|(name, _)| *name == role)
            .expect("a role of this program");
        run(&arguments);
        return ExitCode::SUCCESS;
    }
    let filter: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    let mut failed = 0;
    for (name, run) in cases {
        if !filter.is_empty() && !filter.iter().any(|part| name.contains(part.as_str())) {
            continue;
        }
        let passed = std::panic::catch_unwind(run).is_ok();
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        failed += u32::from(!passed);
    }
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
