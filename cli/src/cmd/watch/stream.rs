//! The stream of changes over any backend.

use std::any::Any;
use std::net::SocketAddr;

use trine_base::arguments::ClientArguments;
use trine_base::capture;
use trine_base::endpoint::random_seed;
use trine_base::failure::Failure;
use trine_base::network::{Network, Opened};
use trine_client::{WatchBatch, WatchConfig, WatchError, Watcher};
use trine_kvstore::Position;
use trine_protocol::route::RouteOf;
use trine_transport::backend::{Backend, MonotonicClock};
use trine_transport::time::Duration;

/// A stream of changes.
pub(super) struct Changes(Box<dyn WatchSource>);

trait WatchSource {
    fn next(&mut self, patience: Duration) -> Result<Option<WatchBatch>, WatchError>;
    fn began(&self) -> Option<Position>;
    fn served_by(&self) -> Option<SocketAddr>;
    fn trouble(&self) -> Option<(&str, Duration)>;
    fn add_address(&mut self, address: SocketAddr);
    fn leave(self: Box<Self>);
}

/// The watcher, and what its backend needs.
struct OpenWatcher<B: Backend> {
    watcher: Watcher<B, MonotonicClock>,
    route_of: RouteOf<B::Route>,
    _keep: Option<Box<dyn Any + Send>>,
}

impl<B: Backend> WatchSource for OpenWatcher<B> {
    fn next(&mut self, patience: Duration) -> Result<Option<WatchBatch>, WatchError> {
        self.watcher.next(patience)
    }

    fn began(&self) -> Option<Position> {
        self.watcher.began()
    }

    fn served_by(&self) -> Option<SocketAddr> {
        self.watcher.served_by()
    }

    fn trouble(&self) -> Option<(&str, Duration)> {
        self.watcher.trouble()
    }

    fn add_address(&mut self, address: SocketAddr) {
        let route = (self.route_of)(address);
        self.watcher.add_address(address, route);
    }

    fn leave(self: Box<Self>) {
        self.watcher.leave();
    }
}

impl Changes {
    /// A stream; nothing is sent before its first use.
    pub(super) fn open<N: Network>(
        network: &N,
        arguments: &ClientArguments,
        config: WatchConfig,
    ) -> Result<Self, Failure> {
        let capture = arguments.capture.open()?;
        let opened = network.call(&config.addresses)?;
        match capture {
            None => Self::over(opened, config),
            Some(capture) => Self::over(capture::around_opened(network, opened, capture), config),
        }
    }

    fn over<B: Backend + 'static>(opened: Opened<B>, config: WatchConfig) -> Result<Self, Failure> {
        let Opened {
            backend,
            endpoint,
            route_of,
            keep,
            ..
        } = opened;
        let (clock, seed) = (MonotonicClock, random_seed()?);
        let watcher = Watcher::new(backend, clock, endpoint, config, &route_of, seed)
            .map_err(|error| Failure::usage(error.to_string(), ""))?;
        Ok(Self(Box::new(OpenWatcher {
            watcher,
            route_of,
            _keep: keep,
        })))
    }

    pub(super) fn next(&mut self, patience: Duration) -> Result<Option<WatchBatch>, WatchError> {
        self.0.next(patience)
    }

    pub(super) fn began(&self) -> Option<Position> {
        self.0.began()
    }

    pub(super) fn served_by(&self) -> Option<SocketAddr> {
        self.0.served_by()
    }

    pub(super) fn trouble(&self) -> Option<(&str, Duration)> {
        self.0.trouble()
    }

    /// A replica may be at this address, too.
    pub(super) fn add_address(&mut self, address: SocketAddr) {
        self.0.add_address(address);
    }

    pub(super) fn leave(self) {
        self.0.leave();
    }
}
