//! Linearizable reads: by ReadIndex rounds, or on the leader under a lease that such a round has given.
//!
//! A round that began at some moment and was confirmed by a quorum proves more than the lead at that moment: everybody
//! in the quorum has heard from this leader since, and votes for nobody else for the group's vote refusal time. Until
//! the beginning plus that time, less the drift that the settings allow, no other leader can exist. The lease stands on
//! ticks that are never made up in a burst, and on two more rules:
//! - An answer leaves only after the clock was read again *behind* the reading of the value: a process that is stopped
//!   between its look at the clock and its work would otherwise answer what came in meanwhile.
//! - Handing the lead over ends it for the rest of the term, and a change of the configuration ends it until the new
//!   quorum has confirmed the lead.

use trine_kvstore::Command;
use trine_protocol::message::ClientStatus;
use trine_transport::time::{Duration, Instant};

use super::{Group, election_timeout};
use crate::config::ReadMode;
use crate::outbox::Outbox;
use crate::state_machine::StateMachine;

/// Until when this leader may answer by itself.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Lease {
    until: Option<Instant>,
    /// Rounds that began before this say nothing about the present quorum.
    not_before: Instant,
    /// In this term the lead was, or is being, handed over.
    barred_term: Option<u64>,
}

impl Lease {
    /// The lead was lost or won.
    pub(super) fn end(&mut self) {
        self.until = None;
    }

    /// The configuration has changed.
    pub(super) fn interrupt(&mut self, now: Instant) {
        self.until = None;
        self.not_before = now;
    }

    /// The lead is being handed over.
    pub(super) fn bar(&mut self, term: u64) {
        self.until = None;
        self.barred_term = Some(term);
    }

    fn extend(&mut self, begun: Instant, length: Duration, term: u64) {
        if self.barred_term != Some(term) && begun >= self.not_before {
            let until = begun + length;
            self.until = Some(self.until.map_or(until, |before| before.max(until)));
        }
    }

    fn covers(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

impl Group {
    /// How long a confirmed lead lasts.
    pub(super) fn lease_length(&self) -> Duration {
        let refusal = self
            .state
            .as_ref()
            .map_or(0, |state| state.genesis().vote_refusal_ns);
        Duration::from_nanos(refusal).saturating_sub(self.config.lease_drift)
    }

    /// What is left of the lease; nothing if there is none.
    pub(super) fn lease_left(&self, now: Instant) -> Option<Duration> {
        let until = self.lease.until.filter(|_| self.may_use_lease(now))?;
        Some(until.saturating_since(now))
    }

    fn may_use_lease(&self, now: Instant) -> bool {
        self.config.reads == ReadMode::Lease
            && self.lease.covers(now)
            && self.leads_in == Some(self.raft.term())
            && self.raft.leads_with_commit()
    }

    /// A quorum has confirmed a round.
    pub(super) fn on_round_confirmed(&mut self, context: u64, index: u64) {
        let begun = self.reads.on_confirmed(context, index);
        // What a follower has heard says how things stood at its leader.
        if let (Some(begun), ReadMode::Lease, true) =
            (begun, self.config.reads, self.raft.is_leader())
        {
            self.lease
                .extend(begun, self.lease_length(), self.raft.term());
        }
    }

    /// Begins a ReadIndex round if reads or orders wait for one, or if the lease that reads use runs out.
    pub(super) fn begin_read_round(&mut self, now: Instant, out: &mut Outbox) {
        let needed = match self.lease_left(now) {
            Some(left) => {
                let used = self.reads.has_waiting() || self.reads.holds_answers();
                used && left.as_nanos() < self.lease_length().as_nanos() / 2
                    && !self.reads.is_asking()
            }
            None => self.reads.needs_round(),
        };
        let needed = needed || (self.has_unconfirmed_orders() && !self.reads.is_asking());
        let Some(context) = self.reads.next_round().filter(|_| needed) else {
            return;
        };
        if self.raft.read_index(context) {
            self.reads.on_begun(now, context);
            out.counters.read_rounds += 1;
        }
    }

    /// Reads under the lease. The answers are held back until the clock was looked at once more.
    pub(super) fn read_under_lease(&mut self, now: Instant, out: &mut Outbox) {
        let Some(state) = &self.state else { return };
        let current = state.applied_index() >= self.raft.committed();
        if !self.reads.has_waiting() || !self.may_use_lease(now) || !current {
            return;
        }
        let position = state.applied_position().as_u64();
        for read in self.reads.take_waiting() {
            let answer = Command::decode(&read.command).ok().and_then(|command| {
                out.response(self.cluster, position, &state.store().read(&command))
            });
            match answer {
                Some(answer) => self.reads.hold(read, answer),
                None => self.reads.unread(read),
            }
        }
    }

    /// The clock was looked at again: gives out what was read under the lease, or reads it anew in another way.
    pub(super) fn release_reads(&mut self, now: Instant, out: &mut Outbox) {
        if !self.reads.holds_answers() {
            return;
        }
        if !self.may_use_lease(now) {
            return self.reads.distrust_held();
        }
        for (read, answer) in self.reads.take_held() {
            out.counters.reads_linearizable += 1;
            out.counters.reads_under_lease += 1;
            out.reply_bytes(read.token, answer);
            self.reads.recycle(read);
        }
    }

    /// Followers alone: nobody but they repeat a question that was lost on its way to the leader or back, and without
    /// a leader there is nobody to ask.
    pub(super) fn mind_forwarded_reads(&mut self, now: Instant, out: &mut Outbox) {
        if self.raft.is_leader() || self.reads.count() == 0 {
            return;
        }
        let before = |ns: u64| Instant::from_nanos(now.as_nanos().saturating_sub(ns));
        let heartbeat = self.config.tick.as_nanos() * self.config.heartbeat_ticks as u64;
        self.reads.ask_anew(before(heartbeat));
        let patience = match self.raft.leader() {
            0 => 0,
            _ => 2 * election_timeout(&self.config).as_nanos(),
        };
        for read in self.reads.take_older(before(patience)) {
            self.refuse(read.token, ClientStatus::NotLeader, out);
        }
    }

    /// Answers the reads whose round is confirmed and applied.
    pub(super) fn answer_ready_reads(&mut self, out: &mut Outbox) {
        let Some(applied) = self.state.as_ref().map(StateMachine::applied_index) else {
            return;
        };
        let leads = self.raft.is_leader();
        for read in self.reads.take_ready(applied) {
            out.counters.reads_linearizable += 1;
            out.counters.reads_following += u64::from(!leads);
            self.answer_read(read.token, &read.command, out);
            self.reads.recycle(read);
        }
    }
}
