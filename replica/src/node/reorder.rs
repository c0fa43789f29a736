//! Appends of one peer back in order: those that arrive ahead of a missing one wait for it.
//!
//! A session's concurrent requests arrive in any order, and raft answers each append that comes too early with a
//! rejection and a retransmission of entries. So the sender numbers its appends in streams, and this buffer hands those
//! of one stream out in their order. A lost append ends its stream at the sender, and the first append of the next
//! stream ends it here. Appends that still wait then are of no use any more.
//!
//! The request of an append that waits is answered at once. It would count as one that takes its server so long as the
//! missing one takes to be sent again, and the transport's timeouts would grow with each loss.

use trine_transport::time::Instant;

use super::config::{
    EARLY_APPENDS_ALL_MAX, EARLY_APPENDS_MAX, EARLY_BYTES_ALL_MAX, EARLY_BYTES_MAX, EARLY_WAIT_MAX,
};

/// An append that waits, copied: the received bytes are gone when its turn comes.
#[derive(Debug)]
pub(super) struct Early {
    sequence: u64,
    arrived_at: Instant,
    pub(super) frame: Vec<u8>,
}

/// The decision on an append that has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AppendVerdict {
    /// Its turn: hand it to the replica now, then take what [`Reorder::next_ready`] gives.
    InOrder,
    /// It waits here.
    Kept,
    /// Of a stream that is over, or seen before: of no use.
    Old,
}

/// How much waits.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Load {
    appends: usize,
    bytes: usize,
}

impl Load {
    pub(super) const fn appends(self) -> usize {
        self.appends
    }

    /// Whether one more append may wait, with so much in all sessions.
    pub(super) fn leaves_room_for(self, frame: &[u8]) -> bool {
        self.appends < EARLY_APPENDS_ALL_MAX && self.bytes + frame.len() <= EARLY_BYTES_ALL_MAX
    }

    /// The total that waits in all sessions, when the part of one of them goes from `before` to
    /// `after`.
    pub(super) fn changed(self, before: Self, after: Self) -> Self {
        let has_part = self.appends >= before.appends && self.bytes >= before.bytes;
        assert!(has_part, "the part of one session is in the total");
        Self {
            appends: self.appends + after.appends - before.appends,
            bytes: self.bytes + after.bytes - before.bytes,
        }
    }
}

/// The appends of one session.
#[derive(Debug, Default)]
pub(super) struct Reorder {
    stream: u32,
    /// The sequence that is due in `stream`.
    next: u64,
    /// Ahead of `next`, in no particular order, at most [`EARLY_APPENDS_MAX`].
    early: Vec<Early>,
}

impl Reorder {
    /// Takes note of an append; it is copied only if it has to wait, and `may_wait` is asked only then.
    pub(super) fn on_append(
        &mut self,
        now: Instant,
        stream: u32,
        sequence: u64,
        frame: &[u8],
        may_wait: impl FnOnce() -> bool,
    ) -> AppendVerdict {
        if is_newer(stream, self.stream) {
            self.begin(stream);
        }
        if stream != self.stream || sequence < self.next {
            return AppendVerdict::Old;
        }
        if sequence > self.next && self.has_room(frame) && !self.waits_for_long(now) && may_wait() {
            self.early.push(Early {
                sequence,
                arrived_at: now,
                frame: frame.to_vec(),
            });
            assert!(self.early.len() <= EARLY_APPENDS_MAX);
            return AppendVerdict::Kept;
        }
        // In order; or so many wait, or for so long, that the missing ones will not come, or it may not wait: raft copes with
        // a gap, not with silence.
        self.next = sequence.saturating_add(1);
        AppendVerdict::InOrder
    }

    fn has_room(&self, frame: &[u8]) -> bool {
        let Load { appends, bytes } = self.load();
        appends < EARLY_APPENDS_MAX && bytes + frame.len() <= EARLY_BYTES_MAX
    }

    /// Whether the missing append is none that its sender sends again: it was answered, but did not get here.
    fn waits_for_long(&self, now: Instant) -> bool {
        let waited = |early: &Early| now.saturating_since(early.arrived_at);
        self.early
            .iter()
            .any(|early| waited(early) >= EARLY_WAIT_MAX)
    }

    /// What waits here.
    pub(super) fn load(&self) -> Load {
        Load {
            appends: self.early.len(),
            bytes: self.early.iter().map(|early| early.frame.len()).sum(),
        }
    }

    /// The next append whose turn has come. Call it until there is none, after each append that was in order.
    pub(super) fn next_ready(&mut self) -> Option<Early> {
        let at = self
            .early
            .iter()
            .position(|early| early.sequence <= self.next)?;
        let early = self.early.swap_remove(at);
        self.next = self.next.max(early.sequence.saturating_add(1));
        Some(early)
    }

    fn begin(&mut self, stream: u32) {
        self.early.clear();
        self.stream = stream;
        self.next = 0;
    }
}

/// Whether stream `a` began after `b`; the counter may wrap.
fn is_newer(a: u32, b: u32) -> bool {
    a != b && a.wrapping_sub(b) < u32::MAX / 2
}

#[cfg(test)]
mod tests {
    use trine_transport::time::Duration;

    use super::*;

    /// Feeds appends and returns the sequences that are handed out.
    fn feed(reorder: &mut Reorder, stream: u32, sequences: &[u64]) -> Vec<u64> {
        let mut out = Vec::new();
        for &sequence in sequences {
            let frame = sequence.to_le_bytes();
            if reorder.on_append(Instant::ZERO, stream, sequence, &frame, || true)
                == AppendVerdict::InOrder
            {
                out.push(sequence);
                while let Some(early) = reorder.next_ready() {
                    assert_eq!(early.frame, early.sequence.to_le_bytes());
                    out.push(early.sequence);
                }
            }
        }
        out
    }

    #[test]
    fn appends_leave_in_order_however_they_arrive() {
        let mut reorder = Reorder::default();
        assert_eq!(feed(&mut reorder, 0, &[1, 3, 2]), Vec::<u64>::new());
        assert_eq!(feed(&mut reorder, 0, &[0, 5, 4, 6]), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(reorder.load(), Load::default());
    }

    #[test]
    fn what_was_handed_out_is_old() {
        let mut reorder = Reorder::default();
        feed(&mut reorder, 0, &[0, 1]);
        assert_eq!(
            reorder.on_append(Instant::ZERO, 0, 1, b"", || true),
            AppendVerdict::Old
        );
    }

    #[test]
    fn a_new_stream_drops_what_waited_and_starts_from_zero() {
        let mut reorder = Reorder::default();
        feed(&mut reorder, 0, &[0, 2, 3]);
        assert_eq!(feed(&mut reorder, 1, &[1, 0]), [0, 1]);
        assert_eq!(reorder.load(), Load::default());
        assert_eq!(
            reorder.on_append(Instant::ZERO, 0, 1, b"", || true),
            AppendVerdict::Old,
            "of the stream that is over"
        );
    }

    #[test]
    fn streams_are_told_apart_across_the_end_of_the_counter() {
        let mut reorder = Reorder {
            stream: u32::MAX,
            ..Reorder::default()
        };
        assert_eq!(feed(&mut reorder, u32::MAX, &[0]), [0]);
        assert_eq!(feed(&mut reorder, 0, &[0]), [0]);
        assert_eq!(
            reorder.on_append(Instant::ZERO, u32::MAX, 1, b"", || true),
            AppendVerdict::Old
        );
    }

    /// Found by review: a receiver without room answers an append and does not take it in. Its sender goes on, as if it had
    /// arrived, and the follower took in nothing until 256 appends waited. An idle leader sends 31 a second.
    #[test]
    fn a_gap_that_lasts_is_given_up() {
        let mut reorder = Reorder::default();
        let at = |millis| Instant::ZERO + Duration::from_millis(millis);
        let mut append =
            |millis, sequence| reorder.on_append(at(millis), 0, sequence, b"", || true);
        assert_eq!(append(0, 1), AppendVerdict::Kept);
        assert_eq!(append(999, 2), AppendVerdict::Kept);
        assert_eq!(append(1_000, 3), AppendVerdict::InOrder);
        assert_eq!(std::iter::from_fn(|| reorder.next_ready()).count(), 2);
        assert_eq!(
            reorder.on_append(at(1_001), 0, 4, b"", || true),
            AppendVerdict::InOrder
        );
    }

    #[test]
    fn a_peer_that_leaves_a_gap_for_ever_is_bounded() {
        let mut reorder = Reorder::default();
        let sequences: Vec<u64> = (1..=EARLY_APPENDS_MAX as u64).collect();
        assert_eq!(feed(&mut reorder, 0, &sequences), Vec::<u64>::new());
        let out = feed(&mut reorder, 0, &[1_000]);
        assert_eq!(out.len(), EARLY_APPENDS_MAX + 1, "the gap is given up");
        assert_eq!(feed(&mut reorder, 0, &[1_001]), [1_001]);
    }

    /// Any process can send such a number. With the buffer full it was taken for the next one, and adding one to it
    /// overflowed.
    #[test]
    fn the_greatest_sequence_of_all_is_no_panic() {
        let mut reorder = Reorder::default();
        let sequences: Vec<u64> = (1..=EARLY_APPENDS_MAX as u64).collect();
        feed(&mut reorder, 0, &sequences);
        let out = feed(&mut reorder, 0, &[u64::MAX]);
        assert_eq!(out.len(), EARLY_APPENDS_MAX + 1);
        assert_eq!(feed(&mut reorder, 1, &[0]), [0], "the next stream mends it");
    }

    /// The number of early appends was bounded, their bytes were not: each can be as large as a message.
    #[test]
    fn the_bytes_that_wait_are_bounded() {
        let mut reorder = Reorder::default();
        let large = vec![0; EARLY_BYTES_MAX / 4];
        let verdicts: Vec<_> = (1..=5)
            .map(|sequence| reorder.on_append(Instant::ZERO, 0, sequence, &large, || true))
            .collect();
        assert_eq!(verdicts[..4], [AppendVerdict::Kept; 4]);
        assert_eq!(verdicts[4], AppendVerdict::InOrder);
        assert_eq!(std::iter::from_fn(|| reorder.next_ready()).count(), 4);
    }

    #[test]
    fn what_may_not_wait_is_handed_out_as_it_comes() {
        let mut reorder = Reorder::default();
        let verdicts =
            [3, 1, 4].map(|sequence| reorder.on_append(Instant::ZERO, 0, sequence, b"", || false));
        assert_eq!(
            verdicts,
            [
                AppendVerdict::InOrder,
                AppendVerdict::Old,
                AppendVerdict::InOrder
            ]
        );
        assert_eq!(reorder.load(), Load::default());
    }
}
