//! Entries that this replica had before it was restarted.
//!
//! It applies them a second time, and whoever reads its audit log must not take their commands for new ones. How far the
//! log was committed is on disk only as of the last write. Beyond that nobody knows any more what was applied before.

use crate::audit::ToldBefore;

/// The entries of the log on the disk at the start.
#[derive(Debug)]
pub(super) struct Replayed {
    /// The first index of each run of entries of one term, in order, and that term.
    runs: Vec<(u64, u64)>,
    last: u64,
    /// They were committed, and applied, up to here at least.
    committed: u64,
}

impl Replayed {
    /// `entries` are pairs of index and term, in order.
    pub(super) fn new(entries: impl Iterator<Item = (u64, u64)>, committed: u64) -> Self {
        let (mut runs, mut last) = (Vec::new(), 0);
        for (index, term) in entries {
            if runs.last().is_none_or(|(_, before)| *before != term) {
                runs.push((index, term));
            }
            last = index;
        }
        Self {
            runs,
            last,
            committed,
        }
    }

    /// Another leader may have put an entry of its own in the place of one that was never committed.
    pub(super) fn told(&self, index: u64, term: u64) -> ToldBefore {
        let mut runs = self.runs.iter().rev();
        let own = runs.find(|(first, _)| *first <= index);
        match own {
            _ if index > self.last => ToldBefore::No,
            Some((_, own)) if *own == term && index <= self.committed => ToldBefore::Yes,
            Some((_, own)) if *own == term => ToldBefore::Probably,
            _ => ToldBefore::No,
        }
    }

    /// Whether no later entry can be one of these.
    pub(super) fn is_over(&self, index: u64) -> bool {
        index >= self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_before_is_known_by_its_index_and_term() {
        let entries = [(5, 2), (6, 2), (7, 3), (8, 3), (9, 6)];
        let before = Replayed::new(entries.into_iter(), 7);
        for (index, term, told) in [
            (4, 2, ToldBefore::No),
            (5, 2, ToldBefore::Yes),
            (6, 2, ToldBefore::Yes),
            (7, 3, ToldBefore::Yes),
            (8, 3, ToldBefore::Probably),
            (8, 4, ToldBefore::No),
            (9, 6, ToldBefore::Probably),
            (9, 7, ToldBefore::No),
            (10, 6, ToldBefore::No),
        ] {
            assert_eq!(before.told(index, term), told, "{index} of term {term}");
        }
        assert!(!before.is_over(8) && before.is_over(9));
        let none = Replayed::new(std::iter::empty(), 0);
        assert_eq!(none.told(1, 1), ToldBefore::No);
        assert!(none.is_over(1));
    }
}
