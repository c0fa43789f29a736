//! How is an event loop of a program made?

use trine_base::endpoint::random_seed;
use trine_base::failure::Failure;
use trine_transport::backend::{Backend, MonotonicClock};
use trine_transport::{App, Config, EventLoop, Identity};

/// Joins backend and application in an endpoint with a seed of its own.
pub(crate) fn event_loop<B: Backend, A: App<B::Route>>(
    backend: B,
    app: A,
    config: Config,
) -> Result<EventLoop<B, MonotonicClock, A>, Failure> {
    let seed = random_seed()?;
    let identity = Identity {
        cluster: 0,
        incarnation: seed.max(1),
    };
    EventLoop::new(backend, MonotonicClock, app, config, identity, seed)
        .map_err(|error| Failure::usage(format!("cannot set up the endpoint: {error}"), ""))
}
