//! The connections of an endpoint on the device: queue pairs, request regions, and writes into those of servers.
//!
//! All of them are made when the endpoint is opened. A session takes one, and it is reset before another session gets it.

mod client_end;
mod connected_pair;
mod counter;
mod remote_memory;
mod server_end;

use std::sync::Arc;

use super::device::Device;
use super::error::ConnectionFault;
use super::memory::Registry;
use super::{OneSidedConfig, VerbsError};
use crate::one_sided::{self, ConnectionOffer, Fetched, Grant, Slots, Written};
use crate::route::VerbsRoute;

pub use self::counter::{CounterClient, CounterServer};

use self::client_end::ClientEnd;
use self::connected_pair::CompletionQueue;
use self::server_end::ServerEnd;

/// Both pools, by the numbers of their connections.
pub(super) struct Connections {
    // The queue pairs go before the completion queues that they report to.
    outgoing: Vec<ClientEnd>,
    incoming: Vec<ServerEnd>,
    completions: CompletionQueue,
    /// Nothing completes here: a server's end neither sends nor receives.
    _silent: CompletionQueue,
    registry: Arc<Registry>,
}

impl Connections {
    pub(super) fn new(
        device: &Arc<Device>,
        registry: &Arc<Registry>,
        config: &OneSidedConfig,
    ) -> Result<Self, VerbsError> {
        let completions = ClientEnd::completions(device, config.outgoing)?;
        let silent = CompletionQueue::new(device, 1)?;
        let outgoing = (0..config.outgoing)
            .map(|_| ClientEnd::new(device, &completions, registry, config.path));
        let outgoing = outgoing.collect::<Result<_, _>>()?;
        let incoming =
            (0..config.incoming).map(|_| ServerEnd::new(device, &silent, registry, config.path));
        Ok(Self {
            outgoing,
            incoming: incoming.collect::<Result<_, _>>()?,
            completions,
            _silent: silent,
            registry: Arc::clone(registry),
        })
    }

    /// Writes that asked for a completion.
    pub(super) fn writes_signaled(&self) -> u64 {
        self.outgoing.iter().map(ClientEnd::signaled).sum()
    }

    /// Why the client's end of a connection does not work any more.
    pub(super) fn fault(&self, number: usize) -> Option<ConnectionFault> {
        self.outgoing[number].failure()
    }

    /// Drives the client's ends into the error state, as a failing device would; for tests.
    pub(super) fn fail(&self) -> Result<(), VerbsError> {
        self.outgoing.iter().try_for_each(ClientEnd::fail)
    }
}

impl one_sided::OneSidedDevice for Connections {
    fn wish(&self, number: usize) -> ConnectionOffer {
        self.outgoing[number].wish()
    }

    fn connect(&mut self, number: usize, route: &VerbsRoute, grant: &Grant) -> bool {
        self.outgoing[number].connect(route, grant).is_ok()
    }

    #[inline]
    fn write(&mut self, number: usize, grant: &Grant, offset: usize, bytes: &[u8]) -> Written {
        if !self.outgoing[number].has_room() {
            ClientEnd::take_completions(&mut self.outgoing, &self.completions);
        }
        self.outgoing[number].write(grant, offset, bytes)
    }

    #[inline]
    fn fetch(
        &mut self,
        number: usize,
        grant: &Grant,
        slot: usize,
        part: (usize, usize),
    ) -> Written {
        if !self.outgoing[number].has_room() {
            ClientEnd::take_completions(&mut self.outgoing, &self.completions);
        }
        self.outgoing[number].fetch(grant, slot, part)
    }

    #[inline]
    fn fetched(&mut self, number: usize) -> Fetched {
        if !self.outgoing[number].has_fetched() {
            ClientEnd::take_completions(&mut self.outgoing, &self.completions);
        }
        self.outgoing[number].fetched()
    }

    #[inline]
    fn fetch_buffer(&self, number: usize) -> impl Slots {
        let buffer = self.outgoing[number].buffer();
        buffer.expect("an end that has fetched has a buffer")
    }

    fn renew_outgoing(&mut self, number: usize) -> bool {
        let is_reset = self.outgoing[number].reset().is_ok();
        // The device has forgotten the queue pair's writes: no completion of an old one is left after this.
        ClientEnd::take_completions(&mut self.outgoing, &self.completions);
        self.outgoing[number].forget();
        is_reset
    }

    fn grant(&self, number: usize) -> Grant {
        self.incoming[number].grant()
    }

    fn listen(&mut self, number: usize, route: &VerbsRoute, wish: &ConnectionOffer) -> bool {
        self.incoming[number].listen(route, wish).is_ok()
    }

    #[inline]
    fn slots(&self, number: usize) -> impl Slots {
        self.incoming[number].requests()
    }

    fn answers(&self, number: usize) -> impl Slots {
        self.incoming[number].answers()
    }

    #[inline]
    fn put_answer(&mut self, number: usize, offset: usize, bytes: &[u8]) {
        self.incoming[number].put_answer(offset, bytes);
    }

    fn renew_incoming(&mut self, number: usize) -> bool {
        self.incoming[number].renew(&self.registry).is_ok()
    }
}
