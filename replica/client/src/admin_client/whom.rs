//! Which replica an admin command asks next.
//!
//! Invariant: the command is given only in the session in which a replica has named itself as the leader, or was told an
//! address that it may have to vote for.

use std::collections::BTreeSet;

use trine_transport::backend::Route;
use trine_transport::session::SessionId;

use crate::peers::Peers;

#[derive(Debug, Default)]
pub(super) struct Whom {
    /// The replica to ask next, if one was named.
    favourite: Option<usize>,
    /// The last replica that was asked without having been named.
    last_guess: usize,
    /// The replica that has named itself as the leader, and the session with it.
    leader: Option<(usize, SessionId)>,
    /// Replicas without a leader that were told the address of a new holder: they may have to vote for the replica
    /// there.
    told: BTreeSet<usize>,
}

impl Whom {
    /// The replica to ask now: the named one, else the next reachable one.
    pub(super) fn choose<R: Route>(&mut self, peers: &Peers<R>) -> Option<(usize, SessionId)> {
        let reachable = |index: &usize| peers.get(*index).may_know_leader();
        let index = match self.favourite.filter(reachable) {
            Some(index) => index,
            None => {
                self.favourite = None;
                self.last_guess = peers.next_up(self.last_guess)?;
                self.last_guess
            }
        };
        Some((index, peers.get(index).session()?))
    }

    /// Whether this replica gets the command.
    pub(super) fn is_leader(&self, index: usize, session: SessionId) -> bool {
        self.leader == Some((index, session))
    }

    /// This replica gets the command.
    pub(super) fn lead<R: Route>(&mut self, index: usize, peers: &Peers<R>) {
        self.favourite = Some(index);
        self.leader = peers.get(index).session().map(|session| (index, session));
    }

    /// No replica is known to lead.
    pub(super) fn lead_nowhere(&mut self) {
        (self.favourite, self.leader) = (None, None);
    }

    /// Another replica has named this one.
    pub(super) fn name(&mut self, index: usize) {
        self.favourite = Some(index);
    }

    /// Whether this replica, which knows no leader, is to be told of the new holder: once.
    pub(super) fn tell(&mut self, index: usize) -> bool {
        self.told.insert(index)
    }
}
