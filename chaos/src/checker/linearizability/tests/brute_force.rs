//! The definition of linearizability, tried out on every order. It shares nothing with the model
//! that the checkers use.
//!
//! An item that is written for a time brings a happening of its own, its end, which has its place in the order too. It
//! comes after the write, not before the earliest moment and not after the latest.

use crate::history::{Action, Answer, Operation, Outcome};

/// Value, version, and the operation that wrote it for a time.
type Item = Option<(Vec<u8>, Option<u64>, Option<usize>)>;

/// A happening with a place in the order.
struct Happening<'a> {
    /// The operation that brings it.
    operation: &'a Operation,
    of: usize,
    is_end: bool,
    call_ns: u64,
    return_ns: Option<u64>,
}

/// Whether any subset of the unknown operations, with all answered ones, has a legal order. If `late_ns` is given, an
/// item that is written for a time ends at the latest that long after its time.
pub(super) fn is_linearizable(operations: &[Operation], late_ns: Option<u64>) -> bool {
    let versions = Versions { operations };
    let mut happenings = Vec::new();
    for (of, operation) in operations.iter().enumerate() {
        if operation.outcome == Outcome::Failed {
            continue;
        }
        happenings.push(Happening {
            operation,
            of,
            is_end: false,
            call_ns: operation.call_ns,
            return_ns: operation.return_ns,
        });
        if let Action::PutFor { value, ttl_ns } = &operation.action {
            let seen_ns = versions.first_sight_of(value).into_iter();
            let seen_ns = seen_ns.chain(operation.return_ns).min();
            let latest = |late_ns: u64| Some(seen_ns? + ttl_ns + late_ns);
            happenings.push(Happening {
                operation,
                of,
                is_end: true,
                call_ns: operation.call_ns + ttl_ns,
                return_ns: late_ns.and_then(latest),
            });
        }
    }
    extend(
        &happenings,
        &mut vec![false; happenings.len()],
        &None,
        &versions,
    )
}

struct Versions<'a> {
    operations: &'a [Operation],
}

impl Versions<'_> {
    /// Whether some answer ties this version to an item.
    fn is_told(&self, wanted: u64) -> bool {
        self.operations.iter().any(|operation| {
            matches!(
                operation.answer(),
                Some(Answer::Value { version: Some(version), .. }
                    | Answer::Written { version: Some(version) }
                    | Answer::Number { version: Some(version), .. }) if *version == wanted
            )
        })
    }

    /// The version that reads told of a value that one operation wrote.
    fn of_value(&self, wanted: &[u8]) -> Option<u64> {
        let writers = self
            .operations
            .iter()
            .filter(|operation| operation.action.written_value() == Some(wanted));
        if writers.count() != 1 {
            return None;
        }
        self.operations
            .iter()
            .find_map(|operation| match operation.answer() {
                Some(Answer::Value {
                    value,
                    version: Some(version),
                }) if value == wanted => Some(*version),
                _ => None,
            })
    }

    /// When a read first returned a value that one operation wrote.
    fn first_sight_of(&self, wanted: &[u8]) -> Option<u64> {
        let sights = self.operations.iter().filter(|operation| {
            matches!(operation.answer(), Some(Answer::Value { value, .. }) if value == wanted)
        });
        sights.filter_map(|operation| operation.return_ns).min()
    }

    fn may_be(&self, item: &Item, wanted: Option<u64>) -> bool {
        match (item, wanted) {
            (None, None) => true,
            (Some((_, Some(version), _)), Some(wanted)) => *version == wanted,
            (Some((_, None, _)), Some(wanted)) => !self.is_told(wanted),
            _ => false,
        }
    }
}

fn extend(
    happenings: &[Happening<'_>],
    used: &mut Vec<bool>,
    item: &Item,
    versions: &Versions<'_>,
) -> bool {
    let left: Vec<usize> = (0..used.len()).filter(|&index| !used[index]).collect();
    let needs_no_place = |&index: &usize| {
        let happening: &Happening<'_> = &happenings[index];
        happening.is_end || happening.operation.outcome == Outcome::Unknown
    };
    if left.iter().all(needs_no_place) {
        return true;
    }
    for &index in &left {
        let must_wait = left.iter().any(|&other| {
            happenings[other]
                .return_ns
                .is_some_and(|return_ns| return_ns < happenings[index].call_ns)
        });
        if must_wait {
            continue;
        }
        let happening = &happenings[index];
        let after = if happening.is_end {
            let write_waits = left
                .iter()
                .any(|&other| happenings[other].of == happening.of && !happenings[other].is_end);
            let ends = item
                .as_ref()
                .is_some_and(|item| item.2 == Some(happening.of));
            (!write_waits).then(|| if ends { None } else { item.clone() })
        } else {
            effect(happening.operation, happening.of, item, versions)
        };
        if let Some(after) = after {
            used[index] = true;
            if extend(happenings, used, &after, versions) {
                return true;
            }
            used[index] = false;
        }
    }
    false
}

fn effect(operation: &Operation, of: usize, item: &Item, versions: &Versions<'_>) -> Option<Item> {
    let time_left = item.as_ref().and_then(|item| item.2);
    let Outcome::Known(answer) = &operation.outcome else {
        return unknown_effect(operation, of, item, versions);
    };
    match (&operation.action, answer) {
        (_, Answer::Refused) => Some(item.clone()),
        (_, Answer::NotFound) => item.is_none().then(|| item.clone()),
        (_, Answer::Value { value, version }) => {
            let (held, held_version, _) = item.as_ref()?;
            let agree = version.is_none() || held_version.is_none() || version == held_version;
            (held == value && agree).then(|| item.clone())
        }
        (Action::Put { value }, Answer::Written { version }) => {
            Some(Some((value.clone(), *version, None)))
        }
        (Action::PutFor { value, .. }, Answer::Written { version }) => {
            Some(Some((value.clone(), *version, Some(of))))
        }
        (Action::Cas { expected, value }, Answer::Written { version }) => versions
            .may_be(item, *expected)
            .then(|| Some((value.clone(), *version, time_left))),
        (Action::Cas { expected, .. }, Answer::Mismatch { version }) => {
            (expected != version && versions.may_be(item, *version)).then(|| item.clone())
        }
        (Action::Flush, Answer::Flushed) => Some(None),
        (_, Answer::Deleted { existed }) => (*existed == item.is_some()).then_some(None),
        (Action::Incr { by }, Answer::Number { value, version }) => {
            (number(item)?.checked_add(*by)? == *value)
                .then(|| Some((value.to_string().into_bytes(), *version, time_left)))
        }
        _ => None,
    }
}

fn unknown_effect(
    operation: &Operation,
    of: usize,
    item: &Item,
    versions: &Versions<'_>,
) -> Option<Item> {
    let time_left = item.as_ref().and_then(|item| item.2);
    match &operation.action {
        Action::Get => Some(item.clone()),
        Action::Put { value } => Some(Some((value.clone(), versions.of_value(value), None))),
        Action::PutFor { value, .. } => {
            Some(Some((value.clone(), versions.of_value(value), Some(of))))
        }
        Action::Delete | Action::Flush => Some(None),
        Action::Cas { expected, value } => versions
            .may_be(item, *expected)
            .then(|| Some((value.clone(), versions.of_value(value), time_left))),
        Action::Incr { by } => Some(Some((
            number(item)?.checked_add(*by)?.to_string().into_bytes(),
            None,
            time_left,
        ))),
    }
}

fn number(item: &Item) -> Option<i64> {
    match item {
        None => Some(0),
        Some((value, ..)) => {
            let number: i64 = std::str::from_utf8(value).ok()?.parse().ok()?;
            (number.to_string().as_bytes() == value).then_some(number)
        }
    }
}
