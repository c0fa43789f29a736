//! A member's service to clients: it takes requests, proposes writes, answers reads, and answers writes when they are
//! applied.

mod authors;
mod denials;
mod reads;
mod registrars;
mod reply_shares;
mod requests;
mod scans;

use raft::eraftpb::Entry;
use trine_canary as canary;
use trine_kvstore::Command;
use trine_protocol::message::{
    ClientReply, ClientRequest, ClientStatus, ClusterId, LeaderTiming, ReplyToken,
};
use trine_protocol::stages::WriteStages;
use trine_transport::time::{Duration, Instant};

use self::authors::Authors;
use self::denials::Denials;
use self::registrars::Registrars;
use self::reply_shares::ReplyShares;
use self::scans::ScanBudget;
use super::cx::Cx;
use crate::outbox::Outbox;
use crate::raft_group::{Proposal, ProposeError};
use crate::reads::Reads;
use crate::state_machine::entry::{EntryError, moves_time_alone};
use crate::state_machine::{CommandReply, StateMachine};
use crate::timing::{Stopwatch, Watched};
use crate::writes::Writes;

/// Clients' requests that wait, and the measurements on their way.
pub(super) struct Service {
    writes: Writes,
    reads: Reads,
    /// What stale reads have counted as since reads were answered last: see [`Service::read_now`].
    stale_bytes: usize,
    scans: ScanBudget,
    registrars: Registrars,
    reply_shares: ReplyShares,
    denials: Denials,
    authors: Authors,
    /// The switch that this leader waits for.
    next_switch: Option<NextSwitch>,
    /// See [`crate::timing`].
    stopwatch: Option<Stopwatch>,
    stages: WriteStages,
}

/// A state-machine version that all members understand, and that the group does not use yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct NextSwitch {
    pub(super) version: u8,
    /// None if an operator switches.
    pub(super) at: Option<Instant>,
}

impl NextSwitch {
    /// Whole seconds that are left at `now`; a part of one counts.
    fn seconds(self, now: Instant) -> Option<u32> {
        let left = self.at?.saturating_since(now).as_nanos();
        Some(u32::try_from(left.div_ceil(1_000_000_000)).unwrap_or(u32::MAX - 1))
    }
}

impl Service {
    /// What is known of the next switch; nothing unless this replica leads.
    pub(super) fn expect_switch(&mut self, switch: Option<NextSwitch>) {
        self.next_switch = switch;
    }

    /// ReadIndex rounds are numbered from `context` on.
    pub(super) fn starting_at(context: u64) -> Self {
        Self {
            writes: Writes::default(),
            reads: Reads::starting_at(context),
            stale_bytes: 0,
            scans: ScanBudget::new(),
            registrars: Registrars::new(),
            reply_shares: ReplyShares::default(),
            denials: Denials::default(),
            authors: Authors::default(),
            next_switch: None,
            stopwatch: None,
            stages: WriteStages::default(),
        }
    }

    /// Measures the times of writes, see [`crate::timing`].
    pub(super) fn lend_stopwatch(&mut self, stopwatch: Option<Stopwatch>) {
        self.stopwatch = stopwatch;
    }

    pub(super) fn stages(&self) -> &WriteStages {
        &self.stages
    }

    /// Whether reads wait here: on a follower each tick minds them.
    pub(super) fn has_waiting_reads(&self) -> bool {
        self.reads.count() > 0
    }

    /// Whether answers wait for one more reading of the clock.
    pub(super) fn holds_answers(&self) -> bool {
        self.reads.holds_answers()
    }

    /// Context of the ReadIndex round that begins next.
    pub(super) fn next_round(&self) -> u64 {
        self.reads.upcoming()
    }

    /// The time to report about something that happens in the turn that began at `now`.
    fn read_stopwatch(&self, now: Instant) -> Instant {
        self.stopwatch.map_or(now, |stopwatch| stopwatch())
    }

    /// Packs the writes that have arrived into one entry.
    pub(super) fn propose_waiting(&mut self, cx: &mut Cx<'_>) {
        if !self.writes.has_waiting() {
            return;
        }
        let watches = self.writes.watches();
        let proposed = watches.then(|| self.read_stopwatch(cx.now));
        let stamp = cx.clock.stamp(cx.now);
        let number = cx.clock.sweep_number(cx.now, stamp, cx.state);
        let data = self.writes.take_entry(stamp, number);
        let bytes = data.len();
        match cx.consensus.propose(data) {
            Ok(Proposal { index, term }) => {
                cx.out.counters.entries_proposed += 1;
                cx.clock.on_proposed(index, number);
                self.writes.on_proposed(index, term, bytes, proposed);
                self.reply_shares.on_proposed(index);
            }
            Err(error) => {
                let status = match error {
                    ProposeError::NotLeader => ClientStatus::NotLeader,
                    ProposeError::Dropped | ProposeError::ChangeInProgress => ClientStatus::Busy,
                };
                self.reply_shares.on_refused();
                for token in self.writes.take_waiting() {
                    refuse(cx, token, status);
                }
            }
        }
    }

    /// The newest entries were appended to the log, and handed out to the followers.
    pub(super) fn on_appended(&mut self, now: Instant) {
        let stopwatch = self.stopwatch;
        self.writes
            .on_appended(|| stopwatch.map_or(now, |stopwatch| stopwatch()));
    }

    /// A committed entry is applied, and the clients that wait for its commands here are answered. Returns how long an entry
    /// took that does nothing but move group time, if a stopwatch was lent.
    ///
    /// # Errors
    /// The entry cannot be read.
    pub(super) fn apply(
        &mut self,
        now: Instant,
        entry: &Entry,
        cluster: ClusterId,
        state: &mut StateMachine,
        out: &mut Outbox,
    ) -> Result<Option<Duration>, EntryError> {
        let measures = moves_time_alone(&entry.data) && !state.is_building_index();
        let began = self
            .stopwatch
            .filter(|_| measures)
            .map(|stopwatch| stopwatch());
        self.reply_shares.on_applied(entry.index);
        let applied = self.writes.take_applied(entry.index, entry.term);
        let stages = &mut self.stages;
        let mut watched = applied
            .as_ref()
            .and_then(|applied| Watched::of(&applied.traces, self.stopwatch, now));
        let result = state.apply(entry.index, &entry.data, |place, result| {
            let tokens = applied.as_ref().map(|applied| &applied.tokens);
            if let Some(&token) = tokens.and_then(|tokens| tokens.get(place)) {
                let timing = watched
                    .as_mut()
                    .and_then(|watched| watched.on_answer(place, stages));
                answer(token, cluster, &result, timing, out);
            }
        });
        if canary::planted("TTL from the local clock") {
            state.store_mut().set_group_time(now.as_nanos());
        }
        if canary::planted("the number of a sweep from the own clock") {
            let number = (now.as_nanos() / 1_000 % 1_000) as u16;
            state.store_mut().step_group_time(0, number);
        }
        result?;
        let ended = self.stopwatch.filter(|_| measures);
        let took = began
            .zip(ended)
            .map(|(began, stopwatch)| stopwatch().saturating_since(began));
        if let Some(applied) = applied {
            self.writes.recycle(applied.tokens);
        }
        Ok(took)
    }

    /// Leadership is lost: clients that wait here have to ask another replica.
    pub(super) fn abandon_clients(&mut self, cx: &mut Cx<'_>) {
        self.reply_shares.clear();
        for token in self.writes.take_proposed() {
            refuse(cx, token, ClientStatus::LeadershipLost);
        }
        for token in self.writes.take_waiting() {
            refuse(cx, token, ClientStatus::NotLeader);
        }
        for read in self.reads.take_all() {
            refuse(cx, read.token, ClientStatus::NotLeader);
        }
    }

    fn write(
        &mut self,
        cx: &mut Cx<'_>,
        token: ReplyToken,
        request: &ClientRequest<'_>,
        command: Option<&Command<'_>>,
    ) {
        if !self.writes.has_room(request) {
            self.propose_waiting(cx);
        }
        if let Some((state, command)) = cx.state.zip(command) {
            let (sessions, store) = (state.sessions(), state.store());
            self.reply_shares
                .note(sessions, store, request.client, command);
        }
        if self.writes.watches_next(request.timed) {
            let received = self.read_stopwatch(cx.now);
            self.writes.watch_next(received, request.timed);
        }
        self.writes.push(token, request);
        cx.out.counters.writes_proposed += 1;
    }
}

#[cfg(test)]
impl Service {
    pub(super) fn reads_mut(&mut self) -> &mut Reads {
        &mut self.reads
    }
}

/// Tells a client how its command ended.
fn answer(
    token: ReplyToken,
    cluster: ClusterId,
    answer: &CommandReply<'_>,
    timing: Option<LeaderTiming>,
    out: &mut Outbox,
) {
    let CommandReply {
        status,
        position,
        response,
    } = *answer;
    let reply = ClientReply {
        position: position.as_u64(),
        response,
        timing: timing.filter(|_| status == ClientStatus::Ok),
        ..ClientReply::refusal(status, cluster)
    };
    out.reply(token, &reply);
}

/// Answers a request without doing it.
fn refuse(cx: &mut Cx<'_>, token: ReplyToken, status: ClientStatus) {
    match status {
        ClientStatus::Busy => cx.out.counters.busy += 1,
        ClientStatus::NotLeader => cx.out.counters.redirected += 1,
        ClientStatus::ReplyShareTaken => cx.out.counters.reply_share_refused += 1,
        _ => {}
    }
    let refusal = refusal(cx, status);
    cx.out.reply(token, &refusal);
}

fn refusal(cx: &Cx<'_>, status: ClientStatus) -> ClientReply<'static> {
    let own = cx.local.own.address;
    ClientReply {
        leader: cx.leader_address().filter(|&leader| leader != own),
        ..ClientReply::refusal(status, cx.local.cluster)
    }
}
