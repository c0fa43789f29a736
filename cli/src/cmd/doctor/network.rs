//! Sockets, interrupts, and the devices of the other backends.

use super::machine::Machine;
use super::{Finding, shown};

/// The UDP backend's default request to the kernel. It is half of the receive queue, because the kernel doubles it.
const RECEIVE_BUFFER_BYTES: u64 = 4 << 20;

pub(super) fn socket_buffers(machine: &Machine) -> Finding {
    let path = "proc/sys/net/core/rmem_max";
    match machine.number(path) {
        None => Finding::not_here("socket buffers", "limit not reported by this kernel"),
        Some(bytes) if bytes >= RECEIVE_BUFFER_BYTES => {
            Finding::good("socket buffers", format!("up to {bytes} bytes"))
        }
        Some(bytes) => Finding::better(
            "socket buffers",
            format!("at most {bytes} bytes"),
            "fewer credits and sessions fit an endpoint (a process with CAP_NET_ADMIN goes beyond the limit)",
            &format!("sysctl -w net.core.rmem_max={RECEIVE_BUFFER_BYTES}"),
        ),
    }
}

/// Checks for interrupts of network devices that every CPU may get, including the one on which a replica polls.
pub(super) fn interrupts(machine: &Machine) -> Finding {
    let cards: Vec<String> = machine
        .names("sys/class/net")
        .into_iter()
        .filter(|name| machine.exists(&format!("sys/class/net/{name}/device")))
        .collect();
    let everywhere: Vec<String> = cards
        .iter()
        .flat_map(|card| machine.names(&format!("sys/class/net/{card}/device/msi_irqs")))
        .filter(|irq| {
            let cpus = machine.text(&format!("proc/irq/{irq}/smp_affinity_list"));
            cpus.is_some_and(|list| list.contains(['-', ',']))
        })
        .collect();
    match everywhere.first() {
        _ if cards.is_empty() => Finding::not_here("interrupts", "no network card"),
        None => Finding::good("interrupts", "each network interrupt is bound to a CPU"),
        Some(irq) => Finding::better(
            "interrupts",
            format!(
                "{} of {} may go to any CPU",
                everywhere.len(),
                cards.join(", ")
            ),
            "an interrupt on a replica's CPU (--cpu) delays the replica",
            &format!(
                "systemctl stop irqbalance; echo 0 > {}    # for each of them",
                shown(&format!("proc/irq/{irq}/smp_affinity_list")).display()
            ),
        ),
    }
}

pub(super) fn rdma(machine: &Machine) -> Finding {
    let devices = machine.names("sys/class/infiniband");
    if devices.is_empty() {
        return Finding::not_here("RDMA", "no device");
    }
    let active = devices.iter().find(|device| {
        let ports = machine.names(&format!("sys/class/infiniband/{device}/ports"));
        ports.iter().any(|port| {
            let state = machine.text(&format!("sys/class/infiniband/{device}/ports/{port}/state"));
            state.is_some_and(|state| state.contains("ACTIVE"))
        })
    });
    let Some(active) = active else {
        return Finding::wrong(
            "RDMA",
            format!("{}, no port is active", devices.join(", ")),
            "an endpoint needs an active port",
            "rdma link show    # then bring the network interface beneath it up: ip link set DEV up",
        );
    };
    if !machine.exists("dev/infiniband") {
        return Finding::wrong(
            "RDMA",
            format!("{active}, but no device files"),
            "user programs reach the device through /dev/infiniband",
            "modprobe ib_uverbs",
        );
    }
    if cfg!(feature = "verbs") {
        return Finding::good("RDMA", format!("{active} is active"));
    }
    Finding::better(
        "RDMA",
        format!("{active} is active, this build does not use it"),
        "the verbs backend goes around the kernel",
        "cargo install --path cli --features verbs",
    )
}

pub(super) fn dpdk(machine: &Machine) -> Finding {
    if !cfg!(feature = "dpdk") {
        return Finding::not_here("DPDK", "not in this build (--features dpdk)");
    }
    let groups = machine.names("sys/kernel/iommu_groups");
    let vfio = machine.exists("dev/vfio/vfio");
    match (vfio, groups.is_empty()) {
        (true, false) => Finding::good("DPDK", "vfio and an IOMMU"),
        (true, true) => Finding::better(
            "DPDK",
            "vfio without an IOMMU",
            "a physical NIC can then be given to a process only without protection",
            "echo 1 > /sys/module/vfio/parameters/enable_unsafe_noiommu_mode",
        ),
        (false, _) => Finding::better(
            "DPDK",
            "no vfio; virtual devices (memif, AF_PACKET) work",
            "a physical NIC is given to a process through vfio-pci",
            "modprobe vfio-pci",
        ),
    }
}
