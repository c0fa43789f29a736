//! The order that the system itself claims, by the positions in its replies.
//!
//! The claim proves nothing by itself: the order counts only after it has been replayed against
//! the model and against real time. If it fails there, nothing is proved either way, because
//! another order may exist.

use super::shown::shown_contents;
use crate::checker::model::{AppliedOperation, Content, KeyEffect, KeyState};
use rustc_hash::FxHashSet;
use std::collections::{BTreeMap, HashSet, VecDeque};

/// Where the order of the positions fails, in terms of steps. This proves no violation.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    /// An answered operation told no position.
    NoPosition(usize),
    /// The operation cannot have answered as it did at its place.
    Model(usize),
    /// The operation comes after one that was called only after its return.
    RealTime(usize),
}

impl Doubt {
    pub(super) fn step(self) -> usize {
        match self {
            Doubt::NoPosition(step) | Doubt::Model(step) | Doubt::RealTime(step) => step,
        }
    }

    pub(super) fn explanation(self) -> &'static str {
        match self {
            Doubt::NoPosition(_) => "has no position",
            Doubt::Model(_) => "contradicts what stands before it in the order of positions",
            Doubt::RealTime(_) => {
                "has a position behind that of an operation called after its return"
            }
        }
    }
}

/// Verifies that the order of the positions is a linearization.
pub(super) fn check(steps: &[AppliedOperation]) -> Result<(), Doubt> {
    let (order, unplaced, mut floating) = claimed_order(steps)?;
    let order = with_unplaced(steps, order, unplaced, &mut floating)?;
    late_step(steps, &order).map_or(Ok(()), |index| Err(Doubt::RealTime(index)))
}

/// The order claimed, reads that claim no position, and what no answer has needed.
type Claim = (Vec<usize>, Vec<usize>, Floating);

/// Indexes of steps in the order claimed, replayed against the model.
fn claimed_order(steps: &[AppliedOperation]) -> Result<Claim, Doubt> {
    let mut unplaced = Vec::new();
    let mut placed = Vec::with_capacity(steps.len());
    let mut floating = Floating {
        shown: shown_contents(steps),
        ..Floating::default()
    };
    for (index, step) in steps.iter().enumerate() {
        if let KeyEffect::Expiry { of } = step.kind {
            floating.expiries.insert(of, index);
            continue;
        }
        // Legal anywhere between its call and its return. A page has its position for all keys, also for those that it does not
        // reach, and other reads of that position may have been called earlier and later.
        if step.kind == KeyEffect::Nothing {
            continue;
        }
        match step.position {
            Some(position) => placed.push((position, is_read(step), step.call_ns, index)),
            None if step.is_unknown() => floating.push(index),
            // A key that a walk did not tell was absent at some time. No position says when.
            None if is_read(step) => unplaced.push(index),
            None => return Err(Doubt::NoPosition(index)),
        }
    }
    placed.sort_unstable();
    let placed: Vec<usize> = placed.into_iter().map(|(.., index)| index).collect();
    let soonest_ns = soonest_returns(steps, &placed);
    let mut order = Vec::with_capacity(steps.len());
    let mut state = KeyState::Absent;
    for (index, until_ns) in placed.into_iter().zip(soonest_ns) {
        if let Some(expiry) = floating.overdue(steps, index, state) {
            order.push(expiry);
            state = KeyState::Absent;
        }
        state = match steps[index].apply(state) {
            Some(after) => after,
            None => {
                let found = floating.enable(steps, index, state, until_ns);
                let (helpers, after) = found.ok_or(Doubt::Model(index))?;
                order.extend(helpers);
                after
            }
        };
        order.push(index);
    }
    Ok((order, unplaced, floating))
}

/// The order with the reads of no position where they fit. The first one to be called comes first.
fn with_unplaced(
    steps: &[AppliedOperation],
    mut order: Vec<usize>,
    mut unplaced: Vec<usize>,
    floating: &mut Floating,
) -> Result<Vec<usize>, Doubt> {
    unplaced.sort_by_key(|&index| steps[index].call_ns);
    for index in unplaced {
        order = with_read(steps, &order, index, floating).ok_or(Doubt::NoPosition(index))?;
    }
    Ok(order)
}

/// The order with one more read: behind all that had returned before it was called, before all that was called after it
/// returned, and where the state is what it found. If there is no such place, the time of the item that is there may just have
/// ended, or a delete of unknown outcome has removed it.
fn with_read(
    steps: &[AppliedOperation],
    order: &[usize],
    read: usize,
    floating: &mut Floating,
) -> Option<Vec<usize>> {
    let step = &steps[read];
    let mut soonest_ns = soonest_returns(steps, order);
    soonest_ns.push(u64::MAX);
    let (mut state, mut latest_call_ns) = (KeyState::Absent, 0);
    let (mut ended, mut deleted) = (Vec::new(), Vec::new());
    for place in 0..=order.len() {
        if latest_call_ns > step.return_ns {
            break;
        }
        if soonest_ns[place] >= step.call_ns {
            let is_overdue = floating.overdue(steps, read, state).is_some();
            if !is_overdue && step.apply(state).is_some() {
                return Some([&order[..place], &[read], &order[place..]].concat());
            }
            let expiry = floating.expiry_of(state);
            ended.extend(expiry.map(|expiry| (place, expiry)));
            let delete = floating.first_delete(steps, soonest_ns[place]);
            deleted.extend(delete.map(|delete| (place, delete)));
        }
        let Some(&next) = order.get(place) else { break };
        state = steps[next].apply(state)?;
        latest_call_ns = latest_call_ns.max(steps[next].call_ns);
    }
    // It may stand further behind already.
    let without = |part: &[usize], helper| {
        part.iter()
            .copied()
            .filter(move |&step| step != helper)
            .collect()
    };
    let (order, helper) = ended
        .into_iter()
        .chain(deleted)
        .find_map(|(place, helper)| {
            let behind: Vec<usize> = without(&order[place..], helper);
            let order = [&order[..place], &[helper, read], &behind[..]].concat();
            is_order(steps, &order).then_some((order, helper))
        })?;
    floating.unused.retain(|&unused| unused != helper);
    Some(order)
}

/// Whether each step may answer as it did, and real time holds.
fn is_order(steps: &[AppliedOperation], order: &[usize]) -> bool {
    let mut state = Some(KeyState::Absent);
    for &index in order {
        state = state.and_then(|state| steps[index].apply(state));
    }
    state.is_some() && late_step(steps, order).is_none()
}

/// The first step that had returned before one in front of it was called.
fn late_step(steps: &[AppliedOperation], order: &[usize]) -> Option<usize> {
    let mut latest_call_ns = 0;
    order.iter().copied().find(|&index| {
        latest_call_ns = latest_call_ns.max(steps[index].call_ns);
        steps[index].return_ns < latest_call_ns
    })
}

/// For each place in the order the first return there or behind it: an operation that is put in front of the place must
/// have been called by then.
fn soonest_returns(steps: &[AppliedOperation], placed: &[usize]) -> Vec<u64> {
    let mut soonest: Vec<u64> = placed
        .iter()
        .rev()
        .scan(u64::MAX, |first, &index| {
            *first = steps[index].return_ns.min(*first);
            Some(*first)
        })
        .collect();
    soonest.reverse();
    soonest
}

/// A read at position p saw what the write at position p left.
fn is_read(step: &AppliedOperation) -> bool {
    matches!(step.kind, KeyEffect::Read { .. })
}

/// Most unknown operations that are tried in front of one answer, and most combinations of them.
const HELPERS_MAX: usize = 24;
const COMBINATIONS_MAX: usize = 4_000;

/// Operations of unknown outcome that no answer has shown to have taken effect, by call. Some are put into the order
/// when nothing else explains an answer, as late as possible: real time only demands that they come after their call.
/// Of several that do the same, the one called first is always the best choice. Writes whose values no answer shows come
/// first: a later answer may need the others.
///
/// The same holds for expiries, which have no position either. The expiry of the present item comes at the latest
/// before an operation that was called after its last moment.
#[derive(Default)]
struct Floating {
    unused: Vec<usize>,
    /// By the step whose item they end.
    expiries: BTreeMap<u32, usize>,
    shown: FxHashSet<Content>,
}

impl Floating {
    fn push(&mut self, index: usize) {
        self.unused.push(index);
    }

    /// The expiry that must have come before step `index`, if any must.
    fn overdue(&self, steps: &[AppliedOperation], index: usize, state: KeyState) -> Option<usize> {
        let expiry = self.expiry_of(state)?;
        steps[expiry].precedes(&steps[index]).then_some(expiry)
    }

    fn expiry_of(&self, state: KeyState) -> Option<usize> {
        self.expiries.get(&state.mortal()?).copied()
    }

    /// The delete that was called first, if it was called by `until_ns`.
    fn first_delete(&self, steps: &[AppliedOperation], until_ns: u64) -> Option<usize> {
        let is_delete = |index: &usize| matches!(steps[*index].kind, KeyEffect::Delete { .. });
        let first = self.unused.iter().copied().find(is_delete);
        first.filter(|&delete| steps[delete].call_ns <= until_ns)
    }

    /// Operations after which step `index` may answer as it did, as few as possible, and the state
    /// after all of them. They were called by `until_ns`.
    fn enable(
        &mut self,
        steps: &[AppliedOperation],
        index: usize,
        state: KeyState,
        until_ns: u64,
    ) -> Option<(Vec<usize>, KeyState)> {
        let mut seen = HashSet::from([state]);
        let mut ways = VecDeque::from([(state, Vec::new())]);
        while let Some((state, helpers)) = ways.pop_front() {
            if helpers.len() >= HELPERS_MAX || seen.len() >= COMBINATIONS_MAX {
                return None;
            }
            for helper in self.choices(steps, until_ns, &helpers, state) {
                let Some(between) = steps[helper].apply(state) else {
                    continue;
                };
                let mut extended = helpers.clone();
                extended.push(helper);
                if let Some(after) = steps[index].apply(between) {
                    self.unused.retain(|unused| !extended.contains(unused));
                    return Some((extended, after));
                }
                if seen.insert(between) {
                    ways.push_back((between, extended));
                }
            }
        }
        None
    }

    /// Candidates for the next place: the first unused operation of each kind that is not among `taken`, and the end of
    /// the item that is there. An operation that was called only after `until_ns` cannot explain an answer that was
    /// there by then.
    fn choices(
        &self,
        steps: &[AppliedOperation],
        until_ns: u64,
        taken: &[usize],
        state: KeyState,
    ) -> Vec<usize> {
        let mut kinds = HashSet::new();
        let free = self
            .unused
            .iter()
            .copied()
            .filter(|index| !taken.contains(index));
        let first = free.filter(|&helper| kinds.insert(steps[helper].kind));
        let choices = self.expiry_of(state).into_iter().chain(first);
        let is_overdue = |helper| {
            let overdue = self.overdue(steps, helper, state);
            overdue.is_some_and(|expiry| expiry != helper)
        };
        let mut choices: Vec<usize> = choices
            .filter(|&helper| steps[helper].call_ns <= until_ns && !is_overdue(helper))
            .collect();
        choices.sort_by_key(|&helper| !self.is_never_shown(&steps[helper]));
        choices
    }

    fn is_never_shown(&self, step: &AppliedOperation) -> bool {
        match step.kind {
            KeyEffect::Put { content, .. } | KeyEffect::Cas { content, .. } => {
                !self.shown.contains(&content)
            }
            _ => false,
        }
    }
}
