//! What the kernel says about this process.

/// The kernel's unit of a process's times, for programs on every architecture.
const TICKS_PER_SECOND: f64 = 100.0;

/// Bytes of memory that are resident.
pub(super) fn resident_bytes() -> u64 {
    status("VmRSS:")
}

/// The most bytes that ever were.
pub(super) fn resident_peak_bytes() -> u64 {
    status("VmHWM:")
}

/// Seconds of processor time of all threads, as INFO names them.
pub(super) fn cpu_seconds() -> Vec<(&'static str, String)> {
    let text = read("/proc/self/stat");
    // The name in front may have spaces and parentheses of its own.
    let behind_name = text.rsplit_once(')').map_or("", |(_, behind)| behind);
    let field = |index: usize| {
        let ticks = behind_name.split_ascii_whitespace().nth(index);
        let ticks: f64 = ticks.and_then(|ticks| ticks.parse().ok()).unwrap_or(0.0);
        format!("{:.6}", ticks / TICKS_PER_SECOND)
    };
    vec![
        ("used_cpu_sys", field(12)),
        ("used_cpu_user", field(11)),
        ("used_cpu_sys_children", field(14)),
        ("used_cpu_user_children", field(13)),
    ]
}

/// A size in KiB of the process's status; 0 if the kernel does not tell.
fn status(field: &str) -> u64 {
    let text = read("/proc/self/status");
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_used_a_processor() {
        assert!(resident_bytes() > 100_000);
        assert!(resident_peak_bytes() >= resident_bytes() / 2);
        let [(_, system), (_, user), ..] = &cpu_seconds()[..] else {
            panic!("four fields");
        };
        let seconds = |text: &String| text.parse::<f64>().expect("a number");
        assert!((0.0..1e6).contains(&seconds(system)) && (0.0..1e6).contains(&seconds(user)));
    }
}
