//! Bytes that a client has sent, and which of them are parsed and answered.
//!
//! ```text
//!     answered, soon dropped | sent to the store, not answered | to be parsed
//!     -----------------------+---------------------------------+-------------
//!     0                    start                             scan        the end
//! ```
//!
//! Invariant: `start <= scan <=` the number of bytes. The bytes from `start` on stay until they are answered: if the whole
//! is too large for the store, [`Input::reread`] goes back there.
//!
//! Requests are borrowed from the bytes while the rest of the connection changes. So the bytes are lent for a step, and
//! are back before the next ones come.

use super::RESTING_BYTES_MAX;
use crate::limits::Limits;
use crate::request::{Parser, Progress, ProtocolError};

/// The input of one connection.
#[derive(Default, Debug)]
pub(super) struct Input {
    bytes: Vec<u8>,
    /// Where the first unanswered request begins.
    start: usize,
    /// Where the request begins that the parser is in.
    scan: usize,
    parser: Parser,
    /// The client sends no more.
    has_ended: bool,
}

impl Input {
    /// Takes what has arrived.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The client sends no more.
    pub(super) fn end(&mut self) {
        self.has_ended = true;
    }

    /// Whether the client sends no more.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Bytes that are still to be parsed.
    pub(super) fn ahead(&self) -> usize {
        self.bytes.len() - self.scan
    }

    /// Bytes that are not answered yet; none while they are lent.
    pub(super) fn unanswered(&self) -> usize {
        self.bytes.len().saturating_sub(self.start)
    }

    /// Bytes that are answered and were not dropped yet.
    pub(super) fn answered(&self) -> usize {
        self.start
    }

    /// Bytes that were parsed and not answered yet.
    pub(super) fn sent(&self) -> usize {
        self.scan - self.start
    }

    /// Lends the bytes for a step. [`Input::give_back`] takes them back.
    pub(super) fn lend(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// Takes back the bytes that were lent.
    pub(super) fn give_back(&mut self, bytes: Vec<u8>) {
        assert!(self.bytes.is_empty(), "nothing comes during a step");
        assert!(self.start <= self.scan, "what is answered was parsed");
        assert!(self.scan <= bytes.len(), "what was parsed has come");
        self.bytes = bytes;
    }

    /// Goes on with the request that is not parsed yet. `known`: the client has said who it is.
    pub(super) fn parse(
        &mut self,
        lent: &[u8],
        limits: &Limits,
        known: bool,
    ) -> Result<Progress, ProtocolError> {
        self.parser.advance(&lent[self.scan..], limits, known)
    }

    /// The parts of the complete request, if it is an array.
    pub(super) fn parts<'a>(&self, lent: &'a [u8]) -> Vec<&'a [u8]> {
        self.parser.slices(&lent[self.scan..]).collect()
    }

    /// Whether the complete request has no parts: it asks for nothing.
    pub(super) fn is_empty_request(&self) -> bool {
        self.parser.is_empty()
    }

    /// Whether the complete request is a line of words.
    pub(super) fn is_line(&self) -> bool {
        self.parser.is_line()
    }

    /// Lends the words of the line. [`Input::give_back_words`] takes them back.
    pub(super) fn lend_words(&mut self) -> Parser {
        std::mem::take(&mut self.parser)
    }

    /// Takes back the words that were lent: the line was handled.
    pub(super) fn give_back_words(&mut self, mut words: Parser) {
        words.reset();
        self.parser = words;
    }

    /// The parser begins the present request again.
    pub(super) fn begin_again(&mut self) {
        self.parser.reset();
    }

    /// The present request, of `length` bytes, is dealt with.
    pub(super) fn pass(&mut self, length: usize) {
        self.scan += length;
    }

    /// All requests that were parsed are answered.
    pub(super) fn on_answered(&mut self) {
        self.start = self.scan;
    }

    /// The requests that are not answered are parsed once more.
    pub(super) fn reread(&mut self) {
        self.scan = self.start;
        self.parser.reset();
    }

    /// Drops bytes that are answered.
    pub(super) fn compact(&mut self) {
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.bytes.shrink_to(RESTING_BYTES_MAX);
            (self.start, self.scan) = (0, 0);
        } else if self.start > RESTING_BYTES_MAX {
            self.bytes.drain(..self.start);
            self.scan -= self.start;
            self.start = 0;
        }
    }

    /// Gives the memory back if no bytes are there.
    pub(super) fn release(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = Vec::new();
        }
    }

    /// Bytes of memory that it takes.
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.capacity() + self.parser.held_bytes()
    }

    /// The bytes that are there.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
