//! How many bytes a client fetches at first: as many as the last answers of the session had.
//!
//! RFP calls this the remote fetching size (RFS). One READ is enough for an answer that is not longer.

use super::slot::{ANSWER_BYTES, with_packets_of};
use crate::config::{SIZES_INTERVAL, SIZES_KEPT, SIZES_UNCOVERED};

/// Before the first answer: an item of 48 bytes and what is around it.
const AT_FIRST: usize = 128;
/// READs end with a whole cache line.
const LINE_BYTES: usize = 64;

/// The sizes of a session's last answers.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    kept: [u16; SIZES_KEPT],
    /// Answers so far.
    count: u32,
    fetch: usize,
    is_fixed: bool,
}

impl Sizes {
    /// `fixed`: the size to be fetched, whatever the answers are; found from them if absent.
    pub(super) fn new(fixed: Option<u16>) -> Self {
        let fetch = fixed.map_or(AT_FIRST, |bytes| {
            usize::from(bytes).clamp(with_packets_of(0), ANSWER_BYTES)
        });
        Self {
            kept: [0; SIZES_KEPT],
            count: 0,
            fetch,
            is_fixed: fixed.is_some(),
        }
    }

    /// Bytes to be fetched at first.
    #[inline]
    pub(super) fn fetch(&self) -> usize {
        self.fetch
    }

    /// An answer had so many bytes, those of its slot included.
    #[inline]
    pub(super) fn on_answer(&mut self, bytes: usize) {
        if self.is_fixed {
            return;
        }
        // Not more than a slot has.
        self.kept[self.count as usize % SIZES_KEPT] = bytes as u16;
        self.count = self.count.wrapping_add(1);
        if self.count.is_multiple_of(SIZES_INTERVAL) {
            self.look();
        }
    }

    /// The size that covers all but the longest few of the kept ones.
    #[cold]
    fn look(&mut self) {
        let mut sorted = self.kept;
        sorted.sort_unstable();
        let covered = usize::from(sorted[SIZES_KEPT - 1 - SIZES_UNCOVERED]);
        if covered > 0 {
            self.fetch = covered.next_multiple_of(LINE_BYTES).min(ANSWER_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(answers: impl IntoIterator<Item = usize>) -> usize {
        let mut sizes = Sizes::new(None);
        answers.into_iter().for_each(|bytes| sizes.on_answer(bytes));
        sizes.fetch()
    }

    #[test]
    fn most_answers_are_fetched_at_once() {
        assert_eq!(after([]), AT_FIRST);
        assert_eq!(after([50; 64]), 64);
        assert_eq!(after([100; 64]), 128);
        assert_eq!(after([1_024; 64]), 1_024);
        // The few long ones cost a second READ each.
        assert_eq!(
            after((0..64).map(|at| if at % 22 == 0 { 900 } else { 60 })),
            64
        );
        assert_eq!(
            after((0..64).map(|at| if at % 4 == 0 { 900 } else { 60 })),
            960
        );
    }

    #[test]
    fn a_session_whose_answers_change_is_followed() {
        assert_eq!(after([[900; 64], [60; 64]].concat()), 64);
        assert_eq!(after([[60; 64], [900; 64]].concat()), 960);
    }

    #[test]
    fn a_fixed_size_stays() {
        for (fixed, fetched) in [(64, 64), (0, 16), (u16::MAX, ANSWER_BYTES)] {
            let mut sizes = Sizes::new(Some(fixed));
            (0..200).for_each(|_| sizes.on_answer(700));
            assert_eq!(sizes.fetch(), fetched);
        }
    }
}
