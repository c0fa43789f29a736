//! InfiniBand UD: an address is where a process announces its queue pair.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use trine_transport::backend::announce::{Announcer, Resolver};
use trine_transport::{Config, CongestionControl, Holder};
use trine_verbs::{
    OneSidedConfig, OneSidedPath, VerbsAddress, VerbsBackend, VerbsConfig, VerbsError,
    config::SLOTS,
};

use super::super::{EndpointSettings, KeyChoice, Network, Opened, PlainCall};
use super::{VerbsArguments, VerbsPath};
use crate::announce::note;
use crate::endpoint::backend_failure;
use crate::failure::Failure;

/// How long a client waits at its start for all replicas to announce their queue pairs.
const ANNOUNCE_LIMIT: Duration = Duration::from_millis(300);

/// Sessions of a client that may have a connection of the paths herd and rfp: with each of a group's members, and some more.
const CLIENT_CONNECTIONS: u16 = 16;

/// The same for a server as a client of others, and for the sessions of its clients. They are made before it serves.
const SERVER_CONNECTIONS: (u16, u16) = (16, 64);

/// Receives of a client of requests without sessions.
const PLAIN_RECEIVE_QUEUE: u32 = 512;

#[derive(Clone)]
pub(super) struct Verbs {
    config: VerbsConfig,
    path: VerbsPath,
    resolver: Arc<Resolver<VerbsAddress>>,
    settings: EndpointSettings,
}

impl Verbs {
    pub(super) fn new(
        arguments: &VerbsArguments,
        settings: EndpointSettings,
    ) -> Result<Self, Failure> {
        if settings
            .congestion
            .is_some_and(CongestionControl::uses_marks)
        {
            return Err(Failure::usage(
                "verbs does not report the network's congestion marks",
                "use --congestion timely, or omit it",
            ));
        }
        let config = VerbsConfig {
            device: arguments.device.clone(),
            gid_index: arguments.gid_index,
            queue_pairs: arguments.queue_pairs.unwrap_or(1),
            huge_pages: arguments.huge_pages,
            ..VerbsConfig::default()
        };
        let resolver = Arc::new(Resolver::start().map_err(backend_failure)?);
        Ok(Self {
            config,
            path: arguments.path.unwrap_or_default(),
            resolver,
            settings,
        })
    }

    /// With another key of datagrams; 0 keeps the present one.
    fn with_datagram_key(&self, key: u32) -> Self {
        let mut network = self.clone();
        if key != 0 {
            network.config.qkey = key;
        }
        network
    }

    /// `connections`: so many as a client, and as a server, if the path has any.
    fn open(
        &self,
        mut endpoint: Config,
        (outgoing, incoming): (u16, u16),
    ) -> Result<Opened<VerbsBackend>, Failure> {
        let path = match self.path {
            VerbsPath::Ud => None,
            VerbsPath::Herd => Some(OneSidedPath::Herd),
            VerbsPath::Rfp => Some(OneSidedPath::Rfp),
        };
        if path.is_some() {
            // A packet more would be written over one that may not have been read.
            endpoint.credits = endpoint.credits.min(SLOTS as u16);
        }
        let config = VerbsConfig {
            one_sided: path.map(|path| OneSidedConfig {
                path,
                outgoing,
                incoming,
                on_failure: Some(warn),
                ..OneSidedConfig::default()
            }),
            sealed: endpoint.keys.is_some(),
            ..self.config.clone()
        };
        let backend =
            VerbsBackend::open(&config).map_err(|error| Failure::usage(error.to_string(), ""))?;
        let resolver = Arc::clone(&self.resolver);
        let announced = Arc::clone(&self.resolver);
        let own = u32::from(self.config.queue_pairs);
        // The number is always the same for one peer and one process, so that a route changes only if the peer does. It
        // differs between processes, so that callers spread over a peer's queue pairs.
        let caller = backend.route().queue_pair;
        Ok(Opened {
            backend,
            endpoint,
            route_of: Box::new(move |address| {
                let choice = caller.wrapping_add(u32::from(address.port()));
                Some(resolver.lookup(address)?.route(choice, own))
            }),
            // The first lookup may find nothing. The resolver then asks, and the sender repeats its packet.
            is_at: Box::new(move |route, address| {
                let announced = announced.lookup(address);
                announced.is_some_and(|announced| announced.has(route))
            }),
            holder_of: Box::new(|route| Holder::Address(route.machine())),
            keep: None,
        })
    }
}

impl Network for Verbs {
    type Backend = VerbsBackend;

    fn serve_at(&self, own: SocketAddr) -> Result<Opened<VerbsBackend>, Failure> {
        let mut opened = self.open(self.settings.of_server()?, SERVER_CONNECTIONS)?;
        let announcer = Announcer::start(own, opened.backend.address()).map_err(backend_failure)?;
        opened.keep = Some(Box::new(announcer));
        Ok(opened)
    }

    fn call(&self, peers: &[SocketAddr]) -> Result<Opened<VerbsBackend>, Failure> {
        let deadline = Instant::now() + ANNOUNCE_LIMIT;
        for peer in peers {
            // The first pass asks all of them, so that replicas that are down do not cost one wait each.
            let _asked = self.resolver.lookup(*peer);
        }
        for peer in peers {
            let _known = self
                .resolver
                .resolve(*peer, deadline.saturating_duration_since(Instant::now()));
        }
        self.open(self.settings.of_client(peers)?, (CLIENT_CONNECTIONS, 0))
    }

    /// With the other paths some packets do not travel as datagrams.
    fn has_plain_datagrams(&self) -> bool {
        self.path == VerbsPath::Ud
    }

    fn serve_plain(
        &self,
        own: SocketAddr,
        datagram_key: u32,
    ) -> Result<Opened<VerbsBackend>, Failure> {
        let network = self.with_datagram_key(datagram_key);
        let mut opened = network.open(network.settings.of_server()?, (0, 0))?;
        let announcer = Announcer::start(own, opened.backend.address()).map_err(backend_failure)?;
        opened.keep = Some(Box::new(announcer));
        Ok(opened)
    }

    /// Such a client has few packets under way, and opens backends again and again.
    fn call_plain(&self, server: SocketAddr) -> Result<PlainCall<VerbsBackend>, Failure> {
        let address = self.resolver.resolve(server, ANNOUNCE_LIMIT);
        let mut network = self.with_datagram_key(address.map_or(0, |address| address.qkey()));
        network.config = VerbsConfig {
            queue_pairs: 1,
            receive_queue: PLAIN_RECEIVE_QUEUE,
            reserved_buffers: 0,
            huge_pages: false,
            ..network.config
        };
        let opened = network.open(self.settings.of_client(&[server])?, (0, 0))?;
        // Callers spread over a server's queue pairs.
        let choice = opened.backend.route().queue_pair;
        let route = address.map(|address| opened.backend.route_to(&address, choice));
        Ok((opened, route))
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
        let mut arguments: Vec<OsString> = vec!["--transport".into(), "verbs".into()];
        if let Some(device) = &self.config.device {
            arguments.extend(["--device".into(), device.into()]);
        }
        if let Some(index) = self.config.gid_index {
            arguments.extend(["--gid-index".into(), index.to_string().into()]);
        }
        if self.config.queue_pairs > 1 {
            let count = self.config.queue_pairs.to_string();
            arguments.extend(["--queue-pairs".into(), count.into()]);
        }
        if self.config.huge_pages {
            arguments.push("--huge-pages".into());
        }
        match self.path {
            VerbsPath::Ud => {}
            VerbsPath::Herd => arguments.extend(["--path".into(), "herd".into()]),
            VerbsPath::Rfp => arguments.extend(["--path".into(), "rfp".into()]),
        }
        arguments.extend(self.settings.serve_args());
        arguments
    }
}

/// Once for each endpoint. What is asked of it is done all the same, so that this is no failure.
fn warn(error: &VerbsError) {
    note(format_args!("trine: {error}"));
}
