//! A set in one piece of memory, which it keeps: adding and removing allocate nothing once it has been as large.

/// Different values in order. Changes move what is above them, so it is for sets of a few thousand.
#[derive(Clone, Debug)]
pub(super) struct SortedVec<T>(Vec<T>);

impl<T> Default for SortedVec<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Ord> SortedVec<T> {
    /// Adds a value. False if it is there already.
    pub(super) fn insert(&mut self, value: T) -> bool {
        // Most are added above all others.
        let place = match self.0.last() {
            Some(last) if *last < value => Err(self.0.len()),
            _ => self.0.binary_search(&value),
        };
        match place {
            Ok(_) => false,
            Err(index) => {
                self.0.insert(index, value);
                true
            }
        }
    }

    /// Takes a value out. False if it is not there.
    pub(super) fn remove(&mut self, value: &T) -> bool {
        match self.0.binary_search(value) {
            Ok(index) => {
                self.0.remove(index);
                true
            }
            Err(_) => false,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The values, lowest first.
    pub(super) fn as_slice(&self) -> &[T] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::prng::Prng;

    #[test]
    fn it_holds_what_a_tree_holds() {
        let (mut prng, mut sorted, mut tree) =
            (Prng::new(1), SortedVec::default(), BTreeSet::new());
        for _ in 0..10_000 {
            let value = prng.below(50);
            match prng.below(2) {
                0 => assert_eq!(sorted.insert(value), tree.insert(value)),
                _ => assert_eq!(sorted.remove(&value), tree.remove(&value)),
            }
            assert!(sorted.as_slice().iter().eq(&tree));
            assert_eq!(sorted.is_empty(), tree.is_empty());
        }
    }
}
