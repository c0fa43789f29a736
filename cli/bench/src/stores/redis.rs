//! A Redis server, or anything that speaks its protocol: GET and SET in RESP2, a connection a client.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use trine_server::tls::{Encrypted, TlsCaller};
use trine_transport::time::Duration;

use super::BenchRequest;
use super::in_order::{InOrder, InOrderProtocol};
use super::line_answer::Taken;
use super::redis_answer::parse;
use super::redis_url::{Login, RedisServer};
use super::sockets::Sockets;
use super::stream::StoreStream;
use trine_base::failure::Failure;

/// The longest answer to AUTH.
const ANSWER_BYTES_MAX: usize = 1024;

/// The protocol of Redis.
pub(crate) struct Redis;

impl Redis {
    /// The server may be silent for so long. `caller` knows it by its certificate, if it speaks TLS.
    pub(crate) fn connect(
        server: &RedisServer,
        caller: Option<&TlsCaller>,
        clients: usize,
        limit: Duration,
    ) -> Result<InOrder<Self>, Failure> {
        let greet = |_: &str, socket| {
            let mut stream = match caller.filter(|_| server.is_encrypted) {
                None => StoreStream::Clear(socket),
                Some(caller) => StoreStream::Encrypted(Box::new(encrypt(server, caller, socket)?)),
            };
            if let Some(login) = &server.login {
                log_in(server, login, &mut stream)?;
            }
            Ok(stream)
        };
        let sockets = Sockets::greet(&server.address, clients, limit, greet)?;
        Ok(InOrder::over(&server.address, sockets, limit))
    }
}

/// Agrees on keys with a server, and so learns that it has the certificate.
fn encrypt(
    server: &RedisServer,
    caller: &TlsCaller,
    socket: TcpStream,
) -> Result<Encrypted, Failure> {
    let encrypted = caller
        .encrypt(server.host(), socket)
        .and_then(|mut stream| {
            stream.conn.complete_io(&mut stream.sock)?;
            Ok(stream)
        });
    encrypted.map_err(|error| {
        Failure::usage(
            format!("no TLS with {server}: {error}"),
            "its certificate must be signed by the CA of --target-ca and be valid for the host in \
             the URL; for a server without TLS, write redis://",
        )
    })
}

/// Says who asks, and waits for the answer.
fn log_in(server: &RedisServer, login: &Login, stream: &mut StoreStream) -> Result<(), Failure> {
    let mut request = match login.user.is_empty() {
        true => b"*2\r\n$4\r\nAUTH\r\n".to_vec(),
        false => b"*3\r\n$4\r\nAUTH\r\n".to_vec(),
    };
    if !login.user.is_empty() {
        bulk(&login.user, &mut request);
    }
    bulk(&login.password, &mut request);
    let lost = |error: io::Error| {
        Failure::not_reachable(format!("no answer to AUTH from {server}: {error}"), "")
    };
    stream.write_all(&request).map_err(lost)?;
    stream.flush().map_err(lost)?;
    let (mut answer, mut byte) = (Vec::new(), [0]);
    // One byte at a time: what follows is for somebody else. An answer is short.
    while !answer.ends_with(b"\r\n") && answer.len() < ANSWER_BYTES_MAX {
        stream.read_exact(&mut byte).map_err(lost)?;
        answer.push(byte[0]);
    }
    let line = String::from_utf8_lossy(&answer);
    match line.trim_end() {
        "+OK" => Ok(()),
        refused => Err(Failure::usage(
            format!(
                "{server} does not take the user and the password: {}",
                refused.trim_start_matches('-')
            ),
            "write redis://USER:PASSWORD@HOST:PORT, with %40 for @ and %25 for % in them",
        )),
    }
}

impl InOrderProtocol for Redis {
    const NAME: &'static str = "redis";

    fn encode(request: BenchRequest<'_>, out: &mut Vec<u8>) -> Result<(), Failure> {
        match request {
            BenchRequest::Read { key } => {
                out.extend_from_slice(b"*2\r\n$3\r\nGET\r\n");
                bulk(key, out);
            }
            BenchRequest::Write { key, value } => {
                out.extend_from_slice(b"*3\r\n$3\r\nSET\r\n");
                bulk(key, out);
                bulk(value, out);
            }
            BenchRequest::Delete { key } => {
                out.extend_from_slice(b"*2\r\n$3\r\nDEL\r\n");
                bulk(key, out);
            }
            BenchRequest::Scan { .. } => {
                return Err(Failure::usage("redis keeps no order of keys to scan", ""));
            }
        }
        Ok(())
    }

    fn parse(input: &[u8]) -> Option<Taken> {
        parse(input)
    }

    /// It is a negative result, unless the server says that it reached no replica or does not know the
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
}

fn bulk(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("${}\r\n", bytes.len()).as_bytes());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
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
            assert_eq!(Redis::failure(line.to_owned()), failure);
        }
    }

    #[test]
    fn questions_are_written_as_redis_reads_them() {
        let mut out = Vec::new();
        Redis::encode(
            BenchRequest::Write {
                key: b"k",
                value: b"v\r\n",
            },
            &mut out,
        )
        .expect("redis has it");
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\nv\r\n\r\n");
    }
}
