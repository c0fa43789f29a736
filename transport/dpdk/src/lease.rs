//! Which ports are lent to endpoints, and an endpoint's right to one.

use std::sync::{Arc, Mutex, PoisonError};

use super::config::DpdkConfig;
use super::eal::Eal;
use super::port::Port;

/// The ports of this process, and which of them are lent.
#[derive(Debug)]
pub(super) struct PortTable {
    pub(super) eal: Arc<Eal>,
    pub(super) config: DpdkConfig,
    /// One for each port of DPDK that may be used.
    pub(super) slots: Mutex<Vec<LeasablePort>>,
}

/// A port that may be lent.
#[derive(Debug)]
pub(super) struct LeasablePort {
    pub(super) name: String,
    /// Open since its first use.
    pub(super) port: Option<Arc<Port>>,
    pub(super) lent: bool,
}

/// An endpoint's right to its port; given back when dropped.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) shared: Arc<PortTable>,
    pub(super) index: usize,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut slots = self
            .shared
            .slots
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        slots[self.index].lent = false;
    }
}
