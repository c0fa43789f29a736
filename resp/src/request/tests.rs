//! Requests whole, in pieces and broken.

use super::*;
use proptest::prelude::*;

fn parse(bytes: &[u8]) -> Result<(Vec<Vec<u8>>, usize), ProtocolError> {
    let mut parser = Parser::default();
    match parser.advance(bytes, &Limits::default(), true)? {
        Progress::Complete { length } => Ok((
            parser.parts(&bytes[..length]).map(<[u8]>::to_vec).collect(),
            length,
        )),
        Progress::Incomplete => Ok((vec![b"incomplete".to_vec()], 0)),
    }
}

fn words(bytes: &[u8]) -> Vec<String> {
    let (parts, _) = parse(bytes).expect("a request");
    parts
        .into_iter()
        .map(|part| String::from_utf8(part).expect("text"))
        .collect()
}

#[test]
fn arrays_and_lines_are_requests() {
    assert_eq!(words(b"*2\r\n$3\r\nGET\r\n$0\r\n\r\n"), ["GET", ""]);
    assert_eq!(words(b"*0\r\n"), [""; 0]);
    assert_eq!(words(b"*-1\r\n"), [""; 0]);
    assert_eq!(words(b"PING\r\n"), ["PING"]);
    assert_eq!(
        words(b"  set a  'b c' \"d\\x41\\n\\\"\" \n"),
        ["set", "a", "b c", "dA\n\""]
    );
    assert_eq!(words(b"\r\n"), [""; 0]);
    assert_eq!(words(b"*2\r\n$3\r\nGE"), ["incomplete"]);
}

#[test]
fn what_is_no_request_is_named_as_redis_names_it() {
    let long = [b"*".as_slice(), &[b'1'; LINE_BYTES_MAX + 1]].concat();
    let long_part = [b"*1\r\n$".as_slice(), &[b'1'; LINE_BYTES_MAX + 1]].concat();
    for (bytes, text) in [
        (b"*x\r\n".as_slice(), "invalid multibulk length"),
        (b"*+1\r\n", "invalid multibulk length"),
        (b"*1048577\r\n", "invalid multibulk length"),
        (b"*1\r\nx\r\n", "expected '$', got 'x'"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$+1\r\n", "invalid bulk length"),
        (b"*1\r\n$1048577\r\n", "invalid bulk length"),
        (b"*1\r\n$99999999999999999999\r\n", "invalid bulk length"),
        (
            b"*1\r\n$1\r\nabc",
            "a bulk string is longer than its length says",
        ),
        (b"get \"a\r\n", "unbalanced quotes in request"),
        (b"get 'a'b\r\n", "unbalanced quotes in request"),
        (&[b'a'; LINE_BYTES_MAX + 1], "too big inline request"),
        (&long, "too big mbulk count string"),
        (&long_part, "too big bulk count string"),
    ] {
        let error = parse(bytes).expect_err(text);
        assert_eq!(error.to_string(), format!("Protocol error: {text}"));
    }
}

#[test]
fn strangers_may_send_little() {
    let mut parser = Parser::default();
    let mut refused = |bytes: &[u8]| {
        parser.reset();
        parser
            .advance(bytes, &Limits::default(), false)
            .expect_err("too much")
            .to_string()
    };
    assert_eq!(
        refused(b"*11\r\n"),
        "Protocol error: unauthenticated multibulk length"
    );
    assert_eq!(
        refused(b"*1\r\n$16385\r\n"),
        "Protocol error: unauthenticated bulk length"
    );
}

proptest! {
    /// The crate that writes replies reads the same requests, however they are cut into pieces.
    #[test]
    fn pieces_do_not_matter(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..8), cuts in prop::collection::vec(1_usize..9, 1..60)) {
        use redis_protocol::resp2::{decode, encode, types::{BorrowedFrame, OwnedFrame}};
        let frames: Vec<_> = parts.iter().map(|part| BorrowedFrame::BulkString(part)).collect();
        let frame = BorrowedFrame::Array(&frames);
        let mut bytes = vec![0; frame.encode_len(false)];
        encode::encode_borrowed(&mut bytes, &frame, false).expect("it has the length");
        let (mut parser, mut come, mut cuts) = (Parser::default(), 0, cuts.iter().cycle());
        let length = loop {
            match parser.advance(&bytes[..come], &Limits::default(), true).expect("a request") {
                Progress::Complete { length } => break length,
                Progress::Incomplete => come = (come + cuts.next().expect("endless")).min(bytes.len()),
            }
        };
        prop_assert_eq!(length, bytes.len());
        let (decoded, _) = decode::decode(&bytes).expect("frames").expect("whole");
        let OwnedFrame::Array(decoded) = decoded else { panic!("an array") };
        let ours: Vec<_> = parser.parts(&bytes).map(|part| OwnedFrame::BulkString(part.to_vec())).collect();
        prop_assert_eq!(ours, decoded);
    }

    #[test]
    fn no_bytes_break_the_parser(bytes in prop::collection::vec(prop_oneof![Just(b'*'), Just(b'$'), Just(b'\r'), Just(b'\n'), b'0'..b'3', any::<u8>()], 0..200)) {
        let mut parser = Parser::default();
        let mut from = 0;
        while let Ok(Progress::Complete { length }) = parser.advance(&bytes[from..], &Limits::default(), true) {
            prop_assert!(length > 0);
            from += length;
            parser.reset();
        }
    }
}
