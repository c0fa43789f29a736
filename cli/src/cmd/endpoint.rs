//! Asks the HTTP endpoint of a replica, which `--metrics` opens. It may want a password, and it may speak TLS.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use trine_base::failure::Failure;
use trine_server::private::first_line;
use trine_server::tls::TlsCaller;

/// The time limit for the replica's endpoint.
const LIMIT: Duration = Duration::from_secs(5);
/// Metrics take tens of KiB, a level a line or two.
const ANSWER_BYTES_MAX: u64 = 4 << 20;

/// Credentials for a protected endpoint.
#[derive(Debug, Default, Args)]
pub(crate) struct EndpointArguments {
    /// Send the password in the first line of this file to the metrics endpoint. Without --metrics-ca it is sent in
    /// clear text.
    #[arg(long, env = "TRINE_METRICS_PASSWORD_FILE", value_name = "FILE")]
    metrics_password_file: Option<PathBuf>,
    /// Connect over TLS, and only to an endpoint whose certificate is signed by this CA: a PEM file.
    #[arg(long, env = "TRINE_METRICS_CA", value_name = "FILE")]
    metrics_ca: Option<PathBuf>,
    /// Client certificate for an endpoint with --tls-client-ca: a PEM file.
    #[arg(long, env = "TRINE_METRICS_CERT", value_name = "FILE", requires_all = ["metrics_ca", "metrics_key"])]
    metrics_cert: Option<PathBuf>,
    /// Private key of the client certificate: a PEM file readable only by its owner.
    #[arg(
        long,
        env = "TRINE_METRICS_KEY",
        value_name = "FILE",
        requires = "metrics_cert"
    )]
    metrics_key: Option<PathBuf>,
}

/// Asks endpoints, with what they want to see.
pub(super) struct EndpointClient {
    password: Option<Vec<u8>>,
    caller: Option<TlsCaller>,
}

/// The reply of an endpoint.
pub(super) struct EndpointReply {
    pub(super) is_ok: bool,
    pub(super) body: String,
}

impl EndpointArguments {
    /// Reads the files.
    pub(super) fn asker(&self) -> Result<EndpointClient, Failure> {
        let file = self.metrics_password_file.as_deref();
        let password = file
            .map(|path| first_line(path, "the password of the metrics"))
            .transpose()?;
        let own = self
            .metrics_cert
            .as_deref()
            .zip(self.metrics_key.as_deref());
        let ca = self.metrics_ca.as_deref();
        Ok(EndpointClient {
            password,
            caller: ca.map(|ca| TlsCaller::open(ca, own)).transpose()?,
        })
    }
}

impl EndpointClient {
    /// Sends a request, and returns what the endpoint said.
    pub(super) fn ask(
        &self,
        at: &str,
        method: &str,
        path: &str,
        body: &str,
    ) -> Result<EndpointReply, Failure> {
        let answer = self
            .request(at, method, path, body)
            .map_err(|error| self.no_answer(at, &error))?;
        if let Some(failure) = self.guarded(at, &answer) {
            return Err(failure);
        }
        let (head, body) = answer
            .split_once("\r\n\r\n")
            .unwrap_or((answer.as_str(), ""));
        if body_length(head).is_some_and(|length| body.len() < length) {
            return Err(Failure::not_reachable(
                format!("the answer of the metrics endpoint at {at} was cut off"),
                "ask again",
            ));
        }
        Ok(EndpointReply {
            is_ok: head.split(' ').nth(1) == Some("200"),
            body: body.to_owned(),
        })
    }

    fn request(&self, at: &str, method: &str, path: &str, body: &str) -> io::Result<String> {
        let socket = connect(at)?;
        socket.set_read_timeout(Some(LIMIT))?;
        socket.set_write_timeout(Some(LIMIT))?;
        let length = body.len();
        let mut request =
            format!("{method} {path} HTTP/1.1\r\nHost: {at}\r\nContent-Length: {length}\r\n")
                .into_bytes();
        if let Some(password) = &self.password {
            request.extend_from_slice(b"Authorization: Bearer ");
            request.extend_from_slice(password);
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"\r\n");
        request.extend_from_slice(body.as_bytes());
        match &self.caller {
            // An endpoint with TLS may end the connection before it has read the request.
            None => match exchange(socket, &request) {
                Err(error) if is_hang_up(&error) => Ok(String::new()),
                other => other,
            },
            Some(caller) => exchange(caller.encrypt(host_of(at), socket)?, &request),
        }
    }

    fn no_answer(&self, at: &str, error: &io::Error) -> Failure {
        // rustls calls all data that is wrong with the other end invalid. Or that end has hung up.
        let of_tls = [
            ErrorKind::InvalidData,
            ErrorKind::ConnectionReset,
            ErrorKind::BrokenPipe,
            ErrorKind::UnexpectedEof,
        ];
        if self.caller.is_some() && of_tls.contains(&error.kind()) {
            return Failure::usage(
                format!("the metrics endpoint at {at} was not asked: TLS failed: {error}"),
                "its certificate must be signed by the CA of --metrics-ca and be valid for the \
                 host in the address; for an endpoint without TLS omit --metrics-ca, and for one \
                 with --tls-client-ca add --metrics-cert",
            );
        }
        Failure::not_reachable(
            format!("no answer from the metrics endpoint at {at}: {error}"),
            "start the replica with --metrics HOST:PORT, and name that address",
        )
    }

    /// Why the endpoint tells nothing, if it is protected by something that was not given.
    fn guarded(&self, at: &str, answer: &str) -> Option<Failure> {
        // An endpoint with TLS answers a request in clear with an alert, or not at all.
        if answer.is_empty() || answer.starts_with("\u{15}\u{3}") {
            return Some(Failure::usage(
                format!(
                    "{at} closes the connection without an answer: an endpoint with TLS does that \
                     to a request without TLS"
                ),
                "name the CA of its certificate with --metrics-ca FILE, or with TRINE_METRICS_CA; \
                 if it has no TLS, it has too many connections: try again",
            ));
        }
        let is_refused = answer.split(' ').nth(1) == Some("401");
        is_refused.then(|| match self.password {
            None => Failure::usage(
                format!("the metrics endpoint at {at} requires a password"),
                "name its file with --metrics-password-file FILE, or with \
                 TRINE_METRICS_PASSWORD_FILE",
            ),
            Some(_) => Failure::usage(
                format!("the metrics endpoint at {at} rejects this password"),
                "the password is the first line of the replica's --metrics-password-file",
            ),
        })
    }
}

/// The host in `HOST:PORT`, without the brackets of an IPv6 address.
fn host_of(at: &str) -> &str {
    let host = at.rsplit_once(':').map_or(at, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Connects to the first address of the host that answers.
fn connect(at: &str) -> io::Result<TcpStream> {
    let mut failed = ErrorKind::NotFound.into();
    for address in at.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, LIMIT) {
            Ok(socket) => return Ok(socket),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// Sends the request, and returns what came until the other end hung up. It may do that before it has read everything, and
/// what it has said until then counts.
fn exchange(mut stream: impl Read + Write, request: &[u8]) -> io::Result<String> {
    let mut answer = Vec::new();
    let sent = stream.write_all(request).and_then(|()| stream.flush());
    let read = match &sent {
        Err(error) if !is_hang_up(error) => Ok(0),
        _ => stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer),
    };
    match sent.and(read) {
        Err(error) if answer.is_empty() || !is_hang_up(&error) => Err(error),
        _ => Ok(String::from_utf8_lossy(&answer).into_owned()),
    }
}

/// Whether the other end has closed the connection without reading what was on its way to it.
fn is_hang_up(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
    )
}

/// The length of the body, if the head of an answer says it.
fn body_length(head: &str) -> Option<usize> {
    let mut headers = head.lines().filter_map(|line| line.split_once(':'));
    let (_, length) = headers.find(|(name, _)| name.eq_ignore_ascii_case("content-length"))?;
    length.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_what_a_certificate_is_for() {
        for (at, host) in [
            ("localhost:9471", "localhost"),
            ("127.0.0.1:9471", "127.0.0.1"),
            ("[::1]:9471", "::1"),
        ] {
            assert_eq!(host_of(at), host);
        }
    }

    /// The other end of a connection, which says something and then fails in one of these ways.
    struct Other {
        takes: Result<(), ErrorKind>,
        says: &'static [u8],
        ends: Result<(), ErrorKind>,
    }

    impl Read for Other {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.says.is_empty() {
                true => self.ends.map(|()| 0).map_err(io::Error::from),
                false => self.says.read(buffer),
            }
        }
    }

    impl Write for Other {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.takes.map(|()| bytes.len()).map_err(io::Error::from)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// "Busy" and "too large" were lost with the reset that came behind them, and TLS was suspected.
    #[test]
    fn what_was_said_before_a_reset_is_kept() {
        let reset = Err(ErrorKind::ConnectionReset);
        let pipe = Err(ErrorKind::BrokenPipe);
        let slow = Err(ErrorKind::WouldBlock);
        for (takes, says, ends, expected) in [
            (Ok(()), "said", Ok(()), Ok("said")),
            (Ok(()), "said", reset, Ok("said")),
            (pipe, "said", Ok(()), Ok("said")),
            (reset, "said", reset, Ok("said")),
            (Ok(()), "", Ok(()), Ok("")),
            (Ok(()), "", reset, Err(ErrorKind::ConnectionReset)),
            (pipe, "", Ok(()), Err(ErrorKind::BrokenPipe)),
            (Ok(()), "said", slow, Err(ErrorKind::WouldBlock)),
            (slow, "said", Ok(()), Err(ErrorKind::WouldBlock)),
        ] {
            let says = says.as_bytes();
            let said = exchange(Other { takes, says, ends }, b"request");
            let said = said.map_err(|error| error.kind());
            assert_eq!(said, expected.map(str::to_owned));
        }
    }

    #[test]
    fn the_head_says_how_long_the_body_is() {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\ncontent-length: 12";
        assert_eq!(body_length(head), Some(12));
        assert_eq!(body_length("HTTP/1.1 200 OK"), None);
    }
}
