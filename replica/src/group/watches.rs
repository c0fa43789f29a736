//! Watches: held requests of clients, each of which is answered when something of what it watches has changed.
//!
//! ```text
//! on_request --> behind      the state is not there yet that the request begins with
//!       |          |
//!       +----> arriving      the history since then is looked through, in slices
//!                  |  \
//!                  |   +---> answered
//!              settled       every new event is looked up in one index of all settled requests
//!                  |
//!                ready       something was found, or the time is over: answered as the turn has room
//! ```
//! The client says in each request all that it watches and from where it goes on, so it can ask another replica each time.
//! What it watches stays in the index for a moment behind an answer: it *rests*. The next request mostly is the same and comes
//! within a round trip, so it only takes its place. Otherwise each event would cost as much as all watches of its client.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use trine_canary as canary;
use trine_keys::Credential;
use trine_kvstore::history::{Change, Compacted, Event, History, Place};
use trine_kvstore::{Position, Users};
use trine_protocol::message::{
    ReplyToken, WATCH_REPLY_BYTES, WATCH_REPLY_BYTES_MIN, Watch, WatchReply, WatchRequest,
};
use trine_protocol::status::WatchStatus;
use trine_transport::Holder;
use trine_transport::time::Instant;

use super::local::Local;
use crate::config::{
    WATCH_ANSWERS_PER_TURN, WATCH_BEHIND_MAX, WATCH_BYTES_MAX, WATCH_BYTES_PER_HOLDER_MAX,
    WATCH_BYTES_PER_TURN, WATCH_EVENTS_PER_TURN, WATCH_HITS_MAX, WATCH_HOLD, WATCH_PAUSE_MS,
    WATCH_RANGES_MAX, WATCH_REST, WATCHERS_MAX, WATCHERS_PER_HOLDER_MAX,
};
use crate::outbox::Outbox;
use crate::rights::{Caller, Denied, Missing, Subject, What};
use crate::state_machine::StateMachine;
use crate::watch::line::Line;
use crate::watch::matcher::{Hit, Matcher};
use crate::watch::own::OwnWatch;
use crate::watch::page::{Known, Page};

/// Pause before it asks one again that is not there yet.
const SOON_MS: u32 = 100;

/// The watch requests of a replica.
#[derive(Default)]
pub(super) struct Watches {
    /// By their tickets.
    held: BTreeMap<u64, Held>,
    /// When each is due for an answer without events, or has rested for long enough.
    due: BTreeSet<(Instant, u64)>,
    by_watcher: BTreeMap<u64, u64>,
    behind: Vec<u64>,
    /// The history is looked through for the first one; only it has a scan.
    arriving: Line,
    scan: Option<Scan>,
    /// What the settled ones watch.
    index: Matcher,
    ready: VecDeque<u64>,
    /// The index was asked about everything up to here.
    looked: Option<Place>,
    /// Where the users were changed last when all rights were checked.
    users: Position,
    next_ticket: u64,
    charged: Charge,
    by_holder: BTreeMap<Holder, Charge>,
}

struct Held {
    /// None while it rests: it was answered, and what it watches is still in the index.
    token: Option<ReplyToken>,
    caller: Caller,
    holder: Holder,
    watcher: u64,
    since: Instant,
    due: Instant,
    known: Known,
    keys_only: bool,
    bytes_max: usize,
    watches: Vec<OwnWatch>,
    charge: Charge,
    settled: bool,
    /// It is among those that are to be answered.
    queued: bool,
    /// Events that the index has found, in their order.
    hits: Vec<(Place, u32)>,
    /// There were too many of them: the history is looked through instead.
    too_many: bool,
}

/// A look through the history for the request that is next.
struct Scan {
    matcher: Matcher,
    page: Page,
    place: Place,
}

/// What requests count against the limits.
#[derive(Clone, Copy, Default)]
struct Charge {
    watchers: usize,
    bytes: usize,
    ranges: usize,
}

/// The parts of a member that a watch request may look at.
pub(super) struct WatchCx<'a> {
    pub(super) now: Instant,
    pub(super) local: &'a Local,
    pub(super) state: Option<&'a StateMachine>,
    /// Of a leader that knows everything that was ever committed: the last entry of its log.
    pub(super) last_index: Option<u64>,
    pub(super) out: &'a mut Outbox,
}

impl Watches {
    /// Requests that are held.
    pub(super) fn status(&self, history: &History) -> WatchStatus {
        let asking = self.held.values().filter(|held| held.token.is_some());
        WatchStatus {
            watchers: asking.clone().count() as u64,
            watches: asking.map(|held| held.watches.len() as u64).sum(),
            history_bytes: history.memory_bytes() as u64,
            oldest: history.oldest().as_u64(),
        }
    }

    /// Whether another turn has something to do for watchers.
    pub(super) fn has_work(&self) -> bool {
        !self.arriving.is_empty() || !self.ready.is_empty()
    }

    /// A request has arrived.
    pub(super) fn on_request(
        &mut self,
        cx: WatchCx<'_>,
        token: ReplyToken,
        caller: Caller,
        holder: Holder,
        request: &WatchRequest<'_>,
    ) {
        let Some(state) = cx.state else {
            return later(cx.out, token, SOON_MS, "this replica has no state yet");
        };
        self.take_place_of(request.watcher, caller, cx.out);
        if let Err(refusal) = refusal(&cx, state, caller, request) {
            return refusal.reply(cx.out, token);
        }
        if self.go_on(cx.now, token, caller, holder, request) {
            return;
        }
        if let Err(why) = check(&request.watches) {
            return cx.out.reply(token, &WatchReply::Refused(why));
        }
        let charge = Charge::of(request);
        if !self.has_room(holder, charge) {
            self.end_rests();
        }
        if !self.has_room(holder, charge) || self.by_watcher.contains_key(&request.watcher) {
            cx.out.counters.busy += 1;
            let why = "as many clients as it can serve watch at this replica already";
            return later(cx.out, token, WATCH_PAUSE_MS, why);
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.charged.add(charge);
        self.by_holder.entry(holder).or_default().add(charge);
        self.by_watcher.insert(request.watcher, ticket);
        let known = Known {
            whole: Position::from_u64(request.from),
            part: request.part,
        };
        let due = cx.now + WATCH_HOLD;
        self.due.insert((due, ticket));
        self.held.insert(
            ticket,
            Held {
                token: Some(token),
                caller,
                holder,
                watcher: request.watcher,
                since: cx.now,
                due,
                known,
                keys_only: request.keys_only,
                bytes_max: (request.bytes_max as usize).min(WATCH_REPLY_BYTES),
                watches: request.watches.iter().map(OwnWatch::from).collect(),
                charge,
                settled: false,
                queued: false,
                hits: Vec::new(),
                too_many: false,
            },
        );
        self.check_counts();
        let is_here = known.whole <= state.applied_position();
        match is_here || canary::planted("event twice") {
            true => self.arriving.push(holder, ticket),
            false => self.behind.push(ticket),
        }
    }

    /// The earlier request of this watcher ends. A watcher is known by its number and by what its session has proven.
    fn take_place_of(&mut self, watcher: u64, caller: Caller, out: &mut Outbox) {
        let Some(&ticket) = self.by_watcher.get(&watcher) else {
            return;
        };
        if self
            .held
            .get(&ticket)
            .is_some_and(|held| held.caller == caller && held.token.is_some())
        {
            self.answer(ticket, &WatchReply::Replaced, out);
        }
    }

    /// The request goes on from where the watcher's last answer has ended, and takes the place of what rests. What rests and is
    /// about something else ends.
    fn go_on(
        &mut self,
        now: Instant,
        token: ReplyToken,
        caller: Caller,
        holder: Holder,
        request: &WatchRequest<'_>,
    ) -> bool {
        let Some(&ticket) = self.by_watcher.get(&request.watcher) else {
            return false;
        };
        let resting = self.held.get_mut(&ticket);
        let Some(held) = resting.filter(|held| held.token.is_none()) else {
            return false;
        };
        if !((held.caller, held.holder) == (caller, holder) && held.is_gone_on_by(request)) {
            self.take(ticket);
            return false;
        }
        held.token = Some(token);
        held.since = now;
        held.queued = held.too_many || !held.hits.is_empty();
        if held.queued {
            self.ready.push_back(ticket);
        }
        self.set_due(ticket, now + WATCH_HOLD);
        true
    }

    fn set_due(&mut self, ticket: u64, due: Instant) {
        if let Some(held) = self.held.get_mut(&ticket) {
            self.due.remove(&(held.due, ticket));
            self.due.insert((due, ticket));
            held.due = due;
        }
    }

    /// Nothing rests any more.
    fn end_rests(&mut self) {
        let rest = |(&ticket, held): (&u64, &Held)| held.token.is_none().then_some(ticket);
        for ticket in self.held.iter().filter_map(rest).collect::<Vec<_>>() {
            self.take(ticket);
        }
    }

    fn has_room(&self, holder: Holder, charge: Charge) -> bool {
        let all = self.charged;
        let of_holder = self.by_holder.get(&holder).copied().unwrap_or_default();
        // Callers that nothing tells apart have no share of their own.
        let shares = matches!(holder, Holder::Identity(_) | Holder::Address(_));
        all.watchers < WATCHERS_MAX
            && all.bytes + charge.bytes <= WATCH_BYTES_MAX
            && all.ranges + charge.ranges <= WATCH_RANGES_MAX
            && (!shares
                || (of_holder.watchers < WATCHERS_PER_HOLDER_MAX
                    && of_holder.bytes + charge.bytes <= WATCH_BYTES_PER_HOLDER_MAX
                    && of_holder.ranges + charge.ranges <= WATCH_RANGES_MAX / 4))
    }

    /// A request ends with this answer.
    fn answer(&mut self, ticket: u64, reply: &WatchReply<'_>, out: &mut Outbox) {
        if let Some(token) = self.take(ticket).and_then(|held| held.token) {
            out.reply(token, reply);
        }
    }

    /// Forgets a request, which is about to be answered.
    fn take(&mut self, ticket: u64) -> Option<Held> {
        if self.arriving.front() == Some(ticket) {
            self.scan = None;
        }
        let held = self.held.remove(&ticket)?;
        self.due.remove(&(held.due, ticket));
        if held.settled {
            for watch in &held.watches {
                self.index.remove(ticket, &watch.watch());
            }
        }
        self.by_watcher.remove(&held.watcher);
        self.charged.take(held.charge);
        if let Some(of_holder) = self.by_holder.get_mut(&held.holder) {
            of_holder.take(held.charge);
            if of_holder.watchers == 0 {
                self.by_holder.remove(&held.holder);
            }
        }
        self.check_counts();
        Some(held)
    }

    /// Each held request has one watcher, one due time and one charge.
    fn check_counts(&self) {
        let held = self.held.len();
        assert_eq!(self.by_watcher.len(), held, "a watcher has one request");
        assert_eq!(self.due.len(), held, "a request is due once");
        assert_eq!(self.charged.watchers, held, "a request is charged once");
    }

    /// All requests end: this replica serves nobody any more.
    pub(super) fn give_up(&mut self, why: &str, out: &mut Outbox) {
        for ticket in self.held.keys().copied().collect::<Vec<_>>() {
            let pause_ms = WATCH_PAUSE_MS;
            self.answer(ticket, &WatchReply::Later { pause_ms, why }, out);
        }
        *self = Self {
            next_ticket: self.next_ticket,
            ..Self::default()
        };
    }

    /// The state was replaced by a later one, whose history begins with it: every request is judged again.
    pub(super) fn on_new_state(&mut self) {
        self.end_rests();
        self.index = Matcher::default();
        (self.scan, self.looked) = (None, None);
        self.ready.clear();
        self.arriving.clear();
        self.behind.clear();
        for (ticket, held) in &mut self.held {
            held.settled = false;
            held.hits.clear();
            // The next turn finds out which of them are not behind any more.
            self.behind.push(*ticket);
        }
    }

    /// The work of one turn: what was applied since the last one is looked up, and whoever has something is answered.
    pub(super) fn serve(&mut self, now: Instant, state: Option<&StateMachine>, out: &mut Outbox) {
        let Some(state) = state.filter(|_| !self.held.is_empty()) else {
            // Requests that were answered before their turn came may still stand in line.
            (self.looked, self.scan) = (None, None);
            self.arriving.clear();
            self.ready.clear();
            self.behind.clear();
            return;
        };
        let Some(history) = state.store().history() else {
            return self.give_up("this replica keeps no history", out);
        };
        self.check_rights(state.store().users(), out);
        self.look_up(history);
        self.catch_up(now, state.applied_position(), out);
        let applied = state.applied_position();
        let mut events = 0;
        while events < WATCH_EVENTS_PER_TURN
            && self.look_through(now, history, applied, &mut events, out)
        {}
        self.end_overdue(now);
        let (mut bytes, mut answers) = (0, 0);
        while bytes < WATCH_BYTES_PER_TURN
            && answers < WATCH_ANSWERS_PER_TURN
            && let Some(ticket) = self.ready.pop_front()
        {
            bytes += self.answer_ready(now, ticket, history, applied, out);
            answers += 1;
        }
    }

    /// Once users were changed, everybody's rights are looked at again.
    fn check_rights(&mut self, users: &Users, out: &mut Outbox) {
        if users.changed_at() == self.users {
            return;
        }
        self.users = users.changed_at();
        self.end_rests();
        let denied = |held: &Held| {
            let watches: Vec<_> = held.watches.iter().map(OwnWatch::watch).collect();
            may(held.caller, &watches, users).err()
        };
        let denied: Vec<_> = self
            .held
            .iter()
            .filter_map(|(&ticket, held)| Some((ticket, denied(held)?)))
            .collect();
        for (ticket, denied) in denied {
            out.counters.denied += 1;
            self.answer(ticket, &WatchReply::Denied(&denied.to_string()), out);
        }
    }

    /// Looks the new events up for all who are settled.
    fn look_up(&mut self, history: &History) {
        let from = self.looked.replace(history.end());
        if self.index.is_empty() {
            return;
        }
        let Some(mut events) = from.and_then(|from| history.from(from)) else {
            return self.unsettle_all();
        };
        let mut hits = Vec::new();
        loop {
            let place = events.place();
            let Some(event) = events.next() else { return };
            match event.key() {
                Some(key) => self.index.find(key, &mut hits),
                None => self.find_all(&mut hits),
            }
            for &hit in &hits {
                self.note_hit(place, hit);
            }
        }
    }

    /// An event about all keys is one of everybody who is settled.
    fn find_all(&self, hits: &mut Vec<Hit>) {
        hits.clear();
        let settled = self.held.iter().filter(|(_, held)| held.settled);
        hits.extend(settled.map(|(&ticket, _)| Hit { ticket, id: 0 }));
    }

    fn note_hit(&mut self, place: Place, hit: Hit) {
        let Some(held) = self.held.get_mut(&hit.ticket) else {
            return;
        };
        if held.token.is_some() && !std::mem::replace(&mut held.queued, true) {
            self.ready.push_back(hit.ticket);
        }
        match held.hits.len() < WATCH_HITS_MAX && !held.too_many {
            true => held.hits.push((place, hit.id)),
            false => (held.too_many, held.hits) = (true, Vec::new()),
        }
    }

    /// More has happened than the history holds: whoever was settled is judged again.
    fn unsettle_all(&mut self) {
        self.end_rests();
        self.index = Matcher::default();
        self.ready.clear();
        for (&ticket, held) in self.held.iter_mut().filter(|(_, held)| held.settled) {
            held.settled = false;
            self.arriving.push(held.holder, ticket);
        }
    }

    /// Requests that begin with a position which is applied by now go on, and those that wait for too long go elsewhere.
    fn catch_up(&mut self, now: Instant, applied: Position, out: &mut Outbox) {
        for ticket in std::mem::take(&mut self.behind) {
            let Some(held) = self.held.get(&ticket) else {
                continue;
            };
            if held.known.whole <= applied {
                self.arriving.push(held.holder, ticket);
            } else if now.saturating_since(held.since) >= WATCH_BEHIND_MAX {
                let why = "this replica has not applied yet what the watch begins with";
                let pause_ms = SOON_MS;
                self.answer(ticket, &WatchReply::Later { pause_ms, why }, out);
            } else {
                self.behind.push(ticket);
            }
        }
    }

    /// Looks through a slice of the history for the request that is next. False if there is none.
    fn look_through(
        &mut self,
        now: Instant,
        history: &History,
        applied: Position,
        looked_at: &mut usize,
        out: &mut Outbox,
    ) -> bool {
        let Some(ticket) = self.arriving.front() else {
            return false;
        };
        let Some(held) = self.held.get(&ticket) else {
            self.arriving.pop_front();
            return true;
        };
        let mut scan = match self
            .scan
            .take()
            .map_or_else(|| Scan::begin(ticket, held, history), Ok)
        {
            Ok(scan) => scan,
            Err(_) if canary::planted("event lost at failover") => {
                self.arriving.pop_front();
                self.settle(ticket);
                return true;
            }
            Err(Compacted { oldest }) => {
                self.arriving.pop_front();
                out.counters.watches_compacted += 1;
                let oldest = oldest.as_u64();
                self.answer(ticket, &WatchReply::Compacted { oldest }, out);
                return true;
            }
        };
        match scan.go_on(held, history, looked_at) {
            ScanEnd::Slice => {
                self.scan = Some(scan);
                return true;
            }
            // It is judged again, by what it knows.
            ScanEnd::Lost => return true,
            ScanEnd::End => {}
        }
        self.arriving.pop_front();
        match scan.page.is_empty() {
            true => self.settle(ticket),
            false => self.hand_out(now, ticket, &scan.page, applied, out),
        }
        true
    }

    /// The request has seen everything that the history holds. It waits for more.
    fn settle(&mut self, ticket: u64) {
        let Some(held) = self.held.get_mut(&ticket) else {
            return;
        };
        assert!(!held.settled, "its watches are in the index once");
        held.settled = true;
        held.forget_hits();
        for watch in &held.watches {
            self.index.add(ticket, &watch.watch());
        }
    }

    /// Answers that say that nothing has happened are due, too, and what has rested for long enough ends.
    fn end_overdue(&mut self, now: Instant) {
        let mut rested = Vec::new();
        for &(_, ticket) in self.due.range(..=(now, u64::MAX)) {
            match self.held.get_mut(&ticket) {
                Some(held) if held.token.is_none() => rested.push(ticket),
                Some(held) if held.settled && !held.queued => {
                    held.queued = true;
                    self.ready.push_back(ticket);
                }
                _ => {}
            }
        }
        for ticket in rested {
            self.take(ticket);
        }
    }

    /// Answers a settled request with what the index has found for it, and returns the bytes of the answer.
    fn answer_ready(
        &mut self,
        now: Instant,
        ticket: u64,
        history: &History,
        applied: Position,
        out: &mut Outbox,
    ) -> usize {
        let is_ready = |held: &&Held| held.settled && held.token.is_some();
        let Some(held) = self.held.get(&ticket).filter(is_ready) else {
            return 0;
        };
        let page = match held.too_many {
            true => None,
            false => held.page_of_hits(history),
        };
        match page {
            Some(page) => {
                let bytes = page.writer().reply_len();
                self.hand_out(now, ticket, &page, applied, out);
                bytes
            }
            None => {
                for watch in &held.watches {
                    self.index.remove(ticket, &watch.watch());
                }
                self.arriving.push(held.holder, ticket);
                if let Some(held) = self.held.get_mut(&ticket) {
                    held.settled = false;
                }
                0
            }
        }
    }

    /// Answers a request, which then rests if it has seen everything.
    fn hand_out(
        &mut self,
        now: Instant,
        ticket: u64,
        page: &Page,
        applied: Position,
        out: &mut Outbox,
    ) {
        let known = page.known(applied);
        out.counters.watch_events += u64::from(page.writer().count());
        out.counters.watch_answers += 1;
        let reply = page.writer().reply(known.whole.as_u64(), known.part);
        if page.is_full() {
            return self.answer(ticket, &reply, out);
        }
        let Some(held) = self.held.get_mut(&ticket) else {
            return;
        };
        if let Some(token) = held.token.take() {
            out.reply(token, &reply);
        }
        held.known = known;
        match held.settled {
            true => held.forget_hits(),
            false => self.settle(ticket),
        }
        self.set_due(ticket, now + WATCH_REST);
    }
}

impl Held {
    fn forget_hits(&mut self) {
        (self.queued, self.too_many) = (false, false);
        self.hits.clear();
    }

    /// Whether a request of the same watcher is about the same and begins where the last answer has ended.
    fn is_gone_on_by(&self, request: &WatchRequest<'_>) -> bool {
        self.known.whole.as_u64() == request.from
            && self.known.part == request.part
            && self.keys_only == request.keys_only
            && self.bytes_max == (request.bytes_max as usize).min(WATCH_REPLY_BYTES)
            && self.watches.len() == request.watches.len()
            && self
                .watches
                .iter()
                .zip(&request.watches)
                .all(|(own, watch)| own.watch() == *watch)
    }

    /// The events that were found; nothing if they are gone by now.
    fn page_of_hits(&self, history: &History) -> Option<Page> {
        let mut page = Page::new(self.known, self.keys_only, self.bytes_max);
        for same in self.hits.chunk_by(|a, b| a.0 == b.0) {
            let event = history.from(same[0].0)?.next()?;
            let mut ids: Vec<u32> = same.iter().map(|&(_, id)| id).collect();
            if !self.add(&mut page, &event, &mut ids) {
                break;
            }
        }
        Some(page)
    }

    fn add(&self, page: &mut Page, event: &Event<'_>, ids: &mut Vec<u32>) -> bool {
        if event.change == Change::Flushed {
            *ids = self.watches.iter().map(|watch| watch.watch().id).collect();
        }
        ids.sort_unstable();
        page.add(event, ids)
    }
}

/// How far a look through the history has come.
enum ScanEnd {
    /// The turn has no room for more.
    Slice,
    /// To the end of the history, or of the page.
    End,
    /// The history has forgotten its place.
    Lost,
}

impl Scan {
    fn begin(ticket: u64, held: &Held, history: &History) -> Result<Self, Compacted> {
        let events = history.after(held.known.whole)?;
        Ok(Self {
            // Most requests come when nothing has happened since the last one.
            matcher: match events.clone().next() {
                None => Matcher::default(),
                Some(_) => Matcher::of(ticket, held.watches.iter().map(OwnWatch::watch)),
            },
            page: Page::new(held.known, held.keys_only, held.bytes_max),
            place: events.place(),
        })
    }

    fn go_on(&mut self, held: &Held, history: &History, looked_at: &mut usize) -> ScanEnd {
        let Some(mut events) = history.from(self.place) else {
            return ScanEnd::Lost;
        };
        let mut hits = Vec::new();
        while *looked_at < WATCH_EVENTS_PER_TURN {
            let Some(event) = events.next() else {
                return ScanEnd::End;
            };
            *looked_at += 1;
            if event.position <= held.known.whole {
                continue;
            }
            let mut ids = Vec::new();
            if let Some(key) = event.key() {
                self.matcher.find(key, &mut hits);
                if hits.is_empty() {
                    continue;
                }
                ids.extend(hits.iter().map(|hit| hit.id));
            }
            if !held.add(&mut self.page, &event, &mut ids) {
                return ScanEnd::End;
            }
        }
        self.place = events.place();
        ScanEnd::Slice
    }
}

impl Charge {
    fn of(request: &WatchRequest<'_>) -> Self {
        let watches = &request.watches;
        Self {
            watchers: 1,
            bytes: watches.iter().map(OwnWatch::charge).sum(),
            ranges: watches
                .iter()
                .filter(|watch| OwnWatch::is_between(watch))
                .count(),
        }
    }

    fn add(&mut self, other: Self) {
        self.watchers += other.watchers;
        self.bytes += other.bytes;
        self.ranges += other.ranges;
    }

    fn take(&mut self, other: Self) {
        assert!(self.bytes >= other.bytes, "what is taken was added");
        assert!(self.ranges >= other.ranges, "what is taken was added");
        self.watchers -= other.watchers;
        self.bytes -= other.bytes;
        self.ranges -= other.ranges;
    }
}

/// Why a request is not held.
enum WatchRefusal {
    Later(&'static str),
    Elsewhere(&'static str),
    Future(Position),
    Refused(String),
    Denied(Denied),
}

impl WatchRefusal {
    fn reply(&self, out: &mut Outbox, token: ReplyToken) {
        match self {
            Self::Later(why) => later(out, token, WATCH_PAUSE_MS, why),
            Self::Elsewhere(why) => later(out, token, 0, why),
            Self::Future(applied) => {
                let applied = applied.as_u64();
                out.reply(token, &WatchReply::Future { applied });
            }
            Self::Refused(why) => out.reply(token, &WatchReply::Refused(why)),
            Self::Denied(denied) => {
                out.counters.denied += 1;
                out.reply(token, &WatchReply::Denied(&denied.to_string()));
            }
        }
    }
}

fn later(out: &mut Outbox, token: ReplyToken, pause_ms: u32, why: &str) {
    out.reply(token, &WatchReply::Later { pause_ms, why });
}

fn refusal(
    cx: &WatchCx<'_>,
    state: &StateMachine,
    caller: Caller,
    request: &WatchRequest<'_>,
) -> Result<(), WatchRefusal> {
    let ours = cx.local.cluster;
    if request.cluster != ours {
        let why = format!("this replica belongs to cluster {ours}");
        return Err(WatchRefusal::Refused(why));
    }
    if let Err(denied) = may(caller, &request.watches, state.store().users()) {
        // A follower may not have heard of a new user. A key that it knows to be void stays so.
        let is_unknown = matches!(denied.missing, Missing::Key { .. } | Missing::User)
            && !is_void(caller, state.store().users());
        return Err(match is_unknown && cx.last_index.is_none() {
            true => WatchRefusal::Later("this replica may not have heard yet of the user"),
            false => WatchRefusal::Denied(denied),
        });
    }
    if state.store().history().is_none() {
        return Err(WatchRefusal::Later(
            "this replica keeps no history of changes: it was started with --watch-history 0",
        ));
    }
    if (request.bytes_max as usize) < WATCH_REPLY_BYTES_MIN {
        let why = format!("a watcher has to have room for {WATCH_REPLY_BYTES_MIN} bytes");
        return Err(WatchRefusal::Refused(why));
    }
    if request.prefer_follower && cx.last_index.is_some() && state.members().all().len() > 1 {
        return Err(WatchRefusal::Elsewhere(
            "this replica leads, and a follower can serve the watch",
        ));
    }
    let from = Position::from_u64(request.from);
    if cx.last_index.is_some_and(|last| from.index() > last) {
        return Err(WatchRefusal::Future(state.applied_position()));
    }
    Ok(())
}

/// Whether there can be such watches, and each is there once.
fn check(watches: &[Watch<'_>]) -> Result<(), &'static str> {
    watches.iter().try_for_each(OwnWatch::check)?;
    match has_twins(watches) {
        true => Err("a request watches each key, prefix and range once"),
        false => Ok(()),
    }
}

/// Whether two watches are of the same thing. A thousand of them would make each change of it cost a thousand times as
/// much.
fn has_twins(watches: &[Watch<'_>]) -> bool {
    let mut targets: Vec<_> = watches.iter().map(Watch::parts).collect();
    targets.sort_unstable();
    targets.windows(2).any(|pair| pair[0] == pair[1])
}

fn is_void(caller: Caller, users: &Users) -> bool {
    matches!(caller, Caller::Proven(Credential::User { name, generation }) if users.is_void(name, generation))
}

fn may(caller: Caller, watches: &[Watch<'_>], users: &Users) -> Result<(), Denied> {
    Subject::of(caller, users)?.may(What::Watch(watches))
}
