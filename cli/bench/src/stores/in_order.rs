//! Clients of a server that answers each connection's requests in their order.

use std::collections::VecDeque;
use std::marker::PhantomData;

use trine_transport::time::{Duration, Instant};

use super::line_answer::{LineReply, Taken};
use super::sockets::Sockets;
use super::{BenchRequest, Finished, IN_FLIGHT_MAX, OperationOutcome, StoreTarget, silence};
use trine_base::failure::Failure;
use trine_base::load;

/// Requests and answers of such a server.
pub(crate) trait InOrderProtocol {
    /// What the server is, for messages.
    const NAME: &'static str;

    /// Appends a request.
    fn encode(request: BenchRequest<'_>, out: &mut Vec<u8>) -> Result<(), Failure>;

    /// The first answer in these bytes, once it is whole.
    fn parse(input: &[u8]) -> Option<Taken>;

    /// What an error means that the server has answered.
    fn failure(line: String) -> Failure;
}

/// Clients with one connection each; answers arrive in the order of the requests.
pub(crate) struct InOrder<P> {
    protocol: PhantomData<P>,
    server: String,
    /// How long it may be silent.
    limit: Duration,
    sockets: Sockets,
    /// The tags of each connection's operations in flight.
    under_way: Vec<VecDeque<u64>>,
    readable: Vec<usize>,
}

impl<P: InOrderProtocol> InOrder<P> {
    /// Over connections that are there. The server may be silent for `limit`.
    pub(super) fn over(server: &str, sockets: Sockets, limit: Duration) -> Self {
        Self {
            protocol: PhantomData,
            server: server.to_owned(),
            limit,
            under_way: vec![VecDeque::new(); sockets.connections.len()],
            sockets,
            readable: Vec::new(),
        }
    }

    fn broken(&self, why: impl std::fmt::Display) -> Failure {
        let (store, server) = (P::NAME, &self.server);
        Failure::not_reachable(
            format!("the connection to {store} at {server} broke: {why}"),
            "",
        )
    }

    fn outcome(answer: LineReply) -> OperationOutcome {
        match answer {
            LineReply::Done => OperationOutcome::Done,
            LineReply::Missing => OperationOutcome::Missing,
            LineReply::Refused(line) => OperationOutcome::Failed(P::failure(line)),
        }
    }
}

impl<P: InOrderProtocol> StoreTarget for InOrder<P> {
    fn submit(
        &mut self,
        client: usize,
        tag: u64,
        request: BenchRequest<'_>,
    ) -> Result<(), Failure> {
        P::encode(request, self.sockets.out(client))?;
        self.under_way[client].push_back(tag);
        Ok(())
    }
}

impl<P: InOrderProtocol> load::Target for InOrder<P> {
    type Outcome = OperationOutcome;

    fn has_room(&self, client: usize) -> bool {
        self.under_way[client].len() < IN_FLIGHT_MAX
    }

    fn patience(&self) -> Option<(Duration, OperationOutcome)> {
        Some(silence(P::NAME, &self.server, self.limit))
    }

    /// Each answer ends the oldest operation of its connection.
    fn poll(&mut self, until: Instant, finished: &mut Vec<Finished>) -> Result<(), Failure> {
        let mut readable = std::mem::take(&mut self.readable);
        if let Err(error) = self.sockets.exchange(until, &mut readable) {
            return Err(self.broken(error));
        }
        for index in &readable {
            let input = &mut self.sockets.connections[*index].input;
            let mut taken = 0;
            while let Some((answer, length)) = P::parse(&input[taken..]) {
                taken += length;
                match (self.under_way[*index].pop_front(), answer) {
                    (Some(tag), Ok(answer)) => finished.push((tag, Self::outcome(answer))),
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
