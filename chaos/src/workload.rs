//! The requests of clients: a seeded stream of operations over a few hot keys.
//!
//! Keys come in families, because the checkers' power depends on the operations of a key. `r` keys see GET and PUT
//! only, `d` keys also DELETE, `c` keys also CAS, `n` keys hold numbers. `t` keys see all but numbers, and values that
//! live for a time; `u` keys hold numbers, some of them for a time. Every value is written once in a run; it names its
//! writer, so a foreign byte is noticed.

use crate::history::{Action, Answer};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use trine_transport::prng::{Prng, Ratio};

/// The longest time that a value is written for: short enough to end during a run.
pub const TTL_NS_MAX: u64 = 2_500_000_000;

/// How often each action is asked, relative to the others.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Mix {
    /// GETs, spread over all families.
    pub get: u32,
    /// PUTs, spread over the families whose keys hold text.
    pub put: u32,
    /// DELETEs.
    pub delete: u32,
    /// CASs; only for stores that have the command.
    pub cas: u32,
    /// INCRs; only for stores that have the command.
    pub incr: u32,
    /// PUTs for a time; only for stores that have the command, and clients that know how group time runs.
    pub put_for: u32,
}

impl Mix {
    /// GET, PUT and DELETE.
    pub const BASIC: Mix = Mix {
        get: 50,
        put: 40,
        delete: 10,
        cas: 0,
        incr: 0,
        put_for: 0,
    };
    /// Everything that the checkers know without knowing how group time runs.
    pub const FULL: Mix = Mix {
        get: 45,
        put: 25,
        delete: 8,
        cas: 12,
        incr: 10,
        put_for: 0,
    };
    /// Everything that the checkers know.
    pub const TIMED: Mix = Mix {
        get: 45,
        put: 18,
        delete: 7,
        cas: 10,
        incr: 8,
        put_for: 12,
    };

    fn total(&self) -> u64 {
        [
            self.get,
            self.put,
            self.delete,
            self.cas,
            self.incr,
            self.put_for,
        ]
        .into_iter()
        .map(u64::from)
        .sum()
    }

    /// Registers are always there: the zone test decides them.
    fn uses(&self, family: char) -> bool {
        match family {
            'd' => self.delete > 0,
            'c' => self.cas > 0,
            'n' => self.incr > 0,
            't' | 'u' => self.put_for > 0,
            _ => true,
        }
    }
}

/// The shape of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadConfig {
    /// Keys in each family.
    pub keys: u64,
    /// How often the first key of its family is taken instead of a uniformly drawn one.
    pub hot: Ratio,
    /// The actions.
    pub mix: Mix,
    /// Sizes of values; the writer's name is not cut off if it is longer.
    pub value_bytes: RangeInclusive<usize>,
    /// How often a value is a large one instead.
    pub large: Ratio,
    /// Sizes of large values.
    pub large_bytes: RangeInclusive<usize>,
}

impl Default for WorkloadConfig {
    fn default() -> Self {
        Self {
            keys: 8,
            hot: Ratio::percent(30),
            mix: Mix::BASIC,
            value_bytes: 16..=64,
            large: Ratio::ZERO,
            large_bytes: 1_024..=48 << 10,
        }
    }
}

/// One operation to call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The key.
    pub key: Vec<u8>,
    /// The action on it.
    pub action: Action,
}

/// Makes an action on a key of a family.
type Ask = fn(&mut Workload, &[u8], char) -> Action;

/// The endless stream of one client's operations.
#[derive(Clone, Debug)]
pub struct Workload {
    config: WorkloadConfig,
    client: u64,
    prng: Prng,
    values_made: u64,
    keys: Vec<Vec<u8>>,
    /// The version last seen of each CAS key; `None` means that it was absent.
    versions: BTreeMap<Vec<u8>, Option<u64>>,
}

impl Workload {
    /// The stream of a client. Clients of one run share the seed and differ in their number.
    ///
    /// # Panics
    /// If the mix asks for nothing or there are no keys.
    pub fn new(config: WorkloadConfig, seed: u64, client: u64) -> Self {
        assert!(config.mix.total() > 0, "a workload asks for something");
        assert!(config.keys > 0, "a workload has keys");
        let prng = Prng::new(seed ^ client.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Self {
            keys: Self::keys(&config),
            config,
            client,
            prng,
            values_made: 0,
            versions: BTreeMap::new(),
        }
    }

    /// The next operation.
    pub fn next_request(&mut self) -> Request {
        let mix = self.config.mix;
        let mut drawn = self.prng.below(mix.total());
        let mut falls_to = |weight: u32| {
            let hit = drawn < u64::from(weight);
            drawn = drawn.wrapping_sub(u64::from(weight));
            hit
        };
        let (families, ask): (&[char], Ask) = if falls_to(mix.get) {
            (&['r', 'd', 'c', 'n', 't', 'u'], |_, _, _| Action::Get)
        } else if falls_to(mix.put) {
            (&['r', 'd', 'c', 't'], |this, _, _| this.put())
        } else if falls_to(mix.delete) {
            (&['d', 't'], |_, _, _| Action::Delete)
        } else if falls_to(mix.cas) {
            (&['c', 't'], |this, key, _| this.cas(key))
        } else if falls_to(mix.incr) {
            (&['n', 'u'], |this, _, _| this.incr())
        } else {
            (&['t', 'u'], |this, _, family| this.put_for(family))
        };
        let family = self.family(families);
        let key = self.key(family);
        let action = ask(self, &key, family);
        Request { key, action }
    }

    fn put(&mut self) -> Action {
        Action::Put {
            value: self.value(),
        }
    }

    fn cas(&mut self, key: &[u8]) -> Action {
        Action::Cas {
            expected: self.versions.get(key).copied().flatten(),
            value: self.value(),
        }
    }

    fn incr(&mut self) -> Action {
        let by = i64::try_from(self.prng.in_range(1..=3)).expect("between one and three");
        Action::Incr { by }
    }

    fn put_for(&mut self, family: char) -> Action {
        let value = match family {
            'u' => self.number(),
            _ => self.value(),
        };
        // Some end before the client can read them, and some are read often.
        let (least, most) = match self.prng.below(4) {
            0 => (1, 1_000_000),
            1 => (1_000_000, 50_000_000),
            2 => (50_000_000, 400_000_000),
            _ => (400_000_000, TTL_NS_MAX),
        };
        let ttl_ns = self.prng.in_range(least..=most);
        Action::PutFor { value, ttl_ns }
    }

    /// Learns from an answer: CAS needs the versions that were seen.
    pub fn observe(&mut self, request: &Request, answer: &Answer) {
        if !matches!(request.key.first(), Some(b'c' | b't')) {
            return;
        }
        let version = match answer {
            Answer::Value { version, .. }
            | Answer::Written { version }
            | Answer::Mismatch { version } => *version,
            Answer::NotFound | Answer::Deleted { .. } | Answer::RangeDeleted => None,
            Answer::Number { .. } | Answer::Flushed | Answer::Refused => return,
        };
        self.versions.insert(request.key.clone(), version);
    }

    /// All keys that this stream may touch.
    pub fn all_keys(&self) -> &[Vec<u8>] {
        &self.keys
    }

    /// All keys that a workload may touch, for the reading at the end of a run.
    pub fn keys(config: &WorkloadConfig) -> Vec<Vec<u8>> {
        let families = ['r', 'd', 'c', 'n', 't', 'u']
            .into_iter()
            .filter(|&family| config.mix.uses(family));
        families
            .flat_map(|family| (0..config.keys).map(move |number| key_name(family, number)))
            .collect()
    }

    /// One of these families, if it is in use.
    fn family(&mut self, families: &[char]) -> char {
        let mix = self.config.mix;
        let used = families.iter().filter(|&&family| mix.uses(family));
        let drawn = self.prng.below(used.clone().count() as u64) as usize;
        *used.clone().nth(drawn).expect("drawn among them")
    }

    fn key(&mut self, family: char) -> Vec<u8> {
        let hot = self.prng.chance(self.config.hot);
        let drawn = self.prng.below(self.config.keys);
        key_name(family, if hot { 0 } else { drawn })
    }

    /// A number that no other operation of this run writes, far from any that counting makes of another.
    fn number(&mut self) -> Vec<u8> {
        self.values_made += 1;
        let number = self.client * 1_000_000_000_000 + self.values_made * 1_000_000;
        number.to_string().into_bytes()
    }

    /// A value that no other operation of this run writes.
    fn value(&mut self) -> Vec<u8> {
        self.values_made += 1;
        // Without large values nothing is drawn for them, so an older seed's stream stays what it was.
        let is_large = !self.config.large.is_zero() && self.prng.chance(self.config.large);
        let bytes = match is_large {
            true => &self.config.large_bytes,
            false => &self.config.value_bytes,
        };
        let (least, most) = (*bytes.start(), *bytes.end());
        let length = self.prng.in_range(least as u64..=most as u64) as usize;
        let mut value = format!("{}.{}.", self.client, self.values_made).into_bytes();
        while value.len() < length {
            value.push(b'a' + (value.len() % 26) as u8);
        }
        value
    }
}

fn key_name(family: char, number: u64) -> Vec<u8> {
    format!("{family}{number}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn stream(seed: u64, client: u64, mix: Mix) -> Vec<Request> {
        let mut workload = Workload::new(
            WorkloadConfig {
                mix,
                ..WorkloadConfig::default()
            },
            seed,
            client,
        );
        (0..2_000).map(|_| workload.next_request()).collect()
    }

    #[test]
    fn the_seed_fixes_the_stream() {
        assert_eq!(stream(7, 1, Mix::FULL), stream(7, 1, Mix::FULL));
        assert_ne!(stream(7, 1, Mix::FULL), stream(8, 1, Mix::FULL));
        assert_ne!(stream(7, 1, Mix::FULL), stream(7, 2, Mix::FULL));
    }

    #[test]
    fn no_value_is_written_twice_by_any_client() {
        let mut seen = BTreeSet::new();
        for request in (0..4).flat_map(|client| stream(7, client, Mix::TIMED)) {
            if let Some(value) = request.action.written_value() {
                assert!(seen.insert(value.to_vec()), "{request:?}");
            }
        }
        assert!(seen.len() > 2_000);
    }

    /// Full packets flow only where values are longer than one.
    #[test]
    fn large_values_have_their_share_and_are_asked_for_by_name() {
        let lengths = |large| {
            let config = WorkloadConfig {
                large,
                ..WorkloadConfig::default()
            };
            let mut workload = Workload::new(config, 7, 1);
            let drawn = (0..2_000).filter_map(|_| {
                workload
                    .next_request()
                    .action
                    .written_value()
                    .map(<[u8]>::len)
            });
            drawn.collect::<Vec<_>>()
        };
        assert!(lengths(Ratio::ZERO).into_iter().all(|length| length <= 64));
        let mixed = lengths(Ratio::percent(10));
        let large = mixed.iter().filter(|&&length| length >= 1_024).count();
        assert!((40..200).contains(&large), "{large} of {}", mixed.len());
        assert!(mixed.into_iter().all(|length| length <= 48 << 10));
    }

    #[test]
    fn every_family_stays_within_its_actions() {
        for request in stream(3, 1, Mix::TIMED) {
            let allowed = match request.key[0] {
                b'r' => matches!(request.action, Action::Get | Action::Put { .. }),
                b'd' => matches!(
                    request.action,
                    Action::Get | Action::Put { .. } | Action::Delete
                ),
                b'c' => matches!(
                    request.action,
                    Action::Get | Action::Put { .. } | Action::Cas { .. }
                ),
                b't' => !matches!(request.action, Action::Incr { .. }),
                b'u' => matches!(
                    request.action,
                    Action::Get | Action::PutFor { .. } | Action::Incr { .. }
                ),
                _ => matches!(request.action, Action::Get | Action::Incr { .. }),
            };
            assert!(allowed, "{request:?}");
        }
    }

    #[test]
    fn the_basic_mix_asks_only_for_the_first_commands() {
        let asked = stream(3, 1, Mix::BASIC);
        let basic =
            |action: &Action| matches!(action, Action::Get | Action::Put { .. } | Action::Delete);
        assert!(asked.iter().all(|request| basic(&request.action)));
        assert!(asked.iter().any(|request| request.action == Action::Delete));
    }

    #[test]
    fn numbers_for_a_time_are_written_once_and_can_be_counted_on() {
        let is_number = |value: &[u8]| {
            let text = std::str::from_utf8(value).expect("digits");
            text.parse::<i64>()
                .is_ok_and(|number| number.to_string() == text)
        };
        let mut asked = 0;
        for request in stream(3, 1, Mix::TIMED) {
            if let (b'u', Action::PutFor { value, ttl_ns }) = (request.key[0], request.action) {
                assert!(is_number(&value) && (1..=TTL_NS_MAX).contains(&ttl_ns));
                asked += 1;
            }
        }
        assert!(asked > 50);
    }

    #[test]
    fn the_list_of_keys_covers_the_stream() {
        let config = WorkloadConfig {
            mix: Mix::TIMED,
            ..WorkloadConfig::default()
        };
        let keys: BTreeSet<_> = Workload::keys(&config).into_iter().collect();
        assert!(
            stream(5, 1, Mix::TIMED)
                .iter()
                .all(|request| keys.contains(&request.key))
        );
    }

    #[test]
    fn cas_expects_what_was_seen_last() {
        let config = WorkloadConfig {
            keys: 1,
            mix: Mix {
                get: 0,
                put: 0,
                delete: 0,
                cas: 1,
                incr: 0,
                put_for: 0,
            },
            ..WorkloadConfig::default()
        };
        let mut workload = Workload::new(config, 1, 1);
        let first = workload.next_request();
        assert!(matches!(first.action, Action::Cas { expected: None, .. }));
        workload.observe(&first, &Answer::Written { version: Some(9) });
        assert!(matches!(
            workload.next_request().action,
            Action::Cas {
                expected: Some(9),
                ..
            }
        ));
    }
}
