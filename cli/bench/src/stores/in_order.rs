//! Clients of a server that answers each connection's requests in their order.

use std::collections::VecDeque;

use trine_transport::time::{Duration, Instant};

use super::line_answer::{LineReply, Taken};
use super::sockets::Sockets;
use super::{Finished, IN_FLIGHT_MAX, OperationOutcome, silence};
use trine_base::failure::Failure;

/// Clients with one connection each; answers arrive in the order of the requests.
pub(super) struct InOrder {
    /// What the server is, for messages.
    store: &'static str,
    server: String,
    /// How long it may be silent.
    limit: Duration,
    sockets: Sockets,
    /// The tags of each connection's operations in flight.
    under_way: Vec<VecDeque<u64>>,
    readable: Vec<usize>,
}

impl InOrder {
    pub(super) fn connect(
        store: &'static str,
        server: &str,
        clients: usize,
        limit: Duration,
    ) -> Result<Self, Failure> {
        let sockets = Sockets::connect(server, clients, limit)?;
        Ok(Self::over(store, server, sockets, limit))
    }

    /// Over connections that are there.
    pub(super) fn over(
        store: &'static str,
        server: &str,
        sockets: Sockets,
        limit: Duration,
    ) -> Self {
        Self {
            store,
            server: server.to_owned(),
            limit,
            under_way: vec![VecDeque::new(); sockets.connections.len()],
            sockets,
            readable: Vec::new(),
        }
    }

    fn broken(&self, why: impl std::fmt::Display) -> Failure {
        let (store, server) = (self.store, &self.server);
        Failure::not_reachable(
            format!("the connection to {store} at {server} broke: {why}"),
            "",
        )
    }

    /// Begins an operation, whose request `encode` appends to what the client sends.
    pub(super) fn submit(
        &mut self,
        client: usize,
        tag: u64,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        encode(self.sockets.out(client))?;
        self.under_way[client].push_back(tag);
        Ok(())
    }

    pub(super) fn has_room(&self, client: usize) -> bool {
        self.under_way[client].len() < IN_FLIGHT_MAX
    }

    /// See [`trine_base::load::Target::patience`].
    pub(super) fn patience(&self) -> (Duration, OperationOutcome) {
        silence(self.store, &self.server, self.limit)
    }

    /// Sends and receives; each answer that `parse` takes ends the oldest operation of its connection.
    pub(super) fn poll(
        &mut self,
        until: Instant,
        finished: &mut Vec<Finished>,
        parse: impl Fn(&[u8]) -> Option<Taken>,
        outcome: impl Fn(LineReply) -> OperationOutcome,
    ) -> Result<(), Failure> {
        let mut readable = std::mem::take(&mut self.readable);
        if let Err(error) = self.sockets.exchange(until, &mut readable) {
            return Err(self.broken(error));
        }
        for index in &readable {
            let input = &mut self.sockets.connections[*index].input;
            let mut taken = 0;
            while let Some((answer, length)) = parse(&input[taken..]) {
                taken += length;
                match (self.under_way[*index].pop_front(), answer) {
                    (Some(tag), Ok(answer)) => finished.push((tag, outcome(answer))),
                    (_, Err(why)) => return Err(self.broken(why)),
                    (None, _) => return Err(self.broken("an answer without a question")),
                }
            }
            input.drain(..taken);
        }
        self.readable = readable;
        Ok(())
    }
}
