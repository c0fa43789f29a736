//! DPDK: an address is its own route, in the NIC's own network.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;

use trine_dpdk::{DpdkBackend, DpdkConfig, DpdkError, DpdkPorts, Eal, arguments};
use trine_transport::buf::PoolConfig;

use super::super::{EndpointSettings, KeyChoice, Network, Opened, opened_by_address};
use super::DpdkArguments;
use crate::endpoint::random_seed;
use crate::failure::Failure;

/// UDP ports of clients: the range that IANA leaves to them.
const CLIENT_PORTS: RangeInclusive<u16> = 49_152..=65_535;

#[derive(Clone)]
pub(super) struct Dpdk {
    eal: Arc<Eal>,
    port: Option<DpdkConfig>,
    /// The ports of a calling process; a replica takes its address from the list of peers.
    callers: Option<DpdkPorts>,
    replica_eal: Option<String>,
    replicas_at: Option<SocketAddr>,
    settings: EndpointSettings,
}

impl Dpdk {
    pub(super) fn new(given: &DpdkArguments, settings: EndpointSettings) -> Result<Self, Failure> {
        let Some(eal) = &given.eal else {
            return Err(Failure::usage(
                "--transport dpdk needs EAL's arguments",
                "for example --eal \"-a 0000:3b:00.0\", or --eal \"--no-pci --no-huge --vdev=net_af_packet0,iface=veth0\"",
            ));
        };
        let eal = Eal::start(&arguments::split(eal)).map_err(failure)?;
        let callers = given
            .dpdk
            .clone()
            .map(|port| DpdkPorts::new(Arc::clone(&eal), port));
        Ok(Self {
            eal,
            port: given.dpdk.clone(),
            callers,
            replica_eal: given.replica_eal.clone(),
            replicas_at: given.replicas_at,
            settings,
        })
    }

    /// The address of the `index`th replica of a group that this process starts.
    fn replica_address(first: SocketAddr, index: usize) -> SocketAddr {
        match first.ip() {
            IpAddr::V4(ip) => {
                let ip = Ipv4Addr::from_bits(ip.to_bits().wrapping_add(index as u32));
                SocketAddr::new(ip.into(), first.port())
            }
            IpAddr::V6(_) => first,
        }
    }
}

impl Network for Dpdk {
    type Backend = DpdkBackend;

    fn serve_at(&self, own: SocketAddr) -> Result<Opened<DpdkBackend>, Failure> {
        let mut opened = self.serve_all(&[own])?;
        Ok(opened.pop().expect("one for the one address"))
    }

    /// One port for all endpoints, with a queue for each, because an address belongs to a port.
    fn serve_all(&self, own: &[SocketAddr]) -> Result<Vec<Opened<DpdkBackend>>, Failure> {
        let IpAddr::V4(ip) = own[0].ip() else {
            return Err(Failure::usage(
                format!(
                    "{} is an IPv6 address, and the DPDK backend speaks IPv4",
                    own[0]
                ),
                "give the replicas IPv4 addresses",
            ));
        };
        let config = match &self.port {
            Some(port) => DpdkConfig { ip, ..port.clone() },
            None => DpdkConfig::new(ip),
        };
        let udp_ports: Vec<u16> = own.iter().map(SocketAddr::port).collect();
        let pool = PoolConfig::default();
        let backends =
            DpdkBackend::open_several(&self.eal, &config, &udp_ports, pool).map_err(failure)?;
        let endpoint = self.settings.of_server()?;
        let opened = |backend| opened_by_address(backend, endpoint.clone());
        Ok(backends.into_iter().map(opened).collect())
    }

    fn call(&self, peers: &[SocketAddr]) -> Result<Opened<DpdkBackend>, Failure> {
        let Some(callers) = &self.callers else {
            return Err(Failure::usage(
                "a client on DPDK needs an IP address of its own",
                "add --dpdk ip=ADDRESS/PREFIX, an address that neither the kernel nor a replica has",
            ));
        };
        let count = u64::from(CLIENT_PORTS.end() - CLIENT_PORTS.start()) + 1;
        let udp_port = CLIENT_PORTS.start() + (random_seed()? % count) as u16;
        let backend = callers
            .open(udp_port, PoolConfig::default())
            .map_err(failure)?;
        Ok(opened_by_address(backend, self.settings.of_client(peers)?))
    }

    fn key_file(&self, peers: &[SocketAddr]) -> Option<PathBuf> {
        self.settings.file_towards(peers)
    }

    fn with_key(&self, key: KeyChoice) -> Self {
        Self {
            settings: self.settings.with_key(key),
            ..self.clone()
        }
    }

    fn settings(&self) -> &EndpointSettings {
        &self.settings
    }

    fn serve_args(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["--transport".into(), "dpdk".into()];
        if let Some(eal) = &self.replica_eal {
            // One argument, because its value may begin with a dash.
            arguments.push(format!("--eal={eal}").into());
        }
        arguments.extend(self.settings.serve_args());
        arguments
    }

    fn chooses_addresses(&self) -> bool {
        true
    }

    fn group_addresses(&self, count: usize) -> Result<Vec<SocketAddr>, Failure> {
        let (Some(first), Some(_)) = (self.replicas_at, &self.replica_eal) else {
            return Err(Failure::usage(
                "a group on DPDK needs to know its replicas' addresses and devices",
                "add --replicas-at IP:PORT (the others use the addresses after it) and \
                 --replica-eal ARGS, in which {node_id} stands for the replica's node id",
            ));
        };
        Ok((0..count)
            .map(|index| Self::replica_address(first, index))
            .collect())
    }
}

fn failure(error: DpdkError) -> Failure {
    Failure::usage(error.to_string(), "")
}
