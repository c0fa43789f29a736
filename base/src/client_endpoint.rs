//! One endpoint of this process with many logical clients on it. `bench`, `chaos` and `demo` run one on each
//! thread.

use std::net::SocketAddr;
use std::time::Duration;

use trine_client::{
    ClientConfig, ClientId, Clients, Finished, IN_FLIGHT_MAX, Mode, Submission, SubmitError,
};
use trine_kvstore::Command;
use trine_transport::backend::{Backend, MonotonicClock};
use trine_transport::time::{Duration as Nanos, Instant};
use trine_transport::{EventLoop, Identity};

use crate::endpoint::{backend_failure, random_seed};
use crate::failure::Failure;
use crate::network::Opened;

/// An endpoint over `B` that hosts clients.
pub struct ClientEndpoint<B: Backend> {
    event_loop: EventLoop<B, MonotonicClock, Clients<B::Route>>,
}

impl<B: Backend> ClientEndpoint<B> {
    /// A client endpoint over an open backend to the replicas at `addresses`.
    pub fn over(
        opened: Opened<B>,
        addresses: &[SocketAddr],
        timeout: Duration,
    ) -> Result<Self, Failure> {
        let Opened {
            backend,
            endpoint,
            route_of,
            ..
        } = opened;
        let mut config = ClientConfig::new(addresses.to_vec());
        config.operation_timeout = Nanos::from(timeout);
        let seed = random_seed()?;
        let pool = backend.pool().clone();
        let clients = Clients::new(config, route_of, pool, seed)
            .map_err(|error| Failure::usage(error.to_string(), ""))?;
        let identity = Identity {
            cluster: 0,
            incarnation: seed.max(1),
        };
        EventLoop::new(backend, MonotonicClock, clients, endpoint, identity, seed)
            .map(|event_loop| Self { event_loop })
            .map_err(|error| Failure::usage(format!("cannot set up the endpoint: {error}"), ""))
    }

    /// A new logical client.
    pub fn open(&mut self) -> ClientId {
        let limit = "the commands open fewer clients than the library allows";
        self.event_loop.app_mut().open().expect(limit)
    }

    /// Forgets a client whose operations have ended.
    pub fn close(&mut self, client: ClientId) {
        self.event_loop.app_mut().close(client);
    }

    /// Begins an operation of `client`.
    pub fn submit(
        &mut self,
        client: ClientId,
        mode: Mode,
        command: &Command<'_>,
        tag: u64,
    ) -> Result<(), SubmitError> {
        self.event_loop.with(|clients, cx| {
            let submission = Submission {
                mode,
                command,
                deadline: None,
                tag,
            };
            clients.submit(cx.now(), client, submission)
        })
    }

    /// Runs turns until an operation has finished or the time is `until`. Hands every finished operation to `take`.
    pub fn run_until(
        &mut self,
        until: Instant,
        mut take: impl FnMut(Finished),
    ) -> Result<(), Failure> {
        let mut some = false;
        let done = |clients: &mut Clients<B::Route>| {
            while let Some(finished) = clients.poll_finished() {
                some = true;
                take(finished);
            }
            some
        };
        let ran = self.event_loop.run_until(Some(until), done);
        ran.map(|_| ()).map_err(backend_failure)
    }

    /// Whether the present sessions are sealed, all of them. Nothing while there is none.
    pub fn is_sealed(&mut self) -> Option<bool> {
        self.event_loop.with(|clients, cx| clients.is_sealed(cx))
    }

    /// Whether `client` may begin another operation.
    pub fn has_room(&self, client: ClientId) -> bool {
        self.event_loop.app().in_flight_of(client) < IN_FLIGHT_MAX
    }
}
