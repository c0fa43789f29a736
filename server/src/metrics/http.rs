//! A minimal HTTP/1.1 server for a scraper and a health probe: one request a connection, everything bounded.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::request::{Parsed, Received, Request, Status, parse};

/// Connections that are answered at the same time; more are told to retry.
const CONNECTIONS_MAX: usize = 16;
/// How long a connection may take, from its first byte to its last.
const CONNECTION_LIMIT: Duration = Duration::from_secs(5);
/// The pause in accepting after a failure, for example when no file descriptor was left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// An HTTP response.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: Status,
    pub(super) content_type: &'static str,
    pub(super) body: String,
}

impl Response {
    pub(super) fn text(status: Status, body: impl Into<String>) -> Self {
        Self {
            status,
            content_type: "text/plain; charset=utf-8",
            body: body.into(),
        }
    }
}

/// Answers on `listener` from separate threads, for as long as the process lives.
pub(super) fn serve(
    listener: TcpListener,
    answer: impl Fn(&Request) -> Response + Send + Sync + 'static,
) -> io::Result<()> {
    let answer = Arc::new(answer);
    let open = Arc::new(AtomicUsize::new(0));
    let accept = move || {
        loop {
            match listener.accept() {
                Ok((stream, peer)) => take(stream, peer, &open, &answer),
                // Waiting is the only remedy; the listener itself does not break.
                Err(_) => std::thread::park_timeout(ACCEPT_PAUSE),
            }
        }
    };
    std::thread::Builder::new()
        .name("metrics".into())
        .spawn(accept)
        .map(drop)
}

/// Answers one connection in a thread, if there is room.
fn take<A>(stream: TcpStream, peer: SocketAddr, open: &Arc<AtomicUsize>, answer: &Arc<A>)
where
    A: Fn(&Request) -> Response + Send + Sync + 'static,
{
    if open.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS_MAX {
        open.fetch_sub(1, Ordering::AcqRel);
        let busy = Response::text(Status::Unavailable, "too many connections\n");
        let deadline = Instant::now() + ACCEPT_PAUSE;
        // The peer may be gone; either way the connection ends here.
        let _ = send(&stream, &busy, true, deadline);
        return;
    }
    let (counter, answer) = (Arc::clone(open), Arc::clone(answer));
    let handle = move || {
        // A peer that went away or is too slow gets no answer.
        let _ = converse(&stream, is_of_this_host(&stream, peer.ip()), &*answer);
        counter.fetch_sub(1, Ordering::AcqRel);
    };
    if std::thread::Builder::new()
        .name("metrics-answer".into())
        .spawn(handle)
        .is_err()
    {
        open.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Whether the other end is on this machine: at a loopback address, or at the very address that it has connected to.
fn is_of_this_host(stream: &TcpStream, peer: IpAddr) -> bool {
    let own = stream.local_addr().map(|address| address.ip());
    peer.is_loopback() || own.is_ok_and(|own| own == peer)
}

fn converse(
    stream: &TcpStream,
    from_this_host: bool,
    answer: &impl Fn(&Request) -> Response,
) -> io::Result<()> {
    let deadline = Instant::now() + CONNECTION_LIMIT;
    match receive(stream, from_this_host, deadline)? {
        Ok(request) => {
            let body = request.method != "HEAD";
            send(stream, &answer(&request), body, deadline)
        }
        Err((status, why)) => send(
            stream,
            &Response::text(status, format!("{why}\n")),
            true,
            deadline,
        ),
    }
}

fn receive(
    mut stream: &TcpStream,
    from_this_host: bool,
    deadline: Instant,
) -> io::Result<Received> {
    let mut bytes = Vec::new();
    loop {
        match parse(&bytes, from_this_host) {
            Parsed::Whole(received) => return Ok(received),
            Parsed::More => {}
        }
        let mut part = [0; 2048];
        stream.set_read_timeout(Some(left_until(deadline)?))?;
        match stream.read(&mut part)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => bytes.extend_from_slice(&part[..count]),
        }
    }
}

fn send(
    mut stream: &TcpStream,
    response: &Response,
    with_body: bool,
    deadline: Instant,
) -> io::Result<()> {
    let Response {
        status,
        content_type,
        body,
    } = response;
    let mut text = format!(
        "HTTP/1.1 {}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n",
        status.line(),
        body.len()
    );
    if with_body {
        text.push_str(body);
    }
    let mut bytes = text.as_bytes();
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left_until(deadline)?))?;
        match stream.write(bytes)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => bytes = &bytes[count..],
        }
    }
    Ok(())
}

fn left_until(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(io::ErrorKind::TimedOut.into()),
        false => Ok(left),
    }
}
