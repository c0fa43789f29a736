//! The packets of a direction that have come: each is taken once.

use trine_canary as canary;

/// Packets behind the highest one that may still come.
pub const WINDOW_PACKETS: u64 = 1_024;

const WORDS: usize = WINDOW_PACKETS as usize / 64;

/// The highest counter that has come, and which of the [`WINDOW_PACKETS`] up to it have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    /// One above the highest counter that has come; 0 before the first.
    end: u64,
    /// A ring: counter `n` has bit `n % WINDOW_PACKETS`.
    came: [u64; WORDS],
}

impl Window {
    /// The highest counter that has come, or 0.
    pub(crate) fn highest(&self) -> u64 {
        self.end.saturating_sub(1)
    }

    /// Whether a packet with this counter would be new.
    pub(crate) fn is_new(&self, counter: u64) -> bool {
        if counter >= self.end {
            return true;
        }
        let is_new = self.end - counter <= WINDOW_PACKETS && !self.has(counter);
        is_new || canary::planted("window ignores replays")
    }

    /// Notes a packet that is new and proven.
    pub(crate) fn note(&mut self, counter: u64) {
        if counter >= self.end {
            self.clear(self.end, counter);
            self.end = counter + 1;
        }
        self.came[word(counter)] |= bit(counter);
    }

    fn has(&self, counter: u64) -> bool {
        self.came[word(counter)] & bit(counter) != 0
    }

    /// The counters of `first..=last` are in the window now, and none of them has come.
    fn clear(&mut self, first: u64, last: u64) {
        if last - first >= WINDOW_PACKETS {
            self.came = [0; WORDS];
            return;
        }
        for counter in first..=last {
            self.came[word(counter)] &= !bit(counter);
        }
    }
}

fn word(counter: u64) -> usize {
    (counter % WINDOW_PACKETS / 64) as usize
}

fn bit(counter: u64) -> u64 {
    1 << (counter % 64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The window takes what a set of all counters takes that have come, but for those that are too old.
        #[test]
        fn it_agrees_with_a_set(jumps in prop::collection::vec((0u64..2_500, 0u64..1_500), 1..300)) {
            let (mut window, mut came, mut top) = (Window::default(), BTreeSet::new(), 0);
            for (ahead, back) in jumps {
                let counter = (top + ahead).saturating_sub(back);
                let is_old = top > counter + WINDOW_PACKETS;
                prop_assert_eq!(window.is_new(counter), !is_old && !came.contains(&counter));
                if window.is_new(counter) {
                    window.note(counter);
                    came.insert(counter);
                    top = top.max(counter + 1);
                    prop_assert_eq!(window.highest(), top - 1);
                }
                prop_assert!(!window.is_new(counter));
            }
        }
    }
}
