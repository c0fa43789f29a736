//! Shared parts of the integration tests: a clock that the test moves, and addresses on a ring.
#![allow(dead_code, reason = "each test binary uses its own part")]

pub(crate) mod users;

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

use trine_protocol::route::{IsAt, RouteOf};
use trine_transport::backend::{RingBackend, RingConfig, RingRoute};
use trine_transport::time::{Clock, Duration, Instant};

/// The address of the endpoint with route 0; the others follow.
const PORT_BASE: u16 = 7000;

/// Time that passes only when the test says so.
#[derive(Clone, Debug)]
pub(crate) struct ManualClock(Rc<Cell<Instant>>);

impl ManualClock {
    pub(crate) fn new() -> Self {
        Self(Rc::new(Cell::new(Instant::from_nanos(1_000_000_000))))
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.0.set(self.0.get() + by);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        self.0.get()
    }
}

/// The address that names the endpoint with this route.
pub(crate) fn address(route: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], PORT_BASE + route))
}

/// Ports from this one on are all of the endpoint with route 3: addresses of a stranger that has many.
pub(crate) const STRANGERS_PORT: u16 = 20_000;

/// Ring routes by port.
pub(crate) fn route_of() -> RouteOf<RingRoute> {
    Box::new(|address| match address.port() {
        STRANGERS_PORT.. => Some(RingRoute(3)),
        port => port.checked_sub(PORT_BASE).map(RingRoute),
    })
}

/// The other way round.
pub(crate) fn is_at() -> IsAt<RingRoute> {
    Box::new(|route, known| address(route.0) == known)
}

/// A small mesh: the tests make many.
pub(crate) fn mesh(count: u16) -> Vec<RingBackend> {
    RingBackend::mesh(
        count,
        RingConfig {
            queue_packets: 2048,
            ..RingConfig::default()
        },
    )
}
