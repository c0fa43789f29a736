//! An operator's orders: each says what shall be, and is asked again until it is so.
//!
//! At most one change of the membership is under way at a time, and none is begun that would leave the group without a
//! quorum of members that are alive. What a leader has been told but cannot do yet (a place whose process has not
//! asked, a holder that may be replaced) it remembers for a while and for itself only: after a change of leader the
//! operator's next question tells the new one.

use std::net::SocketAddr;

use trine_protocol::message::{
    AdminReply, AdminRequest, AdminStatus, Incarnation, Member, MemberRole, Order, PlaceId,
    ReplyToken,
};
use trine_protocol::route::is_same_address;
use trine_transport::time::{Duration, Instant};

use super::Group;
use crate::addresses::Addresses;
use crate::config::PLACES_MAX;
use crate::membership::{promote, remove};
use crate::outbox::Outbox;

/// How long a leader remembers an order that it cannot follow yet.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long an order that waits for signs of life counts as wanted after it was asked for last; operators ask again many
/// times a second.
const SIGN_OF_LIFE_PATIENCE: Duration = Duration::from_secs(2);
/// Most orders that it remembers.
const REMEMBERED_MAX: usize = 16;
/// Most answers that wait until it is certain that this replica still leads.
const UNCONFIRMED_MAX: usize = 64;

/// An order that waits: for a process to ask for its place, or for signs of life of those that a removal would leave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remembered {
    place: PlaceId,
    order: Order,
    /// Where the operator has said that the place's new holder will be.
    address: Option<SocketAddr>,
    /// When it was asked for first.
    since: Instant,
    until: Instant,
}

/// The answer to an order that is done, as far as this replica knows. Another one may lead already, and have undone it: like a
/// read, it is given once a quorum has confirmed the lead behind the question.
#[derive(Debug)]
pub(super) struct Unconfirmed {
    token: ReplyToken,
    /// Context of the first ReadIndex round that begins behind the question.
    round: u64,
    text: String,
}

type Verdict = (AdminStatus, String);

fn done(text: impl Into<String>) -> Verdict {
    (AdminStatus::Done, text.into())
}

fn under_way(text: impl Into<String>) -> Verdict {
    (AdminStatus::InProgress, text.into())
}

fn not_leading() -> Verdict {
    let text = "this replica does not lead";
    (AdminStatus::NotLeader, text.to_owned())
}

fn refused(text: impl Into<String>) -> Verdict {
    (AdminStatus::Refused, text.into())
}

/// Where a process is expected, for a sentence.
fn at(address: Option<SocketAddr>) -> String {
    address.map_or_else(String::new, |address| format!(" at {address}"))
}

impl Group {
    /// An operator's order has arrived.
    pub(crate) fn on_order(
        &mut self,
        now: Instant,
        token: ReplyToken,
        request: &AdminRequest,
        known: &Addresses,
        out: &mut Outbox,
    ) {
        match self.follow_order(now, request, known) {
            (AdminStatus::Done, text) if self.unconfirmed.len() < UNCONFIRMED_MAX => {
                let round = self.reads.upcoming();
                self.unconfirmed.push(Unconfirmed { token, round, text });
            }
            (AdminStatus::Done, _) => {
                self.answer_order(token, under_way("too many orders at a time"), out);
            }
            verdict => self.answer_order(token, verdict, out),
        }
    }

    fn answer_order(&self, token: ReplyToken, (status, text): Verdict, out: &mut Outbox) {
        let leader = self.leader_address();
        out.reply(
            token,
            &AdminReply {
                status,
                leader,
                text: &text,
            },
        );
    }

    /// Whether a round has to confirm that orders are done.
    pub(super) fn has_unconfirmed_orders(&self) -> bool {
        !self.unconfirmed.is_empty()
    }

    /// A quorum has confirmed the round `context`, and with it the lead when that began.
    pub(super) fn answer_confirmed_orders(&mut self, context: u64, out: &mut Outbox) {
        let is_confirmed = |order: &mut Unconfirmed| order.round <= context;
        let confirmed: Vec<Unconfirmed> = self.unconfirmed.extract_if(.., is_confirmed).collect();
        for order in confirmed {
            self.answer_order(order.token, done(order.text), out);
        }
    }

    /// The lead is lost: another replica knows what is done.
    pub(super) fn abandon_orders(&mut self, out: &mut Outbox) {
        for order in std::mem::take(&mut self.unconfirmed) {
            self.answer_order(order.token, not_leading(), out);
        }
    }

    fn follow_order(&mut self, now: Instant, request: &AdminRequest, known: &Addresses) -> Verdict {
        if !request.cluster.is_none() && request.cluster != self.local.cluster {
            return refused(format!(
                "this replica belongs to cluster {}",
                self.local.cluster
            ));
        }
        if !self.consensus.raft().leads_with_commit() || self.halted.is_some() {
            return not_leading();
        }
        let place = request.place;
        let verdict = match request.order {
            Order::Add { voter } => self.order_add(now, request, voter, known),
            Order::Promote => self.order_promote(now, place),
            Order::Remove => self.order_remove(now, place, request.incarnation),
            Order::Replace => self.order_replace(now, request),
            Order::Lead => return self.order_lead(now, place),
        };
        match verdict {
            // What is so now may be undone by an earlier order, which is in the log and not applied yet.
            (AdminStatus::Done, _) if self.consensus.raft().has_pending_conf() => {
                under_way("waiting for a change of the members that is under way")
            }
            verdict => verdict,
        }
    }

    /// The member at a place; while one replaces another, the voter.
    fn member_at(&self, place: PlaceId) -> Option<Member> {
        let members = self.state.as_ref()?.members();
        let voter = members.voter_at(place, Incarnation::NONE);
        voter.or_else(|| members.at(place).next()).copied()
    }

    fn order_add(
        &mut self,
        now: Instant,
        request: &AdminRequest,
        voter: bool,
        known: &Addresses,
    ) -> Verdict {
        let (place, address) = (request.place, request.address);
        match self.member_at(place) {
            Some(member)
                if address.is_some_and(|named| !is_same_address(named, member.address)) =>
            {
                let at = member.address;
                refused(format!(
                    "place {place} is a member at {at}: trine member replace {place} --address HOST:PORT moves it"
                ))
            }
            Some(member) if !voter || member.role == MemberRole::Voter => {
                done(format!("place {place} is a member at {}", member.address))
            }
            Some(_) => self.order_promote(now, place),
            None if self
                .state
                .as_ref()
                .is_some_and(|s| s.members().all().len() >= PLACES_MAX) =>
            {
                refused(format!("a group has at most {PLACES_MAX} places"))
            }
            None if address.is_none() && !known.lists_place(place) => refused(format!(
                "nobody has said where the replica of place {place} will be: add --address HOST:PORT"
            )),
            None => {
                self.remember(now, place, Order::Add { voter }, address);
                under_way(format!(
                    "waiting for a replica that was started with --id {place}{} to ask",
                    at(address)
                ))
            }
        }
    }

    fn order_promote(&mut self, now: Instant, place: PlaceId) -> Verdict {
        let Some(member) = self.member_at(place) else {
            return refused(format!("place {place} is not a member: add it first"));
        };
        if member.role == MemberRole::Voter {
            return done(format!("place {place} votes"));
        }
        // Behind the order, as for a removal: a learner that died just now would be a vote that nobody can give.
        let since = self.remember_until(
            now,
            place,
            Order::Promote,
            None,
            now + SIGN_OF_LIFE_PATIENCE,
        );
        if !self.has_caught_up(member.incarnation, now)
            || !self.was_heard_since(member.incarnation, since)
        {
            return under_way(format!("place {place} has not caught up yet"));
        }
        self.propose_order(
            promote(member.incarnation),
            format!("promoting place {place}"),
        )
    }

    fn order_remove(&mut self, now: Instant, place: PlaceId, meant: Incarnation) -> Verdict {
        let Some(member) = self.member_at(place) else {
            self.forget_order(place);
            return done(format!("place {place} is not a member"));
        };
        if !meant.is_none() && meant != member.incarnation {
            return done(format!("place {place} is held by another replica now"));
        }
        let since =
            self.remember_until(now, place, Order::Remove, None, now + SIGN_OF_LIFE_PATIENCE);
        if member.role == MemberRole::Voter {
            if let Err(why) = self.check_quorum_without(self.lately(now), member.incarnation) {
                self.forget_order(place);
                return refused(why);
            }
            // Who is silent from now on is found to be so before long.
            if self
                .check_quorum_without(since, member.incarnation)
                .is_err()
            {
                return under_way("waiting for a sign of life of the voters that would be left");
            }
            if member.incarnation == self.local.own.incarnation {
                return self.give_the_lead_away(now, "it leads, and hands the lead over first");
            }
        }
        self.propose_order(
            remove(member.incarnation),
            format!("removing place {place}"),
        )
    }

    /// Whether the voters that would be left have a quorum of members that were heard from since then.
    ///
    /// A removal asks for signs of life behind its order: the new quorum has to agree to it, so one that died just now
    /// would leave the group without any, and there is no way back.
    fn check_quorum_without(&self, since: Instant, leaving: Incarnation) -> Result<(), String> {
        let members = self
            .state
            .as_ref()
            .map_or(&[][..], |state| state.members().all());
        let left = members
            .iter()
            .filter(|member| member.role == MemberRole::Voter && member.incarnation != leaving);
        let (alive, all) = left.fold((0, 0), |(alive, all), member| {
            let lives = member.incarnation == self.local.own.incarnation
                || self.was_heard_since(member.incarnation, since);
            (alive + usize::from(lives), all + 1)
        });
        if all == 0 {
            return Err("it is the only voter".to_owned());
        }
        let quorum = all / 2 + 1;
        if alive < quorum {
            return Err(format!(
                "only {alive} of the {all} voters that would be left are alive, {quorum} are needed"
            ));
        }
        Ok(())
    }

    fn order_replace(&mut self, now: Instant, request: &AdminRequest) -> Verdict {
        let (place, meant) = (request.place, request.incarnation);
        let Some(member) = self.member_at(place) else {
            return refused(format!("place {place} is not a member: add it instead"));
        };
        if !meant.is_none() && meant != member.incarnation {
            // Remembered, it would be done to the new holder, too: by the old one, when its process was started again.
            self.forget(place, Order::Replace);
            return done(format!("place {place} is held by {}", member.incarnation));
        }
        if let Err(why) = self.check_quorum_without(self.lately(now), member.incarnation) {
            return refused(why);
        }
        if member.incarnation == self.local.own.incarnation {
            return self.give_the_lead_away(now, "it leads, and hands the lead over first");
        }
        self.remember(now, place, Order::Replace, request.address);
        under_way(format!(
            "waiting for a new replica with --id {place}{} to ask",
            at(request.address)
        ))
    }

    fn order_lead(&mut self, now: Instant, place: PlaceId) -> Verdict {
        let Some(member) = self.member_at(place) else {
            return refused(format!("place {place} is not a member"));
        };
        if member.incarnation == self.local.own.incarnation {
            return done(format!("place {place} leads"));
        }
        if member.role != MemberRole::Voter {
            return refused(format!("place {place} has no vote: promote it first"));
        }
        if self.is_ordered(now, place, Order::Remove) {
            return refused(format!("place {place} is being removed"));
        }
        if !self.is_alive(member.incarnation, now) {
            return refused(format!("place {place} was not heard from lately"));
        }
        // Two operators who want the lead in different hands would pass it to and fro with every question.
        if !self.is_settled(now) {
            return under_way("this replica has come to lead only now");
        }
        self.begin_transfer_of_lead(member.incarnation);
        under_way(format!("handing the lead over to place {place}"))
    }

    fn give_the_lead_away(&mut self, now: Instant, why: &str) -> Verdict {
        match self.best_successor(now) {
            Some(successor) => {
                self.begin_transfer_of_lead(successor);
                under_way(why)
            }
            None => refused("it leads, and nobody else can"),
        }
    }

    fn propose_order(&mut self, change: raft::eraftpb::ConfChangeV2, text: String) -> Verdict {
        match self.consensus.propose_conf_change(change) {
            Ok(_) => under_way(text),
            Err(error) => under_way(format!("waiting: {error}")),
        }
    }

    fn remember(
        &mut self,
        now: Instant,
        place: PlaceId,
        order: Order,
        address: Option<SocketAddr>,
    ) {
        self.remember_until(now, place, order, address, now + PATIENCE);
    }

    /// Returns when the order was asked for first.
    fn remember_until(
        &mut self,
        now: Instant,
        place: PlaceId,
        order: Order,
        address: Option<SocketAddr>,
        until: Instant,
    ) -> Instant {
        let asked =
            |other: &&Remembered| other.place == place && other.order == order && other.until > now;
        let before = self.remembered.iter().find(asked);
        let since = before.map_or(now, |before| before.since);
        // To add a voter means to promote it in the end; any other order takes the place of what was ordered before.
        let replaces = |other: &Remembered| order != Order::Promote || other.order == order;
        self.remembered
            .retain(|other| other.until > now && !(other.place == place && replaces(other)));
        if self.remembered.len() < REMEMBERED_MAX {
            self.remembered.push(Remembered {
                place,
                order,
                address,
                since,
                until,
            });
        }
        since
    }

    /// Whether the operator has ordered this lately.
    pub(super) fn is_ordered(&self, now: Instant, place: PlaceId, order: Order) -> bool {
        self.remembered
            .iter()
            .any(|other| other.place == place && other.order == order && other.until > now)
    }

    /// Whether the operator has said lately that the place's new holder will be at this address.
    pub(super) fn is_expected_at(&self, now: Instant, place: PlaceId, address: SocketAddr) -> bool {
        let mut named = self.remembered.iter().filter_map(|other| {
            let counts = other.place == place && other.until > now;
            other.address.filter(|_| counts)
        });
        named.any(|named| is_same_address(named, address))
    }

    fn forget(&mut self, place: PlaceId, order: Order) {
        let is_it = |other: &Remembered| other.place == place && other.order == order;
        self.remembered.retain(|other| !is_it(other));
    }

    /// What was ordered for a place is being done, and must not be done to its next holder, too.
    pub(super) fn forget_order(&mut self, place: PlaceId) {
        self.remembered.retain(|other| other.place != place);
    }
}
