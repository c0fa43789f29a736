//! The search for members that are not where this replica sends to.
//!
//! A name in the list of peers stands for another address than it did, or an operator says where a replica is now. Then
//! this replica asks there and at the present place, over sessions of its own, which incarnation answers. It follows a
//! member once the present place has been silent for [`SILENT_FOR`] and the member's own incarnation has answered
//! elsewhere. A packet's source address leads to nothing, and neither does a name alone.
//!
//! If both places answer, one of them is a copy of the other's directory. The present one counts: two logs must not vote
//! as one member.

use std::collections::VecDeque;
use std::net::SocketAddr;

use trine_canary as canary;
use trine_protocol::message::{Incarnation, Member, NodeId};
use trine_protocol::route::is_same_address;
use trine_transport::time::{Duration, Instant};

use crate::addresses::Addresses;
use crate::config::PLACE_NEWS_MAX;
use crate::places::Places;

/// A member has left its place once that has not answered as the member for so long, and so many questions have ended
/// without an answer: this replica itself may have stood still.
const SILENT_FOR: Duration = Duration::from_secs(2);
const MISSED_MIN: u32 = 3;
/// So often the places of a member are asked while the present one is silent, or the member is missed: one answer that was
/// lost must not decide.
const ASK_SILENT_EVERY: Duration = Duration::from_millis(400);
/// The same while the present place answers.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// Both places have answered in two rounds that are no further apart: one answer may be lost.
const ROUNDS_APART_MAX: u32 = 2;
/// A second place that has not answered for so long is not there any more.
const FORGET_AFTER: Duration = Duration::from_secs(15);
/// Where operators and other replicas say that replicas are, the latest at the end.
const NAMED_MAX: usize = 16;
/// For so long such a word leads to questions.
const NAMED_FOR: Duration = Duration::from_secs(600);

/// What is worth telling an operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlaceNews {
    /// A member has moved: it answers at another place, and not at the one before.
    Moved {
        /// Its node id.
        node_id: NodeId,
        /// Where it was.
        from: SocketAddr,
        /// Where it answers.
        to: SocketAddr,
    },
    /// A member answers at two places: somebody runs a copy of its directory.
    AtTwo {
        /// Its node id.
        node_id: NodeId,
        /// The place that counts.
        present: SocketAddr,
        /// The other one.
        other: SocketAddr,
    },
}

/// A question to a place: which replica is there?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PlaceQuestion {
    /// The member that is looked for.
    pub(crate) of: Incarnation,
    pub(crate) at: SocketAddr,
    /// The round of questions about this member. All of a round leave at once.
    pub(crate) round: u32,
}

/// All searches of one replica.
#[derive(Debug, Default)]
pub(crate) struct Searches {
    /// One for each member that may be elsewhere.
    list: Vec<Search>,
    /// What operators and other replicas have said.
    named: VecDeque<Named>,
    news: VecDeque<PlaceNews>,
    /// When any of them has something to do.
    next_at: Instant,
    /// Somebody has spoken from an unknown address.
    pub(crate) is_unknown_heard: bool,
}

/// Somebody's word on where a node's replica is.
#[derive(Debug)]
struct Named {
    node_id: NodeId,
    at: SocketAddr,
    until: Instant,
}

/// The search for one member.
#[derive(Debug)]
struct Search {
    member: Member,
    present: SocketAddr,
    /// The rounds in which the present place has answered.
    heard: Rounds,
    /// When it was first asked since then.
    asked_at: Option<Instant>,
    /// Questions to it that have ended since then without an answer.
    missed: u32,
    other: Option<OtherPlace>,
    /// When the places were asked last.
    last_at: Option<Instant>,
    /// Counts the rounds of questions: the other places are asked in turn.
    round: u32,
}

/// In which of the last rounds of questions a place has answered: answers of two places may come in different order.
#[derive(Clone, Copy, Default, Debug)]
struct Rounds {
    newest: u32,
    /// Bit n stands for the round that was n ahead of the newest.
    bits: u8,
}

impl Rounds {
    fn note(&mut self, round: u32) {
        if round > self.newest {
            let passed = round - self.newest;
            (self.newest, self.bits) = (round, self.bits.checked_shl(passed).unwrap_or(0));
        }
        self.bits |= 1u8.checked_shl(self.newest - round).unwrap_or(0);
    }

    fn has(self, round: u32) -> bool {
        let ahead = self.newest.checked_sub(round);
        let bit = ahead.and_then(|ahead| 1u8.checked_shl(ahead));
        bit.is_some_and(|bit| self.bits & bit != 0)
    }
}

/// A second place at which a member has answered.
#[derive(Clone, Copy, Debug)]
struct OtherPlace {
    at: SocketAddr,
    last_at: Instant,
    /// The rounds in which it has answered.
    heard: Rounds,
    /// The last round in which both places have answered.
    both_in: Option<u32>,
    is_told: bool,
}

impl Searches {
    /// An operator, or another replica, says where a node's replica is.
    pub(crate) fn name(&mut self, now: Instant, node_id: NodeId, at: SocketAddr) {
        let until = now + NAMED_FOR;
        let is_same = |named: &&mut Named| (named.node_id, named.at) == (node_id, at);
        if let Some(named) = self.named.iter_mut().find(is_same) {
            named.until = until;
            return;
        }
        if self.named.len() == NAMED_MAX {
            self.forget_one_name();
        }
        self.named.push_back(Named { node_id, at, until });
        assert!(self.named.len() <= NAMED_MAX);
        self.look_at_once();
    }

    /// Forgets the oldest word about the member that most words are about: whoever says much about one takes nothing from
    /// the others.
    fn forget_one_name(&mut self) {
        let words = |of: NodeId| self.named.iter().filter(|word| word.node_id == of).count();
        let of_most = (self.named.iter().enumerate())
            .max_by_key(|(index, word)| (words(word.node_id), std::cmp::Reverse(*index)));
        if let Some(oldest) = of_most.map(|(index, _)| index) {
            self.named.remove(oldest);
        }
    }

    /// When [`Searches::due`] has something to do.
    pub(crate) fn next_at(&self) -> Instant {
        self.next_at
    }

    /// The places to look at have changed.
    pub(crate) fn look_at_once(&mut self) {
        self.next_at = Instant::ZERO;
    }

    /// The questions that are due about these members, which are all but this replica. Those that it misses are asked for more
    /// often.
    pub(crate) fn due(
        &mut self,
        now: Instant,
        members: &[Member],
        (addresses, places): (&Addresses, &Places),
        is_missed: impl Fn(&Member) -> bool,
    ) -> Vec<PlaceQuestion> {
        self.next_at = now + ASK_SILENT_EVERY;
        self.named.retain(|named| named.until > now);
        self.forget_words_on(members);
        let mut before = std::mem::take(&mut self.list);
        let mut questions = Vec::new();
        for member in members {
            let present = places.of(member);
            let candidates = self.candidates(member, present, addresses);
            if candidates.is_empty() {
                continue;
            }
            let same = |search: &Search| search.member.incarnation == member.incarnation;
            let mut search = match before.iter().position(same) {
                Some(index) => before.swap_remove(index),
                None => Search::new(member, present),
            };
            search.member = *member;
            let often = is_missed(member);
            questions.extend(search.ask(now, present, &candidates, often));
            self.list.push(search);
        }
        questions
    }

    /// The group has agreed on another place of a member: whoever has named the one before knew no better.
    fn forget_words_on(&mut self, members: &[Member]) {
        for search in &self.list {
            let before = search.member;
            let is_elsewhere = |now: &Member| {
                now.incarnation == before.incarnation && now.address != before.address
            };
            if members.iter().any(is_elsewhere) {
                self.named
                    .retain(|named| (named.node_id, named.at) != (before.node_id, before.address));
            }
        }
    }

    /// Where a member may be, but for its present place.
    fn candidates(
        &self,
        member: &Member,
        present: SocketAddr,
        addresses: &Addresses,
    ) -> Vec<SocketAddr> {
        let named = self.named.iter();
        let named = named.filter(|named| named.node_id == member.node_id);
        let listed = addresses.candidates(member.node_id);
        let all = named.map(|named| named.at).chain(listed);
        let mut candidates = Vec::new();
        for at in all.chain([member.address]) {
            let is_known = |known: &SocketAddr| is_same_address(*known, at);
            if !is_same_address(at, present) && !candidates.iter().any(is_known) {
                candidates.push(at);
            }
        }
        candidates
    }

    fn place_of(&self, member: Incarnation) -> Option<usize> {
        let mut list = self.list.iter();
        list.position(|search| search.member.incarnation == member)
    }

    /// The member has answered there. Returns whether that is its place from now on.
    pub(crate) fn on_answer(&mut self, now: Instant, question: PlaceQuestion) -> bool {
        let Some(index) = self.place_of(question.of) else {
            return false;
        };
        let search = &mut self.list[index];
        let (node_id, from) = (search.member.node_id, search.present);
        let news = match search.on_answer(now, question) {
            Found::Nothing => return false,
            Found::AtTwo(other) => PlaceNews::AtTwo {
                node_id,
                present: from,
                other,
            },
            Found::Moved => PlaceNews::Moved {
                node_id,
                from,
                to: question.at,
            },
        };
        if self.news.len() < PLACE_NEWS_MAX {
            self.news.push_back(news);
        }
        matches!(news, PlaceNews::Moved { .. })
    }

    /// A question has ended without an answer of the member.
    pub(crate) fn on_silence(&mut self, question: PlaceQuestion) {
        if let Some(index) = self.place_of(question.of) {
            let search = &mut self.list[index];
            search.missed += u32::from(question.at == search.present);
        }
    }

    /// The oldest news that was not read yet.
    pub(crate) fn next_news(&mut self) -> Option<PlaceNews> {
        self.news.pop_front()
    }

    /// Where a member answers beside its place.
    pub(crate) fn also_at(&self, member: Incarnation) -> Option<SocketAddr> {
        let search = &self.list[self.place_of(member)?];
        let other = search.other.filter(|other| other.is_told)?;
        Some(other.at)
    }

    /// Whether the place of a member was asked in vain.
    pub(crate) fn is_silent(&self, now: Instant, member: Incarnation) -> bool {
        let index = self.place_of(member);
        index.is_some_and(|index| self.list[index].is_silent(now, ASK_SILENT_EVERY))
    }
}

/// What an answer shows.
enum Found {
    Nothing,
    /// The member answers there and at its place.
    AtTwo(SocketAddr),
    /// It has moved there.
    Moved,
}

impl Search {
    fn new(member: &Member, present: SocketAddr) -> Self {
        Self {
            member: *member,
            present,
            heard: Rounds::default(),
            asked_at: None,
            missed: 0,
            other: None,
            last_at: None,
            round: 0,
        }
    }

    /// The member is there now. Rounds go on: answers to earlier ones may still come.
    fn begin_at(&mut self, present: SocketAddr) {
        *self = Self {
            round: self.round,
            // A copy that is known is one, wherever the member goes.
            other: self
                .other
                .filter(|other| other.is_told && other.at != present),
            ..Self::new(&self.member, present)
        };
    }

    /// Asks the present place, one that has answered beside it, and the next of the others, if that is due.
    fn ask(
        &mut self,
        now: Instant,
        present: SocketAddr,
        candidates: &[SocketAddr],
        often: bool,
    ) -> Vec<PlaceQuestion> {
        if present != self.present {
            self.begin_at(present);
        }
        self.other = self
            .other
            .filter(|other| now.saturating_since(other.last_at) < FORGET_AFTER);
        // Two answers at once say little: the present place may have ended in between.
        let is_doubtful = self.other.is_some_and(|other| !other.is_told);
        let pause = match often || self.asked_at.is_some() || is_doubtful {
            true => ASK_SILENT_EVERY,
            false => ASK_EVERY,
        };
        if self.last_at.is_some_and(|last| now < last + pause) {
            return Vec::new();
        }
        assert!(
            !candidates.is_empty(),
            "there is a place to ask beside the present one"
        );
        self.last_at = Some(now);
        self.asked_at.get_or_insert(now);
        self.round += 1;
        let (of, round) = (self.member.incarnation, self.round);
        let next = candidates[round as usize % candidates.len()];
        let again = self.other.map(|other| other.at).filter(|at| *at != next);
        let places = [present, next].into_iter().chain(again);
        places.map(|at| PlaceQuestion { of, at, round }).collect()
    }

    fn on_answer(&mut self, now: Instant, question: PlaceQuestion) -> Found {
        let PlaceQuestion { at, round, .. } = question;
        if at == self.present {
            self.heard.note(round);
            (self.asked_at, self.missed) = (None, 0);
            return self.judge_both(round);
        }
        // A copy is not followed either when the original falls silent: others may still hear that, and two logs would be
        // one member. Once nothing answers there any more, it is forgotten.
        let is_copy = self
            .other
            .is_some_and(|other| other.at == at && other.is_told);
        let has_left = self.is_silent(now, SILENT_FOR) && self.missed >= MISSED_MIN && !is_copy;
        if has_left || canary::planted("two places, the newer wins") {
            self.begin_at(at);
            return Found::Moved;
        }
        let other = self.other.get_or_insert(OtherPlace {
            at,
            last_at: now,
            heard: Rounds::default(),
            both_in: None,
            is_told: false,
        });
        if other.at != at {
            // One after the other: the first is forgotten once it is silent.
            return Found::Nothing;
        }
        other.last_at = now;
        other.heard.note(round);
        self.judge_both(round)
    }

    /// Whether a round has shown that the member answers at two places. One round shows little: a member may have moved
    /// amid it. One that moves to and fro answers at either place, and not in two rounds at both.
    fn judge_both(&mut self, round: u32) -> Found {
        let is_heard = self.heard.has(round);
        let both = self.other.as_mut().filter(|_| is_heard);
        let Some(other) = both.filter(|other| other.heard.has(round)) else {
            return Found::Nothing;
        };
        let before = other.both_in.replace(round);
        let is_repeated = before
            .is_some_and(|before| before != round && round.abs_diff(before) <= ROUNDS_APART_MAX);
        if other.is_told || !is_repeated {
            return Found::Nothing;
        }
        other.is_told = true;
        Found::AtTwo(other.at)
    }

    /// Whether the present place was asked in vain for so long.
    fn is_silent(&self, now: Instant, span: Duration) -> bool {
        self.asked_at
            .is_some_and(|asked| now.saturating_since(asked) >= span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_protocol::message::MemberRole;

    const OLD: &str = "10.0.0.2:7";
    const NEW: &str = "10.0.9.2:7";

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn at_ms(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn member() -> Member {
        Member {
            node_id: NodeId(2),
            role: MemberRole::Voter,
            incarnation: Incarnation(0x22),
            address: address(OLD),
        }
    }

    /// A replica whose list names node 2, and who answers at which place.
    struct Seeker {
        searches: Searches,
        addresses: Addresses,
        places: Places,
        now: u64,
        is_missed: bool,
    }

    impl Seeker {
        fn new(listed: &[&str]) -> Self {
            let mut addresses = Addresses::new(Vec::new());
            let listed: Vec<_> = listed.iter().map(|text| address(text)).collect();
            addresses.set_listed(NodeId(2), &listed);
            Self {
                searches: Searches::default(),
                addresses,
                places: Places::default(),
                now: 1,
                is_missed: false,
            }
        }

        /// Lets time pass while the member answers at these places. Returns the questions that were asked.
        fn run(&mut self, ms: u64, answering: &[&str]) -> Vec<SocketAddr> {
            let mut asked = Vec::new();
            for _ in 0..ms / 25 {
                self.now += 25;
                let now = at_ms(self.now);
                if now < self.searches.next_at() {
                    continue;
                }
                let due =
                    self.searches
                        .due(now, &[member()], (&self.addresses, &self.places), |_| {
                            self.is_missed
                        });
                for question in due {
                    asked.push(question.at);
                    let answers = answering.iter().any(|text| address(text) == question.at);
                    if !answers {
                        self.searches.on_silence(question);
                    } else if self.searches.on_answer(now, question) {
                        self.places.set(&member(), question.at, true);
                    }
                }
            }
            asked
        }

        fn place(&self) -> SocketAddr {
            self.places.of(&member())
        }
    }

    #[test]
    fn a_member_where_all_say_it_is_costs_no_question() {
        let mut seeker = Seeker::new(&[OLD]);
        assert_eq!(seeker.run(20_000, &[OLD]), []);
    }

    #[test]
    fn a_member_is_followed_once_its_old_place_was_asked_in_vain_for_two_seconds() {
        let mut seeker = Seeker::new(&[NEW]);
        seeker.run(1_950, &[NEW]);
        assert_eq!(seeker.place(), address(OLD));
        seeker.run(1_000, &[NEW]);
        assert_eq!(seeker.place(), address(NEW));
        let (node_id, from, to) = (NodeId(2), address(OLD), address(NEW));
        let moved = PlaceNews::Moved { node_id, from, to };
        assert_eq!(seeker.searches.next_news(), Some(moved));
        assert_eq!(seeker.searches.next_news(), None);
        // The table's place is asked from then on, and it may come back there.
        seeker.run(20_000, &[NEW]);
        assert_eq!(seeker.place(), address(NEW));
        seeker.run(10_000, &[OLD]);
        assert_eq!(seeker.place(), address(OLD));
    }

    #[test]
    fn a_place_that_answers_keeps_its_member_and_the_other_one_is_told_of_once() {
        let mut seeker = Seeker::new(&[NEW]);
        seeker.run(30_000, &[OLD, NEW]);
        assert_eq!(seeker.place(), address(OLD));
        let (node_id, present, other) = (NodeId(2), address(OLD), address(NEW));
        let copied = PlaceNews::AtTwo {
            node_id,
            present,
            other,
        };
        assert_eq!(seeker.searches.next_news(), Some(copied));
        assert_eq!(seeker.searches.next_news(), None);
        assert_eq!(
            seeker.searches.also_at(Incarnation(0x22)),
            Some(address(NEW))
        );
        // The copy has ended: that is over after a while.
        seeker.run(30_000, &[OLD]);
        assert_eq!(seeker.searches.also_at(Incarnation(0x22)), None);
        assert_eq!(seeker.searches.next_news(), None);
    }

    #[test]
    fn a_name_that_leads_nowhere_changes_nothing() {
        let many: Vec<String> = (1..=8).map(|n| format!("10.0.8.{n}:7")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let mut seeker = Seeker::new(&many);
        let asked = seeker.run(60_000, &[]);
        assert_eq!(seeker.place(), address(OLD));
        assert!(many.iter().all(|text| asked.contains(&address(text))));
        let asked = seeker.run(60_000, &[OLD]);
        assert_eq!(seeker.place(), address(OLD));
        assert!(
            asked.len() <= 2 * 14,
            "{} questions in a minute",
            asked.len()
        );
    }

    #[test]
    fn an_operators_word_leads_there_and_is_bounded() {
        let mut seeker = Seeker::new(&[OLD]);
        seeker.searches.name(at_ms(1), NodeId(2), address(NEW));
        seeker.run(3_000, &[NEW]);
        assert_eq!(seeker.place(), address(NEW));
        for port in 1..=2 * NAMED_MAX as u16 {
            let at = SocketAddr::from(([10, 0, 7, 2], port));
            seeker.searches.name(at_ms(1), NodeId(2), at);
            seeker.searches.name(at_ms(1), NodeId(2), at);
        }
        assert_eq!(seeker.searches.named.len(), NAMED_MAX);
        // Whatever is said of one member, the word about another stays.
        seeker.searches.name(at_ms(1), NodeId(3), address(NEW));
        for port in 101..=100 + 2 * NAMED_MAX as u16 {
            let at = SocketAddr::from(([10, 0, 7, 2], port));
            seeker.searches.name(at_ms(1), NodeId(2), at);
        }
        let words = seeker.searches.named.iter();
        assert_eq!(words.filter(|word| word.node_id == NodeId(3)).count(), 1);
        let newest = seeker.searches.named.back().map(|word| word.at.port());
        assert_eq!(newest, Some(100 + 2 * NAMED_MAX as u16));
        assert_eq!(seeker.searches.named.len(), NAMED_MAX);
    }

    /// A partition at one replica alone, or a pause of the original, must not make two logs one member.
    #[test]
    fn a_place_that_was_known_as_a_copys_is_not_followed_when_the_original_falls_silent() {
        let mut seeker = Seeker::new(&[NEW]);
        seeker.run(20_000, &[OLD, NEW]);
        seeker.run(60_000, &[NEW]);
        assert_eq!(seeker.place(), address(OLD));
        // The operator has ended both, and starts one.
        seeker.run(20_000, &[]);
        seeker.run(5_000, &[NEW]);
        assert_eq!(seeker.place(), address(NEW));
    }

    /// Seed 187 of the simulator, ahead of the entry that says where a member is: a group without a leader waited for five
    /// seconds before it asked again, because the member had answered a moment before it went.
    #[test]
    fn who_is_missed_is_asked_for_often() {
        let mut seeker = Seeker::new(&[NEW]);
        seeker.run(1_000, &[OLD]);
        seeker.run(3_000, &[NEW]);
        assert_eq!(seeker.place(), address(OLD));
        seeker.is_missed = true;
        seeker.run(2_500, &[NEW]);
        assert_eq!(seeker.place(), address(NEW));
    }

    /// Seed 7 of the simulator with `addresses` alone, ahead of the entry that says where a member is. A member that went to
    /// its new address, back, and there again within seconds was taken for two. Its new place was a copy's from then on, as
    /// long as it answered there: it was never followed.
    #[test]
    fn a_member_that_moves_to_and_fro_is_no_copy() {
        let mut seeker = Seeker::new(&[NEW]);
        for _ in 0..4 {
            seeker.run(900, &[OLD]);
            seeker.run(900, &[NEW]);
        }
        assert_eq!(seeker.searches.next_news(), None);
        seeker.run(3_000, &[NEW]);
        assert_eq!(seeker.place(), address(NEW));
    }

    /// The former place is not asked any more once the group has agreed on another. A newer word leads on.
    #[test]
    fn an_agreed_place_ends_the_words_on_the_former_one() {
        let (newer, of) = ("10.0.7.2:7", NodeId(2));
        let mut seeker = Seeker::new(&[NEW]);
        seeker.searches.name(at_ms(1), of, address(OLD));
        seeker.run(3_000, &[NEW]);
        assert_eq!(seeker.place(), address(NEW));
        seeker.searches.name(at_ms(3_000), of, address(newer));
        let agreed = Member {
            address: address(NEW),
            ..member()
        };
        let (addresses, places) = (&seeker.addresses, &seeker.places);
        let due = seeker
            .searches
            .due(at_ms(60_000), &[agreed], (addresses, places), |_| false);
        let asked: Vec<_> = due.iter().map(|question| question.at).collect();
        assert_eq!(asked, [address(NEW), address(newer)]);
    }

    /// This replica stood still, and the first answer that it reads is the other place's.
    #[test]
    fn time_without_a_question_is_no_silence() {
        let mut seeker = Seeker::new(&[NEW]);
        let (at, places) = (at_ms(1), Places::default());
        let asked = seeker
            .searches
            .due(at, &[member()], (&seeker.addresses, &places), |_| false);
        assert_eq!(asked.len(), 2);
        let other = asked
            .into_iter()
            .find(|question| question.at == address(NEW));
        let other = other.expect("both are asked");
        assert!(!seeker.searches.on_answer(at_ms(30_000), other));
    }

    /// The one place answers at once, the other's answer takes longer than it is to the next question.
    #[test]
    fn two_places_are_noticed_however_long_their_answers_take() {
        let mut search = Search::new(&member(), address(OLD));
        let at = |at, round| PlaceQuestion {
            of: Incarnation(0x22),
            at: address(at),
            round,
        };
        let mut told = 0;
        for round in 1..=6 {
            search.on_answer(at_ms(round.into()), at(OLD, round));
            if let Some(earlier) = round.checked_sub(2).filter(|earlier| *earlier > 0) {
                let found = search.on_answer(at_ms(round.into()), at(NEW, earlier));
                told += u32::from(matches!(found, Found::AtTwo(_)));
            }
        }
        assert_eq!(told, 1);
    }

    /// A slow answer, or one that was lost, is no silence.
    #[test]
    fn one_lost_answer_does_not_decide() {
        let mut seeker = Seeker::new(&[NEW]);
        seeker.run(1_500, &[NEW]);
        seeker.run(500, &[OLD, NEW]);
        seeker.run(1_500, &[NEW]);
        assert_eq!(seeker.place(), address(OLD));
    }
}
