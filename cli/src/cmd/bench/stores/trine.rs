//! A trine group, through the client library.

use trine_kvstore::{Command, Response};
use trine_replica::client::{ClientId, Mode};
use trine_transport::backend::Backend;
use trine_transport::time::Instant;

use super::{Finished, Outcome, Request, Target};
use crate::failure::Failure;
use crate::lane::Lane;

/// Clients of the library on one endpoint.
pub(in crate::cmd::bench) struct Trine<B: Backend> {
    lane: Lane<B>,
    clients: Vec<ClientId>,
}

impl<B: Backend> Trine<B> {
    pub(in crate::cmd::bench) fn new(mut lane: Lane<B>, clients: usize) -> Self {
        let clients = (0..clients).map(|_| lane.open()).collect();
        Self { lane, clients }
    }
}

impl<B: Backend> Target for Trine<B> {
    fn has_room(&self, client: usize) -> bool {
        self.lane.has_room(self.clients[client])
    }

    fn submit(&mut self, client: usize, tag: u64, request: Request<'_>) -> Result<(), Failure> {
        let (mode, command) = match request {
            Request::Read { key } => (Mode::Read, Command::Get { key }),
            Request::Write { key, value } => (Mode::Write, Command::Put { key, value }),
        };
        self.lane
            .submit(self.clients[client], mode, &command, tag)
            .map_err(|error| {
                Failure::usage(format!("an operation could not be begun: {error}"), "")
            })
    }

    fn poll(&mut self, until: Instant, finished: &mut Vec<Finished>) -> Result<(), Failure> {
        self.lane.run_until(until, |over| {
            let outcome = match over.result.as_ref().map(|answer| answer.response()) {
                Ok(Ok(Response::Written { .. } | Response::Value { .. })) => Outcome::Done,
                Ok(Ok(Response::NotFound)) => Outcome::Missing,
                Ok(Ok(Response::Error(error))) => Outcome::Failed(error.to_string()),
                Ok(other) => Outcome::Failed(format!("an answer that does not fit: {other:?}")),
                Err(error) => Outcome::Failed(error.to_string()),
            };
            finished.push((over.tag, outcome));
        })
    }
}
