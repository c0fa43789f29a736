//! Kernel UDP: an address is its own route.

use std::ffi::OsString;
use std::net::SocketAddr;

use trine_protocol::route::is_same_address;
use trine_transport::backend::{UdpBackend, UdpConfig};

use super::{Network, Opened};
use crate::announce::note;
use crate::endpoint::backend_failure;
use crate::failure::Failure;
use crate::ports::local_address_towards;

/// Kernel sockets.
#[derive(Copy, Clone, Debug)]
pub struct Udp;

impl Network for Udp {
    type Backend = UdpBackend;

    fn serve_at(&self, own: SocketAddr) -> Result<Opened<UdpBackend>, Failure> {
        let opened = open(own)?;
        // Clients have few packets in flight and need no warning.
        if let Some(shortfall) = opened.backend.rx_queue_shortfall() {
            note(format_args!("warning: {shortfall}"));
        }
        Ok(opened)
    }

    fn call(&self, peers: &[SocketAddr]) -> Result<Opened<UdpBackend>, Failure> {
        open(local_address_towards(peers))
    }

    fn local_address(&self, backend: &UdpBackend) -> SocketAddr {
        backend.local_addr()
    }

    fn is_ip(&self) -> bool {
        true
    }

    fn serve_args(&self) -> Vec<OsString> {
        Vec::new()
    }
}

fn open(address: SocketAddr) -> Result<Opened<UdpBackend>, Failure> {
    let backend = UdpBackend::bind(address, &UdpConfig::default()).map_err(backend_failure)?;
    Ok(Opened {
        backend,
        route_of: Box::new(Some),
        is_at: Box::new(|route, address| is_same_address(*route, address)),
        keep: None,
    })
}
