//! Learners whose node id has a voter that is alive: their node id needs them no more.
//!
//! Such a learner is the former voter of its node id, or a successor that was to replace the voter. The leader that
//! replaced a voter removes it at once. Another leader sees in the table alone what the table says, and that an earlier
//! release may not have noted. It must not throw out a successor that is catching up: a removed incarnation stays
//! removed. So it waits until no admin command was about the node for [`PATIENCE`].

use std::collections::BTreeMap;

use trine_protocol::message::{Incarnation, NodeId};
use trine_transport::time::{Duration, Instant};

/// How long nobody must have asked for such a learner before it is removed.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// The learners that this leader has seen beside a live voter, each with the time since when nobody has asked for it.
#[derive(Default)]
pub(super) struct SpareLearners {
    unasked: BTreeMap<Incarnation, (NodeId, Instant)>,
}

impl SpareLearners {
    /// These are all that there are now.
    pub(super) fn see(&mut self, now: Instant, spares: &[(Incarnation, NodeId)]) {
        let is_spare = |seen: &Incarnation| spares.iter().any(|(spare, _)| spare == seen);
        self.unasked.retain(|seen, _| is_spare(seen));
        for &(spare, node_id) in spares {
            self.unasked.entry(spare).or_insert((node_id, now));
        }
    }

    /// An admin command is about this node.
    pub(super) fn on_asked(&mut self, now: Instant, node_id: NodeId) {
        let of_node = self.unasked.values_mut().filter(|(of, _)| *of == node_id);
        of_node.for_each(|(_, since)| *since = now);
    }

    /// A learner for which nobody has asked for long.
    pub(super) fn forgotten(&self, now: Instant) -> Option<Incarnation> {
        let is_forgotten = |since: Instant| now.saturating_since(since) >= PATIENCE;
        let mut unasked = self.unasked.iter();
        let found = unasked.find(|(_, (_, since))| is_forgotten(*since));
        found.map(|(spare, _)| *spare)
    }

    /// Leadership was won or lost.
    pub(super) fn clear(&mut self) {
        self.unasked.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPARE: Incarnation = Incarnation(7);
    const NODE: NodeId = NodeId(3);

    fn second(number: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(number)
    }

    fn seen_at(number: u64) -> SpareLearners {
        let mut spares = SpareLearners::default();
        spares.see(second(number), &[(SPARE, NODE)]);
        spares
    }

    #[test]
    fn a_learner_is_forgotten_a_minute_after_the_last_question_about_its_node() {
        let mut spares = seen_at(0);
        spares.see(second(30), &[(SPARE, NODE)]);
        assert_eq!(spares.forgotten(second(59)), None);
        assert_eq!(spares.forgotten(second(60)), Some(SPARE));
        spares.on_asked(second(59), NODE);
        spares.on_asked(second(100), NodeId(4));
        assert_eq!(spares.forgotten(second(118)), None);
        assert_eq!(spares.forgotten(second(119)), Some(SPARE));
    }

    /// While its voter is silent it is no spare: it may have to take the voter's place.
    #[test]
    fn the_time_begins_anew_when_the_voter_was_silent_meanwhile() {
        let mut spares = seen_at(0);
        spares.see(second(50), &[]);
        spares.see(second(51), &[(SPARE, NODE)]);
        assert_eq!(spares.forgotten(second(60)), None);
        assert_eq!(spares.forgotten(second(111)), Some(SPARE));
    }
}
