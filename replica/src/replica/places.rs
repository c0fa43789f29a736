//! Where the other replicas are: from which addresses their messages count, and how this one finds those that have moved.

use std::net::SocketAddr;

use trine_canary as canary;
use trine_protocol::message::{
    Discovery, Member, NodeId, PeerHeader, ReplyToken, StatusForm, StatusReply, StatusRequest, kind,
};
use trine_protocol::route::is_same_address;
use trine_transport::time::{Duration, Instant};

use super::life::Life;
use super::{DISCOVERY_BYTES_MAX, Replica};
use crate::group::Group;
use crate::outbox::{Outbox, PeerRequest, Purpose};
use crate::output::Class;
use crate::searches::{PlaceNews, PlaceQuestion};

/// The answer of a place that is asked has to come within this.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(1);

impl Replica {
    /// The trusted address that messages of a session come from; nothing if they do not count here. `comes_from` says
    /// of an address whether the session's other end is there. A member's is trusted, one of `--peers`, and one that
    /// was learned. An address is learned from an answer over a session that this replica has opened, or from an
    /// operator while it knew no leader.
    #[must_use]
    pub fn origin(&self, comes_from: impl Fn(SocketAddr) -> bool) -> Option<SocketAddr> {
        member_addresses(&self.life, &self.out)
            .chain(self.addresses.iter())
            .find(|&address| comes_from(address))
    }

    /// Whether a session's other end is at the address of a member, or at one of `--peers`. Addresses that were learned
    /// do not count: an operator can name any.
    #[must_use]
    pub fn is_of_group(&self, comes_from: impl Fn(SocketAddr) -> bool) -> bool {
        member_addresses(&self.life, &self.out)
            .chain(self.addresses.of_peers())
            .any(comes_from)
    }

    /// Whether a message in the name of a member comes from elsewhere than its place, as those of a copy of its directory
    /// do. Only where a member answers does it speak and vote.
    pub(crate) fn is_misplaced(
        &self,
        header: &PeerHeader,
        comes_from: impl Fn(SocketAddr) -> bool,
    ) -> bool {
        let mut members = self.members();
        let sender = members.find(|member| member.incarnation == header.from);
        sender.is_some_and(|member| !comes_from(self.out.places.of(member)))
    }

    /// A message between replicas came from an address that no replica is known at, or not from its sender's place. It is
    /// dropped; the answer does not count as a sign of life.
    pub fn refuse_unknown_address(&mut self, token: ReplyToken) {
        self.out.counters.messages_unknown_address += 1;
        self.discovery.want();
        self.searches.is_unknown_heard = true;
        self.out.reply_unreadable(token);
    }

    /// The list of peers names another node, and its name stands for these addresses now. None says that they are not
    /// known now, which takes no earlier one away. Before the first turn of a replica that bootstraps each other node has to be named here, or in
    /// [`Replica::new`].
    pub fn set_listed(&mut self, node_id: NodeId, addresses: &[SocketAddr]) {
        if node_id == self.own.node_id {
            return;
        }
        self.addresses.set_listed(node_id, addresses);
        self.searches.look_at_once();
        if let Some(bootstrap) = self.life.bootstrap_mut() {
            bootstrap.set_peer(node_id, addresses.first().copied());
        }
    }

    /// Asks the places of members that may have moved.
    pub(super) fn seek_members(&mut self, now: Instant) {
        let Some(group) = self.life.group() else {
            return;
        };
        if now < self.searches.next_at() || group.halted().is_some() {
            return;
        }
        let own = self.own.incarnation;
        let members = group.members().copied();
        let (own, others): (Vec<Member>, Vec<Member>) =
            members.partition(|member| member.incarnation == own);
        let is_elsewhere = |own: &Member| !is_same_address(self.own.address, own.address);
        if let Some(term) = group.leads_in()
            && !self.out.places.is_own_confirmed(term)
            && own.iter().any(is_elsewhere)
        {
            // Its own place is written into the log once a member follows it there.
            self.discovery.want_at_times(now);
        }
        self.out.places.retain(&others);
        let whereabouts = (&self.addresses, &self.out.places);
        let (has_leader, leads) = (group.has_leader(), group.leads_in().is_some());
        let is_missed =
            |member: &Member| !has_leader || leads && !group.is_alive(now, member.incarnation);
        let questions = self.searches.due(now, &others, whereabouts, is_missed);
        for question in questions {
            let peer_request = PeerRequest {
                to: question.at,
                expect: Some(question.of).filter(|_| !follows_anybody()),
                kind: kind::STATUS,
                class: Class::Bulk,
                purpose: Purpose::Place(question),
                timeout: ANSWER_WITHIN,
                answer_bytes_max: DISCOVERY_BYTES_MAX,
            };
            let form = StatusForm::Discovery;
            self.out.send(peer_request, &StatusRequest { form });
        }
    }

    /// What answers at a place that was asked. It is over a session of this replica's own, to the incarnation that it asked
    /// for.
    pub(super) fn on_place_answer(
        &mut self,
        now: Instant,
        question: PlaceQuestion,
        answer: Option<&[u8]>,
    ) {
        let Some(Ok(StatusReply::Discovery(found))) = answer.map(StatusReply::decode) else {
            return self.searches.on_silence(question);
        };
        let is_it = found.incarnation == question.of || follows_anybody();
        if !is_it || found.cluster != self.cluster() {
            return self.searches.on_silence(question);
        }
        let gives_it = |own: &Member| {
            own.incarnation == question.of && is_same_address(own.address, question.at)
        };
        let is_own_word = found.members.0.iter().any(gives_it);
        // A member that has no state yet gives no address.
        self.out
            .places
            .note_word(question.of, question.at, is_own_word);
        if !self.searches.on_answer(now, question) {
            return;
        }
        let is_it = |member: &&Member| member.incarnation == question.of;
        let member = self.members().find(is_it).copied();
        if let Some(member) = member {
            self.out.places.set(&member, question.at, is_own_word);
        }
    }

    /// Another replica has said where the members are. If that is one, and follows this leader in its term and at its own
    /// address, the table may say so: it takes a leader's messages from there alone.
    pub(super) fn hear_of_own_place(&mut self, said: &Discovery) {
        let own = self.own;
        let leads_in = self.life.group().and_then(Group::leads_in);
        let follows = leads_in == Some(said.term)
            && said
                .leader
                .is_some_and(|leader| is_same_address(leader, own.address));
        let is_other = |member: &Member| {
            member.incarnation == said.incarnation && member.incarnation != own.incarnation
        };
        if follows && self.members().any(is_other) {
            self.out.places.confirm_own(said.term);
        }
    }

    /// A leader says that a member is there.
    pub(super) fn hear_of_place(&mut self, now: Instant, said: &Member) {
        let mut members = self.members();
        let known = members.find(|member| member.incarnation == said.incarnation);
        let is_news =
            known.is_some_and(|known| !is_same_address(self.out.places.of(known), said.address));
        drop(members);
        if is_news {
            self.searches.name(now, said.node_id, said.address);
        }
    }

    /// What there is to tell an operator of the places of members: the oldest that was not read yet.
    pub fn next_place_news(&mut self) -> Option<PlaceNews> {
        self.searches.next_news()
    }

    /// Whether somebody has spoken from an unknown address since the last call: a name may lead there by now.
    pub fn take_unknown_address(&mut self) -> bool {
        std::mem::take(&mut self.searches.is_unknown_heard)
    }

    /// Whether nothing is heard of a node, so that its name is worth asking for again.
    #[must_use]
    pub fn is_silent(&self, now: Instant, node_id: NodeId) -> bool {
        let Some(group) = self.life.group().filter(|group| group.has_leader()) else {
            return true;
        };
        let of_node = group.members().filter(|member| member.node_id == node_id);
        let leads = group.leads_in().is_some();
        let mut silent = of_node.map(|member| {
            self.searches.is_silent(now, member.incarnation)
                || leads && !group.is_alive(now, member.incarnation)
        });
        silent.any(|silent| silent)
    }

    fn members(&self) -> impl Iterator<Item = &Member> {
        let group = self.life.group().into_iter();
        group.flat_map(|group| group.members())
    }
}

fn follows_anybody() -> bool {
    canary::planted("followed without the incarnation")
}

/// Where the members are: where the table says, and where they answer.
pub(super) fn member_addresses(life: &Life, out: &Outbox) -> impl Iterator<Item = SocketAddr> {
    let group = life.group().into_iter();
    let members = group.flat_map(|group| group.members());
    let listed = members.map(|member| member.address);
    listed.chain(out.places.iter())
}
