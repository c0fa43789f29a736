//! A memcached server: `get`, `set` and `delete` of its text protocol over TCP, a connection a client.

use trine_transport::time::Duration;

use super::BenchRequest;
use super::in_order::{InOrder, InOrderProtocol};
use super::line_answer::Taken;
use super::memcached_answer::parse;
use super::sockets::Sockets;
use trine_base::failure::Failure;

/// memcached's text protocol.
pub(crate) struct Memcached;

impl Memcached {
    /// The server may be silent for so long.
    pub(crate) fn connect(
        server: &str,
        clients: usize,
        limit: Duration,
    ) -> Result<InOrder<Self>, Failure> {
        let sockets = Sockets::connect(server, clients, limit)?;
        Ok(InOrder::over(server, sockets, limit))
    }
}

impl InOrderProtocol for Memcached {
    const NAME: &'static str = "memcached";

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

    fn parse(input: &[u8]) -> Option<Taken> {
        parse(input)
    }

    fn failure(line: String) -> Failure {
        Failure::negative(line, "")
    }
}

fn line(parts: &[&[u8]], out: &mut Vec<u8>) {
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out.extend_from_slice(b"\r\n");
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
            Memcached::encode(request, &mut out).expect("memcached has it");
            assert_eq!(String::from_utf8_lossy(&out), text);
        }
    }
}
