//! The counts of each kind of fault, in words.

use std::collections::BTreeMap;

use crate::fault::Fault;

/// Each fault with how often it fired; "none" for none.
pub(super) fn counted(faults: &BTreeMap<Fault, u64>) -> String {
    if faults.is_empty() {
        return "none".to_owned();
    }
    let each = faults
        .iter()
        .map(|(fault, fired)| format!("{fault} {fired}"));
    each.collect::<Vec<_>>().join(", ")
}
