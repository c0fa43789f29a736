//! Which backend carries the packets? The command line chooses it once; from there on it is a type parameter.

#[cfg(feature = "dpdk")]
mod dpdk;
mod udp;
#[cfg(feature = "verbs")]
mod verbs;

use std::any::Any;
use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};

use clap::{Args, ValueEnum};
use trine_dpdk::DpdkConfig;
use trine_protocol::IsAt;
use trine_protocol::RouteOf;
use trine_protocol::endpoint_config;
use trine_protocol::route::is_same_address;
use trine_transport::backend::{Backend, CaptureAddress};
use trine_transport::{Config, CongestionControl};

pub use self::udp::Udp;
use crate::failure::Failure;
use crate::ports::free_addresses;

/// How packets travel; the same for every member and client of a group.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Network options")]
pub struct NetworkArguments {
    /// What carries the packets.
    #[arg(
        long,
        env = "TRINE_TRANSPORT",
        default_value = "udp",
        value_enum,
        global = true
    )]
    pub transport: TransportKind,
    /// How the rate of a session is found: off (if absent), timely, or timely+ecn, which also listens to the network's
    /// marks. Timely suits one data centre: a round trip above 1 ms (DPDK, verbs: 50 us) slows a session down.
    #[arg(
        long,
        env = "TRINE_CONGESTION",
        value_name = "NAME",
        global = true,
        value_parser = parse_congestion
    )]
    pub congestion: Option<CongestionControl>,
    /// verbs: the RDMA device; the first one with an active port if absent.
    #[arg(long, env = "TRINE_DEVICE", value_name = "NAME", global = true, hide = !cfg!(feature = "verbs"))]
    pub device: Option<String>,
    /// verbs: the index of the port's GID; the most routable one if absent.
    #[arg(long, env = "TRINE_GID_INDEX", value_name = "N", global = true, hide = !cfg!(feature = "verbs"))]
    pub gid_index: Option<u32>,
    /// verbs: queue pairs of the process, 1 to 8; one if absent.
    #[arg(
        long,
        env = "TRINE_QUEUE_PAIRS",
        value_name = "N",
        global = true,
        hide = !cfg!(feature = "verbs"),
        value_parser = clap::value_parser!(u8).range(1..=8)
    )]
    pub queue_pairs: Option<u8>,
    /// dpdk: EAL's arguments, such as "-a 0000:3b:00.0" or "--no-pci --no-huge --vdev=net_af_packet0,iface=veth0".
    #[arg(
        long,
        env = "TRINE_EAL",
        value_name = "ARGS",
        global = true,
        hide = !cfg!(feature = "dpdk"),
        allow_hyphen_values = true
    )]
    pub eal: Option<String>,
    /// dpdk: this process's port: ip=ADDRESS/PREFIX, then gateway=IP, device=NAME and more behind commas (transport/DPDK.md).
    /// Further ports take the following addresses.
    #[arg(long, env = "TRINE_DPDK", value_name = "PORT", global = true, hide = !cfg!(feature = "dpdk"))]
    pub dpdk: Option<DpdkConfig>,
    /// dpdk, up, demo and chaos: the first replica's address; the others take the IP addresses that follow.
    #[arg(long, env = "TRINE_REPLICAS_AT", value_name = "IP:PORT", global = true, hide = !cfg!(feature = "dpdk"))]
    pub replicas_at: Option<SocketAddr>,
    /// dpdk, up, demo and chaos: EAL's arguments of each replica; {node_id} stands for its node id.
    #[arg(
        long,
        env = "TRINE_REPLICA_EAL",
        value_name = "ARGS",
        global = true,
        hide = !cfg!(feature = "dpdk"),
        allow_hyphen_values = true
    )]
    pub replica_eal: Option<String>,
}

/// The kinds of backend.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum TransportKind {
    /// The kernel's UDP sockets.
    Udp,
    /// InfiniBand Unreliable Datagram: InfiniBand, RoCE, soft-RoCE (feature `verbs`).
    Verbs,
    /// A NIC's queues without the kernel, or one of DPDK's virtual devices (feature `dpdk`).
    Dpdk,
}

/// Clap shows the names beside the option.
fn parse_congestion(name: &str) -> Result<CongestionControl, String> {
    name.parse()
        .map_err(|error: trine_transport::UnknownControl| error.to_string())
}

/// The settings of an endpoint with the congestion control that was asked for. None is the default: Timely's thresholds
/// are absolute, so a long path without a queue looks congested to it.
fn endpoint_with(congestion: Option<CongestionControl>) -> Config {
    let mut config = endpoint_config();
    config.congestion.control = congestion.unwrap_or(CongestionControl::Off);
    config
}

/// A backend that reaches processes by their socket addresses.
fn opened_by_address<B: Backend<Route = SocketAddr>>(
    backend: B,
    congestion: Option<CongestionControl>,
) -> Opened<B> {
    Opened {
        backend,
        endpoint: endpoint_with(congestion),
        route_of: Box::new(Some),
        is_at: Box::new(|route, address| is_same_address(*route, address)),
        keep: None,
    }
}

/// The option that says the same to a process that this one starts.
fn congestion_args(asked: Option<CongestionControl>) -> Vec<OsString> {
    asked.map_or_else(Vec::new, |control| {
        vec!["--congestion".into(), control.name().into()]
    })
}

/// A kind of backend, with its settings.
pub trait Network: Clone + Send + 'static {
    /// The backend type.
    type Backend: Backend<Route: CaptureAddress> + Send + 'static;

    /// Opens a backend for a replica that others reach at `own`.
    fn serve_at(&self, own: SocketAddr) -> Result<Opened<Self::Backend>, Failure>;

    /// Opens backends for the endpoints of one process. Others reach them at these addresses, which differ in their
    /// ports.
    fn serve_all(&self, own: &[SocketAddr]) -> Result<Vec<Opened<Self::Backend>>, Failure> {
        own.iter().map(|address| self.serve_at(*address)).collect()
    }

    /// Opens a backend for a client of the replicas at `peers`.
    fn call(&self, peers: &[SocketAddr]) -> Result<Opened<Self::Backend>, Failure>;

    /// The address of this process in a capture, if the backend itself knows it.
    fn local_address(&self, backend: &Self::Backend) -> SocketAddr {
        let _ = backend;
        (Ipv4Addr::UNSPECIFIED, 0).into()
    }

    /// The same network, as options of `trine serve`.
    fn serve_args(&self) -> Vec<OsString>;

    /// Whether this network is reached by IP, through the kernel. Then addresses have to be on loopback unless the user
    /// wants otherwise. Other networks are chosen by name and have no loopback.
    fn is_ip(&self) -> bool {
        false
    }

    /// Whether loopback ports mean nothing here. Then the network itself says where replicas are.
    fn chooses_addresses(&self) -> bool {
        false
    }

    /// Addresses for a group of `count` replicas that this process starts.
    fn group_addresses(&self, count: usize) -> Result<Vec<SocketAddr>, Failure> {
        free_addresses(count)
            .map_err(|error| Failure::usage(format!("no ports for the replicas: {error}"), ""))
    }
}

/// An open backend and how addresses become its routes.
pub struct Opened<B: Backend> {
    /// Sends and receives packets.
    pub backend: B,
    /// The settings of the endpoint on it.
    pub endpoint: Config,
    /// The route to an address, if it has one.
    pub route_of: RouteOf<B::Route>,
    /// Whether a packet came from the process at an address.
    pub is_at: IsAt<B::Route>,
    /// A resource that has to live as long as the backend is in use.
    pub keep: Option<Box<dyn Any + Send>>,
}

impl<B: Backend> Opened<B> {
    /// Wraps the backend in another one and keeps the rest.
    pub fn around<C: Backend<Route = B::Route>>(self, wrap: impl FnOnce(B) -> C) -> Opened<C> {
        Opened {
            backend: wrap(self.backend),
            endpoint: self.endpoint,
            route_of: self.route_of,
            is_at: self.is_at,
            keep: self.keep,
        }
    }
}

/// A task for any network.
pub trait OnNetwork {
    /// Runs the task.
    fn run<N: Network>(self, network: &N) -> Result<(), Failure>;
}

/// Runs `task` on the network that `arguments` choose.
pub fn on_chosen(arguments: &NetworkArguments, task: impl OnNetwork) -> Result<(), Failure> {
    let for_verbs = arguments.device.is_some()
        || arguments.gid_index.is_some()
        || arguments.queue_pairs.is_some();
    if arguments.transport != TransportKind::Verbs && for_verbs {
        return Err(Failure::usage(
            "--device, --gid-index and --queue-pairs belong to verbs",
            "add --transport verbs",
        ));
    }
    let for_dpdk = [&arguments.eal, &arguments.replica_eal]
        .into_iter()
        .any(Option::is_some);
    if arguments.transport != TransportKind::Dpdk && (for_dpdk || arguments.dpdk.is_some()) {
        return Err(Failure::usage(
            "--eal, --replica-eal and --dpdk belong to DPDK",
            "add --transport dpdk",
        ));
    }
    match arguments.transport {
        TransportKind::Udp => task.run(&Udp {
            congestion: arguments.congestion,
        }),
        #[cfg(feature = "verbs")]
        TransportKind::Verbs => task.run(&verbs::Verbs::new(arguments)?),
        #[cfg(not(feature = "verbs"))]
        TransportKind::Verbs => Err(not_built("verbs")),
        #[cfg(feature = "dpdk")]
        TransportKind::Dpdk => task.run(&dpdk::Dpdk::new(arguments)?),
        #[cfg(not(feature = "dpdk"))]
        TransportKind::Dpdk => Err(not_built("dpdk")),
    }
}

#[cfg(not(all(feature = "verbs", feature = "dpdk")))]
fn not_built(feature: &str) -> Failure {
    Failure::usage(
        format!("this trine was built without the feature {feature}"),
        format!("build it with: cargo build --release --features {feature}"),
    )
}
