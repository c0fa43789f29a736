//! Who turns the event loops of the benchmark: the client's alone, or client and server in one thread.

use std::any::Any;
use std::sync::Arc;

use trine_base::endpoint::{backend_failure, random_seed};
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::network::{Network, Opened};
use trine_protocol::endpoint_config;
use trine_sequencer::wire::Keeping;
use trine_sequencer::{Grant, Supply};
use trine_transport::backend::{
    Backend, MonotonicClock, RingBackend, RingConfig, RingRoute, Route,
};
use trine_transport::time::{Clock, Duration, Instant};
use trine_transport::{Config, ConnectParams, EventLoop, Holder, Identity};

use super::driver::{Driver, Load, Measured};
use crate::line::connect_failure;
use crate::rights::Rights;
use crate::sequencer::args::SequencerBenchArguments;
use crate::sequencer::client::{SEQUENCER, addresses};
use crate::sequencer::reserve::Desk;
use crate::sequencer::serve::{Door, ServerLoop, Shared, assemble};

type ClientLoop<B> = EventLoop<B, MonotonicClock, Driver>;

/// Turns between two looks at whether a load is over.
const TURNS_PER_LOOK: u32 = 16;
/// The lease of the server in this process. Nobody renews it.
const LEASE: Duration = Duration::from_secs(24 * 3_600);

/// A client with a session at a sequencer.
pub(super) trait Setup {
    /// Runs a load to its end.
    fn run(&mut self, load: Load) -> Result<Measured, Failure>;
}

/// A client of a sequencer that runs elsewhere.
pub(super) struct Remote<B: Backend> {
    client: ClientLoop<B>,
    _keep: Option<Box<dyn Any + Send>>,
}

/// Client and server in this thread.
pub(super) struct InProcess {
    client: ClientLoop<RingBackend>,
    server: ServerLoop<RingBackend>,
}

fn client_loop<B: Backend>(
    backend: B,
    config: Config,
    arguments: &SequencerBenchArguments,
) -> Result<ClientLoop<B>, Failure> {
    let seed = random_seed()?;
    let identity = Identity {
        cluster: 0,
        incarnation: seed.max(1),
    };
    let timeout = arguments.client.timeout.into();
    let driver = Driver::new(arguments.window as usize, arguments.count, timeout);
    EventLoop::new(backend, MonotonicClock, driver, config, identity, seed)
        .map_err(|error| Failure::usage(format!("cannot set up the endpoint: {error}"), ""))
}

fn connect<B: Backend>(
    client: &mut ClientLoop<B>,
    route: B::Route,
    arguments: &SequencerBenchArguments,
) -> Result<(), Failure>
where
    B::Route: Route,
{
    let params = ConnectParams {
        timeout: Some(arguments.client.timeout.into()),
        ..ConnectParams::default()
    };
    client
        .with(|_, cx| cx.connect(route, params))
        .map(drop)
        .map_err(|refused| Failure::usage(format!("cannot connect: {refused:?}"), ""))
}

impl<B: Backend> Remote<B> {
    pub(super) fn open<N: Network<Backend = B>>(
        network: &N,
        arguments: &SequencerBenchArguments,
    ) -> Result<Self, Failure> {
        let address = addresses(&arguments.client)?[0];
        let Opened {
            backend,
            endpoint,
            route_of,
            keep,
            ..
        } = network.call(&[address])?;
        let mut client = client_loop(backend, endpoint, arguments)?;
        let Some(route) = route_of(address) else {
            let message = format!("no way to {address} is known; nothing was done");
            return Err(Failure::not_reachable(message, SEQUENCER.start_one));
        };
        connect(&mut client, route, arguments)?;
        // Ends without a limit here, because connecting has a timeout.
        client
            .run_until(None, |driver| driver.connected().is_some())
            .map_err(backend_failure)?;
        match client.app().connected() {
            Some(Err(error)) => {
                let limit = arguments.client.timeout.into();
                Err(connect_failure(&SEQUENCER, address, error, limit))
            }
            _ => Ok(Self {
                client,
                _keep: keep,
            }),
        }
    }
}

impl<B: Backend> Setup for Remote<B> {
    fn run(&mut self, load: Load) -> Result<Measured, Failure> {
        self.client.app_mut().begin(load);
        self.client
            .run_until(None, |driver| driver.is_over())
            .map_err(backend_failure)?;
        self.client.app_mut().finish()
    }
}

impl InProcess {
    /// A server with more numbers than a benchmark takes.
    pub(super) fn start(arguments: &SequencerBenchArguments) -> Result<Self, Failure> {
        let (ours, theirs) = RingBackend::pair(RingConfig::default());
        let route = theirs.route();
        let shared = Shared {
            supply: Arc::new(Supply::new(0)),
            keeping: Keeping::File,
            desk: Desk::default(),
        };
        let until = match arguments.lease_check {
            true => MonotonicClock.now() + LEASE,
            false => Instant::FAR_FUTURE,
        };
        shared.supply.add(&Grant {
            start: 0,
            end: u64::MAX,
            until,
        });
        let door = Door {
            rights: Rights::default(),
            holder_of: Box::new(|_: &RingRoute| Holder::Shared),
        };
        let server = assemble(theirs, endpoint_config(), door, &shared)?;
        let client = client_loop(ours, endpoint_config(), arguments)?;
        let mut both = Self { client, server };
        connect(&mut both.client, route, arguments)?;
        both.turn_until(|driver| driver.connected().is_some() || interrupt::interrupted())?;
        Ok(both)
    }

    fn turn_until(&mut self, is_over: impl Fn(&Driver) -> bool) -> Result<(), Failure> {
        while !is_over(self.client.app()) {
            for _ in 0..TURNS_PER_LOOK {
                self.client.turn().map_err(backend_failure)?;
                self.server.turn().map_err(backend_failure)?;
            }
        }
        Ok(())
    }
}

impl Setup for InProcess {
    fn run(&mut self, load: Load) -> Result<Measured, Failure> {
        self.client.app_mut().begin(load);
        self.turn_until(Driver::is_over)?;
        self.client.app_mut().finish()
    }
}
