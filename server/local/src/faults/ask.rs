//! Sends a request to the fault injector of the replica at an address, and reads the answer.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;

use rustix::net::sockopt::socket_peercred;

use super::{FaultCommand, State, line, socket_name};

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody takes requests there: no replica, one without fault injection, or one on another machine.
    #[error("no replica on this machine accepts fault injection for {0}")]
    Nobody(SocketAddr),
    /// The replica said no.
    #[error("{0}")]
    Refused(String),
    /// It took the request, and nothing is known of it since.
    #[error("{0} took the request and did not answer: {1}")]
    NoAnswer(SocketAddr, io::Error),
}

/// Gives `command` to the replica at `address`.
pub fn ask(address: SocketAddr, command: &FaultCommand) -> Result<State, AskError> {
    let name = socket_name(address).map_err(|_| AskError::Nobody(address))?;
    let stream = UnixStream::connect_addr(&name).map_err(|_| AskError::Nobody(address))?;
    let answer = converse(&stream, command).map_err(|error| AskError::NoAnswer(address, error))?;
    answer.map_err(AskError::Refused)
}

fn converse(stream: &UnixStream, command: &FaultCommand) -> io::Result<Result<State, String>> {
    line::set_limits(stream)?;
    line::send(stream, command)?;
    let mut answer: Result<State, String> = serde_json::from_str(&line::receive(stream)?)?;
    if let Ok(state) = &mut answer {
        // Any user may take the name of a replica that does not run. The caller may send this process signals.
        let other_end = socket_peercred(stream)?.pid;
        state.pid = other_end.as_raw_nonzero().get().cast_unsigned();
    }
    Ok(answer)
}
