//! Whether this member takes part in its group.

use trine_transport::time::Instant;

use crate::halt::Halt;

/// The lower half of the diagram in PROTOCOL.md, section 2. Whether a member that runs is attached, a learner or a voter is
/// what its state and raft's configuration say.
#[derive(Debug)]
pub(super) enum Life {
    Running,
    /// A graceful stop has begun: a leader transfers leadership, and waits until this moment at most.
    Stopping {
        until: Instant,
    },
    /// It has halted permanently: whatever it did next could differ from what the others do.
    Halted {
        why: Halt,
        /// A graceful stop that has begun waits until this moment at most.
        stop_until: Option<Instant>,
    },
}

impl Life {
    /// The first reason stays: its consequences are no reasons.
    pub(super) fn halt(&mut self, why: Halt) {
        let stop_until = self.stop_until();
        if !self.is_halted() {
            *self = Self::Halted { why, stop_until };
        }
    }

    /// Begins a graceful stop, if none has begun.
    pub(super) fn stop(&mut self, until: Instant) {
        match self {
            Self::Running => *self = Self::Stopping { until },
            Self::Stopping { .. } => {}
            Self::Halted { stop_until, .. } => {
                stop_until.get_or_insert(until);
            }
        }
    }

    /// Why it has halted, if it has.
    pub(super) fn halted(&self) -> Option<&Halt> {
        match self {
            Self::Halted { why, .. } => Some(why),
            Self::Running | Self::Stopping { .. } => None,
        }
    }

    pub(super) fn is_halted(&self) -> bool {
        self.halted().is_some()
    }

    /// Until when a graceful stop waits, if one has begun.
    pub(super) fn stop_until(&self) -> Option<Instant> {
        match self {
            Self::Running => None,
            Self::Stopping { until } => Some(*until),
            Self::Halted { stop_until, .. } => *stop_until,
        }
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stop_until().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_stays() {
        let mut life = Life::Running;
        life.halt(Halt::TooOld);
        life.halt(Halt::Broken("what follows from it"));
        assert_eq!(life.halted(), Some(&Halt::TooOld));
    }

    /// A leader that halts while it stops still waits for the others no longer than it would have.
    #[test]
    fn a_stop_keeps_its_first_end_whether_it_begins_before_or_behind_the_halt() {
        let (first, later) = (Instant::from_nanos(5), Instant::from_nanos(9));
        let mut before = Life::Running;
        before.stop(first);
        before.halt(Halt::TooOld);
        let mut behind = Life::Running;
        behind.halt(Halt::TooOld);
        behind.stop(first);
        for mut life in [before, behind] {
            life.stop(later);
            assert!(life.is_halted() && life.is_stopping());
            assert_eq!(life.stop_until(), Some(first));
        }
    }
}
