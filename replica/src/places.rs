//! Where a member answers, if not at its address in the group's table.
//!
//! A machine gets another address, and the replica on it starts again with its disk: it is the same member, at another
//! place. This replica sends there once it has seen that the member's incarnation answers there ([`crate::searches`]).
//! What it has found out is its own. The leader writes it into the log, and then the table says it to all.

use std::net::SocketAddr;

use trine_protocol::message::{Incarnation, Member};

/// This replica's own address, and the members that are not where the table says. There are no more than members.
#[derive(Debug, Default)]
pub(crate) struct Places {
    own: Option<Own>,
    /// What the log says behind the applied entries, of each member its latest. The other replicas may have agreed on it by
    /// now, so it counts more than the table.
    announced: Vec<(Incarnation, SocketAddr)>,
    moved: Vec<Moved>,
}

#[derive(Debug)]
struct Own {
    incarnation: Incarnation,
    at: SocketAddr,
    /// The last term in which a member has said that this replica leads it from there.
    confirmed_in: Option<u64>,
}

#[derive(Debug)]
struct Moved {
    member: Incarnation,
    at: SocketAddr,
    /// What log and table said when the member was found. Once they say something else, that counts.
    instead_of: SocketAddr,
    /// Whether the member itself gives this address as its own.
    is_own_word: bool,
}

impl Places {
    /// This replica's own address, whatever the table says.
    pub(crate) fn set_own(&mut self, own: Incarnation, at: SocketAddr) {
        self.own = Some(Own {
            incarnation: own,
            at,
            confirmed_in: None,
        });
    }

    /// A member follows this replica as the leader of a term, at its own address.
    pub(crate) fn confirm_own(&mut self, term: u64) {
        if let Some(own) = &mut self.own {
            own.confirmed_in = Some(term);
        }
    }

    /// Whether any member does so in this term.
    pub(crate) fn is_own_confirmed(&self, term: u64) -> bool {
        let own = self.own.as_ref();
        own.is_some_and(|own| own.confirmed_in == Some(term))
    }

    /// What the log says behind the applied entries, the latest first.
    pub(crate) fn announce(&mut self, announced: impl Iterator<Item = (Incarnation, SocketAddr)>) {
        self.announced.clear();
        for (member, at) in announced {
            if !self.announced.iter().any(|(of, _)| *of == member) {
                self.announced.push((member, at));
            }
        }
    }

    /// Where log and table say that a member is whose address in the table is `table`. This replica may have found it
    /// elsewhere.
    pub(crate) fn agreed(&self, member: Incarnation, table: SocketAddr) -> SocketAddr {
        agreed(&self.announced, member, table)
    }

    /// The group has agreed on a place: what was found ahead of that is void.
    pub(crate) fn on_agreed(&mut self, member: Incarnation, to: SocketAddr) {
        self.moved
            .retain(|moved| moved.member != member || moved.instead_of == to);
    }

    /// The table is another one.
    pub(crate) fn forget_findings(&mut self) {
        self.moved.clear();
    }

    /// A member that was found there gives that address as its own, or another.
    pub(crate) fn note_word(&mut self, member: Incarnation, at: SocketAddr, is_own_word: bool) {
        let mut moved = self.moved.iter_mut();
        if let Some(moved) = moved.find(|moved| moved.member == member && moved.at == at) {
            moved.is_own_word = is_own_word;
        }
    }

    /// The member answers there, and not where log and table say. `is_own_word` says whether it gives that address as its
    /// own.
    pub(crate) fn set(&mut self, member: &Member, at: SocketAddr, is_own_word: bool) {
        let instead_of = self.agreed(member.incarnation, member.address);
        self.moved
            .retain(|moved| moved.member != member.incarnation);
        self.moved.push(Moved {
            member: member.incarnation,
            at,
            instead_of,
            is_own_word,
        });
    }

    /// Where this replica has found a member that gives the same address as its own.
    pub(crate) fn found_by_own_word(&self, member: &Member) -> Option<SocketAddr> {
        let found = self.found(member.incarnation, member.address);
        found
            .filter(|moved| moved.is_own_word)
            .map(|moved| moved.at)
    }

    /// Where to send what is for a member whose address in the table is `table`.
    pub(crate) fn at(&self, member: Incarnation, table: SocketAddr) -> SocketAddr {
        if let Some(own) = self.own.as_ref().filter(|own| own.incarnation == member) {
            return own.at;
        }
        let found = self.found(member, table);
        found.map_or_else(|| self.agreed(member, table), |moved| moved.at)
    }

    fn found(&self, member: Incarnation, table: SocketAddr) -> Option<&Moved> {
        let agreed = self.agreed(member, table);
        let mut moved = self.moved.iter();
        moved.find(|moved| moved.member == member && moved.instead_of == agreed)
    }

    /// Where to send what is for a member.
    pub(crate) fn of(&self, member: &Member) -> SocketAddr {
        self.at(member.incarnation, member.address)
    }

    /// A member as this replica tells of it: where it answers.
    pub(crate) fn seen(&self, member: &Member) -> Member {
        let address = self.of(member);
        Member { address, ..*member }
    }

    /// Forgets what is about none of these members, and what the table knows better.
    pub(crate) fn retain(&mut self, members: &[Member]) {
        let announced = &self.announced;
        let is_so = |moved: &Moved, member: &Member| {
            let agreed = agreed(announced, member.incarnation, member.address);
            member.incarnation == moved.member && agreed == moved.instead_of
        };
        self.moved
            .retain(|moved| members.iter().any(|member| is_so(moved, member)));
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = SocketAddr> {
        let own = self.own.iter().map(|own| own.at);
        let announced = self.announced.iter().map(|&(_, at)| at);
        let moved = self.moved.iter().map(|moved| moved.at);
        own.chain(announced).chain(moved)
    }
}

fn agreed(
    announced: &[(Incarnation, SocketAddr)],
    member: Incarnation,
    table: SocketAddr,
) -> SocketAddr {
    let mut announced = announced.iter();
    let found = announced.find(|(of, _)| *of == member);
    found.map_or(table, |&(_, at)| at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_protocol::message::{MemberRole, NodeId};

    #[test]
    fn the_table_counts_again_once_it_has_changed() {
        let at = |port: u16| SocketAddr::from(([10, 0, 0, 2], port));
        let member = |port| Member {
            node_id: NodeId(2),
            role: MemberRole::Voter,
            incarnation: Incarnation(22),
            address: at(port),
        };
        let mut places = Places::default();
        places.set_own(Incarnation(11), at(9));
        places.set(&member(1), at(2), false);
        assert_eq!(places.found_by_own_word(&member(1)), None);
        assert_eq!(places.of(&member(1)), at(2));
        assert_eq!(places.at(Incarnation(11), at(1)), at(9));
        places.retain(&[member(1)]);
        assert_eq!(places.of(&member(1)), at(2));
        // The group has agreed on another place meanwhile.
        assert_eq!(places.of(&member(3)), at(3));
        places.retain(&[member(3)]);
        assert_eq!(places.iter().collect::<Vec<_>>(), [at(9)]);
        places.confirm_own(4);
        assert!(places.is_own_confirmed(4) && !places.is_own_confirmed(5));
    }

    /// A replica had two such entries in its log, and trusted the table between them: at the address of the first an old copy
    /// answered. Nor does it wait until it hears that an entry is committed, since it may be cut off by then.
    #[test]
    fn what_the_log_says_counts_before_it_is_applied() {
        let at = |port: u16| SocketAddr::from(([10, 0, 0, 2], port));
        let of = Incarnation(22);
        let mut places = Places::default();
        places.announce([(of, at(3)), (of, at(2))].into_iter());
        assert_eq!(places.at(of, at(1)), at(3));
        // The first is applied.
        places.announce([(of, at(3))].into_iter());
        assert_eq!(places.at(of, at(2)), at(3));
        assert_eq!(places.iter().collect::<Vec<_>>(), [at(3)]);
        // The member has gone on meanwhile, and the entry that says where it was cannot be applied without it.
        let member = Member {
            node_id: NodeId(2),
            role: MemberRole::Voter,
            incarnation: of,
            address: at(2),
        };
        places.set(&member, at(9), true);
        assert_eq!(places.of(&member), at(9));
        assert_eq!(places.found_by_own_word(&member), Some(at(9)));
        places.retain(&[member]);
        // It is applied after all, and the finding is newer.
        let applied = Member {
            address: at(3),
            ..member
        };
        places.on_agreed(of, at(3));
        places.announce(std::iter::empty());
        assert_eq!(places.of(&applied), at(9));
        // The group agrees on the former place again: a finding of before does not come back with the address.
        places.on_agreed(of, at(2));
        places.on_agreed(of, at(3));
        assert_eq!(places.of(&applied), at(3));
        places.announce([(of, at(3))].into_iter());
        // A later leader has replaced the other.
        places.announce(std::iter::empty());
        assert_eq!(places.at(of, at(2)), at(2));
    }
}
