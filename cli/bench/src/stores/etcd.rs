//! An etcd cluster through its own gRPC API: Range (linearizable, the default), Put and DeleteRange. The number of clients on a
//! connection is that of etcd's own benchmark, as its documentation runs it.

use std::collections::BTreeMap;

use trine_transport::time::{Duration, Instant};

use super::http2::{EndedCall, Http2};
use super::protobuf::{field, has_field, number};
use super::sockets::Sockets;
use super::{BenchRequest, Finished, IN_FLIGHT_MAX, OperationOutcome, StoreTarget, silence};
use trine_base::failure::Failure;
use trine_base::load;

/// etcd's documentation measures with 1,000 clients on 100 connections.
const CLIENTS_A_CONNECTION: usize = 10;

/// Clients that share connections.
pub(crate) struct Etcd {
    servers: String,
    /// How long they may be silent.
    limit: Duration,
    sockets: Sockets,
    connections: Vec<Http2>,
    /// The calls in flight: connection and stream, to client and tag.
    under_way: BTreeMap<(usize, u32), (usize, u64)>,
    /// The number of calls in flight of each client.
    of_client: Vec<usize>,
    readable: Vec<usize>,
    answers: Vec<EndedCall>,
}

impl Etcd {
    /// The servers may be silent for so long.
    pub(crate) fn connect(servers: &str, clients: usize, limit: Duration) -> Result<Self, Failure> {
        let count = clients.div_ceil(CLIENTS_A_CONNECTION);
        let mut sockets = Sockets::connect(servers, count, limit)?;
        let authority = servers.split(',').next().unwrap_or_default();
        let connections = (0..count)
            .map(|index| Http2::new(authority, sockets.out(index)))
            .collect();
        Ok(Self {
            servers: servers.to_owned(),
            limit,
            sockets,
            connections,
            under_way: BTreeMap::new(),
            of_client: vec![0; clients],
            readable: Vec::new(),
            answers: Vec::new(),
        })
    }

    fn broken(&self, why: impl std::fmt::Display) -> Failure {
        Failure::not_reachable(
            format!("the connection to etcd at {} broke: {why}", self.servers),
            "",
        )
    }

    fn finish(
        &mut self,
        index: usize,
        stream: u32,
        result: Result<Vec<u8>, String>,
    ) -> Option<Finished> {
        let (client, tag) = self.under_way.remove(&(index, stream))?;
        self.of_client[client] -= 1;
        // Writes and reads share the tags, and only a read's answer can lack a value; see `outcome`.
        let read = tag & READ != 0;
        Some((tag & !READ, outcome(read, result)))
    }
}

/// Set in the tag of a read while it is in flight.
const READ: u64 = 1 << 63;

impl StoreTarget for Etcd {
    fn submit(
        &mut self,
        client: usize,
        tag: u64,
        request: BenchRequest<'_>,
    ) -> Result<(), Failure> {
        let index = client / CLIENTS_A_CONNECTION;
        let mut message = Vec::new();
        let (path, tag) = match request {
            BenchRequest::Read { key } => {
                field(1, key, &mut message);
                ("/etcdserverpb.KV/Range", tag | READ)
            }
            BenchRequest::Scan { from, to, items } => {
                // RangeRequest: field 2 is the end, and field 3 the limit.
                field(1, from, &mut message);
                field(2, to, &mut message);
                number(3, items.into(), &mut message);
                ("/etcdserverpb.KV/Range", tag | READ)
            }
            BenchRequest::Write { key, value } => {
                field(1, key, &mut message);
                field(2, value, &mut message);
                ("/etcdserverpb.KV/Put", tag)
            }
            BenchRequest::Delete { key } => {
                field(1, key, &mut message);
                ("/etcdserverpb.KV/DeleteRange", tag)
            }
        };
        let stream = self.connections[index].call(path, &message, self.sockets.out(index));
        self.under_way.insert((index, stream), (client, tag));
        self.of_client[client] += 1;
        Ok(())
    }
}

impl load::Target for Etcd {
    type Outcome = OperationOutcome;

    fn has_room(&self, client: usize) -> bool {
        let connection = &self.connections[client / CLIENTS_A_CONNECTION];
        self.of_client[client] < IN_FLIGHT_MAX && connection.has_room()
    }

    fn poll(&mut self, until: Instant, finished: &mut Vec<Finished>) -> Result<(), Failure> {
        let mut readable = std::mem::take(&mut self.readable);
        if let Err(error) = self.sockets.exchange(until, &mut readable) {
            return Err(self.broken(error));
        }
        for index in &readable {
            let mut answers = std::mem::take(&mut self.answers);
            let mut input = std::mem::take(&mut self.sockets.connections[*index].input);
            let mut out = Vec::new();
            let received = self.connections[*index].receive(&mut input, &mut out, &mut answers);
            self.sockets.connections[*index].input = input;
            if !out.is_empty() {
                self.sockets.out(*index).extend_from_slice(&out);
            }
            if let Err(why) = received {
                return Err(self.broken(why));
            }
            for (stream, result) in answers.drain(..) {
                finished.extend(self.finish(*index, stream, result));
            }
            self.answers = answers;
        }
        self.readable = readable;
        Ok(())
    }

    fn patience(&self) -> Option<(Duration, OperationOutcome)> {
        Some(silence("etcd", &self.servers, self.limit))
    }
}

fn outcome(read: bool, result: Result<Vec<u8>, String>) -> OperationOutcome {
    match result {
        Err(why) => OperationOutcome::Failed(Failure::not_reachable(why, "")),
        // RangeResponse: field 2 is a key with its value.
        Ok(message) if read && !has_field(&message, 2) => OperationOutcome::Missing,
        Ok(_) => OperationOutcome::Done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_key_is_told_from_one_that_is_there() {
        let mut header = Vec::new();
        field(1, &[8, 1, 16, 2], &mut header);
        assert_eq!(outcome(true, Ok(header.clone())), OperationOutcome::Missing);
        assert_eq!(outcome(false, Ok(header.clone())), OperationOutcome::Done);
        let mut found = header;
        field(2, &[7; 300], &mut found);
        // The number `count` follows it.
        found.extend_from_slice(&[4 << 3, 1]);
        assert_eq!(outcome(true, Ok(found)), OperationOutcome::Done);
    }
}
