//! A Redis server, or anything that speaks its protocol: GET and SET in RESP2, a connection a client.

use std::collections::VecDeque;

use trine_transport::time::Instant;

use super::sockets::Sockets;
use super::{Finished, IN_FLIGHT_MAX, Outcome, Request, Target};
use crate::failure::Failure;

/// Redis sends no longer value unless it is told to, and none so long is written here.
const VALUE_BYTES_MAX: usize = 512 << 20;

/// Clients with a connection each; answers come in the order of the questions.
pub(in crate::cmd::bench) struct Redis {
    server: String,
    sockets: Sockets,
    /// Tags of what each connection has under way.
    under_way: Vec<VecDeque<u64>>,
    readable: Vec<usize>,
}

impl Redis {
    pub(in crate::cmd::bench) fn connect(server: &str, clients: usize) -> Result<Self, Failure> {
        Ok(Self {
            server: server.to_owned(),
            sockets: Sockets::connect(server, clients)?,
            under_way: vec![VecDeque::new(); clients],
            readable: Vec::new(),
        })
    }

    fn broken(&self, why: impl std::fmt::Display) -> Failure {
        Failure::not_reachable(
            format!("the connection to redis at {} broke: {why}", self.server),
            "",
        )
    }
}

impl Target for Redis {
    fn has_room(&self, client: usize) -> bool {
        self.under_way[client].len() < IN_FLIGHT_MAX
    }

    fn submit(&mut self, client: usize, tag: u64, request: Request<'_>) -> Result<(), Failure> {
        self.under_way[client].push_back(tag);
        encode(request, self.sockets.out(client));
        Ok(())
    }

    fn poll(&mut self, until: Instant, finished: &mut Vec<Finished>) -> Result<(), Failure> {
        let mut readable = std::mem::take(&mut self.readable);
        if let Err(error) = self.sockets.exchange(until, &mut readable) {
            return Err(self.broken(error));
        }
        for index in &readable {
            let input = &mut self.sockets.connections[*index].input;
            let mut taken = 0;
            while let Some((outcome, length)) = parse(&input[taken..]) {
                taken += length;
                match (self.under_way[*index].pop_front(), outcome) {
                    (Some(tag), Ok(outcome)) => finished.push((tag, outcome)),
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

fn encode(request: Request<'_>, out: &mut Vec<u8>) {
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
    }
}

fn bulk(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("${}\r\n", bytes.len()).as_bytes());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// The first answer in `input` and its length, once it is whole; or that it is none.
fn parse(input: &[u8]) -> Option<(Result<Outcome, String>, usize)> {
    let line_end = input.windows(2).position(|two| two == b"\r\n")?;
    let line = String::from_utf8_lossy(&input[1..line_end.max(1)]);
    let after = line_end + 2;
    match input[0] {
        b'+' | b':' => Some((Ok(Outcome::Done), after)),
        b'-' => Some((Ok(Outcome::Failed(failure(line.into_owned()))), after)),
        b'_' => Some((Ok(Outcome::Missing), after)),
        b'$' if line == "-1" => Some((Ok(Outcome::Missing), after)),
        b'$' => match line.parse::<usize>() {
            Ok(length) if length > VALUE_BYTES_MAX => {
                let why = format!(
                    "a value of {length} bytes, more than the {VALUE_BYTES_MAX} that there can be"
                );
                Some((Err(why), after))
            }
            Ok(length) => (input.len() >= after + length + 2)
                .then_some((Ok(Outcome::Done), after + length + 2)),
            Err(_) => Some((Err(format!("{line:?} is no length")), after)),
        },
        _ => Some((
            Err("an answer of a kind that GET and SET do not have".into()),
            after,
        )),
    }
}

/// The server's error: it has said no, unless it says itself that it had nobody to ask or does not know.
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
    fn answers_are_taken_only_when_they_are_whole() {
        for (text, outcome) in [
            ("+OK\r\n", Outcome::Done),
            ("$5\r\nab\r\nc\r\n", Outcome::Done),
            ("$0\r\n\r\n", Outcome::Done),
            ("$-1\r\n", Outcome::Missing),
            ("_\r\n", Outcome::Missing),
            (
                "-ERR no\r\n",
                Outcome::Failed(Failure::negative("ERR no", "")),
            ),
            (
                "-CLUSTERDOWN gone\r\n",
                Outcome::Failed(Failure::not_reachable("CLUSTERDOWN gone", "")),
            ),
        ] {
            for end in 0..text.len() {
                assert_eq!(parse(&text.as_bytes()[..end]), None, "{text:?} until {end}");
            }
            let more = format!("{text}+OK\r\n");
            assert_eq!(
                parse(more.as_bytes()),
                Some((Ok(outcome), text.len())),
                "{text:?}"
            );
        }
        for wrong in ["*1\r\n", "$x\r\n", "\r\n"] {
            assert!(
                matches!(parse(wrong.as_bytes()), Some((Err(_), _))),
                "{wrong:?}"
            );
        }
    }

    /// A length next to the largest number overflowed the sum of which the answer's end is: the program stopped, or, built
    /// without checks, took bytes of the value for the next answer.
    #[test]
    fn a_length_that_no_value_has_is_refused() {
        for length in [usize::MAX, usize::MAX - 30, VALUE_BYTES_MAX + 1] {
            let text = format!("${length}\r\nabc");
            let Some((Err(why), _)) = parse(text.as_bytes()) else {
                panic!("{text:?} was taken");
            };
            assert!(why.contains(&length.to_string()), "{why}");
        }
        let longest = format!("${VALUE_BYTES_MAX}\r\nabc");
        assert_eq!(parse(longest.as_bytes()), None);
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
        );
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\nv\r\n\r\n");
    }
}
