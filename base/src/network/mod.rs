//! The backend that carries the packets. The command line chooses it once; from there on it is a type parameter.

mod dpdk;
mod key_log;
mod settings;
mod udp;
mod verbs;

use std::any::Any;
use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use trine_protocol::RouteOf;
use trine_protocol::route::is_same_address;
use trine_protocol::route::{HolderOf, IsAt};
use trine_transport::backend::{Backend, CaptureAddress};
use trine_transport::config::{MTU_MAX, MTU_MIN};
use trine_transport::{Config, CongestionControl, Holder};

pub use self::dpdk::DpdkArguments;
pub use self::settings::{
    EndpointSettings, KeyArguments, KeyChoice, KeyStage, ServerKeys, replicas_client,
};
pub use self::udp::Udp;
pub use self::verbs::VerbsArguments;
use crate::failure::Failure;
use crate::ports::free_addresses;

/// The network options, the same for every member and client of a group.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Network options")]
pub struct NetworkArguments {
    /// The network that carries the packets.
    #[arg(
        long,
        env = "TRINE_TRANSPORT",
        default_value = "udp",
        value_enum,
        global = true
    )]
    pub transport: TransportKind,
    /// Congestion control, which keeps queues in the network short: off (default), delay, timely, or timely+ecn. delay
    /// limits the packets that a session has in flight, on networks of any speed. timely limits a session's rate,
    /// within one data centre. A round trip above 1 ms (DPDK, verbs: 50 us) slows a session down. timely+ecn also
    /// reacts to ECN marks.
    #[arg(
        long,
        env = "TRINE_CONGESTION",
        value_name = "NAME",
        global = true,
        value_parser = parse_congestion
    )]
    pub congestion: Option<CongestionControl>,
    /// Bytes of UDP payload that every path to other machines carries in one packet, 512 to 9000; by default 1232,
    /// which every network carries. A session uses the smaller value of its two ends. For an MTU of 9000: 8972, with
    /// IPv6 8952.
    #[arg(
        long,
        env = "TRINE_MTU",
        value_name = "BYTES",
        global = true,
        value_parser = parse_mtu
    )]
    pub mtu: Option<u16>,
    /// The key that this process uses.
    #[command(flatten)]
    pub key: KeyArguments,
    /// The options of the verbs backend.
    #[command(flatten)]
    pub verbs: VerbsArguments,
    /// The options of the DPDK backend.
    #[command(flatten)]
    pub dpdk: DpdkArguments,
}

impl NetworkArguments {
    /// What all endpoints share. `stage` says which callers a replica takes.
    #[must_use]
    pub fn settings(&self, stage: Option<KeyStage>) -> EndpointSettings {
        EndpointSettings {
            congestion: self.congestion,
            mtu: self.mtu,
            key: self.key.choice(),
            key_log: self.key.log.clone(),
            stage,
        }
    }
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

/// Bytes of a packet.
fn parse_mtu(text: &str) -> Result<u16, String> {
    let bytes = text.parse::<u16>().ok();
    let allowed = MTU_MIN..=MTU_MAX;
    bytes
        .filter(|bytes| allowed.contains(&usize::from(*bytes)))
        .ok_or_else(|| {
            format!(
                "a packet has {MTU_MIN} to {MTU_MAX} bytes: the MTU of the links less 28 bytes of headers, with IPv6 less 48"
            )
        })
}

/// A backend that reaches processes by their socket addresses.
fn opened_by_address<B: Backend<Route = SocketAddr>>(backend: B, endpoint: Config) -> Opened<B> {
    Opened {
        backend,
        endpoint,
        route_of: Box::new(Some),
        is_at: Box::new(|route, address| is_same_address(*route, address)),
        holder_of: Box::new(|route| Holder::of_address(*route)),
        keep: None,
    }
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

    /// The same, for a client that is a part of a replica: it has the replica's rights.
    fn call_as_replica(&self, peers: &[SocketAddr]) -> Result<Opened<Self::Backend>, Failure> {
        let mut opened = self.call(peers)?;
        opened.endpoint.keys = self.settings().of_replicas_client()?;
        Ok(opened)
    }

    /// Warns if this machine's interfaces carry less towards `peers` than the user says.
    fn check_paths(&self, peers: &[SocketAddr]) {
        let _ = peers;
    }

    /// What all endpoints of this process share.
    fn settings(&self) -> &EndpointSettings;

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

    /// The file with the key that this process uses towards the replicas at `peers`, if it has one.
    fn key_file(&self, peers: &[SocketAddr]) -> Option<PathBuf>;

    /// The same network, with this choice of a key.
    #[must_use]
    fn with_key(&self, key: KeyChoice) -> Self;

    /// Whether a replica is for this machine alone, unless the user permits others: the network is IP, and whoever can
    /// send packets to a replica may read and write.
    fn keeps_to_loopback(&self) -> bool {
        false
    }

    /// Whether loopback ports mean nothing here. Then the network itself says where replicas are.
    fn chooses_addresses(&self) -> bool {
        false
    }

    /// Whether each packet is a datagram of its own, and each backend has a name that no other has had lately: what
    /// requests without sessions need.
    fn has_plain_datagrams(&self) -> bool {
        false
    }

    /// Opens a backend for requests without sessions, which others reach at `own`. Nobody reaches it under another key than
    /// this, if the network has keys of datagrams. So nothing arrives that was meant for another process or life.
    fn serve_plain(
        &self,
        own: SocketAddr,
        datagram_key: u32,
    ) -> Result<Opened<Self::Backend>, Failure> {
        let _ = datagram_key;
        self.serve_at(own)
    }

    /// Opens a backend of its own for the server of such requests at `server`, with the route there.
    fn call_plain(&self, server: SocketAddr) -> Result<PlainCall<Self::Backend>, Failure> {
        let opened = self.call(&[server])?;
        let route = (opened.route_of)(server);
        Ok((opened, route))
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
    /// Whom the sessions from a route are counted for.
    pub holder_of: HolderOf<B::Route>,
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
            holder_of: self.holder_of,
            keep: self.keep,
        }
    }
}

/// A backend for one server, and the route there if it is known.
pub type PlainCall<B> = (Opened<B>, Option<RouteOfBackend<B>>);

/// The route of a backend.
pub type RouteOfBackend<B> = <B as Backend>::Route;

/// A task for any network.
pub trait OnNetwork {
    /// Runs the task.
    fn run<N: Network>(self, network: &N) -> Result<(), Failure>;
}

/// Refuses options of a backend that was not chosen, which would be ignored.
///
/// # Errors
/// Which options these are.
pub fn check_unused(arguments: &NetworkArguments) -> Result<(), Failure> {
    if arguments.transport != TransportKind::Udp && arguments.mtu.is_some() {
        return Err(Failure::usage(
            "--mtu is for kernel UDP (--transport udp), but another transport was chosen",
            "with DPDK, set the size in --dpdk (mtu=BYTES); with verbs, the port's MTU is the size",
        ));
    }
    if arguments.transport != TransportKind::Verbs {
        arguments.verbs.check_unused()?;
    }
    if arguments.transport != TransportKind::Dpdk {
        arguments.dpdk.check_unused()?;
    }
    Ok(())
}

/// Runs `task` on the network that `arguments` choose. `stage` says which callers a replica takes.
///
/// # Errors
/// Options of a backend that was not chosen, a backend that is not in this build, or what the task returns.
pub fn on_chosen(
    arguments: &NetworkArguments,
    stage: Option<KeyStage>,
    task: impl OnNetwork,
) -> Result<(), Failure> {
    check_unused(arguments)?;
    let settings = arguments.settings(stage);
    match arguments.transport {
        TransportKind::Udp => task.run(&Udp { settings }),
        TransportKind::Verbs => arguments.verbs.run(settings, task),
        TransportKind::Dpdk => arguments.dpdk.run(settings, task),
    }
}

/// Refuses a backend that is not in this build.
///
/// # Errors
/// Which feature the build would need.
pub fn check_built(transport: TransportKind) -> Result<(), Failure> {
    match transport {
        TransportKind::Verbs if !cfg!(feature = "verbs") => Err(not_built("verbs")),
        TransportKind::Dpdk if !cfg!(feature = "dpdk") => Err(not_built("dpdk")),
        _ => Ok(()),
    }
}

fn not_built(feature: &str) -> Failure {
    Failure::usage(
        format!("this trine was built without the feature {feature}"),
        format!("build it with: cargo build --release --features {feature}"),
    )
}
