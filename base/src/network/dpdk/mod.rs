//! The options of DPDK. Every build knows them; feature `dpdk` adds what opens a port.

#[cfg(feature = "dpdk")]
mod device;

use std::net::SocketAddr;

use clap::Args;
use trine_dpdk::DpdkConfig;

use super::{EndpointSettings, OnNetwork};
use crate::failure::Failure;

/// Options of EAL and the port.
#[derive(Clone, Debug, Default, Args)]
pub struct DpdkArguments {
    /// dpdk: EAL's arguments, such as "-a 0000:3b:00.0" or "--no-pci --no-huge --vdev=net_af_packet0,iface=veth0".
    #[arg(
        long,
        env = "TRINE_EAL",
        value_name = "ARGS",
        global = true,
        hide = !cfg!(feature = "dpdk"),
        allow_hyphen_values = true
    )]
    eal: Option<String>,
    /// dpdk: this process's port: ip=ADDRESS/PREFIX, then gateway=IP, device=NAME and more, separated by commas
    /// (transport/DPDK.md). Further ports use the addresses after it.
    #[arg(long, env = "TRINE_DPDK", value_name = "PORT", global = true, hide = !cfg!(feature = "dpdk"))]
    dpdk: Option<DpdkConfig>,
    /// dpdk, up, demo and chaos: the first replica's address; the others use the IP addresses after it.
    #[arg(long, env = "TRINE_REPLICAS_AT", value_name = "IP:PORT", global = true, hide = !cfg!(feature = "dpdk"))]
    replicas_at: Option<SocketAddr>,
    /// dpdk, up, demo and chaos: EAL's arguments of each replica; {node_id} stands for its node id.
    #[arg(
        long,
        env = "TRINE_REPLICA_EAL",
        value_name = "ARGS",
        global = true,
        hide = !cfg!(feature = "dpdk"),
        allow_hyphen_values = true
    )]
    replica_eal: Option<String>,
}

impl DpdkArguments {
    /// Refuses these options for another backend, which would ignore them. `--replicas-at` is ignored.
    pub(super) fn check_unused(&self) -> Result<(), Failure> {
        if self.eal.is_none() && self.replica_eal.is_none() && self.dpdk.is_none() {
            return Ok(());
        }
        Err(Failure::usage(
            "--eal, --replica-eal and --dpdk belong to DPDK",
            "add --transport dpdk",
        ))
    }

    /// Runs `task` on the port.
    #[cfg(feature = "dpdk")]
    pub(super) fn run(
        &self,
        settings: EndpointSettings,
        task: impl OnNetwork,
    ) -> Result<(), Failure> {
        task.run(&device::Dpdk::new(self, settings)?)
    }

    /// Refuses: the feature is absent.
    #[cfg(not(feature = "dpdk"))]
    pub(super) fn run(
        &self,
        _settings: EndpointSettings,
        _task: impl OnNetwork,
    ) -> Result<(), Failure> {
        Err(super::not_built("dpdk"))
    }
}
