//! A memcached server: `get`, `set` and `delete` of its text protocol over TCP, a connection a client.

use std::collections::VecDeque;

use trine_transport::time::Instant;

use super::memcached_answer::{Answer, parse};
use super::sockets::Sockets;
use super::{Finished, IN_FLIGHT_MAX, Outcome, Request, Target};
use trine_base::failure::Failure;
use trine_base::load;

/// Clients with one connection each; answers arrive in the order of the requests.
pub(crate) struct Memcached {
    server: String,
    sockets: Sockets,
    /// The tags of each connection's operations in flight.
    under_way: Vec<VecDeque<u64>>,
    readable: Vec<usize>,
}

impl Memcached {
    pub(crate) fn connect(server: &str, clients: usize) -> Result<Self, Failure> {
        Ok(Self {
            server: server.to_owned(),
            sockets: Sockets::connect(server, clients)?,
            under_way: vec![VecDeque::new(); clients],
            readable: Vec::new(),
        })
    }

    fn broken(&self, why: impl std::fmt::Display) -> Failure {
        let message = format!(
            "the connection to memcached at {} broke: {why}",
            self.server
        );
        Failure::not_reachable(message, "")
    }
}

impl Target for Memcached {
    fn submit(&mut self, client: usize, tag: u64, request: Request<'_>) -> Result<(), Failure> {
        encode(request, self.sockets.out(client))?;
        self.under_way[client].push_back(tag);
        Ok(())
    }
}

impl load::Target for Memcached {
    type Outcome = Outcome;

    fn has_room(&self, client: usize) -> bool {
        self.under_way[client].len() < IN_FLIGHT_MAX
    }

    fn poll(&mut self, until: Instant, finished: &mut Vec<Finished>) -> Result<(), Failure> {
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

/// The benchmark's keys have no spaces and no control characters.
fn encode(request: Request<'_>, out: &mut Vec<u8>) -> Result<(), Failure> {
    match request {
        Request::Read { key } => line(&[b"get ", key], out),
        Request::Write { key, value } => {
            let length = format!(" 0 0 {}", value.len());
            line(&[b"set ", key, length.as_bytes()], out);
            line(&[value], out);
        }
        Request::Delete { key } => line(&[b"delete ", key], out),
        Request::Scan { .. } => {
            return Err(Failure::usage(
                "memcached keeps no order of keys to scan",
                "",
            ));
        }
    }
    Ok(())
}

fn line(parts: &[&[u8]], out: &mut Vec<u8>) {
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out.extend_from_slice(b"\r\n");
}

fn outcome(answer: Answer) -> Outcome {
    match answer {
        Answer::Done => Outcome::Done,
        Answer::Missing => Outcome::Missing,
        Answer::Refused(line) => Outcome::Failed(Failure::negative(line, "")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_written_as_memcached_reads_them() {
        for (request, text) in [
            (Request::Read { key: b"k" }, "get k\r\n"),
            (
                Request::Write {
                    key: b"k",
                    value: b"v\r\n",
                },
                "set k 0 0 3\r\nv\r\n\r\n",
            ),
            (Request::Delete { key: b"k" }, "delete k\r\n"),
        ] {
            let mut out = Vec::new();
            encode(request, &mut out).expect("memcached has it");
            assert_eq!(String::from_utf8_lossy(&out), text);
        }
    }
}
