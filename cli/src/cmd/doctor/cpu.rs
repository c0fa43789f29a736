//! Processors: their number, speed and sleep states, and the clock that is read with every batch of packets.

use super::machine::Machine;
use super::{Finding, shown};

pub(super) fn count(machine: &Machine) -> Finding {
    let cpus = machine
        .names("sys/devices/system/cpu")
        .iter()
        .filter(|name| is_cpu(name))
        .count();
    let found = format!("{cpus} online or offline");
    if cpus >= 2 {
        return Finding::good("CPUs", found);
    }
    Finding::better(
        "CPUs",
        found,
        "a replica polls on one CPU; a group on one machine, or a client beside it, needs at least two",
        "trine up --spin 0us    # frees the CPU at once, at the price of higher latency",
    )
}

fn is_cpu(name: &str) -> bool {
    name.strip_prefix("cpu")
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
}

pub(super) fn governor(machine: &Machine) -> Finding {
    let governors: Vec<String> = machine
        .names("sys/devices/system/cpu")
        .iter()
        .filter(|name| is_cpu(name))
        .filter_map(|cpu| {
            machine.text(&format!(
                "sys/devices/system/cpu/{cpu}/cpufreq/scaling_governor"
            ))
        })
        .collect();
    match governors.iter().find(|name| *name != "performance") {
        _ if governors.is_empty() => {
            Finding::not_here("CPU governor", "no frequency control (a virtual machine)")
        }
        None => Finding::good("CPU governor", "performance"),
        Some(other) => Finding::better(
            "CPU governor",
            other,
            "a CPU that slows down between packets adds microseconds to each of them",
            "cpupower frequency-set -g performance",
        ),
    }
}

pub(super) fn clock_source(machine: &Machine) -> Finding {
    let path = "sys/devices/system/clocksource/clocksource0/current_clocksource";
    let Some(source) = machine.text(path) else {
        return Finding::not_here("clock source", "not reported by this kernel");
    };
    // These are read in user space, without a system call.
    if [
        "tsc",
        "kvm-clock",
        "arch_sys_counter",
        "hyperv_clocksource_tsc_page",
    ]
    .contains(&&*source)
    {
        return Finding::good("clock source", source);
    }
    Finding::better(
        "clock source",
        source,
        "reading this clock is a system call or worse, and it is read with every batch of packets",
        &format!("echo tsc > {}", shown(path).display()),
    )
}

pub(super) fn idle_states(machine: &Machine) -> Finding {
    let directory = "sys/devices/system/cpu/cpu0/cpuidle";
    // Latency of waking from the deepest enabled state, in microseconds.
    let deepest = machine
        .names(directory)
        .iter()
        .filter(|state| machine.number(&format!("{directory}/{state}/disable")) == Some(0))
        .filter_map(|state| machine.number(&format!("{directory}/{state}/latency")))
        .max();
    match deepest {
        None => Finding::not_here("idle states", "not controlled here (a virtual machine)"),
        Some(latency) if latency <= 10 => {
            Finding::good("idle states", format!("at most {latency} us to wake up"))
        }
        Some(latency) => Finding::better(
            "idle states",
            format!("up to {latency} us to wake up"),
            "a replica that slept answers its first packet that much later",
            "cpupower idle-set -D 10",
        ),
    }
}
