//! The Redis protocol of a real group of three replicas.
//!
//! Tests that need redis-server, redis-cli, redis-benchmark, redis-py or ioredis say so and pass where these are missing. With
//! `TRINE_NEED_TOOLS=1` they fail there. `.ci/redis` installs the tools.

mod clients;
mod differential;
mod documented;
mod hostile;
mod keyspace;
mod large;
mod notifications;
mod once;
mod outages;
mod played;
mod retried;
mod stages;
mod tls;
mod tracking;
mod users;
mod wire;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use crate::common::{Cluster, leave_out, program, wait_for};
use trine_base::ports::free_addresses;
use trine_local::{Group, GroupConfig};
use wire::Wire;

/// A group whose replicas serve Redis clients.
pub(crate) struct RedisGroup {
    pub(crate) cluster: Cluster,
    addresses: Arc<Mutex<BTreeMap<usize, SocketAddr>>>,
}

impl RedisGroup {
    pub(crate) fn start(options: &[&str]) -> Self {
        let addresses: Arc<Mutex<BTreeMap<usize, SocketAddr>>> = Arc::default();
        let told = Arc::clone(&addresses);
        let sink = move |node_id: usize, _, line: &str| {
            if let Some(address) = line.strip_prefix("serves Redis clients at ") {
                let address = address.parse().expect("an address");
                told.lock().expect("unpoisoned").insert(node_id, address);
            }
        };
        // Beside other tests a group may be without a leader for longer than the default of the option.
        let patient = match options.contains(&"--resp-timeout") {
            true => &["--resp", "0"][..],
            false => &["--resp", "0", "--resp-timeout", "30s"],
        };
        // A replica that is to be started again needs the same port.
        let patient = match options.contains(&"--resp") {
            true => &patient[2..],
            false => patient,
        };
        let config = GroupConfig {
            program: program(),
            addresses: free_addresses(3).expect("free ports"),
            serve_args: patient.iter().chain(options).map(Into::into).collect(),
            sink: Some(Arc::new(sink)),
        };
        let mut cluster = Cluster {
            group: Group::start(config).expect("processes"),
        };
        cluster.wait_for_voters(3);
        Self { cluster, addresses }
    }

    /// The Redis address of the replica with this node id, from 1.
    pub(crate) fn address(&self, node_id: usize) -> SocketAddr {
        wait_for("the line that names the port", || {
            let addresses = self.addresses.lock().expect("unpoisoned");
            addresses.get(&node_id).copied()
        })
    }

    pub(crate) fn connect(&self, node_id: usize) -> Wire {
        Wire::connect(self.address(node_id))
    }
}

/// A number in INFO.
pub(crate) fn counter(wire: &mut Wire, name: &str) -> u64 {
    let info = wire.ask("INFO");
    let line = info
        .split("\r\n")
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|digits| digits.parse().ok())
        .unwrap_or_else(|| panic!("{name} is missing in {info}"))
}

/// Whether a tool can be started. If not, it says so, or fails where the tool is needed.
#[track_caller]
pub(crate) fn has_tool(tool: &str) -> bool {
    let there = std::process::Command::new(tool)
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success());
    if !there {
        let why = format!("{tool} is not installed (.ci/redis installs it)");
        leave_out(&why, "TRINE_NEED_TOOLS");
    }
    there
}
