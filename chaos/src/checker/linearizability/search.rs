//! The search of Wing and Gong ("Testing and verifying concurrent objects", 1993) in the
//! just-in-time form of Lowe ("Testing for linearizability", 2017).
//!
//! Calls and returns are walked in the order of time. An operation is put into the order only when
//! its own return comes up, or when it is needed in front of one whose return comes up. So the
//! memory does not grow with the history, only with the operations that are open at one moment. An
//! answered operation that only observes and fits the current state is put into the order
//! immediately: nothing can be gained by waiting.
//!
//! Configurations that failed are remembered. At the limit of steps the answer is "undecided".

use super::Evidence;
use crate::checker::model::{AppliedOperation, KeyEffect, KeyState};
use std::collections::HashSet;

#[derive(Debug)]
pub(super) enum Finding {
    Linearizable,
    Violation(Evidence),
    Undecided,
}

pub(super) fn check(steps: &[AppliedOperation], limit: u64) -> Finding {
    let mut search = Search::new(steps, limit);
    let start = Configuration {
        event: 0,
        state: KeyState::Absent,
        pending: Vec::new(),
        ordered: Vec::new(),
    };
    let mut frames: Vec<Frame> = Vec::new();
    let mut next = Some(start);
    loop {
        if let Some(mut configuration) = next.take() {
            let Some(returning) = search.walk(&mut configuration) else {
                return if search.spent() {
                    Finding::Undecided
                } else {
                    Finding::Linearizable
                };
            };
            if search.seen.insert(configuration.key()) {
                let candidates = search.candidates(&configuration, returning);
                search.note_progress(&configuration, returning);
                frames.push(Frame {
                    configuration,
                    candidates,
                });
            }
        }
        if search.spent() {
            return Finding::Undecided;
        }
        let Some(frame) = frames.last_mut() else {
            return Finding::Violation(search.evidence());
        };
        match frame.candidates.pop() {
            Some(candidate) => next = search.order(&frame.configuration, candidate),
            None => {
                frames.pop();
            }
        }
    }
}

#[derive(Copy, Clone)]
enum Event {
    Call(u32),
    Return(u32),
}

/// The state of a partial order. Both lists are sorted.
#[derive(Clone)]
struct Configuration {
    /// The next event to examine.
    event: usize,
    state: KeyState,
    /// Called, and not in the order yet.
    pending: Vec<u32>,
    /// In the order, and not returned yet.
    ordered: Vec<u32>,
}

impl Configuration {
    /// The ordered operations follow from the pending ones and the place among the events.
    fn key(&self) -> (usize, KeyState, Vec<u32>) {
        (self.event, self.state, self.pending.clone())
    }
}

/// A choice: the configuration and the candidates for the next place, best last.
struct Frame {
    configuration: Configuration,
    candidates: Vec<u32>,
}

struct Search<'a> {
    steps: &'a [AppliedOperation],
    events: Vec<Event>,
    seen: HashSet<(usize, KeyState, Vec<u32>)>,
    steps_left: u64,
    /// The configuration that came furthest: event, returning operation, open operations.
    furthest: (usize, Vec<u32>),
}

impl<'a> Search<'a> {
    fn new(steps: &'a [AppliedOperation], limit: u64) -> Self {
        let unobserved = unobserved_writes(steps);
        let mut events = Vec::with_capacity(steps.len() * 2);
        for (index, step) in steps.iter().enumerate() {
            if unobserved.contains(&index) {
                continue;
            }
            let id = u32::try_from(index).expect("fewer than 2^32 operations in memory");
            // At equal times calls come first: the operations are concurrent.
            events.push((step.call_ns, 0, Event::Call(id)));
            if !step.is_unknown() {
                events.push((step.return_ns, 1, Event::Return(id)));
            }
        }
        events.sort_by_key(|&(time, side, _)| (time, side));
        let events = events.into_iter().map(|(_, _, event)| event).collect();
        Self {
            steps,
            events,
            seen: HashSet::new(),
            steps_left: limit,
            furthest: (0, Vec::new()),
        }
    }

    fn spent(&self) -> bool {
        self.steps_left == 0
    }

    fn step(&self, id: u32) -> &AppliedOperation {
        &self.steps[id as usize]
    }

    /// Walks to the next return of an operation that is not in the order yet; `None` at the end
    /// of the history, or of the steps.
    fn walk(&mut self, configuration: &mut Configuration) -> Option<u32> {
        while let Some(&event) = self.events.get(configuration.event) {
            if self.spent() {
                return None;
            }
            self.steps_left -= 1;
            match event {
                Event::Call(id)
                    if self.is_spent(id, configuration) && self.step(id).is_unknown() => {}
                Event::Call(id) => {
                    let absorbed = self.only_observes(id, configuration.state)
                        || self.is_spent(id, configuration);
                    insert(
                        if absorbed {
                            &mut configuration.ordered
                        } else {
                            &mut configuration.pending
                        },
                        id,
                    );
                }
                Event::Return(id) => match configuration.ordered.binary_search(&id) {
                    Ok(place) => {
                        configuration.ordered.remove(place);
                    }
                    Err(_) => return Some(id),
                },
            }
            configuration.event += 1;
        }
        None
    }

    /// Whether this is the expiry of an item that is no longer there, and will not be again: it has
    /// no effect left.
    fn is_spent(&self, id: u32, configuration: &Configuration) -> bool {
        let KeyEffect::Expiry { of } = self.step(id).kind else {
            return false;
        };
        let written = configuration.pending.binary_search(&of).is_err();
        written && configuration.state.mortal() != Some(of)
    }

    /// Whether the operation fits the state and would change no state that it fits. (An INCR by
    /// zero is not of this kind: elsewhere it creates the item.)
    fn only_observes(&self, id: u32, state: KeyState) -> bool {
        let step = self.step(id);
        let observer = match step.kind {
            KeyEffect::Read { .. }
            | KeyEffect::CasMismatch { .. }
            | KeyEffect::Nothing
            | KeyEffect::Impossible
            | KeyEffect::Delete {
                existed: Some(false),
            } => true,
            KeyEffect::Put { .. }
            | KeyEffect::Expiry { .. }
            | KeyEffect::Delete { .. }
            | KeyEffect::Cas { .. }
            | KeyEffect::Incr { .. } => false,
        };
        observer && step.apply(state).is_some()
    }

    /// Candidates for the next place in the order, best last. First come those that let the
    /// returning operation answer as it did, then by position where the replies told one, then by
    /// call.
    fn candidates(&mut self, configuration: &Configuration, returning: u32) -> Vec<u32> {
        // Of unknown operations that do the same, the one called first represents all.
        let mut unknown_kinds = HashSet::new();
        let mut stands_for_all =
            |step: &AppliedOperation| !step.is_unknown() || unknown_kinds.insert(step.kind);
        let mut ranked: Vec<_> = configuration
            .pending
            .iter()
            .filter(|&&id| stands_for_all(&self.steps[id as usize]))
            .filter_map(|&id| {
                let after = self.step(id).apply(configuration.state)?;
                let enables = id == returning || self.step(returning).apply(after).is_some();
                let step = self.step(id);
                Some((
                    !enables,
                    step.is_unknown(),
                    step.position.unwrap_or(u64::MAX),
                    step.call_ns,
                    id,
                ))
            })
            .collect();
        self.steps_left = self
            .steps_left
            .saturating_sub(configuration.pending.len() as u64);
        ranked.sort_unstable_by(|one, two| two.cmp(one));
        ranked.into_iter().map(|(.., id)| id).collect()
    }

    /// The configuration after `id` took effect, with everything that fits behind it at no cost.
    fn order(&mut self, from: &Configuration, id: u32) -> Option<Configuration> {
        let mut after = from.clone();
        after.state = self.step(id).apply(from.state)?;
        let place = after.pending.binary_search(&id).ok()?;
        after.pending.remove(place);
        if !self.step(id).is_unknown() {
            insert(&mut after.ordered, id);
        }
        let (absorbed, pending): (Vec<u32>, Vec<u32>) = after
            .pending
            .iter()
            .partition(|&&id| self.only_observes(id, after.state) || self.is_spent(id, &after));
        after.pending = pending;
        for id in absorbed {
            // An operation without an end needs no place among those that have not returned.
            if !self.step(id).is_unknown() {
                insert(&mut after.ordered, id);
            }
        }
        self.steps_left = self
            .steps_left
            .saturating_sub(after.pending.len() as u64 + 1);
        Some(after)
    }

    fn note_progress(&mut self, configuration: &Configuration, returning: u32) {
        if configuration.event >= self.furthest.0 {
            let mut open = vec![returning];
            open.extend(
                configuration
                    .ordered
                    .iter()
                    .chain(&configuration.pending)
                    .filter(|&&id| id != returning),
            );
            self.furthest = (configuration.event, open);
        }
    }

    fn evidence(&self) -> Evidence {
        let steps: Vec<usize> = self.furthest.1.iter().map(|&id| id as usize).collect();
        let returning = steps
            .first()
            .map_or(0, |&index| self.steps[index].return_ns - 1);
        Evidence {
            explanation: format!(
                "no order explains the answers up to the one at {returning} ns; open at that moment were"
            ),
            steps,
        }
    }
}

fn insert(sorted: &mut Vec<u32>, id: u32) {
    if let Err(place) = sorted.binary_search(&id) {
        sorted.insert(place, id);
    }
}

/// PUTs of unknown outcome whose value no read saw, in histories where only reads could have seen
/// them. Taking them as never done loses nothing, and each would double the search.
fn unobserved_writes(steps: &[AppliedOperation]) -> HashSet<usize> {
    let only_registers = steps.iter().all(|step| {
        matches!(
            step.kind,
            KeyEffect::Read { .. }
                | KeyEffect::Put { .. }
                | KeyEffect::Nothing
                | KeyEffect::Impossible
        )
    });
    if !only_registers {
        return HashSet::new();
    }
    let read: HashSet<_> = steps
        .iter()
        .filter_map(|step| match step.kind {
            KeyEffect::Read { found } => found.map(|(content, _)| content),
            _ => None,
        })
        .collect();
    let is_unobserved = |step: &AppliedOperation| match step.kind {
        KeyEffect::Put { content, .. } => step.is_unknown() && !read.contains(&content),
        _ => false,
    };
    steps
        .iter()
        .enumerate()
        .filter(|(_, step)| is_unobserved(step))
        .map(|(index, _)| index)
        .collect()
}
