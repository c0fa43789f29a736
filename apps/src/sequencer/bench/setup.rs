//! The sequencer that the benchmark runs in its own process.

use std::sync::Arc;

use trine_base::failure::Failure;
use trine_protocol::endpoint_config;
use trine_sequencer::wire::Keeping;
use trine_sequencer::{Grant, Supply};
use trine_transport::Holder;
use trine_transport::backend::{MonotonicClock, RingBackend, RingRoute};
use trine_transport::time::{Clock, Duration, Instant};

use crate::event_loop::event_loop;
use crate::rights::Rights;
use crate::sequencer::reserve::Desk;
use crate::sequencer::serve::{Door, ServerLoop, dispatch};
use crate::sequencer::server_state::ServerState;

/// The lease of the server in this process. Nobody renews it.
const LEASE: Duration = Duration::from_secs(24 * 3_600);

/// A server with more numbers than a benchmark takes.
pub(super) fn server(
    backend: RingBackend,
    lease_check: bool,
) -> Result<ServerLoop<RingBackend>, Failure> {
    let shared = shared(lease_check);
    let door = Door {
        rights: Rights::default(),
        holder_of: Box::new(|_: &RingRoute| Holder::Shared),
    };
    event_loop(backend, dispatch(door, &shared), endpoint_config())
}

/// More numbers than a benchmark takes.
pub(super) fn shared(lease_check: bool) -> ServerState {
    let shared = ServerState {
        supply: Arc::new(Supply::new(0)),
        keeping: Keeping::File,
        desk: Desk::default(),
    };
    let until = match lease_check {
        true => MonotonicClock.now() + LEASE,
        false => Instant::FAR_FUTURE,
    };
    shared.supply.add(&Grant {
        start: 0,
        end: u64::MAX,
        until,
    });
    shared
}
