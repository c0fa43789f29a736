//! Reads the request of a scraper or a health probe. It supports the necessary part of HTTP/1.1, and everything is
//! bounded.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use trine_resp::is_same_secret;

/// The most bytes of a request's first line and headers.
pub const HEAD_BYTES_MAX: usize = 8 << 10;
/// The most bytes of a request's body.
pub const BODY_BYTES_MAX: usize = 4 << 10;

/// A valid request.
#[derive(Debug, PartialEq, Eq)]
pub struct HttpRequest {
    /// `GET`, `PUT`, ...
    pub method: String,
    /// Without the query.
    pub path: String,
    /// The bytes after the head.
    pub body: Vec<u8>,
    /// Whether it came from this machine.
    pub from_this_host: bool,
    /// What the request shows of a password, if anything.
    pub authorization: Option<String>,
    /// The names by which the request calls this server: that of its header, and that of its target if it has one. Anything
    /// but a browser may leave both out.
    pub hosts: Vec<String>,
    /// Whether a page of a web site has made the request.
    pub is_of_a_page: bool,
    /// The media types that the caller takes, if it says so.
    pub accept: Option<String>,
}

impl HttpRequest {
    /// Whether the request gives this password: as a bearer token, or as the password of any user.
    #[must_use]
    pub fn gives(&self, password: &[u8]) -> bool {
        let Some((scheme, shown)) = self
            .authorization
            .as_deref()
            .and_then(|text| text.split_once(' '))
        else {
            return false;
        };
        let shown = shown.trim();
        if scheme.eq_ignore_ascii_case("bearer") {
            // HTTP takes blanks at the ends of a header away, so they do not count.
            let password = password.trim_ascii();
            return !password.is_empty() && is_same_secret(password, shown.as_bytes());
        }
        let decoded = scheme
            .eq_ignore_ascii_case("basic")
            .then(|| STANDARD.decode(shown).ok())
            .flatten();
        let decoded = decoded.unwrap_or_default();
        let colon = decoded.iter().position(|byte| *byte == b':');
        colon.is_some_and(|at| is_same_secret(password, &decoded[at + 1..]))
    }
}

/// The statuses in use.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// 200.
    Ok,
    /// 400.
    BadRequest,
    /// 401.
    Unauthorized,
    /// 403.
    Forbidden,
    /// 404.
    NotFound,
    /// 405.
    MethodNotAllowed,
    /// 413.
    TooLarge,
    /// 421.
    Misdirected,
    /// 429.
    TooManyRequests,
    /// 503.
    Unavailable,
}

impl Status {
    /// The number and its text, for the first line of an answer.
    pub fn line(self) -> &'static str {
        match self {
            Self::Ok => "200 OK",
            Self::BadRequest => "400 Bad Request",
            Self::Unauthorized => "401 Unauthorized",
            Self::Forbidden => "403 Forbidden",
            Self::NotFound => "404 Not Found",
            Self::MethodNotAllowed => "405 Method Not Allowed",
            Self::TooLarge => "413 Content Too Large",
            Self::Misdirected => "421 Misdirected Request",
            Self::TooManyRequests => "429 Too Many Requests",
            Self::Unavailable => "503 Service Unavailable",
        }
    }
}

/// A request, or the error in it.
pub type Received = Result<HttpRequest, (Status, &'static str)>;

/// The result of parsing the bytes so far.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed {
    /// The request is complete, and this is it.
    Whole(Received),
    /// The request is incomplete.
    More,
}

/// Parses a request from the bytes that have arrived.
pub fn parse(bytes: &[u8], from_this_host: bool) -> Parsed {
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
    let mut headers = match Headers::read(lines) {
        Ok(headers) => headers,
        Err(why) => return refuse(Status::BadRequest, why),
    };
    let (authority, path) = cut_target(target);
    headers.hosts.extend(authority);
    let length = headers.length;
    if length > BODY_BYTES_MAX {
        return refuse(Status::TooLarge, "the body is too long");
    }
    let Some(body) = bytes.get(head_end + 4..head_end + 4 + length) else {
        return Parsed::More;
    };
    Parsed::Whole(Ok(HttpRequest {
        method: method.to_owned(),
        path: path.split('?').next().unwrap_or_default().to_owned(),
        body: body.to_vec(),
        from_this_host,
        authorization: headers.authorization,
        hosts: headers.hosts,
        is_of_a_page: headers.is_of_a_page,
        accept: headers.accept,
    }))
}

/// The server's name in a target, if it has one, and the rest. Proxies are asked for `http://HOST/PATH`.
fn cut_target(target: &str) -> (Option<String>, &str) {
    let Some((scheme, rest)) = target.split_once("://") else {
        return (None, target);
    };
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return (None, target);
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let path = if path.is_empty() { "/" } else { path };
    (Some(authority.trim().to_owned()), path)
}

/// The headers that matter.
#[derive(Default)]
struct Headers {
    length: usize,
    authorization: Option<String>,
    /// One at most.
    hosts: Vec<String>,
    is_of_a_page: bool,
    accept: Option<String>,
}

impl Headers {
    fn read<'a>(lines: impl Iterator<Item = &'a str>) -> Result<Self, &'static str> {
        let mut headers = Self::default();
        for header in lines {
            let Some((name, value)) = header.split_once(':') else {
                return Err("a header has no colon");
            };
            if name.eq_ignore_ascii_case("content-length") {
                headers.length = value
                    .trim()
                    .parse()
                    .map_err(|_| "the content length is no number")?;
            } else if name.eq_ignore_ascii_case("authorization") {
                headers.authorization = Some(value.trim().to_owned());
            } else if name.eq_ignore_ascii_case("host") {
                headers.hosts.push(value.trim().to_owned());
            } else if name.eq_ignore_ascii_case("origin") {
                headers.is_of_a_page = true;
            } else if name.eq_ignore_ascii_case("accept") {
                // Several headers are one list.
                let more = value.trim();
                headers.accept = Some(match headers.accept {
                    Some(list) => format!("{list},{more}"),
                    None => more.to_owned(),
                });
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                return Err("state the length of the body; chunks are not understood");
            }
        }
        match headers.hosts.len() {
            0 | 1 => Ok(headers),
            _ => Err("name one host; there are several headers for it"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<Received> {
        match parse(text.as_bytes(), true) {
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
        assert!(request.body == b"info" && request.from_this_host);
    }

    #[test]
    fn a_password_is_taken_as_a_token_and_as_that_of_any_user() {
        let gives = |header: &str| {
            let text = format!("GET /metrics HTTP/1.1\r\n{header}\r\n\r\n");
            parsed(&text)
                .expect("whole")
                .expect("right")
                .gives(b"secret")
        };
        for right in [
            "Authorization: Bearer secret",
            "authorization: bearer secret",
            "Authorization: Basic eDpzZWNyZXQ=",
        ] {
            assert!(gives(right), "{right}");
        }
        for wrong in [
            "Host: a",
            "Authorization: secret",
            "Authorization: Bearer secre",
            "Authorization: Bearer secret1",
            "Authorization: Bearer ",
            "Authorization: Basic secret",
            "Authorization: Basic c2VjcmV0",
            "Authorization: Digest secret",
        ] {
            assert!(!gives(wrong), "{wrong}");
        }
    }

    #[test]
    fn wrong_and_oversized_requests_are_refused() {
        let long = format!("GET / HTTP/1.1\r\nx: {}", "y".repeat(HEAD_BYTES_MAX));
        for (text, status) in [
            ("GET /\r\n\r\n", Status::BadRequest),
            ("GET / HTTP/2.0\r\n\r\n", Status::BadRequest),
            ("GET / HTTP/1.1\r\nno colon\r\n\r\n", Status::BadRequest),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n",
                Status::BadRequest,
            ),
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

    #[test]
    fn the_names_of_the_server_are_those_of_header_and_target() {
        for (text, path, hosts) in [
            ("GET /a HTTP/1.0\r\n\r\n", "/a", &[][..]),
            ("GET /a HTTP/1.1\r\nHOST:  b:1 \r\n\r\n", "/a", &["b:1"]),
            (
                "GET http://c/a?q HTTP/1.1\r\nHost: b\r\n\r\n",
                "/a",
                &["b", "c"],
            ),
            ("GET HTTPS://c:1 HTTP/1.1\r\n\r\n", "/", &["c:1"]),
            ("GET http://c?/a HTTP/1.1\r\n\r\n", "", &["c"]),
            ("GET http://x@c/a HTTP/1.1\r\n\r\n", "/a", &["x@c"]),
            ("GET /a?http://c HTTP/1.1\r\n\r\n", "/a", &[]),
        ] {
            let request = parsed(text).expect("whole").expect("right");
            assert_eq!(
                (request.path.as_str(), request.hosts),
                (path, hosts.iter().map(|host| (*host).to_owned()).collect()),
                "{text}"
            );
        }
    }

    #[test]
    fn several_headers_of_what_is_taken_are_one_list() {
        let text = "GET / HTTP/1.1\r\nAccept: a/b;q=0.5\r\naccept: c/d\r\n\r\n";
        let request = parsed(text).expect("whole").expect("right");
        assert_eq!(request.accept.as_deref(), Some("a/b;q=0.5,c/d"));
        assert!(!request.is_of_a_page);
        let text = "GET / HTTP/1.1\r\nOrigin: null\r\n\r\n";
        let request = parsed(text).expect("whole").expect("right");
        assert!(request.is_of_a_page && request.accept.is_none());
    }

    /// A header has no blanks at its ends, and the password of the file had one: no bearer token fitted.
    #[test]
    fn a_bearer_token_has_no_blanks_at_its_ends() {
        let gives = |header: &str, password: &[u8]| {
            let text = format!("GET / HTTP/1.1\r\nAuthorization: {header}\r\n\r\n");
            parsed(&text)
                .expect("whole")
                .expect("right")
                .gives(password)
        };
        assert!(gives("Bearer secret ", b"secret"));
        assert!(gives("Bearer secret", b"secret "));
        assert!(gives("Basic eDpzZWNyZXQg", b"secret "));
        assert!(!gives("Basic eDpzZWNyZXQg", b"secret"));
        assert!(!gives("Bearer  ", b" "));
    }
}
