//! Ports handed out to endpoints one by one: a port per endpoint, for ports that cannot steer.
//!
//! DPDK cannot open a virtual device again once it was closed, so a port that an endpoint gives back stays open and
//! serves the next one. The first port has the configured IP address, each further one the next address.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};

use super::config::{DpdkConfig, PortChoice};
use super::eal::Eal;
use super::error::DpdkError;
use super::lease::{LeasablePort, Lease, PortTable};
use super::port::{Port, Queues, port_names};
use super::queue::DpdkBackend;
use trine_transport::buf::PoolConfig;

/// The ports of this process.
#[derive(Clone, Debug)]
pub struct DpdkPorts {
    shared: Arc<PortTable>,
}

impl DpdkPorts {
    /// All ports of `eal`, or the one that `config` names.
    #[must_use]
    pub fn new(eal: Arc<Eal>, config: DpdkConfig) -> Self {
        let names = match &config.device {
            PortChoice::First => port_names(),
            PortChoice::Name(name) => vec![name.clone()],
        };
        let slots = names
            .into_iter()
            .map(|name| LeasablePort {
                name,
                port: None,
                lent: false,
            })
            .collect();
        Self {
            shared: Arc::new(PortTable {
                eal,
                config,
                slots: Mutex::new(slots),
            }),
        }
    }

    /// An endpoint on `udp_port` over a port that no other endpoint has.
    ///
    /// # Errors
    ///
    /// [`DpdkError`] with cause and hint, also if all ports are lent.
    pub fn open(&self, udp_port: u16, pool: PoolConfig) -> Result<DpdkBackend, DpdkError> {
        let mut slots = self
            .shared
            .slots
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if slots.is_empty() {
            return Err(DpdkError::missing_port(
                String::new(),
                Vec::new(),
                self.shared.eal.log().to_owned(),
            ));
        }
        let ports = slots.len();
        let Some(index) = slots.iter().position(|slot| !slot.lent) else {
            return Err(DpdkError::AllPortsTaken { ports });
        };
        let slot = &mut slots[index];
        let port = match &slot.port {
            Some(port) => Arc::clone(port),
            None => {
                let port = Port::open(
                    &self.shared.eal,
                    &self.config_of(index, &slot.name),
                    Queues::OfUdpPorts(&[udp_port]),
                )?;
                slot.port = Some(Arc::clone(&port));
                port
            }
        };
        slot.lent = true;
        drop(slots);
        let lease = Lease {
            shared: Arc::clone(&self.shared),
            index,
        };
        DpdkBackend::over_lease(&port, udp_port, pool, lease)
    }

    fn config_of(&self, index: usize, name: &str) -> DpdkConfig {
        let base = &self.shared.config;
        let mut config = DpdkConfig {
            device: PortChoice::Name(name.to_owned()),
            ..base.clone()
        };
        config.ip = Ipv4Addr::from_bits(base.ip.to_bits().wrapping_add(index as u32));
        if index > 0 {
            // An Ethernet address is for one port.
            config.mac = None;
        }
        config
    }
}
