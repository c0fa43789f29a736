//! The metrics that every program of Prometheus's world has of its process, by their usual names. The kernel knows them.

use std::fs;

use rustix::process::{Resource, getrlimit};

use super::{Family, counter, gauge};

/// The kernel's clock ticks in a second, as it tells them to programs: the same on every architecture.
const TICKS_PER_SECOND: f64 = 100.0;

/// Metrics with the prefix `process_`; what the kernel does not tell is left out.
pub(in crate::metrics) fn process() -> Vec<Family> {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let system = fs::read_to_string("/proc/stat").unwrap_or_default();
    let found = [
        processor_seconds(&stat).map(|seconds| {
            let help = "Processor time that the process has used, in user and kernel mode.";
            counter("cpu_seconds", help, seconds)
        }),
        start_seconds(&stat, &system).map(|seconds| {
            let help = "When the process began, in seconds since 1970.";
            gauge("start_time_seconds", help, seconds)
        }),
        bytes(&status, "VmRSS:").map(|bytes| {
            let help = "Memory of the machine that the process takes.";
            gauge("resident_memory_bytes", help, bytes)
        }),
        bytes(&status, "VmSize:").map(|bytes| {
            let help = "Size of the process's address space.";
            gauge("virtual_memory_bytes", help, bytes)
        }),
        open_files().map(|count| gauge("open_fds", "Open file descriptors.", count)),
        // None is no limit at all.
        getrlimit(Resource::Nofile).current.map(|count| {
            let help = "The most file descriptors that the process may have open.";
            gauge("max_fds", help, count)
        }),
    ];
    found.into_iter().flatten().collect()
}

/// A field of `/proc/self/stat`, by its number there. The second one is the name of the program, which may have blanks and
/// parentheses in it.
fn field(stat: &str, number: usize) -> Option<f64> {
    let (_, from_third) = stat.rsplit_once(") ")?;
    from_third.split(' ').nth(number - 3)?.parse().ok()
}

fn processor_seconds(stat: &str) -> Option<f64> {
    let (user, system) = (field(stat, 14)?, field(stat, 15)?);
    Some((user + system) / TICKS_PER_SECOND)
}

fn start_seconds(stat: &str, system: &str) -> Option<f64> {
    let booted = system.lines().find_map(|line| line.strip_prefix("btime "));
    let booted: f64 = booted?.trim().parse().ok()?;
    Some(booted + field(stat, 22)? / TICKS_PER_SECOND)
}

/// A line of `/proc/self/status` that counts KiB.
fn bytes(status: &str, name: &str) -> Option<u64> {
    let text = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = text.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

fn open_files() -> Option<u64> {
    let count = fs::read_dir("/proc/self/fd").ok()?.count() as u64;
    // One of them reads the directory.
    Some(count.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_from_behind_the_name() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 100 0 0 0 150 50 0 0 20 0 5 0 1200 4096 10";
        assert_eq!(processor_seconds(stat), Some(2.0));
        assert_eq!(start_seconds(stat, "cpu 1\nbtime 1000\n"), Some(1012.0));
        assert_eq!(processor_seconds("7 (a) S 1"), None);
        assert_eq!(start_seconds(stat, ""), None);
        assert_eq!(
            bytes("VmSize:\t  8 kB\nVmRSS:\t 2 kB\n", "VmRSS:"),
            Some(2048)
        );
        assert_eq!(bytes("VmSize:\t  8 kB\n", "VmRSS:"), None);
    }

    #[test]
    fn the_kernel_tells_all_of_them() {
        let all = process();
        assert_eq!(all.len(), 6, "{all:?}");
        for family in &all {
            let value = family.samples[0].1;
            assert!(value.is_finite() && value >= 0.0, "{family:?}");
        }
        let of = |name| {
            all.iter()
                .find(|family| family.name == name)
                .expect(name)
                .samples[0]
                .1
        };
        assert!(of("resident_memory_bytes") <= of("virtual_memory_bytes"));
        assert!((3.0..=of("max_fds")).contains(&of("open_fds")));
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let age = now.expect("after 1970").as_secs_f64() - of("start_time_seconds");
        // The time of the boot is in whole seconds.
        assert!((-2.0..3600.0).contains(&age), "{age} s");
    }
}
