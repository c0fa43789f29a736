//! A minimal HTTP/1.1 server for a scraper and a health probe: one request a connection, everything bounded.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::tls::Tls;

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
    /// The password is missing or wrong.
    pub(super) fn unauthorized() -> Self {
        Self::text(
            Status::Unauthorized,
            "give the password of --metrics-password-file: as a bearer token, or as that of any user\n",
        )
    }

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
    tls: Option<Tls>,
    answer: impl Fn(&Request) -> Response + Send + Sync + 'static,
) -> io::Result<()> {
    let answer = Arc::new(answer);
    let open = Arc::new(AtomicUsize::new(0));
    let accept = move || {
        loop {
            match listener.accept() {
                Ok((stream, peer)) => take(stream, peer, tls.as_ref(), &open, &answer),
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
fn take<A>(
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<&Tls>,
    open: &Arc<AtomicUsize>,
    answer: &Arc<A>,
) where
    A: Fn(&Request) -> Response + Send + Sync + 'static,
{
    if open.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS_MAX {
        open.fetch_sub(1, Ordering::AcqRel);
        let busy = Response::text(Status::Unavailable, "too many connections\n");
        let mut stream = Timed::new(&stream, ACCEPT_PAUSE);
        // The peer may be gone; either way the connection ends here. A handshake would cost more than the message tells.
        if tls.is_none() {
            let _ = send(&mut stream, &busy, true);
        }
        return;
    }
    let (counter, answer) = (Arc::clone(open), Arc::clone(answer));
    let tls = tls.map(Tls::accept);
    let handle = move || {
        let from_this_host = is_of_this_host(&stream, peer.ip());
        let mut timed = Timed::new(&stream, CONNECTION_LIMIT);
        // A peer that went away, is too slow, or agrees on no keys gets no answer.
        let _ = match tls {
            None => converse(&mut timed, from_this_host, &*answer),
            Some(Err(error)) => Err(io::Error::other(error)),
            Some(Ok(mut connection)) => {
                let mut stream = rustls::Stream::new(&mut connection, &mut timed);
                let done = converse(&mut stream, from_this_host, &*answer);
                connection.send_close_notify();
                let _ = connection.write_tls(&mut timed);
                done
            }
        };
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

/// A socket whose reads and writes end at a deadline.
struct Timed<'a> {
    stream: &'a TcpStream,
    deadline: Instant,
}

impl<'a> Timed<'a> {
    fn new(stream: &'a TcpStream, limit: Duration) -> Self {
        let deadline = Instant::now() + limit;
        Self { stream, deadline }
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(left),
        }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(buffer)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn converse(
    stream: &mut (impl Read + Write),
    from_this_host: bool,
    answer: &impl Fn(&Request) -> Response,
) -> io::Result<()> {
    match receive(stream, from_this_host)? {
        Ok(request) => {
            let body = request.method != "HEAD";
            send(stream, &answer(&request), body)
        }
        Err((status, why)) => send(stream, &Response::text(status, format!("{why}\n")), true),
    }
}

fn receive(stream: &mut impl Read, from_this_host: bool) -> io::Result<Received> {
    let mut bytes = Vec::new();
    loop {
        match parse(&bytes, from_this_host) {
            Parsed::Whole(received) => return Ok(received),
            Parsed::More => {}
        }
        let mut part = [0; 2048];
        match stream.read(&mut part)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => bytes.extend_from_slice(&part[..count]),
        }
    }
}

fn send(stream: &mut impl Write, response: &Response, with_body: bool) -> io::Result<()> {
    let Response {
        status,
        content_type,
        body,
    } = response;
    let ask = match status {
        Status::Unauthorized => "WWW-Authenticate: Basic realm=\"trine\"\r\n",
        _ => "",
    };
    let mut text = format!(
        "HTTP/1.1 {}\r\n{ask}Content-Type: {content_type}\r\nContent-Length: {}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n",
        status.line(),
        body.len()
    );
    if with_body {
        text.push_str(body);
    }
    stream.write_all(text.as_bytes())?;
    stream.flush()
}
