//! Kernel UDP: an address is its own route.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use trine_transport::backend::{PACKET_EVERYWHERE, UdpBackend, UdpConfig, interface_carries};
use trine_transport::{Config, CongestionControl};

use super::{EndpointSettings, KeyChoice, Network, Opened, opened_by_address};
use crate::announce::note;
use crate::endpoint::backend_failure;
use crate::failure::Failure;
use crate::ports::local_address_towards;

/// Kernel sockets.
#[derive(Clone, Debug, Default)]
pub struct Udp {
    /// What all endpoints of this process share.
    pub settings: EndpointSettings,
}

impl Network for Udp {
    type Backend = UdpBackend;

    fn serve_at(&self, own: SocketAddr) -> Result<Opened<UdpBackend>, Failure> {
        let opened = self.open(own, self.settings.of_server()?, true)?;
        // Clients have few packets in flight and need no warning.
        if let Some(shortfall) = opened.backend.rx_queue_shortfall() {
            note(format_args!("warning: {shortfall}"));
        }
        Ok(opened)
    }

    fn call(&self, peers: &[SocketAddr]) -> Result<Opened<UdpBackend>, Failure> {
        self.open(
            local_address_towards(peers),
            self.settings.of_client(peers)?,
            false,
        )
    }

    fn check_paths(&self, peers: &[SocketAddr]) {
        for (peer, carries) in self.broken_promises(peers) {
            note(format_args!(
                "warning: --mtu {} is more than the interface towards {peer} carries ({carries} bytes in a packet); hint: \
                 lower --mtu, or raise the interface's MTU",
                self.settings.mtu.unwrap_or_default()
            ));
        }
    }

    fn local_address(&self, backend: &UdpBackend) -> SocketAddr {
        backend.local_addr()
    }

    fn is_ip(&self) -> bool {
        true
    }

    fn keeps_to_loopback(&self) -> bool {
        !self.settings.requires_keys()
    }

    fn key_file(&self, peers: &[SocketAddr]) -> Option<PathBuf> {
        self.settings.file_towards(peers)
    }

    fn with_key(&self, key: KeyChoice) -> Self {
        Self {
            settings: self.settings.with_key(key),
        }
    }

    fn settings(&self) -> &EndpointSettings {
        &self.settings
    }

    fn serve_args(&self) -> Vec<OsString> {
        self.settings.serve_args()
    }
}

impl Udp {
    /// The peers on whose way already this machine's interface carries less than `--mtu` says, and how much.
    fn broken_promises(&self, peers: &[SocketAddr]) -> Vec<(SocketAddr, usize)> {
        let Some(promised) = self.settings.mtu.map(usize::from) else {
            return Vec::new();
        };
        let carried = peers
            .iter()
            .filter_map(|peer| Some((*peer, interface_carries(*peer)?)));
        carried.filter(|(_, carries)| *carries < promised).collect()
    }

    /// A socket at `local`. Only a server is asked by others at an address that they choose.
    fn open(
        &self,
        local: SocketAddr,
        endpoint: Config,
        answers_where_asked: bool,
    ) -> Result<Opened<UdpBackend>, Failure> {
        let marks = self
            .settings
            .congestion
            .is_some_and(CongestionControl::uses_marks);
        let config = UdpConfig {
            congestion_marks: marks,
            answers_where_asked,
            mtu: self.settings.mtu.map_or(PACKET_EVERYWHERE, usize::from),
            ..UdpConfig::default()
        };
        let backend = UdpBackend::bind(local, &config).map_err(backend_failure)?;
        Ok(opened_by_address(backend, endpoint))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_transport::backend::Backend as _;

    #[test]
    fn a_size_reaches_the_backend_and_the_replicas_that_are_started() {
        let network = |mtu| Udp {
            settings: EndpointSettings {
                mtu,
                ..EndpointSettings::default()
            },
        };
        let loopback: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let elsewhere: SocketAddr = "192.0.2.1:9".parse().expect("an address");
        let sizes_of = |mtu| {
            let opened = network(mtu).serve_at(loopback).expect("a socket");
            let sizes = opened.backend.packet_sizes();
            (sizes.of(&loopback), sizes.of(&elsewhere))
        };
        assert_eq!(sizes_of(None), (1_472, 1_232));
        assert_eq!(sizes_of(Some(8_952)), (1_472, 8_952));
        assert_eq!(sizes_of(Some(512)), (1_472, 512));
        let args: Vec<OsString> = vec!["--mtu".into(), "8952".into()];
        assert_eq!(network(Some(8_952)).serve_args(), args);
        // Loopback carries more than any packet.
        assert!(network(Some(9_000)).broken_promises(&[loopback]).is_empty());
    }

    #[test]
    fn the_choice_reaches_the_endpoint_and_the_replicas_that_are_started() {
        let loopback = "127.0.0.1:0".parse().expect("an address");
        let chosen = |asked| {
            let network = Udp {
                settings: EndpointSettings {
                    congestion: asked,
                    ..EndpointSettings::default()
                },
            };
            let served = network.serve_at(loopback).expect("a socket").endpoint;
            let called = network.call(&[loopback]).expect("a socket").endpoint;
            assert_eq!(served.congestion.control, called.congestion.control);
            (served.congestion.control, network.serve_args())
        };
        assert_eq!(chosen(None), (CongestionControl::Off, Vec::new()));
        let asked = CongestionControl::TimelyEcn;
        let args = vec!["--congestion".into(), "timely+ecn".into()];
        assert_eq!(chosen(Some(asked)), (asked, args));
    }
}
