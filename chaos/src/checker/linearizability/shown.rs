//! Which written values an answer seems to show. This orders choices, and proves nothing.

use crate::checker::model::{AppliedOperation, Content, KeyEffect};
use rustc_hash::FxHashSet;
use std::collections::BTreeSet;

/// The contents that an answer names, or counts on from. A number is counted on from the next lower one that was written.
pub(super) fn shown_contents(steps: &[AppliedOperation]) -> FxHashSet<Content> {
    let written: BTreeSet<i64> = steps
        .iter()
        .filter_map(|step| match step.kind {
            KeyEffect::Put { content, .. } | KeyEffect::Cas { content, .. } => Some(content),
            _ => None,
        })
        .filter_map(|content| match content {
            Content::Number(number) => Some(number),
            Content::Opaque(_) => None,
        })
        .collect();
    let base = |number| written.range(..=number).next_back().copied();
    let shown = |step: &AppliedOperation| match step.kind {
        KeyEffect::Read {
            found: Some((Content::Number(number), _)),
        } => base(number).map(Content::Number),
        KeyEffect::Read {
            found: Some((content, _)),
        } => Some(content),
        KeyEffect::Incr {
            by,
            result: Some((number, _)),
        } => base(number.saturating_sub(by)).map(Content::Number),
        _ => None,
    };
    steps.iter().filter_map(shown).collect()
}
