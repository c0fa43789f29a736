//! `trine log-level` shows or changes what a running replica logs.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use serde_json::json;

use clap::Args;
use trine_base::failure::Failure;
use trine_base::output::Output;
use trine_server::logs::LevelParser;

#[derive(Debug, Args)]
pub(crate) struct LogLevelArguments {
    /// The level: off, error, warn, info, debug or trace, and the same by part, as in warn,raft=debug; nothing shows
    /// what it is.
    #[arg(value_name = "LEVEL", value_parser = LevelParser, hide_possible_values = true)]
    pub(crate) level: Option<String>,
    /// The replica's metrics endpoint, on this machine.
    #[arg(long, env = "TRINE_METRICS", value_name = "HOST:PORT")]
    pub(crate) at: String,
}

/// The time limit for the replica's endpoint.
const LIMIT: Duration = Duration::from_secs(5);
/// Metrics take tens of KiB, a level a line or two.
const ANSWER_BYTES_MAX: u64 = 4 << 20;

pub(crate) fn run(arguments: &LogLevelArguments, output: Output) -> Result<(), Failure> {
    let at = &arguments.at;
    let answer = ask(at, arguments.level.as_deref()).map_err(|error| {
        Failure::not_reachable(
            format!("no answer from the metrics endpoint at {at}: {error}"),
            "start the replica with --metrics HOST:PORT, and name that with --at",
        )
    })?;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .unwrap_or((answer.as_str(), ""));
    let body = body.trim();
    if head.split(' ').nth(1) != Some("200") {
        return Err(Failure::usage(format!("{at} refuses: {body}"), ""));
    }
    output.document(&json!({ "level": body }));
    output.line(body);
    Ok(())
}

fn ask(at: &str, level: Option<&str>) -> std::io::Result<String> {
    let (method, body) = match level {
        Some(level) => ("PUT", level),
        None => ("GET", ""),
    };
    request(at, method, "/log-level", body)
}

/// Returns the whole answer of a replica's metrics endpoint.
pub(super) fn request(at: &str, method: &str, path: &str, body: &str) -> std::io::Result<String> {
    let address = at
        .to_socket_addrs()?
        .next()
        .ok_or(std::io::ErrorKind::NotFound)?;
    let mut stream = TcpStream::connect_timeout(&address, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    let length = body.len();
    let request =
        format!("{method} {path} HTTP/1.1\r\nHost: {at}\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
    Ok(answer)
}
