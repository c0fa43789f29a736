//! Half-open sessions, kept in two parts, so that callers with one kind of key cannot push out the
//! others: one part is for keys that go first.

use std::collections::VecDeque;

use super::SessionId;
use crate::config::{HALF_OPEN_MAX, HALF_OPEN_RESERVE};

/// A session whose client holds the key and has sent nothing sealed yet.
pub(super) struct HalfOpen {
    pub(super) id: SessionId,
    pub(super) nonce: u64,
    /// ACCEPT as it was sent. It is repeated as it is: another one would use the handshake's keys twice.
    pub(super) accept: Vec<u8>,
}

/// Half-open sessions, each part with the oldest first. Some may be over.
#[derive(Default)]
pub(super) struct Halves {
    first: VecDeque<HalfOpen>,
    others: VecDeque<HalfOpen>,
}

impl Halves {
    /// Makes room for another one in its part: returns the oldest, which has to end, if there is none. Forgets those that
    /// are over.
    pub(super) fn make_room(
        &mut self,
        goes_first: bool,
        is_half: impl Fn(SessionId) -> bool,
    ) -> Option<SessionId> {
        let (part, most) = self.part(goes_first);
        part.retain(|half| is_half(half.id));
        if part.len() < most {
            return None;
        }
        part.pop_front().map(|half| half.id)
    }

    /// Adds one, for which there is room.
    pub(super) fn push(&mut self, goes_first: bool, half: HalfOpen) {
        let (part, most) = self.part(goes_first);
        debug_assert!(part.len() < most, "room was made before");
        part.push_back(half);
    }

    /// Those with this nonce. There may be several, of different senders, and some may be over.
    pub(super) fn with_nonce(&self, nonce: u64) -> impl Iterator<Item = &HalfOpen> {
        let all = self.first.iter().chain(&self.others);
        all.filter(move |half| half.nonce == nonce)
    }

    fn part(&mut self, goes_first: bool) -> (&mut VecDeque<HalfOpen>, usize) {
        if goes_first {
            (&mut self.first, HALF_OPEN_RESERVE)
        } else {
            (&mut self.others, HALF_OPEN_MAX - HALF_OPEN_RESERVE)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn half(index: u16) -> HalfOpen {
        HalfOpen {
            id: SessionId {
                index,
                generation: 0,
            },
            nonce: u64::from(index),
            accept: Vec::new(),
        }
    }

    #[test]
    fn each_part_gives_up_its_own_oldest() {
        let mut halves = Halves::default();
        assert_eq!(halves.make_room(true, |_| true), None);
        halves.push(true, half(1_000));
        let room = (HALF_OPEN_MAX - HALF_OPEN_RESERVE) as u16;
        for index in 0..room {
            assert_eq!(halves.make_room(false, |_| true), None);
            halves.push(false, half(index));
        }
        assert_eq!(halves.make_room(false, |_| true), Some(half(0).id));
        halves.push(false, half(room));
        assert_eq!(halves.with_nonce(1_000).count(), 1, "of the other part");
        assert_eq!(
            halves.make_room(false, |id| id.index != 5),
            None,
            "5 is over"
        );
    }
}
