//! Finds who watches a key.
//!
//! Each write is looked up, so a key costs one look-up by its hash. Prefixes are found in the time of a few look-ups,
//! whatever their number. Ranges with a start and an end are compared one by one; a limit on their number bounds that.

use std::collections::{BTreeMap, HashMap};

use trine_kvstore::KeyRange;
use trine_protocol::message::{Watch, Watched};

/// A watch that was found: whose it is, and the watcher's name for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Hit {
    pub(crate) ticket: u64,
    pub(crate) id: u32,
}

/// What is watched, by key.
#[derive(Default, Debug)]
pub(crate) struct Matcher {
    /// Hashed with random keys, because clients choose what is in it. Nothing depends on its order.
    keys: HashMap<Box<[u8]>, Vec<Hit>>,
    prefixes: BTreeMap<Box<[u8]>, Vec<Hit>>,
    ranges: Vec<Between>,
}

#[derive(Debug)]
struct Between {
    start: Box<[u8]>,
    end: Option<Box<[u8]>>,
    hit: Hit,
}

impl Matcher {
    /// What a single watcher watches.
    pub(crate) fn of<'a>(ticket: u64, watches: impl Iterator<Item = Watch<'a>>) -> Self {
        let mut matcher = Self::default();
        watches.for_each(|watch| matcher.add(ticket, &watch));
        matcher
    }

    pub(crate) fn add(&mut self, ticket: u64, watch: &Watch<'_>) {
        let hit = Hit {
            ticket,
            id: watch.id,
        };
        match watch.watched {
            Watched::Key(key) => self.keys.entry(key.into()).or_default().push(hit),
            Watched::Range(KeyRange::Prefix(prefix)) => {
                self.prefixes.entry(prefix.into()).or_default().push(hit);
            }
            Watched::Range(KeyRange::Between { start, end }) => self.ranges.push(Between {
                start: start.into(),
                end: end.map(Into::into),
                hit,
            }),
        }
    }

    /// Takes a watch of this watcher out.
    pub(crate) fn remove(&mut self, ticket: u64, watch: &Watch<'_>) {
        // Whether none is left of a key or prefix.
        let take_from = |hits: &mut Vec<Hit>| {
            hits.retain(|hit| hit.ticket != ticket);
            hits.is_empty()
        };
        match watch.watched {
            Watched::Key(key) => {
                if self.keys.get_mut(key).is_some_and(take_from) {
                    self.keys.remove(key);
                }
            }
            Watched::Range(KeyRange::Prefix(prefix)) => {
                if self.prefixes.get_mut(prefix).is_some_and(take_from) {
                    self.prefixes.remove(prefix);
                }
            }
            Watched::Range(KeyRange::Between { .. }) => {
                self.ranges.retain(|range| range.hit.ticket != ticket);
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.prefixes.is_empty() && self.ranges.is_empty()
    }

    /// Puts every watch of this key into `hits`.
    pub(crate) fn find(&self, key: &[u8], hits: &mut Vec<Hit>) {
        hits.clear();
        // Mostly there is none at all, and a hash costs more than all else here.
        if !self.keys.is_empty()
            && let Some(of_key) = self.keys.get(key)
        {
            hits.extend(of_key);
        }
        self.find_prefixes(key, hits);
        let holds = |range: &&Between| {
            *key >= *range.start && range.end.as_ref().is_none_or(|end| *key < **end)
        };
        hits.extend(self.ranges.iter().filter(holds).map(|range| range.hit));
    }

    /// Each prefix of the key is at most the key. Going down from there, what is passed is no prefix, and tells how long
    /// the next one can be.
    fn find_prefixes(&self, key: &[u8], hits: &mut Vec<Hit>) {
        let mut most = key;
        loop {
            let below = self
                .prefixes
                .range::<[u8], _>((std::ops::Bound::Unbounded, std::ops::Bound::Included(most)));
            let Some((prefix, of_prefix)) = below.into_iter().next_back() else {
                return;
            };
            let common = prefix.iter().zip(key).take_while(|(a, b)| a == b).count();
            let longest = if common == prefix.len() {
                hits.extend(of_prefix);
                match common.checked_sub(1) {
                    Some(shorter) => shorter,
                    None => return,
                }
            } else {
                common
            };
            most = &key[..longest];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum What {
        Key(Vec<u8>),
        Prefix(Vec<u8>),
        Between(Vec<u8>, Option<Vec<u8>>),
    }

    impl What {
        fn watch(&self, id: u32) -> Watch<'_> {
            let watched = match self {
                Self::Key(key) => Watched::Key(key),
                Self::Prefix(prefix) => Watched::Range(KeyRange::Prefix(prefix)),
                Self::Between(start, end) => Watched::Range(KeyRange::Between {
                    start,
                    end: end.as_deref(),
                }),
            };
            Watch { id, watched }
        }

        fn holds(&self, key: &[u8]) -> bool {
            match self {
                Self::Key(own) => own == key,
                Self::Prefix(prefix) => key.starts_with(prefix),
                Self::Between(start, end) => {
                    key >= &start[..] && end.as_ref().is_none_or(|end| key < &end[..])
                }
            }
        }
    }

    /// Short, of two bytes: so that they meet.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        vec(prop_oneof![Just(0_u8), Just(255)], 0..5)
    }

    fn what() -> impl Strategy<Value = What> {
        prop_oneof![
            key().prop_map(What::Key),
            key().prop_map(What::Prefix),
            (key(), proptest::option::of(key())).prop_map(|(a, b)| What::Between(a, b)),
        ]
    }

    proptest! {
        #[test]
        fn exactly_the_watches_of_a_key_are_found(
            list in vec((0..4_u64, what()), 0..40),
            gone in 0..4_u64,
            keys in vec(key(), 1..20),
        ) {
            let mut matcher = Matcher::default();
            for (id, (ticket, what)) in list.iter().enumerate() {
                matcher.add(*ticket, &what.watch(id as u32));
            }
            for (id, (ticket, what)) in list.iter().enumerate() {
                if *ticket == gone {
                    matcher.remove(*ticket, &what.watch(id as u32));
                }
            }
            let mut hits = Vec::new();
            for key in &keys {
                matcher.find(key, &mut hits);
                hits.sort_unstable();
                let mut expected: Vec<_> = list
                    .iter()
                    .enumerate()
                    .filter(|(_, (ticket, what))| *ticket != gone && what.holds(key))
                    .map(|(id, (ticket, _))| Hit { ticket: *ticket, id: id as u32 })
                    .collect();
                expected.sort_unstable();
                prop_assert_eq!(&hits, &expected);
            }
            prop_assert_eq!(matcher.is_empty(), list.iter().all(|(ticket, _)| *ticket == gone));
        }
    }
}
