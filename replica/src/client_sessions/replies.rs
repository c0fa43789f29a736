//! The cached replies of one session: found by their distance from the lowest awaited sequence, in one step.

use std::collections::VecDeque;

use trine_kvstore::Position;
use trine_protocol::message::NO_CHECK;

use super::reply_bytes::ReplyBytes;
use crate::config::SESSION_WINDOW;

/// Bytes that a cached reply counts beside its response.
pub(crate) const REPLY_CHARGE: u64 = 32;
/// And with a check.
const CHECK_CHARGE: u64 = 8;

/// An answer that a retry will get again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CachedReply {
    /// Where the command was applied.
    pub(crate) position: Position,
    /// The command's check; `NO_CHECK` for none, and before state-machine version 9.
    pub(crate) check: u32,
    /// The store's encoded response.
    pub(crate) response: ReplyBytes,
}

impl CachedReply {
    /// Whether it answers another command than one with this check. A command without a check may be the same.
    pub(super) fn is_to_another(&self, check: u32) -> bool {
        self.check != check && self.check != NO_CHECK && check != NO_CHECK
    }

    /// Only what members of every release have counts: the check is there from its state-machine version on.
    fn charge(&self) -> u64 {
        let check = if self.check == NO_CHECK {
            0
        } else {
            CHECK_CHARGE
        };
        REPLY_CHARGE + check + self.response.len() as u64
    }
}

/// A session's replies at and above the lowest awaited sequence.
#[derive(Debug)]
pub(super) struct Replies {
    lowest_awaited: u64,
    /// At index i the reply to `lowest_awaited + i`, once that was applied; at most [`SESSION_WINDOW`]. The last one is
    /// always there.
    window: VecDeque<Option<CachedReply>>,
}

impl Replies {
    /// None yet.
    pub(super) const fn new(lowest_awaited: u64) -> Self {
        Self {
            lowest_awaited,
            window: VecDeque::new(),
        }
    }

    pub(super) const fn lowest_awaited(&self) -> u64 {
        self.lowest_awaited
    }

    /// Whether `sequence` lies in the window: neither given up nor too far ahead.
    pub(super) fn covers(&self, sequence: u64) -> bool {
        sequence >= self.lowest_awaited && sequence - self.lowest_awaited < SESSION_WINDOW
    }

    pub(super) fn get(&self, sequence: u64) -> Option<&CachedReply> {
        let index = sequence.checked_sub(self.lowest_awaited)?;
        self.window.get(usize::try_from(index).ok()?)?.as_ref()
    }

    /// Keeps a reply, and returns its charge.
    ///
    /// # Panics
    /// When the window does not cover `sequence`, or has a reply to it.
    pub(super) fn insert(&mut self, sequence: u64, reply: CachedReply) -> u64 {
        assert!(
            self.covers(sequence),
            "the window bounds the cached replies"
        );
        let index = (sequence - self.lowest_awaited) as usize;
        if index >= self.window.len() {
            self.window.resize_with(index + 1, || None);
        }
        assert!(self.window[index].is_none(), "a sequence is applied once");
        let charge = reply.charge();
        self.window[index] = Some(reply);
        charge
    }

    /// Forgets the replies below `lowest`, which never goes back, and returns their charge.
    pub(super) fn forget_below(&mut self, lowest: u64) -> u64 {
        let mut freed = 0;
        while self.lowest_awaited < lowest {
            let Some(forgotten) = self.window.pop_front() else {
                self.lowest_awaited = lowest;
                break;
            };
            freed += forgotten.map_or(0, |reply| reply.charge());
            self.lowest_awaited += 1;
        }
        assert!(
            self.window.back().is_none_or(Option::is_some),
            "the last reply of the window is there"
        );
        freed
    }

    /// Each reply with its sequence, in the order of the sequences.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &CachedReply)> {
        let numbered = self.window.iter().enumerate();
        numbered.filter_map(|(index, reply)| {
            // No sequence in the window overflows, but the one after it might.
            reply
                .as_ref()
                .map(|reply| (self.lowest_awaited + index as u64, reply))
        })
    }

    /// The total over all of them.
    pub(super) fn charge(&self) -> u64 {
        self.iter().map(|(_, reply)| reply.charge()).sum()
    }

    /// The total over those below `lowest`.
    pub(super) fn charge_below(&self, lowest: u64) -> u64 {
        let below = self.iter().take_while(|(sequence, _)| *sequence < lowest);
        below.map(|(_, reply)| reply.charge()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(position: u64) -> CachedReply {
        CachedReply {
            position: Position::from_u64(position),
            check: NO_CHECK,
            response: [7; 8].as_slice().into(),
        }
    }

    fn sequences(replies: &Replies) -> Vec<u64> {
        replies.iter().map(|(sequence, _)| sequence).collect()
    }

    #[test]
    fn replies_are_found_whatever_the_order_of_their_commands() {
        let mut replies = Replies::new(1);
        for sequence in [5, 2, 64] {
            assert_eq!(replies.insert(sequence, reply(sequence)), REPLY_CHARGE + 8);
        }
        assert_eq!(replies.get(2), Some(&reply(2)));
        assert_eq!(
            (replies.get(0), replies.get(3), replies.get(65)),
            (None, None, None)
        );
        assert!(!replies.covers(0) && replies.covers(64) && !replies.covers(65));
        assert_eq!(sequences(&replies), [2, 5, 64]);
        assert_eq!(replies.charge(), 3 * (REPLY_CHARGE + 8));
    }

    #[test]
    fn forgetting_moves_the_window_and_returns_what_it_held() {
        let mut replies = Replies::new(1);
        for sequence in [1, 2, 4] {
            replies.insert(sequence, reply(sequence));
        }
        assert_eq!(replies.forget_below(1), 0);
        assert_eq!(replies.forget_below(4), 2 * (REPLY_CHARGE + 8));
        assert_eq!(
            (replies.lowest_awaited(), sequences(&replies)),
            (4, vec![4])
        );
        assert_eq!(replies.forget_below(1_000_000), REPLY_CHARGE + 8);
        assert_eq!(replies.lowest_awaited(), 1_000_000);
        assert_eq!(replies.forget_below(5), 0, "it never goes back");
        assert_eq!(replies.lowest_awaited(), 1_000_000);
        replies.forget_below(u64::MAX);
        replies.insert(u64::MAX, reply(1));
        assert_eq!(sequences(&replies), [u64::MAX]);
    }
}
