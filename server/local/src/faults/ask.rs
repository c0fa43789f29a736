//! Sends a request to the fault injector of the replica at an address, and reads the answer.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;

use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect as connect_to, socket_with,
};
use rustix::process::geteuid;

use super::{FaultCommand, State, line, socket_names};

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
    let names = socket_names(address).map_err(|_| AskError::Nobody(address))?;
    let streams = names.iter().filter_map(|name| connect(name).ok());
    let mut streams = streams.filter(is_of_this_user);
    let stream = streams.next().ok_or(AskError::Nobody(address))?;
    let answer = converse(&stream, command).map_err(|error| AskError::NoAnswer(address, error))?;
    answer.map_err(AskError::Refused)
}

/// Connects if that is possible at once. Where nobody accepts, a connect would wait without end.
fn connect(name: &str) -> io::Result<UnixStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect_to(
        &socket,
        &SocketAddrUnix::new_abstract_name(name.as_bytes())?,
    )?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Whether a process of this user listens there. Root asks the replicas of others, too.
fn is_of_this_user(stream: &UnixStream) -> bool {
    let own = geteuid();
    socket_peercred(stream).is_ok_and(|other_end| own.is_root() || other_end.uid == own)
}

fn converse(stream: &UnixStream, command: &FaultCommand) -> io::Result<Result<State, String>> {
    line::set_limits(stream)?;
    line::send(stream, command)?;
    let mut answer: Result<State, String> = serde_json::from_str(&line::receive(stream)?)?;
    if let Ok(state) = &mut answer {
        // The caller may send this process signals. So what it says itself does not count.
        let other_end = socket_peercred(stream)?.pid;
        state.pid = other_end.as_raw_nonzero().get().cast_unsigned();
    }
    Ok(answer)
}
