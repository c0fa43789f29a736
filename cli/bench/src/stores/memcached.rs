//! A memcached server: `get`, `set` and `delete` of its text protocol over TCP, a connection a client.

use trine_transport::time::{Duration, Instant};

use super::in_order::InOrder;
use super::line_answer::LineReply;
use super::memcached_answer::parse;
use super::{BenchRequest, Finished, OperationOutcome, StoreTarget};
use trine_base::failure::Failure;
use trine_base::load;

/// The clients of one server.
pub(crate) struct Memcached(InOrder);

impl Memcached {
    /// The server may be silent for so long.
    pub(crate) fn connect(server: &str, clients: usize, limit: Duration) -> Result<Self, Failure> {
        InOrder::connect("memcached", server, clients, limit).map(Self)
    }
}

impl StoreTarget for Memcached {
    fn submit(
        &mut self,
        client: usize,
        tag: u64,
        request: BenchRequest<'_>,
    ) -> Result<(), Failure> {
        self.0.submit(client, tag, |out| encode(request, out))
    }
}

impl load::Target for Memcached {
    type Outcome = OperationOutcome;

    fn has_room(&self, client: usize) -> bool {
        self.0.has_room(client)
    }

    fn poll(&mut self, until: Instant, finished: &mut Vec<Finished>) -> Result<(), Failure> {
        self.0.poll(until, finished, parse, outcome)
    }

    fn patience(&self) -> Option<(Duration, OperationOutcome)> {
        Some(self.0.patience())
    }
}

/// The benchmark's keys have no spaces and no control characters.
fn encode(request: BenchRequest<'_>, out: &mut Vec<u8>) -> Result<(), Failure> {
    match request {
        BenchRequest::Read { key } => line(&[b"get ", key], out),
        BenchRequest::Write { key, value } => {
            let length = format!(" 0 0 {}", value.len());
            line(&[b"set ", key, length.as_bytes()], out);
            line(&[value], out);
        }
        BenchRequest::Delete { key } => line(&[b"delete ", key], out),
        BenchRequest::Scan { .. } => {
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

fn outcome(answer: LineReply) -> OperationOutcome {
    match answer {
        LineReply::Done => OperationOutcome::Done,
        LineReply::Missing => OperationOutcome::Missing,
        LineReply::Refused(line) => OperationOutcome::Failed(Failure::negative(line, "")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_written_as_memcached_reads_them() {
        for (request, text) in [
            (BenchRequest::Read { key: b"k" }, "get k\r\n"),
            (
                BenchRequest::Write {
                    key: b"k",
                    value: b"v\r\n",
                },
                "set k 0 0 3\r\nv\r\n\r\n",
            ),
            (BenchRequest::Delete { key: b"k" }, "delete k\r\n"),
        ] {
            let mut out = Vec::new();
            encode(request, &mut out).expect("memcached has it");
            assert_eq!(String::from_utf8_lossy(&out), text);
        }
    }
}
