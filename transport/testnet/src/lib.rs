//! Networks of this machine's own: a namespace with a bridge, and ports on it for DPDK; hosts in namespaces of their own.

mod hosts;

pub use hosts::Hosts;

use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A network namespace with a bridge in it; gone, with all its devices, when dropped.
pub struct Network {
    /// Its name, as `ip netns` takes it.
    pub namespace: String,
}

/// Between the interface indexes of two ports; the driver uses 16 bits of them.
const INDEX_STEP: usize = 4_096;

/// The bridge itself, which is the kernel's own port on it.
const BRIDGE: &str = "br0";

impl Network {
    /// A bridge without addresses.
    pub fn create() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let namespace = format!(
            "trine-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        ip(&["netns", "add", &namespace]);
        let network = Self { namespace };
        network.ip(&["link", "set", "lo", "up"]);
        network.ip(&[
            "link",
            "add",
            BRIDGE,
            "type",
            "bridge",
            "forward_delay",
            "0",
            "mcast_snooping",
            "0",
        ]);
        network.ip(&["link", "set", BRIDGE, "up"]);
        network
    }

    /// A cable into the bridge; the name of its free end, for a DPDK process.
    ///
    /// DPDK's AF_PACKET driver names its socket group (pid XOR interface index), and fails where two processes get the
    /// same name. Indexes far apart keep processes apart that were started one after the other.
    pub fn add_port(&self, number: usize) -> String {
        let (free, plugged) = (format!("dpdk{number}"), format!("plug{number}"));
        let index = (number * INDEX_STEP).to_string();
        self.ip(&[
            "link", "add", "index", &index, "name", &free, "type", "veth", "peer", "name", &plugged,
        ]);
        self.ip(&["link", "set", &plugged, "master", BRIDGE]);
        self.ip(&["link", "set", &plugged, "up"]);
        self.ip(&["link", "set", &free, "up"]);
        free
    }

    /// Gives the kernel an address on the bridge.
    ///
    /// Between virtual devices the kernel leaves checksums for a NIC to fill in that never comes; a receiver that is
    /// not the kernel would see them unfinished. Switched off, it finishes them, as it does in front of a real wire.
    pub fn add_kernel(&self, address: Ipv4Addr) {
        self.ip(&["address", "add", &format!("{address}/24"), "dev", BRIDGE]);
        self.run("ethtool", &["-K", BRIDGE, "tx", "off"]);
    }

    /// A counter of the kernel's UDP in this namespace, as `/proc/net/snmp` calls it.
    pub fn kernel_udp(&self, counter: &str) -> u64 {
        let text = self.run("cat", &["/proc/net/snmp"]);
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
        let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
        let place = names
            .split(' ')
            .position(|name| name == counter)
            .expect("such a counter");
        values
            .split(' ')
            .nth(place)
            .and_then(|value| value.parse().ok())
            .expect("a number")
    }

    fn ip(&self, arguments: &[&str]) {
        ip(&[&["-n", &self.namespace], arguments].concat());
    }

    fn run(&self, program: &str, arguments: &[&str]) -> String {
        let inside = ["netns", "exec", &self.namespace, program];
        ip(&[&inside, arguments].concat())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        ip(&["netns", "delete", &self.namespace]);
    }
}

/// Runs `ip`, which must succeed; its output.
fn ip(arguments: &[&str]) -> String {
    let output = Command::new("ip")
        .args(arguments)
        .output()
        .expect("ip, of Debian's package iproute2");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "ip {}: {errors}",
        arguments.join(" ")
    );
    String::from_utf8(output.stdout).expect("text")
}
