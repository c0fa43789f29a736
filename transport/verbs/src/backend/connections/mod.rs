//! The connections of an endpoint on the device: queue pairs, request regions, and writes into those of servers.
//!
//! All of them are made when the endpoint is opened. A session takes one, and it is reset before another session gets it.

mod connected_pair;
mod outgoing_end;
mod request_region;

use std::sync::Arc;

use super::device::Device;
use super::memory::Registry;
use super::{HerdConfig, VerbsError};
use crate::herd::{self, Grant, Slots, Wish, Written};
use crate::route::VerbsRoute;

use self::connected_pair::CompletionQueue;
use self::outgoing_end::OutgoingEnd;
use self::request_region::RequestRegion;

/// Both pools, by the numbers of their connections.
pub(super) struct Connections {
    // The queue pairs go before the completion queues that they report to.
    outgoing: Vec<OutgoingEnd>,
    incoming: Vec<RequestRegion>,
    completions: CompletionQueue,
    /// Nothing completes here: a server's end neither sends nor receives.
    _silent: CompletionQueue,
    registry: Arc<Registry>,
}

impl Connections {
    pub(super) fn new(
        device: &Arc<Device>,
        registry: &Arc<Registry>,
        config: &HerdConfig,
    ) -> Result<Self, VerbsError> {
        let completions = OutgoingEnd::completions(device, config.outgoing)?;
        let silent = CompletionQueue::new(device, 1)?;
        let outgoing = (0..config.outgoing).map(|_| OutgoingEnd::new(device, &completions));
        let outgoing = outgoing.collect::<Result<_, _>>()?;
        let incoming = (0..config.incoming).map(|_| RequestRegion::new(device, &silent, registry));
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
        self.outgoing.iter().map(OutgoingEnd::signaled).sum()
    }

    /// Drives the client's ends into the error state, as a failing device would; for tests.
    pub(super) fn fail(&self) -> Result<(), VerbsError> {
        self.outgoing.iter().try_for_each(OutgoingEnd::fail)
    }
}

impl herd::Device for Connections {
    fn wish(&self, number: usize) -> Wish {
        self.outgoing[number].wish()
    }

    fn connect(&mut self, number: usize, route: &VerbsRoute, grant: &Grant) -> bool {
        self.outgoing[number].connect(route, grant).is_ok()
    }

    #[inline]
    fn write(&mut self, number: usize, grant: &Grant, offset: usize, bytes: &[u8]) -> Written {
        if !self.outgoing[number].has_room() {
            OutgoingEnd::take_completions(&mut self.outgoing, &self.completions);
        }
        self.outgoing[number].write(grant, offset, bytes)
    }

    fn renew_outgoing(&mut self, number: usize) -> bool {
        let is_reset = self.outgoing[number].reset().is_ok();
        // The device has forgotten the queue pair's writes: no completion of an old one is left after this.
        OutgoingEnd::take_completions(&mut self.outgoing, &self.completions);
        self.outgoing[number].forget();
        is_reset
    }

    fn grant(&self, number: usize) -> Grant {
        self.incoming[number].grant()
    }

    fn listen(&mut self, number: usize, route: &VerbsRoute, wish: &Wish) -> bool {
        self.incoming[number].listen(route, wish).is_ok()
    }

    #[inline]
    fn slots(&self, number: usize) -> impl Slots {
        &self.incoming[number]
    }

    fn renew_incoming(&mut self, number: usize) -> bool {
        self.incoming[number].renew(&self.registry).is_ok()
    }
}
