//! Runs each check on a correct machine and on a wrong one, both made of files.

use std::path::PathBuf;

use super::*;

/// A directory tree that is removed in the end.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let root = std::env::temp_dir().join(format!("trine-doctor-{}-{name}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().expect("a directory")).expect("created");
            std::fs::write(path, text).expect("written");
        }
        Self(root)
    }

    fn machine(&self) -> Machine {
        Machine::at(&self.0)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).expect("removed");
    }
}

fn verdict(findings: &[Finding], check: &str) -> Severity {
    let found = findings.iter().find(|finding| finding.check == check);
    found.expect("a check of this name").verdict
}

#[test]
fn a_machine_that_is_set_up_well_needs_nothing() {
    let tree = Tree::new(
        "good",
        &[
            (
                "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
                "performance\n",
            ),
            (
                "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor",
                "performance\n",
            ),
            ("sys/devices/system/cpu/cpu0/cpuidle/state0/latency", "2\n"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state0/disable", "0\n"),
            (
                "sys/devices/system/cpu/cpu0/cpuidle/state1/latency",
                "400\n",
            ),
            ("sys/devices/system/cpu/cpu0/cpuidle/state1/disable", "1\n"),
            (
                "sys/devices/system/clocksource/clocksource0/current_clocksource",
                "tsc\n",
            ),
            ("sys/class/net/eth0/device/msi_irqs/31", ""),
            ("proc/irq/31/smp_affinity_list", "0\n"),
            ("proc/sys/net/core/rmem_max", "16777216\n"),
            (
                "proc/meminfo",
                "HugePages_Total:     512\nSwapTotal:       0 kB\n",
            ),
            (
                "proc/self/limits",
                "Max open files            65536                65536                files\nMax locked memory         unlimited            unlimited            bytes\n",
            ),
        ],
    );
    let findings = examine(&tree.machine());
    let uneasy: Vec<_> = findings
        .iter()
        .filter(|finding| matches!(finding.verdict, Severity::Better | Severity::Wrong))
        .filter(|finding| finding.check != "DPDK")
        .collect();
    assert!(uneasy.is_empty(), "{uneasy:#?}");
    assert_eq!(verdict(&findings, "interrupts"), Severity::Good);
}

/// Nothing said that a container has less memory than its machine.
#[test]
fn the_limit_of_a_control_group_counts_as_the_memory() {
    let mounts = "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    let meminfo = "MemTotal:       16777216 kB\n";
    let with = |name: &str, limit: &str| {
        let tree = Tree::new(
            name,
            &[
                ("proc/meminfo", meminfo),
                ("proc/self/mountinfo", mounts),
                ("proc/self/cgroup", "0::/box\n"),
                ("sys/fs/cgroup/box/memory.max", limit),
            ],
        );
        let findings = examine(&tree.machine());
        let found = findings
            .into_iter()
            .find(|finding| finding.check == "memory");
        found.expect("a check of this name")
    };
    let small = with("small-group", "314572800\n");
    assert_eq!(small.verdict, Severity::Better);
    assert!(small.found.contains("300") && small.found.contains("memory.max"));
    assert_eq!(small.hint, "trine serve --memory 150MiB");
    let large = with("large-group", "4294967296\n");
    assert_eq!(large.verdict, Severity::Good);
    assert!(
        large.found.starts_with("4.0 GiB, the limit"),
        "{}",
        large.found
    );
    for none in ["max\n", "99999999999999\n"] {
        let finding = with("no-limit", none);
        assert_eq!(
            (finding.verdict, &*finding.found),
            (Severity::Good, "16.0 GiB")
        );
    }
}

#[test]
fn everything_that_could_be_better_comes_with_a_command() {
    let tree = Tree::new(
        "bad",
        &[
            (
                "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
                "powersave\n",
            ),
            (
                "sys/devices/system/cpu/cpu0/cpuidle/state1/latency",
                "400\n",
            ),
            ("sys/devices/system/cpu/cpu0/cpuidle/state1/disable", "0\n"),
            (
                "sys/devices/system/clocksource/clocksource0/current_clocksource",
                "hpet\n",
            ),
            ("sys/class/net/eth0/device/msi_irqs/31", ""),
            ("proc/irq/31/smp_affinity_list", "0-3\n"),
            ("proc/sys/net/core/rmem_max", "212992\n"),
            (
                "proc/meminfo",
                "HugePages_Total:     0\nSwapTotal:       2097152 kB\n",
            ),
            (
                "proc/self/limits",
                "Max open files            1024                 65536                files\n",
            ),
            ("sys/class/infiniband/rxe0/ports/1/state", "1: DOWN\n"),
        ],
    );
    let findings = examine(&tree.machine());
    for check in [
        "CPUs",
        "CPU governor",
        "clock source",
        "idle states",
        "interrupts",
        "socket buffers",
        "open files",
        "huge pages",
        "swap",
    ] {
        assert_eq!(verdict(&findings, check), Severity::Better, "{check}");
    }
    assert_eq!(verdict(&findings, "RDMA"), Severity::Wrong);
    for finding in &findings {
        let easy = matches!(finding.verdict, Severity::Good | Severity::NotHere);
        assert_eq!(easy, finding.hint.is_empty(), "{finding}");
    }
}

#[test]
fn a_machine_that_tells_nothing_is_no_reason_to_panic() {
    let tree = Tree::new("empty", &[("proc/nothing", "")]);
    let findings = examine(&tree.machine());
    assert!(
        findings
            .iter()
            .all(|finding| finding.verdict != Severity::Wrong)
    );
}

#[test]
fn a_data_directory_that_is_not_there_is_an_error_with_its_name() {
    let failure = memory::data_directory(Path::new("/nowhere/at/all")).expect_err("no directory");
    assert!(failure.to_string().contains("/nowhere/at/all"));
}
