//! What a connection is sent without having asked: invalidations, and messages of channels. They come between replies.

use super::Connection;
use super::broker::INVALIDATE;
use crate::limits::PUSHED_BYTES_MAX;
use crate::reply::Writer;

impl Connection {
    /// These keys have changed, or all. `redirected`: another connection has read them.
    pub(crate) fn push_invalidation(&mut self, keys: Option<&[&[u8]]>, redirected: bool) {
        let is_subscriber = self.subscriptions.count() > 0;
        // Redis's protocol before 3 has no other place for it.
        let has_place = self.resp3 || (redirected && is_subscriber);
        if !has_place {
            return;
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
        self.end_if_unread();
    }

    /// A message about `key`, because the channel was subscribed to, or the pattern.
    pub(crate) fn push_message(
        &mut self,
        pattern: Option<&[u8]>,
        channel: &[u8],
        text: &[u8],
        key: &[u8],
    ) {
        if !key.starts_with(self.key_prefix()) {
            return;
        }
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
        self.end_if_unread();
    }

    fn pusher(&mut self) -> Writer<'_> {
        Writer::new(&mut self.output, self.resp3)
    }

    /// Ends the connection if it has not read too much. It would miss messages otherwise, without noticing that.
    pub(super) fn end_if_unread(&mut self) {
        if self.is_cut_off || self.output().len() > PUSHED_BYTES_MAX {
            self.cut_off();
        }
    }

    /// Ends the connection, whatever it has not read.
    pub fn cut_off(&mut self) {
        (self.ending, self.is_cut_off) = (true, true);
        (self.output, self.written) = (Vec::new(), 0);
    }

    /// Whether it was ended because its client did not read what it was sent.
    #[must_use]
    pub fn is_cut_off(&self) -> bool {
        self.is_cut_off
    }
}
