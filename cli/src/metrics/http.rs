//! Just enough HTTP/1.1 for a scraper and a health probe: one request a connection, everything bounded.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Connections that are answered at the same time; more are told to come again.
const CONNECTIONS_MAX: usize = 16;
/// Bytes of a request's first line and headers.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// Bytes of a request's body.
const BODY_BYTES_MAX: usize = 4 << 10;
/// How long a connection may take, from its first byte to its last.
const CONNECTION_LIMIT: Duration = Duration::from_secs(5);
/// How long accepting pauses after it failed, for example because no file descriptor was left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A request that was understood.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) method: String,
    /// Without the query.
    pub(super) path: String,
    pub(super) body: Vec<u8>,
    pub(super) from_loopback: bool,
}

/// What is answered.
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

/// The statuses that are used here.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Ok,
    BadRequest,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    TooLarge,
    Unavailable,
}

impl Status {
    fn line(self) -> &'static str {
        match self {
            Self::Ok => "200 OK",
            Self::BadRequest => "400 Bad Request",
            Self::Forbidden => "403 Forbidden",
            Self::NotFound => "404 Not Found",
            Self::MethodNotAllowed => "405 Method Not Allowed",
            Self::TooLarge => "413 Content Too Large",
            Self::Unavailable => "503 Service Unavailable",
        }
    }
}

/// Answers on `listener` from threads of their own, for as long as the process lives.
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
                // Nothing to be done here but to wait; the listener itself does not break.
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
        // A peer that went away or is too slow hears nothing.
        let _ = converse(&stream, peer.ip(), &*answer);
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

fn converse(
    stream: &TcpStream,
    peer: IpAddr,
    answer: &impl Fn(&Request) -> Response,
) -> io::Result<()> {
    let deadline = Instant::now() + CONNECTION_LIMIT;
    match receive(stream, peer, deadline)? {
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

/// A request, or what is wrong with it.
type Received = Result<Request, (Status, &'static str)>;

fn receive(mut stream: &TcpStream, peer: IpAddr, deadline: Instant) -> io::Result<Received> {
    let mut bytes = Vec::new();
    loop {
        match parse(&bytes, peer) {
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

enum Parsed {
    Whole(Received),
    More,
}

/// Reads a request from what has arrived of it.
fn parse(bytes: &[u8], peer: IpAddr) -> Parsed {
    let refuse = |status, why| Parsed::Whole(Err((status, why)));
    let Some(head_end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return match bytes.len() > HEAD_BYTES_MAX {
            true => refuse(Status::TooLarge, "the headers are too long"),
            false => Parsed::More,
        };
    };
    let Ok(head) = std::str::from_utf8(&bytes[..head_end]) else {
        return refuse(Status::BadRequest, "the headers are no text");
    };
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return refuse(Status::BadRequest, "the first line is no request");
    };
    if !version.starts_with("HTTP/1.") {
        return refuse(Status::BadRequest, "only HTTP/1.0 and 1.1 are spoken here");
    }
    let length = match body_length(lines) {
        Ok(length) => length,
        Err(why) => return refuse(Status::BadRequest, why),
    };
    if length > BODY_BYTES_MAX {
        return refuse(Status::TooLarge, "the body is too long");
    }
    let Some(body) = bytes.get(head_end + 4..head_end + 4 + length) else {
        return Parsed::More;
    };
    Parsed::Whole(Ok(Request {
        method: method.to_owned(),
        path: target.split('?').next().unwrap_or_default().to_owned(),
        body: body.to_vec(),
        from_loopback: peer.is_loopback(),
    }))
}

fn body_length<'a>(headers: impl Iterator<Item = &'a str>) -> Result<usize, &'static str> {
    let mut length = 0;
    for header in headers {
        let Some((name, value)) = header.split_once(':') else {
            return Err("a header has no colon");
        };
        if name.eq_ignore_ascii_case("content-length") {
            length = value
                .trim()
                .parse()
                .map_err(|_| "the content length is no number")?;
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            return Err("state the length of the body; chunks are not understood");
        }
    }
    Ok(length)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<Received> {
        match parse(text.as_bytes(), IpAddr::from([127, 0, 0, 1])) {
            Parsed::Whole(received) => Some(received),
            Parsed::More => None,
        }
    }

    #[test]
    fn requests_are_understood_only_when_they_are_whole() {
        let text = "PUT /log-level?x=1 HTTP/1.1\r\nHost: a\r\ncontent-length: 4\r\n\r\ninfo";
        for end in 0..text.len() {
            assert_eq!(parsed(&text[..end]), None, "after {end} bytes");
        }
        let request = parsed(text).expect("whole").expect("right");
        assert_eq!(
            (request.method.as_str(), request.path.as_str()),
            ("PUT", "/log-level")
        );
        assert!(request.body == b"info" && request.from_loopback);
    }

    #[test]
    fn wrong_and_oversized_requests_are_refused() {
        let long = format!("GET / HTTP/1.1\r\nx: {}", "y".repeat(HEAD_BYTES_MAX));
        for (text, status) in [
            ("GET /\r\n\r\n", Status::BadRequest),
            ("GET / HTTP/2.0\r\n\r\n", Status::BadRequest),
            ("GET / HTTP/1.1\r\nno colon\r\n\r\n", Status::BadRequest),
            (
                "PUT / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
                Status::BadRequest,
            ),
            (
                "PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
                Status::BadRequest,
            ),
            (
                "PUT / HTTP/1.1\r\nContent-Length: 99999\r\n\r\n",
                Status::TooLarge,
            ),
            (long.as_str(), Status::TooLarge),
        ] {
            let refused = parsed(text).expect("an answer").expect_err(text);
            assert_eq!(refused.0, status, "{text}");
        }
    }
}
