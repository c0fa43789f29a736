//! A Redis server, or anything that speaks its protocol: GET and SET in RESP2, a connection a client.

use trine_transport::time::{Duration, Instant};

use super::in_order::InOrder;
use super::line_answer::Answer;
use super::redis_answer::parse;
use super::{Finished, Outcome, Request, Target};
use trine_base::failure::Failure;
use trine_base::load;

/// The clients of one server.
pub(crate) struct Redis(InOrder);

impl Redis {
    /// The server may be silent for so long.
    pub(crate) fn connect(server: &str, clients: usize, limit: Duration) -> Result<Self, Failure> {
        InOrder::connect("redis", server, clients, limit).map(Self)
    }
}

impl Target for Redis {
    fn submit(&mut self, client: usize, tag: u64, request: Request<'_>) -> Result<(), Failure> {
        self.0.submit(client, tag, |out| encode(request, out))
    }
}

impl load::Target for Redis {
    type Outcome = Outcome;

    fn has_room(&self, client: usize) -> bool {
        self.0.has_room(client)
    }

    fn poll(&mut self, until: Instant, finished: &mut Vec<Finished>) -> Result<(), Failure> {
        self.0.poll(until, finished, parse, outcome)
    }

    fn patience(&self) -> Option<(Duration, Outcome)> {
        Some(self.0.patience())
    }
}

fn encode(request: Request<'_>, out: &mut Vec<u8>) -> Result<(), Failure> {
    match request {
        Request::Read { key } => {
            out.extend_from_slice(b"*2\r\n$3\r\nGET\r\n");
            bulk(key, out);
        }
        Request::Write { key, value } => {
            out.extend_from_slice(b"*3\r\n$3\r\nSET\r\n");
            bulk(key, out);
            bulk(value, out);
        }
        Request::Delete { key } => {
            out.extend_from_slice(b"*2\r\n$3\r\nDEL\r\n");
            bulk(key, out);
        }
        Request::Scan { .. } => {
            return Err(Failure::usage("redis keeps no order of keys to scan", ""));
        }
    }
    Ok(())
}

fn bulk(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("${}\r\n", bytes.len()).as_bytes());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

fn outcome(answer: Answer) -> Outcome {
    match answer {
        Answer::Done => Outcome::Done,
        Answer::Missing => Outcome::Missing,
        Answer::Refused(line) => Outcome::Failed(failure(line)),
    }
}

/// The server's error. It is a negative result, unless the server says that it reached no replica or does not know the
/// outcome.
fn failure(line: String) -> Failure {
    const WITHOUT_ANSWER: [&str; 5] = [
        "CLUSTERDOWN",
        "LOADING",
        "MASTERDOWN",
        "TRYAGAIN",
        "UNKNOWNOUTCOME",
    ];
    let code = line.split(' ').next().unwrap_or_default();
    match WITHOUT_ANSWER.contains(&code) {
        true => Failure::not_reachable(line, ""),
        false => Failure::negative(line, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_error_that_says_so_is_no_answer() {
        for (line, failure) in [
            ("ERR no", Failure::negative("ERR no", "")),
            (
                "CLUSTERDOWN gone",
                Failure::not_reachable("CLUSTERDOWN gone", ""),
            ),
        ] {
            let refused = Answer::Refused(line.to_owned());
            assert_eq!(outcome(refused), Outcome::Failed(failure));
        }
    }

    #[test]
    fn questions_are_written_as_redis_reads_them() {
        let mut out = Vec::new();
        encode(
            Request::Write {
                key: b"k",
                value: b"v\r\n",
            },
            &mut out,
        )
        .expect("redis has it");
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\nv\r\n\r\n");
    }
}
