//! The sequential model of one key: what each operation may answer in each state.

use super::group_time::GroupTime;
use crate::history::{Action, Answer, Operation, Outcome};
use rustc_hash::{FxHashMap, FxHashSet};

/// Bytes of a value, interned; canonical decimal numbers are kept as numbers, for INCR.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Content {
    Number(i64),
    Opaque(u32),
}

/// Version of an item, if it is known.
pub(crate) type Version = Option<u64>;

/// The state of one key.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum KeyState {
    Absent,
    /// The version is `None` only if the item was written by an operation of unknown outcome (or
    /// by a client that was not told versions) and no read told it either.
    Present {
        content: Content,
        version: Version,
        /// The step that wrote it for a time only. CAS and INCR change the item, and do not change
        /// its time.
        mortal: Option<u32>,
    },
}

impl KeyState {
    /// The step whose expiry ends this state.
    pub(crate) fn mortal(self) -> Option<u32> {
        match self {
            KeyState::Absent => None,
            KeyState::Present { mortal, .. } => mortal,
        }
    }
}

/// The effect of an operation on its key, digested once before a check.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum KeyEffect {
    Read {
        found: Option<(Content, Version)>,
    },
    Put {
        content: Content,
        version: Version,
        /// This very step, if it writes for a time only.
        mortal: Option<u32>,
    },
    /// The time of the item that step `of` wrote is over. No client asked for it: the group owes it.
    Expiry {
        of: u32,
    },
    /// `existed` is `None` if the outcome is unknown, or the key was one of a range or of a flush.
    Delete {
        existed: Option<bool>,
    },
    Cas {
        expected: Version,
        expected_is_known: bool,
        content: Content,
        version: Version,
    },
    CasMismatch {
        expected: Version,
        met: Version,
        met_is_known: bool,
    },
    Incr {
        by: i64,
        result: Option<(i64, Version)>,
    },
    /// Refused by the state machine: legal anywhere.
    Nothing,
    /// Answered with a response that the action never has: legal nowhere.
    Impossible,
}

/// One operation of one key that may have taken effect.
#[derive(Copy, Clone, Debug)]
pub(crate) struct AppliedOperation {
    /// Index in the list of operations the steps were made of.
    pub(crate) operation: usize,
    /// Times are one nanosecond later than recorded, so that zero precedes all of them.
    pub(crate) call_ns: u64,
    /// `u64::MAX` if the outcome is unknown: it may take effect at any time after its call.
    pub(crate) return_ns: u64,
    pub(crate) position: Option<u64>,
    pub(crate) kind: KeyEffect,
}

impl AppliedOperation {
    /// Whether the operation may have had no effect at all.
    pub(crate) fn is_unknown(&self) -> bool {
        self.return_ns == u64::MAX
    }

    /// Whether this one must come before the other in every legal order.
    pub(crate) fn precedes(&self, other: &AppliedOperation) -> bool {
        self.return_ns < other.call_ns
    }

    /// The state after this operation, if it may answer in `state` as it did.
    pub(crate) fn apply(&self, state: KeyState) -> Option<KeyState> {
        match self.kind {
            KeyEffect::Nothing => Some(state),
            KeyEffect::Impossible => None,
            KeyEffect::Read { found } => matches_read(state, found).then_some(state),
            KeyEffect::Put {
                content,
                version,
                mortal,
            } => Some(KeyState::Present {
                content,
                version,
                mortal,
            }),
            KeyEffect::Expiry { of } => (state.mortal() == Some(of)).then_some(KeyState::Absent),
            KeyEffect::Delete { existed } => {
                let present = state != KeyState::Absent;
                (existed.is_none_or(|existed| existed == present)).then_some(KeyState::Absent)
            }
            KeyEffect::Cas {
                expected,
                expected_is_known,
                content,
                version,
            } => {
                may_have_version(state, expected, expected_is_known).then_some(KeyState::Present {
                    content,
                    version,
                    mortal: state.mortal(),
                })
            }
            KeyEffect::CasMismatch {
                expected,
                met,
                met_is_known,
            } => (expected != met && may_have_version(state, met, met_is_known)).then_some(state),
            KeyEffect::Incr { by, result } => apply_incr(state, by, result),
        }
    }
}

fn matches_read(state: KeyState, found: Option<(Content, Version)>) -> bool {
    match (state, found) {
        (KeyState::Absent, None) => true,
        (
            KeyState::Present {
                content, version, ..
            },
            Some((read, told)),
        ) => content == read && agree(version, told),
        _ => false,
    }
}

fn agree(one: Version, two: Version) -> bool {
    one.is_none() || two.is_none() || one == two
}

/// Whether the state may be of version `wanted` (`None`: absent). An item whose version no client
/// was told cannot be of a version that belongs to some other item.
fn may_have_version(state: KeyState, wanted: Version, wanted_is_known: bool) -> bool {
    match (state, wanted) {
        (KeyState::Absent, None) => true,
        (
            KeyState::Present {
                version: Some(version),
                ..
            },
            Some(wanted),
        ) => version == wanted,
        (KeyState::Present { version: None, .. }, Some(_)) => !wanted_is_known,
        _ => false,
    }
}

fn apply_incr(state: KeyState, by: i64, result: Option<(i64, Version)>) -> Option<KeyState> {
    let before = match state {
        KeyState::Absent => 0,
        KeyState::Present {
            content: Content::Number(number),
            ..
        } => number,
        KeyState::Present {
            content: Content::Opaque(_),
            ..
        } => return None,
    };
    let after = before.checked_add(by)?;
    let version = match result {
        Some((told, _)) if told != after => return None,
        Some((_, version)) => version,
        None => None,
    };
    Some(KeyState::Present {
        content: Content::Number(after),
        version,
        mortal: state.mortal(),
    })
}

/// The operations of one key as steps, in the order given. Operations that cannot matter are left
/// out: failed ones, and reads without an answer. After them comes a step for each item that was
/// written for a time: its end.
pub(crate) fn steps_of(operations: &[&Operation], time: &GroupTime) -> Vec<AppliedOperation> {
    let mut digest = Digest::new(operations);
    let mut steps = Vec::with_capacity(operations.len());
    for (index, operation) in operations.iter().enumerate() {
        let Some(mut kind) = digest.kind(operation) else {
            continue;
        };
        if let (KeyEffect::Put { mortal, .. }, Action::PutFor { .. }) =
            (&mut kind, &operation.action)
        {
            *mortal =
                Some(u32::try_from(steps.len()).expect("fewer than 2^32 operations in memory"));
        }
        let learned = digest.version_learned(operation);
        steps.push(AppliedOperation {
            operation: index,
            call_ns: operation.call_ns.saturating_add(1),
            return_ns: operation.return_ns.map_or(u64::MAX, |return_ns| {
                return_ns.saturating_add(1).min(u64::MAX - 1)
            }),
            position: operation.position.or(learned),
            kind,
        });
    }
    let ends: Vec<AppliedOperation> = steps
        .iter()
        .filter_map(|step| digest.end_of(step, operations[step.operation], time))
        .collect();
    steps.extend(ends);
    steps
}

/// The values and versions that the operations of a key tell.
struct Digest {
    contents: FxHashMap<Vec<u8>, u32>,
    /// Versions that some answer names, with an item.
    known_versions: FxHashSet<u64>,
    /// Versions of values that exactly one operation wrote, as reads told them.
    version_of_value: FxHashMap<Vec<u8>, u64>,
    /// When a read first returned a value that exactly one operation wrote and counting cannot make.
    first_seen_ns: FxHashMap<Vec<u8>, u64>,
}

impl Digest {
    fn new(operations: &[&Operation]) -> Self {
        let mut writers: FxHashMap<&[u8], u32> = FxHashMap::default();
        for value in operations
            .iter()
            .filter_map(|operation| operation.action.written_value())
        {
            *writers.entry(value).or_default() += 1;
        }
        let mut digest = Self {
            contents: FxHashMap::default(),
            known_versions: FxHashSet::default(),
            version_of_value: FxHashMap::default(),
            first_seen_ns: FxHashMap::default(),
        };
        for operation in operations {
            digest.note_sight(operation, &writers);
            match operation.answer() {
                Some(Answer::Value {
                    value,
                    version: Some(version),
                }) => {
                    digest.known_versions.insert(*version);
                    if writers.get(value.as_slice()) == Some(&1) {
                        digest.note_version(value, *version);
                    }
                }
                Some(
                    Answer::Written {
                        version: Some(version),
                    }
                    | Answer::Number {
                        version: Some(version),
                        ..
                    },
                ) => {
                    digest.known_versions.insert(*version);
                }
                _ => {}
            }
        }
        digest
    }

    /// The first one told counts.
    fn note_version(&mut self, value: &[u8], version: u64) {
        if !self.version_of_value.contains_key(value) {
            self.version_of_value.insert(value.to_vec(), version);
        }
    }

    fn note_sight(&mut self, operation: &Operation, writers: &FxHashMap<&[u8], u32>) {
        let (Some(Answer::Value { value, .. }), Some(return_ns)) =
            (operation.answer(), operation.return_ns)
        else {
            return;
        };
        if writers.get(value.as_slice()) == Some(&1) && canonical_number(value).is_none() {
            match self.first_seen_ns.get_mut(value) {
                Some(first) => *first = return_ns.min(*first),
                None => drop(self.first_seen_ns.insert(value.clone(), return_ns)),
            }
        }
    }

    /// The end of the item that this step wrote for a time. It may have no effect: something else
    /// may have removed the item before.
    fn end_of(
        &self,
        step: &AppliedOperation,
        operation: &Operation,
        time: &GroupTime,
    ) -> Option<AppliedOperation> {
        let Action::PutFor { value, ttl_ns } = &operation.action else {
            return None;
        };
        let KeyEffect::Put {
            mortal: Some(of), ..
        } = step.kind
        else {
            return None;
        };
        let seen_ns = [operation.return_ns, self.first_seen_ns.get(value).copied()];
        let seen_ns = seen_ns.into_iter().flatten().min();
        let latest_ns = seen_ns.and_then(|seen_ns| time.latest(seen_ns, *ttl_ns));
        Some(AppliedOperation {
            operation: step.operation,
            call_ns: time.earliest(operation.call_ns, *ttl_ns).saturating_add(1),
            return_ns: latest_ns.map_or(u64::MAX, |latest_ns| {
                latest_ns.saturating_add(1).min(u64::MAX - 1)
            }),
            position: None,
            kind: KeyEffect::Expiry { of },
        })
    }

    fn content(&mut self, value: &[u8]) -> Content {
        if let Some(number) = canonical_number(value) {
            return Content::Number(number);
        }
        if let Some(&known) = self.contents.get(value) {
            return Content::Opaque(known);
        }
        let next =
            u32::try_from(self.contents.len()).expect("fewer than 2^32 operations in memory");
        self.contents.insert(value.to_vec(), next);
        Content::Opaque(next)
    }

    /// The version of an item whose writer was not told it, if a read was.
    fn version_learned(&self, operation: &Operation) -> Version {
        if operation.outcome != Outcome::Unknown {
            return None;
        }
        self.version_of_value
            .get(operation.action.written_value()?)
            .copied()
    }

    fn kind(&mut self, operation: &Operation) -> Option<KeyEffect> {
        let answer = match &operation.outcome {
            Outcome::Failed => return None,
            Outcome::Unknown => return self.unknown_kind(operation),
            Outcome::Known(answer) => answer,
        };
        Some(match (&operation.action, answer) {
            (_, Answer::Refused) => KeyEffect::Nothing,
            (Action::Get, Answer::NotFound) => KeyEffect::Read { found: None },
            (Action::Get, Answer::Value { value, version }) => KeyEffect::Read {
                found: Some((self.content(value), *version)),
            },
            (Action::Put { value } | Action::PutFor { value, .. }, Answer::Written { version }) => {
                KeyEffect::Put {
                    content: self.content(value),
                    version: *version,
                    mortal: None,
                }
            }
            (Action::Delete, Answer::Deleted { existed }) => KeyEffect::Delete {
                existed: Some(*existed),
            },
            (Action::Delete, Answer::RangeDeleted) => KeyEffect::Delete { existed: None },
            (Action::Flush, Answer::Flushed) => KeyEffect::Delete { existed: None },
            (Action::Cas { expected, value }, Answer::Written { version }) => KeyEffect::Cas {
                expected: *expected,
                expected_is_known: self.is_known(*expected),
                content: self.content(value),
                version: *version,
            },
            (Action::Cas { expected, .. }, Answer::Mismatch { version }) => {
                KeyEffect::CasMismatch {
                    expected: *expected,
                    met: *version,
                    met_is_known: self.is_known(*version),
                }
            }
            (Action::Incr { by }, Answer::Number { value, version }) => KeyEffect::Incr {
                by: *by,
                result: Some((*value, *version)),
            },
            _ => KeyEffect::Impossible,
        })
    }

    fn unknown_kind(&mut self, operation: &Operation) -> Option<KeyEffect> {
        let version = self.version_learned(operation);
        Some(match &operation.action {
            Action::Get => return None,
            Action::Put { value } | Action::PutFor { value, .. } => KeyEffect::Put {
                content: self.content(value),
                version,
                mortal: None,
            },
            Action::Delete | Action::Flush => KeyEffect::Delete { existed: None },
            Action::Cas { expected, value } => KeyEffect::Cas {
                expected: *expected,
                expected_is_known: self.is_known(*expected),
                content: self.content(value),
                version,
            },
            Action::Incr { by } => KeyEffect::Incr {
                by: *by,
                result: None,
            },
        })
    }

    fn is_known(&self, version: Version) -> bool {
        version.is_some_and(|version| self.known_versions.contains(&version))
    }
}

fn canonical_number(value: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(value).ok()?;
    let number: i64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}
