//! Who turns the event loops of a benchmark: the client's alone, or client and server in one thread.

use std::any::Any;
use std::sync::Arc;
use std::thread;

use trine_base::endpoint::{backend_failure, random_seed};
use trine_base::failure::Failure;
use trine_base::network::{Network, Opened};
use trine_base::placement::{self, PlacementArguments};
use trine_base::{interrupt, peers};
use trine_index::ConcurrentMap;
use trine_protocol::endpoint_config;
use trine_transport::backend::{
    Backend, MonotonicClock, RingBackend, RingConfig, RingRoute, Route,
};
use trine_transport::{Config, ConnectParams, EventLoop, Holder, Identity};

use super::driver::{Driver, Load, Measured, Mix};
use crate::index::args::IndexBenchArguments;
use crate::index::client::INDEX;
use crate::index::dispatch::Dispatch;
use crate::index::serve::{ServerLoop, assemble};
use crate::line::connect_failure;
use crate::rights::Rights;

type ClientLoop<B> = EventLoop<B, MonotonicClock, Driver>;

/// Turns between two looks at whether a load is over.
const TURNS_PER_LOOK: u32 = 16;

/// A client with a session at an index.
pub(super) trait Setup {
    /// Runs a load to its end.
    fn run(&mut self, load: Load, mix: Mix) -> Result<Measured, Failure>;
}

/// A client of an index that runs elsewhere.
pub(super) struct Remote<B: Backend> {
    client: ClientLoop<B>,
    _keep: Option<Box<dyn Any + Send>>,
}

/// Client and dispatch in this thread.
pub(super) struct InProcess {
    client: ClientLoop<RingBackend>,
    server: ServerLoop<RingBackend>,
}

fn client_loop<B: Backend>(
    backend: B,
    config: Config,
    arguments: &IndexBenchArguments,
) -> Result<ClientLoop<B>, Failure> {
    let seed = random_seed()?;
    let identity = Identity {
        cluster: 0,
        incarnation: seed.max(1),
    };
    let driver = Driver::new(seed, arguments.client.timeout.into());
    EventLoop::new(backend, MonotonicClock, driver, config, identity, seed)
        .map_err(|error| Failure::usage(format!("cannot set up the endpoint: {error}"), ""))
}

fn connect<B: Backend>(
    client: &mut ClientLoop<B>,
    route: B::Route,
    arguments: &IndexBenchArguments,
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
        arguments: &IndexBenchArguments,
    ) -> Result<Self, Failure> {
        let address = peers::resolve_server(&arguments.client.connect)?;
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
            return Err(Failure::not_reachable(message, INDEX.start_one));
        };
        connect(&mut client, route, arguments)?;
        // Ends without a limit here, because connecting has a timeout.
        client
            .run_until(None, |driver| driver.connected().is_some())
            .map_err(backend_failure)?;
        match client.app().connected() {
            Some(Err(error)) => {
                let limit = arguments.client.timeout.into();
                Err(connect_failure(&INDEX, address, error, limit))
            }
            _ => Ok(Self {
                client,
                _keep: keep,
            }),
        }
    }
}

impl<B: Backend> Setup for Remote<B> {
    fn run(&mut self, load: Load, mix: Mix) -> Result<Measured, Failure> {
        self.client.app_mut().begin(load, mix);
        self.client
            .run_until(None, |driver| driver.is_over())
            .map_err(backend_failure)?;
        self.client.app_mut().finish()
    }
}

impl InProcess {
    /// A server of `map`, with a worker thread for scans if `has_worker`. The worker runs on the second processor of
    /// `--cpus`.
    pub(super) fn start(
        map: &Arc<ConcurrentMap>,
        has_worker: bool,
        arguments: &IndexBenchArguments,
    ) -> Result<Self, Failure> {
        let (ours, theirs) = RingBackend::pair(RingConfig::default());
        let route = theirs.route();
        let holder_of = Box::new(|_: &RingRoute| Holder::Shared);
        let dispatch = Dispatch::new(Arc::clone(map), 1, holder_of);
        // A worker inherits the processors of the thread that starts it, which is one for this alone.
        let start = || {
            arguments
                .cpus
                .map_or(Ok(()), |(_, worker)| run_on(worker))?;
            let rights = Rights::default();
            assemble(
                theirs,
                endpoint_config(),
                dispatch,
                rights,
                u32::from(has_worker),
            )
        };
        let server = thread::scope(|scope| scope.spawn(start).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
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
    fn run(&mut self, load: Load, mix: Mix) -> Result<Measured, Failure> {
        self.client.app_mut().begin(load, mix);
        self.turn_until(Driver::is_over)?;
        self.client.app_mut().finish()
    }
}

/// Keeps the calling thread on a processor.
pub(super) fn run_on(cpu: u32) -> Result<(), Failure> {
    placement::apply(&PlacementArguments {
        cpu: Some(cpu),
        ..PlacementArguments::default()
    })
}
