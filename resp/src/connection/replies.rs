//! Replies that the client has not read yet, and the protocol they are written in.
//!
//! Invariant: `written` never exceeds the length of `bytes`, and is 0 once everything is written.

use trine_commands::Writer;
use trine_commands::errors::Refusal;

use super::RESTING_BYTES_MAX;
use super::broker::INVALIDATE;
use crate::limits::PUSHED_BYTES_MAX;

/// The output of one connection.
#[derive(Default, Debug)]
pub(super) struct Replies {
    bytes: Vec<u8>,
    /// Bytes of `bytes` that are written.
    written: usize,
    resp3: bool,
    /// Replies so far that were errors.
    errors: u64,
}

/// The output as it was before replies were collected.
#[must_use]
#[derive(Debug)]
pub(super) struct Earlier(Replies);

/// Replies that are sent later.
#[derive(Debug)]
pub(super) struct Collected {
    pub(super) bytes: Vec<u8>,
    /// One of them switched to another protocol.
    pub(super) has_switched: bool,
}

impl Replies {
    /// Bytes that are still to be written.
    pub(super) fn unread(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    /// So many of them were written.
    pub(super) fn on_written(&mut self, count: usize) {
        self.written += count;
        assert!(
            self.written <= self.bytes.len(),
            "no more is written than there is"
        );
        if self.written == self.bytes.len() {
            self.bytes.clear();
            self.bytes.shrink_to(RESTING_BYTES_MAX);
            self.written = 0;
        } else if self.written > RESTING_BYTES_MAX && self.written >= self.bytes.len() / 2 {
            // A client that never reads all of its replies would keep all that it has read. At least half is dropped,
            // so no byte is moved more often than once on average.
            self.bytes.drain(..self.written);
            self.bytes.shrink_to(2 * self.bytes.len());
            self.written = 0;
        }
    }

    /// Bytes of memory that they take.
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Gives the memory back if nothing is left to write.
    pub(super) fn release(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = Vec::new();
        }
    }

    /// Drops what is not written: the connection was cut off.
    pub(super) fn drop_all(&mut self) {
        (self.bytes, self.written) = (Vec::new(), 0);
    }

    /// Replies so far that were errors.
    pub(super) fn errors(&self) -> u64 {
        self.errors
    }

    /// Whether the client speaks RESP3.
    pub(super) fn is_resp3(&self) -> bool {
        self.resp3
    }

    /// The number of the protocol, as HELLO names it.
    pub(super) fn protocol(&self) -> i64 {
        if self.resp3 { 3 } else { 2 }
    }

    /// Replies from now on are in this protocol.
    pub(super) fn switch(&mut self, resp3: bool) {
        self.resp3 = resp3;
    }

    /// Writes replies.
    pub(super) fn writer(&mut self) -> Writer<'_> {
        Writer::counting(&mut self.bytes, self.resp3, &mut self.errors)
    }

    /// Replies with an error.
    pub(super) fn error(&mut self, text: &str) {
        self.writer().error(text);
    }

    /// Replies OK.
    pub(super) fn ok(&mut self) {
        self.writer().simple("OK");
    }

    /// Replies OK, or why not.
    pub(super) fn done(&mut self, result: Result<(), Refusal>) {
        self.writer().done(result);
    }

    /// An error that is not sent yet.
    pub(super) fn encode_error(&self, text: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        Writer::new(&mut bytes, self.resp3).error(text);
        bytes
    }

    /// Collects the replies from now on, instead of sending them.
    pub(super) fn begin_collecting(&mut self) -> Earlier {
        let collected = Self {
            resp3: self.resp3,
            ..Self::default()
        };
        Earlier(std::mem::replace(self, collected))
    }

    /// Ends what [`Replies::begin_collecting`] began: everything is as before. Errors count when they are sent.
    pub(super) fn end_collecting(&mut self, earlier: Earlier) -> Collected {
        let collected = std::mem::replace(self, earlier.0);
        Collected {
            bytes: collected.bytes,
            has_switched: collected.resp3 != self.resp3,
        }
    }

    /// Pushes that these keys have changed, or all. False if the protocol has no place for that, in which case nothing is
    /// written: before RESP3 only `as_message` has one.
    pub(super) fn push_invalidation(&mut self, keys: Option<&[&[u8]]>, as_message: bool) -> bool {
        if !self.resp3 && !as_message {
            return false;
        }
        let resp3 = self.resp3;
        let mut writer = self.pusher();
        if resp3 {
            writer.push(2);
            writer.bulk(b"invalidate");
        } else {
            writer.push(3);
            writer.bulk(b"message");
            writer.bulk(INVALIDATE);
        }
        match keys {
            Some(keys) => {
                writer.array(keys.len());
                keys.iter().for_each(|key| writer.bulk(key));
            }
            None => writer.null(),
        }
        true
    }

    /// Pushes a message of a channel, because it was subscribed to, or the pattern.
    pub(super) fn push_message(&mut self, pattern: Option<&[u8]>, channel: &[u8], text: &[u8]) {
        let mut writer = self.pusher();
        match pattern {
            None => {
                writer.push(3);
                writer.bulk(b"message");
            }
            Some(pattern) => {
                writer.push(4);
                writer.bulk(b"pmessage");
                writer.bulk(pattern);
            }
        }
        writer.bulk(channel);
        writer.bulk(text);
    }

    /// Pushes that the connection that was told instead has gone. False if the protocol has no place for that.
    pub(super) fn push_broken_redirection(&mut self, redirect: i64) -> bool {
        if !self.resp3 {
            return false;
        }
        let mut writer = self.pusher();
        writer.push(2);
        writer.bulk(b"tracking-redir-broken");
        writer.integer(redirect);
        true
    }

    /// Whether a client that is sent more without having asked has left too much unread.
    pub(super) fn is_beyond_pushing(&self) -> bool {
        self.unread().len() > PUSHED_BYTES_MAX
    }

    /// Pushes are no replies, and none of them is an error.
    fn pusher(&mut self) -> Writer<'_> {
        Writer::new(&mut self.bytes, self.resp3)
    }
}
