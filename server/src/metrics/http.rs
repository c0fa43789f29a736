//! A minimal HTTP/1.1 server for a scraper and a health probe: one request a connection, everything bounded.

use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::tls::Tls;

use super::request::{
    BODY_BYTES_MAX, HEAD_BYTES_MAX, HttpRequest, Parsed, Received, Status, parse,
};
use super::slots::{ConnectionSlot, Slots};

/// How long a connection may take, from its first byte to its last.
const CONNECTION_LIMIT: Duration = Duration::from_secs(5);
/// The pause in accepting after a failure, for example when no file descriptor was left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long a connection that makes room may take for that: as long as its thread waits for a processor.
const DISPLACE_LIMIT: Duration = Duration::from_secs(2);
/// How long a peer that has its answer may take to hang up, and how much it may still send.
const LINGER_LIMIT: Duration = Duration::from_millis(500);
const LINGER_BYTES_MAX: u64 = 256 << 10;
/// What is read at a time.
const PART_BYTES: usize = 2048;
/// More than any request has that is not whole: the part that ended its headers may have begun just below their limit.
const REQUEST_BYTES_MAX: usize = HEAD_BYTES_MAX + PART_BYTES + 4 + BODY_BYTES_MAX;

/// An HTTP response.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: Status,
    pub(super) content_type: Cow<'static, str>,
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
            content_type: "text/plain; charset=utf-8".into(),
            body: body.into(),
        }
    }
}

/// Answers on `listener` from separate threads, for as long as the process lives. `answer` gets the request and who asks.
pub(super) fn serve(
    listener: TcpListener,
    tls: Option<Tls>,
    answer: impl Fn(&HttpRequest, SocketAddr) -> Response + Send + Sync + 'static,
) -> io::Result<()> {
    let answer = Arc::new(answer);
    let slots = Arc::new(Slots::default());
    let accept = move || {
        loop {
            match listener.accept() {
                Ok((stream, peer)) => take(stream, peer, tls.as_ref(), &slots, &answer),
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

/// Answers one connection in a thread, if there is room or can be made.
fn take<A>(
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<&Tls>,
    slots: &Arc<Slots>,
    answer: &Arc<A>,
) where
    A: Fn(&HttpRequest, SocketAddr) -> Response + Send + Sync + 'static,
{
    let stream = Arc::new(stream);
    let Some(slot) = slots.take(&stream, DISPLACE_LIMIT) else {
        // A handshake would cost more than the message tells.
        if tls.is_none() {
            turn_away(&stream);
        }
        return;
    };
    let answer = Arc::clone(answer);
    let tls = tls.map(Tls::accept);
    let handle = move || {
        let from_this_host = is_of_this_host(&stream, peer.ip());
        let answer = |request: &HttpRequest| answer(request, peer);
        let mut timed = Timed::new(&stream, CONNECTION_LIMIT);
        // A peer that went away, is too slow, or agrees on no keys gets no answer.
        let _ = match tls {
            None => converse(&mut timed, from_this_host, &answer, &slot),
            Some(Err(error)) => Err(io::Error::other(error)),
            Some(Ok(mut connection)) => {
                let mut stream = rustls::Stream::new(&mut connection, &mut timed);
                let done = converse(&mut stream, from_this_host, &answer, &slot);
                connection.send_close_notify();
                let _ = connection.write_tls(&mut timed);
                done
            }
        };
        slot.end_answer();
        linger(&stream, LINGER_LIMIT);
    };
    // Without a thread the connection and its slot are dropped here.
    let _ = std::thread::Builder::new()
        .name("metrics-answer".into())
        .spawn(handle);
}

/// Tells a peer for which there is no room that it may come back. It learns nothing about the replica.
fn turn_away(stream: &TcpStream) {
    let busy = Response::text(
        Status::TooManyRequests,
        "too many requests are being answered; ask again\n",
    );
    // The peer may be gone; either way the connection ends here.
    let _ = send(&mut Timed::new(stream, ACCEPT_PAUSE), &busy, true);
    linger(stream, ACCEPT_PAUSE);
}

/// Waits until the peer has hung up, within limits. A socket that is closed with unread bytes in it resets the connection,
/// and then the peer may lose the answer.
fn linger(stream: &TcpStream, limit: Duration) {
    if stream.shutdown(Shutdown::Write).is_ok() {
        let mut rest = Timed::new(stream, limit).take(LINGER_BYTES_MAX);
        // However it ends, the connection is closed next.
        let _ = io::copy(&mut rest, &mut io::sink());
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
    answer: &impl Fn(&HttpRequest) -> Response,
    slot: &ConnectionSlot,
) -> io::Result<()> {
    let received = receive(stream, from_this_host)?;
    if !slot.begin_answer() {
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    match received {
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
        assert!(bytes.len() < REQUEST_BYTES_MAX, "a request has an end");
        let mut part = [0; PART_BYTES];
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
    let remedy = match status {
        Status::Unauthorized => "WWW-Authenticate: Basic realm=\"trine\"\r\n",
        Status::TooManyRequests => "Retry-After: 1\r\n",
        _ => "",
    };
    let mut text = format!(
        "HTTP/1.1 {}\r\n{remedy}Content-Type: {content_type}\r\nContent-Length: {}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n",
        status.line(),
        body.len()
    );
    if with_body {
        text.push_str(body);
    }
    stream.write_all(text.as_bytes())?;
    stream.flush()
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};

    use super::*;
    use crate::metrics::slots::CONNECTIONS_MAX;

    const PATIENCE: Duration = Duration::from_secs(30);
    const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n";

    fn start(
        answer: impl Fn(&HttpRequest, SocketAddr) -> Response + Send + Sync + 'static,
    ) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        serve(listener, None, answer).expect("a thread");
        address
    }

    fn connect(at: SocketAddr, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(at).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        stream.write_all(bytes).expect("sent");
        stream
    }

    fn rest(mut stream: TcpStream) -> String {
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        text
    }

    /// Sixteen idle connections of a stranger held all slots for five seconds, again and again. Each probe was told 503.
    #[test]
    fn connections_that_do_not_finish_their_request_make_room() {
        let at = start(|_, _| Response::text(Status::Ok, "fine\n"));
        for unfinished in [
            &b""[..],
            b"GET / HTTP/1.1\r\n",
            b"PUT / HTTP/1.1\r\nContent-Length: 9\r\n\r\nhalf",
        ] {
            let idle: Vec<TcpStream> = (0..2 * CONNECTIONS_MAX)
                .map(|_| connect(at, unfinished))
                .collect();
            let began = Instant::now();
            let answer = rest(connect(at, GET));
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
            // They would have had to go by then in any case.
            assert!(began.elapsed() < CONNECTION_LIMIT);
            drop(idle);
        }
    }

    /// A peer that has its answer and does not hang up keeps its slot from nobody.
    #[test]
    fn connections_with_an_answer_make_room() {
        let at = start(|_, _| Response::text(Status::Ok, "fine\n"));
        let idle: Vec<TcpStream> = (0..3 * CONNECTIONS_MAX)
            .map(|_| {
                let mut stream = connect(at, GET);
                let mut first = [0; 9];
                stream.read_exact(&mut first).expect("an answer");
                assert_eq!(&first, b"HTTP/1.1 ");
                stream
            })
            .collect();
        for mut stream in idle {
            let mut text = String::new();
            // Those that had to go may have been reset.
            let _ = stream.read_to_string(&mut text);
            assert!(text.starts_with("200 "), "{text}");
        }
    }

    #[test]
    fn requests_that_are_being_answered_keep_their_slots() {
        let (let_go, held) = mpsc::channel::<()>();
        let (began, begun) = mpsc::channel();
        let held = Mutex::new(held);
        let at = start(move |_, _| {
            began.send(()).expect("the test waits");
            // Ends when the other end is dropped. An error here is that end.
            let _ = held.lock().expect("no panic").recv();
            Response::text(Status::Ok, "fine\n")
        });
        let asking: Vec<TcpStream> = (0..CONNECTIONS_MAX).map(|_| connect(at, GET)).collect();
        for _ in 0..CONNECTIONS_MAX {
            begun.recv_timeout(PATIENCE).expect("it is being answered");
        }
        let busy = rest(connect(at, GET));
        assert!(
            busy.starts_with("HTTP/1.1 429 ") && busy.contains("\r\nRetry-After: 1\r\n"),
            "{busy}"
        );
        drop(let_go);
        for stream in asking {
            let answer = rest(stream);
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        }
    }

    /// The socket was closed with the body unread in it. The reset overtook the answer, and the caller suspected TLS.
    #[test]
    fn a_refusal_arrives_although_the_request_is_not_read_to_its_end() {
        let at = start(|_, _| Response::text(Status::Ok, "fine\n"));
        let length = 100_000;
        let mut request =
            format!("PUT / HTTP/1.1\r\nContent-Length: {length}\r\n\r\n").into_bytes();
        request.resize(request.len() + length, b'x');
        let answer = rest(connect(at, &request));
        assert!(
            answer.starts_with("HTTP/1.1 413 ") && answer.ends_with("the body is too long\n"),
            "{answer}"
        );
    }
}
