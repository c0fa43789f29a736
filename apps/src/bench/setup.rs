//! Event loops of a benchmark: the client's alone, or client and server in one thread.

use std::any::Any;
use std::net::SocketAddr;

use trine_base::endpoint::backend_failure;
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::network::Network;
use trine_protocol::endpoint_config;
use trine_transport::backend::{Backend, MonotonicClock, RingBackend, RingConfig, RingRoute};
use trine_transport::{App, EventLoop};

use super::driver::{Driver, Work};
use crate::event_loop::{event_loop, turn_until};
use crate::line::{Reached, await_session, connect, reach};

type ClientLoop<B, W> = EventLoop<B, MonotonicClock, Driver<W>>;

/// Turns between two looks at whether a load is over.
const TURNS_PER_LOOK: u32 = 16;

/// A client with a session at a server.
pub(crate) trait Setup<W: Work> {
    /// Runs a load to its end.
    fn run(&mut self, load: W::Load) -> Result<W::Measured, Failure>;
}

/// A client of a server that runs elsewhere.
pub(crate) struct Remote<B: Backend, W: Work> {
    client: ClientLoop<B, W>,
    _keep: Option<Box<dyn Any + Send>>,
}

/// Client and server in this thread.
pub(crate) struct InProcess<W: Work, S: App<RingRoute>> {
    client: ClientLoop<RingBackend, W>,
    server: EventLoop<RingBackend, MonotonicClock, S>,
}

impl<B: Backend, W: Work> Remote<B, W> {
    pub(crate) fn open<N: Network<Backend = B>>(
        network: &N,
        address: SocketAddr,
        driver: Driver<W>,
    ) -> Result<Self, Failure> {
        let limit = driver.timeout();
        let Reached {
            event_loop: mut client,
            route,
            keep,
        } = reach(network, &W::SERVICE, address, driver)?;
        connect(&mut client, route, limit)?;
        await_session(&mut client, &W::SERVICE, address, limit, Driver::connected)?;
        Ok(Self {
            client,
            _keep: keep,
        })
    }
}

impl<B: Backend, W: Work> Setup<W> for Remote<B, W> {
    fn run(&mut self, load: W::Load) -> Result<W::Measured, Failure> {
        self.client.app_mut().begin(load);
        turn_until(&mut self.client, Driver::is_over)?;
        self.client.app_mut().finish()
    }
}

impl<W: Work, S: App<RingRoute>> InProcess<W, S> {
    /// With the server that `server_of` makes of its backend.
    pub(crate) fn start(
        driver: Driver<W>,
        server_of: impl FnOnce(
            RingBackend,
        ) -> Result<EventLoop<RingBackend, MonotonicClock, S>, Failure>,
    ) -> Result<Self, Failure> {
        let (ours, theirs) = RingBackend::pair(RingConfig::default());
        let route = theirs.route();
        let server = server_of(theirs)?;
        let limit = driver.timeout();
        let client = event_loop(ours, driver, endpoint_config())?;
        let mut both = Self { client, server };
        connect(&mut both.client, route, limit)?;
        both.turn_until(|driver| driver.connected().is_some() || interrupt::interrupted())?;
        Ok(both)
    }

    fn turn_until(&mut self, is_over: impl Fn(&Driver<W>) -> bool) -> Result<(), Failure> {
        while !is_over(self.client.app()) {
            for _ in 0..TURNS_PER_LOOK {
                self.client.turn().map_err(backend_failure)?;
                self.server.turn().map_err(backend_failure)?;
            }
        }
        Ok(())
    }
}

impl<W: Work, S: App<RingRoute>> Setup<W> for InProcess<W, S> {
    fn run(&mut self, load: W::Load) -> Result<W::Measured, Failure> {
        self.client.app_mut().begin(load);
        self.turn_until(Driver::is_over)?;
        self.client.app_mut().finish()
    }
}
