//! `trine log-level` shows or changes what a running replica logs.

use std::io::{ErrorKind, Read, Write};
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
    if let Some(failure) = guarded(at, &answer) {
        return Err(failure);
    }
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

/// Why the endpoint tells this command nothing, if it is protected: the command has neither a password nor TLS.
pub(super) fn guarded(at: &str, answer: &str) -> Option<Failure> {
    // An endpoint with TLS answers a request in clear with an alert, or not at all.
    if answer.is_empty() || answer.starts_with("\u{15}\u{3}") {
        return Some(Failure::usage(
            format!(
                "{at} ends the connection without an answer: an endpoint with TLS does that, and trine does not speak it here"
            ),
            format!("ask it with `curl --cacert FILE https://{at}/...`"),
        ));
    }
    (answer.split(' ').nth(1) == Some("401")).then(|| {
        Failure::usage(
            format!("the endpoint at {at} asks for a password, and trine gives none here"),
            format!("ask it with `curl --user trine http://{at}/...`, which asks for the password; `--request PUT --data LEVEL` sets a level"),
        )
    })
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
    let address = at.to_socket_addrs()?.next().ok_or(ErrorKind::NotFound)?;
    let mut stream = TcpStream::connect_timeout(&address, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    let length = body.len();
    let request =
        format!("{method} {path} HTTP/1.1\r\nHost: {at}\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    match stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer) {
        // An endpoint with TLS may end the connection before it has read the request.
        Err(error) if error.kind() != ErrorKind::ConnectionReset => Err(error),
        _ => Ok(String::from_utf8_lossy(&answer).into_owned()),
    }
}
