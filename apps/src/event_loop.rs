//! Builds a program's event loop, and turns it for a client.

use trine_base::config::CLIENT_LOOK;
use trine_base::endpoint::{backend_failure, random_seed};
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_transport::backend::{Backend, MonotonicClock};
use trine_transport::time::{Clock, Duration, Instant};
use trine_transport::{App, Config, EventLoop, Identity};

/// Joins backend and application in an endpoint with a seed of its own.
///
/// # Errors
/// There is no randomness, or the settings contradict themselves.
pub fn event_loop<B: Backend, A: App<B::Route>>(
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

/// Turns a client's loop until `is_over` says so, which is asked after each turn.
///
/// # Errors
/// The backend has failed, or the user wants the process to end.
pub fn turn_until<B: Backend, A: App<B::Route>>(
    event_loop: &mut EventLoop<B, MonotonicClock, A>,
    is_over: impl Fn(&A) -> bool,
) -> Result<(), Failure> {
    let ends = |app: &mut A| is_over(app) || interrupt::interrupted();
    // The loop may sleep in the kernel for as long as a server is silent, and a signal does not end that sleep.
    loop {
        event_loop
            .run_until(Some(next_look()), ends)
            .map_err(backend_failure)?;
        if is_over(event_loop.app()) {
            return Ok(());
        }
        interrupt::check()?;
    }
}

/// When a client that waits looks again whether the user wants to end it.
pub(crate) fn next_look() -> Instant {
    MonotonicClock.now() + Duration::from(CLIENT_LOOK)
}

#[cfg(test)]
mod tests {
    use std::time;

    use trine_transport::backend::{RingBackend, RingConfig, Route};
    use trine_transport::{Completion, Cx, Event, Reply, Request};

    use super::*;

    /// Hears and says nothing.
    struct Silent;

    impl<R: Route> App<R> for Silent {
        fn on_request(&mut self, _: &mut Cx<'_, R>, _: Request<'_>) -> Reply {
            Reply::Later
        }

        fn on_completion(&mut self, _: &mut Cx<'_, R>, _: u64, _: Completion) {}

        fn on_event(&mut self, _: &mut Cx<'_, R>, _: Event<R>) {}
    }

    /// The loop slept until a packet or a timeout came, and did not look whether it was to end.
    #[test]
    fn a_client_that_hears_nothing_looks_again_and_again() {
        let (ours, _theirs) = RingBackend::pair(RingConfig::default());
        let config = trine_protocol::endpoint_config();
        let mut client = event_loop(ours, Silent, config).expect("an endpoint");
        let begun = time::Instant::now();
        let is_over = |_: &Silent| begun.elapsed() > 5 * CLIENT_LOOK;
        turn_until(&mut client, is_over).expect("nobody wants to end it");
    }
}
