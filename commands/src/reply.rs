//! Replies in the client's protocol. Values are encoded by the `redis-protocol` crate. This file says which frame of
//! RESP2 replaces which of RESP3.

use crate::errors::Refusal;
use redis_protocol::{resp2, resp3};

/// Appends replies to a connection's output.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    resp3: bool,
    /// Where errors are counted, if anywhere.
    errors: Option<&'a mut u64>,
}

impl<'a> Writer<'a> {
    /// Appends to `out` in RESP3 or RESP2.
    pub fn new(out: &'a mut Vec<u8>, resp3: bool) -> Self {
        Self {
            out,
            resp3,
            errors: None,
        }
    }

    /// The same, counting the errors among the replies.
    pub fn counting(out: &'a mut Vec<u8>, resp3: bool, errors: &'a mut u64) -> Self {
        Self {
            out,
            resp3,
            errors: Some(errors),
        }
    }

    /// Bytes that the output has so far, with those before these replies.
    pub(crate) fn len(&self) -> usize {
        self.out.len()
    }

    /// Takes back what was written since the output had so many bytes. Errors among it stay counted.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.out.truncate(len);
    }

    /// OK, or why not.
    pub fn done(&mut self, result: Result<(), Refusal>) {
        match result {
            Ok(()) => self.simple("OK"),
            Err(text) => self.error(&text),
        }
    }

    /// A reply that was encoded before.
    pub fn encoded(&mut self, reply: &[u8]) {
        if reply.first() == Some(&b'-') {
            self.count_error();
        }
        self.out.extend_from_slice(reply);
    }

    fn count_error(&mut self) {
        if let Some(errors) = &mut self.errors {
            **errors += 1;
        }
    }

    /// A status, such as OK.
    pub fn simple(&mut self, text: &str) {
        self.frame2(&resp2::types::BorrowedFrame::SimpleString(text.as_bytes()));
    }

    /// An error; its first word is its kind. A line ending in it would begin the next reply.
    pub fn error(&mut self, text: &str) {
        self.count_error();
        let clean = text.replace(['\r', '\n'], " ");
        self.frame2(&resp2::types::BorrowedFrame::Error(&clean));
    }

    /// A number.
    pub fn integer(&mut self, number: i64) {
        self.frame2(&resp2::types::BorrowedFrame::Integer(number));
    }

    /// A string of bytes.
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.frame2(&resp2::types::BorrowedFrame::BulkString(bytes));
    }

    /// A text of several lines.
    pub fn text(&mut self, text: &str) {
        if !self.resp3 {
            return self.bulk(text.as_bytes());
        }
        self.frame3(&resp3::types::BorrowedFrame::VerbatimString {
            data: text.as_bytes(),
            format: resp3::types::VerbatimStringFormat::Text,
            attributes: None,
        });
    }

    /// There is no value.
    pub fn null(&mut self) {
        match self.resp3 {
            true => self.frame3(&resp3::types::BorrowedFrame::Null),
            false => self.frame2(&resp2::types::BorrowedFrame::Null),
        }
    }

    /// Null instead of a list: a transaction that was not done.
    pub fn null_array(&mut self) {
        match self.resp3 {
            true => self.null(),
            false => self.out.extend_from_slice(b"*-1\r\n"),
        }
    }

    /// The beginning of a list; `count` replies follow.
    pub fn array(&mut self, count: usize) {
        self.aggregate('*', count);
    }

    /// The beginning of a set; `count` replies follow.
    pub fn set(&mut self, count: usize) {
        match self.resp3 {
            true => self.aggregate('~', count),
            false => self.aggregate('*', count),
        }
    }

    /// The beginning of a map; `count` pairs of replies follow.
    pub fn map(&mut self, count: usize) {
        match self.resp3 {
            true => self.aggregate('%', count),
            false => self.aggregate('*', 2 * count),
        }
    }

    /// The beginning of what was not asked for; `count` parts follow. Before RESP3 it looks like a list.
    pub fn push(&mut self, count: usize) {
        match self.resp3 {
            true => self.aggregate('>', count),
            false => self.aggregate('*', count),
        }
    }

    /// The crate encodes a whole tree of frames. Replies that are encoded one by one need only the list's head.
    fn aggregate(&mut self, kind: char, count: usize) {
        self.out
            .extend_from_slice(format!("{kind}{count}\r\n").as_bytes());
    }

    fn frame2(&mut self, frame: &resp2::types::BorrowedFrame<'_>) {
        let start = self.out.len();
        self.out.resize(start + frame.encode_len(false), 0);
        let written = resp2::encode::encode_borrowed(&mut self.out[start..], frame, false);
        assert!(written.is_ok(), "the buffer has the encoded length");
    }

    fn frame3(&mut self, frame: &resp3::types::BorrowedFrame<'_>) {
        let start = self.out.len();
        self.out.resize(start + frame.encode_len(false), 0);
        let written =
            resp3::encode::complete::encode_borrowed(&mut self.out[start..], frame, false);
        assert!(written.is_ok(), "the buffer has the encoded length");
    }
}
