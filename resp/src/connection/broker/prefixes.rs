//! The prefixes that clients track by broadcast, and the search for those of a key.
//!
//! Invariant: each prefix has a client.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Prefixes with their clients.
#[derive(Default, Debug)]
pub(super) struct Prefixes(BTreeMap<Box<[u8]>, BTreeSet<u64>>);

impl Prefixes {
    pub(super) fn add(&mut self, prefix: &[u8], client: u64) {
        self.0.entry(prefix.into()).or_default().insert(client);
    }

    pub(super) fn remove(&mut self, prefix: &[u8], client: u64) {
        if let Some(clients) = self.0.get_mut(prefix) {
            clients.remove(&client);
            if clients.is_empty() {
                self.0.remove(prefix);
            }
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The clients of a prefix.
    pub(super) fn clients(&self, prefix: &[u8]) -> Vec<u64> {
        let clients = self.0.get(prefix);
        clients.map_or_else(Vec::new, |clients| clients.iter().copied().collect())
    }

    /// Puts every prefix of this key into `found`. Each of them is at most the key. Going down from there, what is passed
    /// is no prefix, and tells how long the next one can be.
    pub(super) fn find<'a>(&'a self, key: &[u8], found: &mut Vec<&'a [u8]>) {
        found.clear();
        let mut most = Some(key);
        while let Some(bound) = most {
            let below = (Bound::Unbounded, Bound::Included(bound));
            let Some((prefix, _)) = self.0.range::<[u8], _>(below).next_back() else {
                return;
            };
            let common = prefix.iter().zip(key).take_while(|(a, b)| a == b).count();
            most = match common == prefix.len() {
                true => {
                    found.push(prefix);
                    common.checked_sub(1).map(|shorter| &key[..shorter])
                }
                false => Some(&key[..common]),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        vec(prop_oneof![Just(0_u8), Just(1), Just(255)], 0..6)
    }

    proptest! {
        #[test]
        fn exactly_the_prefixes_of_a_key_are_found(
            all in vec((bytes(), 0..4_u64), 0..30),
            gone in vec(bytes(), 0..10),
            keys in vec(bytes(), 1..20),
        ) {
            let mut prefixes = Prefixes::default();
            for (prefix, client) in &all {
                prefixes.add(prefix, *client);
            }
            for prefix in &gone {
                (0..4).for_each(|client| prefixes.remove(prefix, client));
            }
            let left: BTreeSet<&[u8]> = all
                .iter()
                .map(|(prefix, _)| &prefix[..])
                .filter(|prefix| !gone.iter().any(|gone| gone == prefix))
                .collect();
            prop_assert_eq!(prefixes.len(), left.len());
            for key in &keys {
                let mut found = Vec::new();
                prefixes.find(key, &mut found);
                let found: BTreeSet<&[u8]> = found.into_iter().collect();
                let expected: BTreeSet<&[u8]> =
                    left.iter().copied().filter(|prefix| key.starts_with(prefix)).collect();
                prop_assert_eq!(found, expected);
            }
        }
    }
}
