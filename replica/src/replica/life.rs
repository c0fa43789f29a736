//! The states of a replica from its start to its end.

use trine_transport::time::Instant;

use crate::bootstrap::Bootstrap;
use crate::group::Group;

/// The states that the diagram in PROTOCOL.md, section 2, draws for one incarnation.
///
/// "Attached" and "learner" are one state here: they differ in whether the group has its state, and only the group uses
/// that difference. It also knows whether it has halted, because it still says why.
pub(super) enum Life {
    /// It probes the other nodes, and then tells them that a new group begins.
    Bootstrapping(Box<Bootstrap>),
    /// It belongs to no group, and asks to be taken in.
    Joining {
        /// When a bootstrapper that has yielded tries again.
        bootstrap_again_at: Option<Instant>,
    },
    /// A group has promised to take it in, or has. It goes on asking until it votes.
    Attached(Box<Group>),
    /// It votes, or did until it halted. It asks no other replica any more.
    Voter(Box<Group>),
}

impl Life {
    /// It asks to be taken in, and never was a bootstrapper.
    pub(super) const fn joining() -> Self {
        Self::Joining {
            bootstrap_again_at: None,
        }
    }

    pub(super) fn group(&self) -> Option<&Group> {
        match self {
            Self::Attached(group) | Self::Voter(group) => Some(group),
            Self::Bootstrapping(_) | Self::Joining { .. } => None,
        }
    }

    pub(super) fn group_mut(&mut self) -> Option<&mut Group> {
        match self {
            Self::Attached(group) | Self::Voter(group) => Some(group),
            Self::Bootstrapping(_) | Self::Joining { .. } => None,
        }
    }

    pub(super) fn bootstrap(&self) -> Option<&Bootstrap> {
        match self {
            Self::Bootstrapping(bootstrap) => Some(bootstrap),
            Self::Joining { .. } | Self::Attached(_) | Self::Voter(_) => None,
        }
    }

    pub(super) fn bootstrap_mut(&mut self) -> Option<&mut Bootstrap> {
        match self {
            Self::Bootstrapping(bootstrap) => Some(bootstrap),
            Self::Joining { .. } | Self::Attached(_) | Self::Voter(_) => None,
        }
    }

    pub(super) fn is_bootstrapping(&self) -> bool {
        self.bootstrap().is_some()
    }

    /// Whether it never had a vote.
    pub(super) fn has_no_vote(&self) -> bool {
        !matches!(self, Self::Voter(_))
    }

    /// Whether it asks to be taken in now.
    pub(super) fn asks_to_join(&self) -> bool {
        matches!(self, Self::Joining { .. } | Self::Attached(_))
    }

    /// Whether a bootstrapper that has yielded is to try again.
    pub(super) fn is_to_bootstrap_again(&self, now: Instant) -> bool {
        let at = match self {
            Self::Joining { bootstrap_again_at } => *bootstrap_again_at,
            Self::Bootstrapping(_) | Self::Attached(_) | Self::Voter(_) => None,
        };
        at.is_some_and(|at| at <= now)
    }

    /// Its group counts it as a voter.
    pub(super) fn become_voter(&mut self) {
        if !self.has_no_vote() {
            return;
        }
        *self = match std::mem::replace(self, Self::joining()) {
            Self::Attached(group) => Self::Voter(group),
            other => other,
        };
    }
}
