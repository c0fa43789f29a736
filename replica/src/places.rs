//! Where does a member answer, if not at its address in the group's table?
//!
//! A machine gets another address, and the replica on it starts again with its disk: it is the same member, at another
//! place. This replica sends there once it has seen that the member's incarnation answers there ([`crate::searches`]).
//! What it has found out is its own: the table says what all replicas agree on.

use std::net::SocketAddr;

use trine_protocol::message::{Incarnation, Member};

/// The members that are elsewhere, and this replica itself. There are no more than members.
#[derive(Debug, Default)]
pub(crate) struct Places(Vec<(Incarnation, SocketAddr)>);

impl Places {
    /// The member answers there, whatever the table says.
    pub(crate) fn set(&mut self, member: Incarnation, at: SocketAddr) {
        self.0.retain(|(of, _)| *of != member);
        self.0.push((member, at));
    }

    /// The place of a member that is not where the table says, as far as this replica knows.
    pub(crate) fn get(&self, member: Incarnation) -> Option<SocketAddr> {
        let found = self.0.iter().find(|(of, _)| *of == member);
        found.map(|&(_, at)| at)
    }

    /// Where to send what is for a member.
    pub(crate) fn of(&self, member: &Member) -> SocketAddr {
        self.get(member.incarnation).unwrap_or(member.address)
    }

    /// A member as this replica tells of it: where it answers.
    pub(crate) fn seen(&self, member: &Member) -> Member {
        let address = self.of(member);
        Member { address, ..*member }
    }

    /// Forgets all but these.
    pub(crate) fn retain(&mut self, keep: impl Fn(Incarnation) -> bool) {
        self.0.retain(|&(member, _)| keep(member));
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = SocketAddr> {
        self.0.iter().map(|&(_, at)| at)
    }
}
