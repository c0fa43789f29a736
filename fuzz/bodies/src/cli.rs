//! The command: bytes from scrapers and from other servers, and text that people write.
//!
//! Two parsers need the definition of the command line (the shell's commands, the settings file): their own unit tests
//! replay their corpora.

use std::net::SocketAddr;

use trine_apps::cache::wire::Hello;
use trine_base::{peers, units, words};
use trine_bench::stores::{memcached_answer, redis_answer};
use trine_server::metrics::request::{
    self, BODY_BYTES_MAX, HEAD_BYTES_MAX, HttpRequest, Parsed, Status,
};

const FROM_THIS_HOST: bool = true;

/// The length of each piece that the bytes come in: bytewise, or sixteen of them.
fn piece(bytes: &[u8]) -> usize {
    1 + bytes.len() / 16
}

/// A request is the same whether it comes whole or in pieces. It lies within its limits, and what we would write for it
/// reads back the same.
pub fn http(bytes: &[u8]) {
    // A head that is too long is refused only while its end is out of sight.
    let bytes = &bytes[..bytes.len().min(HEAD_BYTES_MAX)];
    let whole = request::parse(bytes, FROM_THIS_HOST);
    let mut first = Parsed::More;
    for come in (0..bytes.len()).step_by(piece(bytes)).chain([bytes.len()]) {
        first = request::parse(&bytes[..come], FROM_THIS_HOST);
        if first != Parsed::More {
            break;
        }
    }
    assert_eq!(first, whole);
    match whole {
        Parsed::More => {}
        Parsed::Whole(Err((status, why))) => {
            assert!([Status::BadRequest, Status::TooLarge].contains(&status) && !why.is_empty());
        }
        Parsed::Whole(Ok(request)) => {
            assert!(request.body.len() <= BODY_BYTES_MAX && request.from_this_host);
            let written = written(&request);
            let again = request::parse(&written, FROM_THIS_HOST);
            assert_eq!(again, Parsed::Whole(Ok(request)));
        }
    }
}

fn written(request: &HttpRequest) -> Vec<u8> {
    let HttpRequest {
        method,
        path,
        body,
        from_this_host: _,
        authorization,
        hosts,
        is_of_a_page,
        accept,
    } = request;
    let length = body.len();
    let mut head = match &hosts[..] {
        [] => format!("{method} {path}?q HTTP/1.1\r\n"),
        [host] => format!("{method} {path}?q HTTP/1.1\r\nHost: {host}\r\n"),
        [host, more @ ..] => {
            let target = more.concat();
            format!("{method} http://{target}{path}?q HTTP/1.1\r\nHost: {host}\r\n")
        }
    };
    if let Some(authorization) = authorization {
        head += &format!("Authorization: {authorization}\r\n");
    }
    if let Some(accept) = accept {
        head += &format!("Accept: {accept}\r\n");
    }
    if *is_of_a_page {
        head += "Origin: null\r\n";
    }
    head += &format!("Content-Length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

/// The answers of a server; the first byte says which server.
pub fn answers(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else {
        return;
    };
    match kind & 2 {
        0 => redis_answers(bytes),
        _ => hello(bytes),
    }
}

/// Each answer lies within the received bytes, and is taken only when the last of its bytes is there.
fn redis_answers(mut bytes: &[u8]) {
    while let Some((answer, length)) = redis_answer::parse(bytes) {
        assert!((1..=bytes.len()).contains(&length));
        if answer.is_ok() {
            assert_eq!(redis_answer::parse(&bytes[..length - 1]), None);
        }
        assert_eq!(
            redis_answer::parse(&bytes[..length]),
            Some((answer, length))
        );
        bytes = &bytes[length..];
    }
}

/// The answers of memcached, one after the other: each lies within the received bytes, and is taken only when the last of
/// its bytes is there.
pub fn memcached(mut bytes: &[u8]) {
    while let Some((answer, length)) = memcached_answer::parse(bytes) {
        assert!((1..=bytes.len()).contains(&length));
        if answer.is_err() {
            // The connection ends with the first error.
            return;
        }
        assert_eq!(memcached_answer::parse(&bytes[..length - 1]), None);
        assert_eq!(
            memcached_answer::parse(&bytes[..length]),
            Some((answer, length))
        );
        bytes = &bytes[length..];
    }
}

/// Just one form counts as a cache's own first answer.
fn hello(bytes: &[u8]) {
    if let Some(hello) = Hello::decode(bytes) {
        assert!(hello.shard < hello.shards);
        assert_eq!(hello.encode(), bytes);
    }
}

/// Words that are shown are read again, also a command's name or bytes that no keyboard can type.
pub fn words(bytes: &[u8]) {
    for line in bytes.split(|&byte| byte == b'\n') {
        match words::split(line) {
            Ok(read) => {
                let shown: Vec<String> = read.iter().map(|word| words::show(word)).collect();
                let again = words::split(shown.join(" ").as_bytes());
                assert_eq!(again.as_ref(), Ok(&read), "{shown:?}");
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

/// Values of options and settings: sizes, times, and lists of peers.
pub fn arguments(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(size) = units::parse_bytes(text) {
        assert_eq!(units::parse_bytes(&size.to_string()), Ok(size));
        let store = units::parse_store_bytes(text);
        assert!(store.is_err() || store == Ok(size));
        let _ = (units::show_bytes(size), units::show_ns(size));
        let digits: String = units::show_count(size).split(',').collect();
        assert_eq!(digits, size.to_string());
    }
    let time = units::parse_duration(text);
    let positive = units::parse_positive_duration(text);
    assert_eq!(positive.is_ok(), time.is_ok_and(|time| !time.is_zero()));
    if let Ok(interval) = units::parse_poll_interval(text) {
        assert!((0.1..=86_400.0).contains(&interval.as_secs_f64()));
    }
    lists(text);
}

/// A list of numeric addresses resolves to itself; nothing here may ask a name server.
fn lists(text: &str) {
    let _ = peers::check_server(text);
    let checked = peers::check(text);
    let Ok(items) = peers::items(text) else {
        return assert!(checked.is_err());
    };
    let numbers: Option<Vec<SocketAddr>> = items.iter().map(|item| item.parse().ok()).collect();
    let (Ok(()), Some(numbers)) = (checked, numbers) else {
        return;
    };
    assert_eq!(peers::resolve(text).as_ref(), Ok(&numbers));
    let written: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    assert_eq!(peers::resolve(&written.join(", ")), Ok(numbers));
}
