//! Linearizable reads: by ReadIndex rounds, or on the leader under a lease that such a round has given.

use trine_kvstore::Command;
use trine_protocol::message::ClientStatus;
use trine_transport::time::{Duration, Instant};

use super::Group;
use super::local::election_timeout;
use crate::config::ReadMode;
use crate::outbox::Outbox;
use crate::state_machine::StateMachine;

impl Group {
    /// How long a confirmed leadership lasts.
    pub(super) fn lease_length(&self) -> Duration {
        self.local.lease_length(self.state.as_ref())
    }

    /// What is left of the lease; nothing if there is none.
    pub(super) fn lease_left(&self, now: Instant) -> Option<Duration> {
        let until = self.consensus.lease_until(now, &self.local)?;
        Some(until.saturating_since(now))
    }

    fn may_use_lease(&self, now: Instant) -> bool {
        self.consensus.lease_until(now, &self.local).is_some()
    }

    /// A quorum has confirmed a round.
    pub(super) fn on_round_confirmed(&mut self, context: u64, index: u64) {
        let begun = self.reads.on_confirmed(context, index);
        if let (Some(begun), ReadMode::Lease) = (begun, self.local.config.reads) {
            let length = self.lease_length();
            self.consensus.extend_lease(begun, length);
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
        if self.consensus.read_index(context) {
            self.reads.on_begun(now, context);
            out.counters.read_rounds += 1;
        }
    }

    /// Reads under the lease. The answers are held back until the clock was looked at once more.
    pub(super) fn read_under_lease(&mut self, now: Instant, out: &mut Outbox) {
        let Some(state) = &self.state else { return };
        let current = state.applied_index() >= self.consensus.raft().committed();
        if !self.reads.has_waiting() || !self.may_use_lease(now) || !current {
            return;
        }
        let position = state.applied_position().as_u64();
        for read in self.reads.take_waiting() {
            let answer = Command::decode(&read.command).ok().and_then(|command| {
                out.response(self.local.cluster, position, &state.store().read(&command))
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
        if self.consensus.raft().is_leader() || self.reads.count() == 0 {
            return;
        }
        let before = |ns: u64| Instant::from_nanos(now.as_nanos().saturating_sub(ns));
        let heartbeat =
            self.local.config.tick.as_nanos() * self.local.config.heartbeat_ticks as u64;
        self.reads.ask_anew(before(heartbeat));
        let patience = match self.consensus.raft().leader() {
            0 => 0,
            _ => 2 * election_timeout(&self.local.config).as_nanos(),
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
        let leads = self.consensus.raft().is_leader();
        for read in self.reads.take_ready(applied) {
            out.counters.reads_linearizable += 1;
            out.counters.reads_following += u64::from(!leads);
            self.answer_read(read.token, &read.command, out);
            self.reads.recycle(read);
        }
    }
}
