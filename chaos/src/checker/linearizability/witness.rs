//! The order that the system itself claims, by the positions in its replies.
//!
//! The claim proves nothing by itself: the order counts only after it has been replayed against
//! the model and against real time. If it fails there, nothing is proved either way, because
//! another order may exist.

use crate::checker::model::{Kind, State, Step};

/// Whether the order of the positions is a linearization.
pub(super) fn proves(steps: &[Step]) -> bool {
    claimed_order(steps).is_some_and(|order| respects_real_time(steps, &order))
}

/// Indexes of steps in the order claimed, replayed against the model; `None` where an answered
/// operation has no position, or the model contradicts the claim.
fn claimed_order(steps: &[Step]) -> Option<Vec<usize>> {
    let mut placed = Vec::with_capacity(steps.len());
    let mut floating = Floating::default();
    for (index, step) in steps.iter().enumerate() {
        match step.position {
            Some(position) => placed.push((position, is_read(step), step.call_ns, index)),
            None if step.is_unknown() => floating.push(index),
            None => return None,
        }
    }
    placed.sort_unstable();
    let mut order = Vec::with_capacity(steps.len());
    let mut state = State::Absent;
    for (_, _, _, index) in placed {
        state = match steps[index].apply(state) {
            Some(after) => after,
            None => {
                let (helper, after) = floating.enable(steps, index, state)?;
                order.push(helper);
                after
            }
        };
        order.push(index);
    }
    Some(order)
}

/// A read at position p saw what the write at position p left.
fn is_read(step: &Step) -> bool {
    matches!(step.kind, Kind::Read { .. })
}

/// Operations of unknown outcome that no answer has shown to have taken effect, by call. One is
/// put into the order when nothing else explains an answer, as late as possible: its only duty
/// towards real time is to come after its call.
#[derive(Default)]
struct Floating {
    unused: Vec<usize>,
}

impl Floating {
    fn push(&mut self, index: usize) {
        self.unused.push(index);
    }

    /// An operation after which step `index` may answer as it did, and the state after both.
    fn enable(&mut self, steps: &[Step], index: usize, state: State) -> Option<(usize, State)> {
        let (place, after) = self
            .unused
            .iter()
            .enumerate()
            .find_map(|(place, &helper)| {
                let between = steps[helper].apply(state)?;
                Some((place, steps[index].apply(between)?))
            })?;
        Some((self.unused.remove(place), after))
    }
}

fn respects_real_time(steps: &[Step], order: &[usize]) -> bool {
    let mut latest_call_ns = 0;
    order.iter().all(|&index| {
        let step = &steps[index];
        latest_call_ns = latest_call_ns.max(step.call_ns);
        step.return_ns >= latest_call_ns
    })
}
