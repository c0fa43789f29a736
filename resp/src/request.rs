//! Requests as clients send them: an array of strings, or a line of words.
//!
//! The limits have to hold before a request has come whole, and a large request must not be scanned again with each
//! packet. So the parser continues from where it stopped. It checks each length before anything is kept for it.

mod inline;

use std::ops::Range;

use crate::limits::{
    LINE_BYTES_MAX, Limits, PARTS_MAX, STRANGER_PART_BYTES_MAX, STRANGER_PARTS_MAX,
};
use trine_kvstore::integer;

/// Bytes that are no request. The connection has to end, because it is not known where the next request begins.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("Protocol error: {0}")]
pub struct ProtocolError(String);

impl ProtocolError {
    fn of<T>(text: impl Into<String>) -> Result<T, Self> {
        Err(Self(text.into()))
    }
}

/// How far the parser came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Progress {
    /// The request is not whole yet.
    Incomplete,
    /// A request of this many bytes; its parts are in [`Parser::parts`].
    Complete {
        /// Bytes of the request.
        length: usize,
    },
}

/// Walks over one request after the other.
#[derive(Clone, Default, Debug)]
pub struct Parser {
    /// Ranges of the parts, relative to the beginning of the request; those of a line of words in `words`.
    ranges: Vec<Range<usize>>,
    /// The words of a line, without their quotes.
    words: Vec<u8>,
    is_line: bool,
    /// Parts that are still to come; none before the first line is read.
    parts_left: Option<u32>,
    /// The length of the part whose bytes come next.
    part_bytes: Option<usize>,
    /// Bytes of the request that were parsed.
    done: usize,
}

/// The room for parts, and for the words of a line, that a parser keeps between requests.
const RESTING_PARTS: usize = 256;
const RESTING_WORD_BYTES: usize = 1024;

impl Parser {
    /// The memory that the parser holds, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.ranges.capacity() * size_of::<Range<usize>>() + self.words.capacity()
    }

    /// Forgets the parsed part of a request, to begin at its first byte again or at another one.
    pub fn reset(&mut self) {
        self.ranges.clear();
        self.words.clear();
        // A request of 65,536 parts would otherwise hold a megabyte for as long as its connection rests.
        self.ranges.shrink_to(RESTING_PARTS);
        self.words.shrink_to(RESTING_WORD_BYTES);
        self.is_line = false;
        (self.parts_left, self.part_bytes, self.done) = (None, None, 0);
    }

    /// The parts of a complete request, of which `request` has to hold the bytes.
    pub fn parts<'a>(&'a self, request: &'a [u8]) -> impl ExactSizeIterator<Item = &'a [u8]> {
        let from = if self.is_line { &self.words } else { request };
        self.ranges.iter().map(move |range| &from[range.clone()])
    }

    /// The same of an array, borrowed from the request alone. A line of words has no parts there.
    pub(crate) fn slices<'a>(&self, request: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let ranges = match self.is_line {
            true => &[],
            false => self.ranges.as_slice(),
        };
        ranges.iter().map(move |range| &request[range.clone()])
    }

    /// Whether the complete request has no parts: it asks for nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether the complete request is a line of words.
    pub(crate) fn is_line(&self) -> bool {
        self.is_line
    }

    /// Continues with a request that begins at `bytes[0]`; earlier calls saw the same bytes, maybe fewer of them.
    ///
    /// # Errors
    /// When this is no request, or one beyond the limits.
    pub fn advance(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
        known: bool,
    ) -> Result<Progress, ProtocolError> {
        match bytes.first() {
            None => Ok(Progress::Incomplete),
            Some(b'*') => self.advance_array(bytes, limits, known),
            Some(_) => self.line_of_words(bytes, limits, known),
        }
    }

    fn advance_array(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
        known: bool,
    ) -> Result<Progress, ProtocolError> {
        let mut left = match self.parts_left {
            Some(left) => left,
            None => {
                let Some((count, behind)) = line(bytes, 0, "too big mbulk count string")? else {
                    return Ok(Progress::Incomplete);
                };
                let left = part_count(integer(&count[1..]), known)?;
                (self.parts_left, self.done) = (Some(left), behind);
                left
            }
        };
        while left > 0 {
            if !self.advance_part(bytes, limits, known)? {
                return Ok(Progress::Incomplete);
            }
            left -= 1;
            self.parts_left = Some(left);
        }
        Ok(Progress::Complete { length: self.done })
    }

    /// One part; false if its bytes have not all come.
    fn advance_part(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
        known: bool,
    ) -> Result<bool, ProtocolError> {
        let length = match self.part_bytes {
            Some(length) => length,
            None => {
                let Some((text, behind)) = line(bytes, self.done, "too big bulk count string")?
                else {
                    return Ok(false);
                };
                let length = part_length(announced(text)?, limits, known)?;
                (self.part_bytes, self.done) = (Some(length), behind);
                length
            }
        };
        let end = self.done + length;
        let Some(ending) = bytes.get(end..end + 2) else {
            return Ok(false);
        };
        if ending != b"\r\n" {
            return ProtocolError::of("a bulk string is longer than its length says");
        }
        self.ranges.push(self.done..end);
        (self.part_bytes, self.done) = (None, end + 2);
        Ok(true)
    }

    /// The rules for the parts of an array hold for words, too.
    fn line_of_words(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
        known: bool,
    ) -> Result<Progress, ProtocolError> {
        let looked_at = &bytes[..bytes.len().min(LINE_BYTES_MAX + 1)];
        let Some(end) = looked_at.iter().position(|byte| *byte == b'\n') else {
            return match bytes.len() > LINE_BYTES_MAX {
                true => ProtocolError::of("too big inline request"),
                false => Ok(Progress::Incomplete),
            };
        };
        let text = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
        self.reset();
        self.is_line = true;
        if !inline::split(text, &mut self.words, &mut self.ranges) {
            return ProtocolError::of("unbalanced quotes in request");
        }
        part_count(Some(self.ranges.len() as i64), known)?;
        for range in &self.ranges {
            part_length(Some(range.len() as i64), limits, known)?;
        }
        Ok(Progress::Complete { length: end + 1 })
    }
}

/// The line that begins at `from`, without its end, and the position of the next byte.
fn line<'a>(
    bytes: &'a [u8],
    from: usize,
    too_long: &str,
) -> Result<Option<(&'a [u8], usize)>, ProtocolError> {
    let rest = &bytes[from..];
    match rest
        .iter()
        .take(LINE_BYTES_MAX + 1)
        .position(|byte| *byte == b'\r')
    {
        Some(end) => match rest.get(end + 1) {
            Some(b'\n') => Ok(Some((&rest[..end], from + end + 2))),
            Some(_) => ProtocolError::of("a line ends without a line feed"),
            None => Ok(None),
        },
        None if rest.len() > LINE_BYTES_MAX => ProtocolError::of(too_long),
        None => Ok(None),
    }
}

fn part_count(count: Option<i64>, known: bool) -> Result<u32, ProtocolError> {
    match count {
        Some(count) if count > STRANGER_PARTS_MAX && !known => {
            ProtocolError::of("unauthenticated multibulk length")
        }
        // An array of no parts, or of fewer than none, is no request but no error either.
        Some(count) if count <= PARTS_MAX => Ok(count.max(0) as u32),
        _ => ProtocolError::of("invalid multibulk length"),
    }
}

/// The length in the line in front of a part.
fn announced(text: &[u8]) -> Result<Option<i64>, ProtocolError> {
    let Some(digits) = text.strip_prefix(b"$") else {
        let found = text.first().copied().unwrap_or(b'\r');
        return ProtocolError::of(format!("expected '$', got '{}'", char::from(found)));
    };
    Ok(integer(digits))
}

fn part_length(length: Option<i64>, limits: &Limits, known: bool) -> Result<usize, ProtocolError> {
    match length {
        Some(length) if length > STRANGER_PART_BYTES_MAX && !known => {
            ProtocolError::of("unauthenticated bulk length")
        }
        Some(length) if (0..=limits.part_bytes as i64).contains(&length) => Ok(length as usize),
        _ => ProtocolError::of("invalid bulk length"),
    }
}

#[cfg(test)]
mod tests;
