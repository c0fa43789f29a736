//! The definition of linearizability, tried out on every order. It shares nothing with the model
//! that the checkers use.

use crate::history::{Action, Answer, Operation, Outcome};

type Item = Option<(Vec<u8>, Option<u64>)>;

/// Whether any subset of the unknown operations, with all answered ones, has a legal order.
pub(super) fn is_linearizable(operations: &[Operation]) -> bool {
    let open: Vec<&Operation> = operations
        .iter()
        .filter(|operation| operation.outcome != Outcome::Failed)
        .collect();
    let versions = Versions { operations };
    extend(&open, &mut vec![false; open.len()], &None, &versions)
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

    fn may_be(&self, item: &Item, wanted: Option<u64>) -> bool {
        match (item, wanted) {
            (None, None) => true,
            (Some((_, Some(version))), Some(wanted)) => *version == wanted,
            (Some((_, None)), Some(wanted)) => !self.is_told(wanted),
            _ => false,
        }
    }
}

fn extend(
    operations: &[&Operation],
    used: &mut Vec<bool>,
    item: &Item,
    versions: &Versions<'_>,
) -> bool {
    let left = |used: &[bool]| {
        (0..used.len())
            .filter(|&index| !used[index])
            .collect::<Vec<_>>()
    };
    if left(used)
        .iter()
        .all(|&index| operations[index].outcome == Outcome::Unknown)
    {
        return true;
    }
    for index in left(used) {
        let must_wait = left(used).iter().any(|&other| {
            operations[other]
                .return_ns
                .is_some_and(|return_ns| return_ns < operations[index].call_ns)
        });
        if must_wait {
            continue;
        }
        if let Some(after) = effect(operations[index], item, versions) {
            used[index] = true;
            if extend(operations, used, &after, versions) {
                return true;
            }
            used[index] = false;
        }
    }
    false
}

fn effect(operation: &Operation, item: &Item, versions: &Versions<'_>) -> Option<Item> {
    let Outcome::Known(answer) = &operation.outcome else {
        return unknown_effect(operation, item, versions);
    };
    match (&operation.action, answer) {
        (_, Answer::Refused) => Some(item.clone()),
        (_, Answer::NotFound) => item.is_none().then(|| item.clone()),
        (_, Answer::Value { value, version }) => {
            let (held, held_version) = item.as_ref()?;
            let agree = version.is_none() || held_version.is_none() || version == held_version;
            (held == value && agree).then(|| item.clone())
        }
        (Action::Put { value }, Answer::Written { version }) => {
            Some(Some((value.clone(), *version)))
        }
        (Action::Cas { expected, value }, Answer::Written { version }) => versions
            .may_be(item, *expected)
            .then(|| Some((value.clone(), *version))),
        (Action::Cas { expected, .. }, Answer::Mismatch { version }) => {
            (expected != version && versions.may_be(item, *version)).then(|| item.clone())
        }
        (_, Answer::Deleted { existed }) => (*existed == item.is_some()).then_some(None),
        (Action::Incr { by }, Answer::Number { value, version }) => {
            (number(item)?.checked_add(*by)? == *value)
                .then(|| Some((value.to_string().into_bytes(), *version)))
        }
        _ => None,
    }
}

fn unknown_effect(operation: &Operation, item: &Item, versions: &Versions<'_>) -> Option<Item> {
    match &operation.action {
        Action::Get => Some(item.clone()),
        Action::Put { value } => Some(Some((value.clone(), versions.of_value(value)))),
        Action::Delete => Some(None),
        Action::Cas { expected, value } => versions
            .may_be(item, *expected)
            .then(|| Some((value.clone(), versions.of_value(value)))),
        Action::Incr { by } => Some(Some((
            number(item)?.checked_add(*by)?.to_string().into_bytes(),
            None,
        ))),
    }
}

fn number(item: &Item) -> Option<i64> {
    match item {
        None => Some(0),
        Some((value, _)) => {
            let number: i64 = std::str::from_utf8(value).ok()?.parse().ok()?;
            (number.to_string().as_bytes() == value).then_some(number)
        }
    }
}
