//! Kernel UDP: an address is its own route.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use trine_transport::backend::{UdpBackend, UdpConfig};
use trine_transport::{Config, CongestionControl};

use super::{EndpointSettings, Network, Opened, opened_by_address};
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
        let opened = self.open(own, self.settings.of_server()?)?;
        // Clients have few packets in flight and need no warning.
        if let Some(shortfall) = opened.backend.rx_queue_shortfall() {
            note(format_args!("warning: {shortfall}"));
        }
        Ok(opened)
    }

    fn call(&self, peers: &[SocketAddr]) -> Result<Opened<UdpBackend>, Failure> {
        self.open(local_address_towards(peers), self.settings.of_client()?)
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

    fn settings(&self) -> &EndpointSettings {
        &self.settings
    }

    fn key_file(&self) -> Option<PathBuf> {
        self.settings.key.clone()
    }

    fn serve_args(&self) -> Vec<OsString> {
        self.settings.serve_args()
    }
}

impl Udp {
    /// A socket at `local`.
    fn open(&self, local: SocketAddr, endpoint: Config) -> Result<Opened<UdpBackend>, Failure> {
        let marks = self
            .settings
            .congestion
            .is_some_and(CongestionControl::uses_marks);
        let config = UdpConfig {
            congestion_marks: marks,
            ..UdpConfig::default()
        };
        let backend = UdpBackend::bind(local, &config).map_err(backend_failure)?;
        Ok(opened_by_address(backend, endpoint))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
