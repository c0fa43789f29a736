//! Linearizable reads: by ReadIndex rounds, or on the leader under a lease that such a round has given.

use trine_kvstore::{Command, Response, Store, StoreError};
use trine_protocol::message::{ClientStatus, REFUSAL_TEXT_BYTES_MAX, ReplyToken};
use trine_transport::buf::MsgBuf;
use trine_transport::time::Instant;

use super::{Service, refusal, refuse};
use crate::config::{
    EXPIRED_RANGE_CHARGE_BYTES, RANGE_READ_BYTES_MIN, READ_ANSWER_BYTES_PER_TURN,
    READ_WAITS_FOR_SWEEP_MAX, ReadMode, WALK_CHARGE_BYTES,
};
use crate::group::cx::Cx;
use crate::reads::{AnswerWith, Read};
use crate::state_machine::StateMachine;

impl Service {
    /// A quorum has confirmed a round.
    pub(in crate::group) fn on_round_confirmed(
        &mut self,
        cx: &mut Cx<'_>,
        context: u64,
        index: u64,
    ) {
        let begun = self.reads.on_confirmed(context, index);
        if let (Some(begun), ReadMode::Lease) = (begun, cx.local.config.reads) {
            let length = cx.local.lease_length(cx.state);
            cx.consensus.extend_lease(begun, length);
        }
    }

    /// Questions to an earlier leader are asked again.
    pub(in crate::group) fn ask_again(&mut self) {
        self.reads.ask_again(Instant::FAR_FUTURE);
    }

    /// Reads that wait for the sweep begin again once it has caught up, or when they have waited for too long. They do not stay
    /// in their round: others are behind it.
    fn resume_behind_sweep(&mut self, cx: &Cx<'_>) {
        if !self.reads.has_behind_sweep() {
            return;
        }
        let is_behind = cx
            .state
            .is_some_and(|state| state.store().is_sweep_behind());
        self.reads.resume_behind_sweep(match is_behind {
            true => too_long_ago(cx.now),
            false => Instant::FAR_FUTURE,
        });
    }

    /// Begins a ReadIndex round if reads or admin clients wait for one, or if the lease that reads use runs out.
    pub(in crate::group) fn begin_read_round(&mut self, cx: &mut Cx<'_>, admin_waits: bool) {
        self.resume_behind_sweep(cx);
        let needed = match cx.consensus.lease_until(cx.now, cx.local) {
            Some(until) => {
                let left = until.saturating_since(cx.now).as_nanos();
                let used = self.reads.has_waiting() || self.reads.holds_answers();
                let length = cx.local.lease_length(cx.state).as_nanos();
                used && left < length / 2 && !self.reads.is_asking()
            }
            None => self.reads.needs_round(),
        };
        let needed = needed || (admin_waits && !self.reads.is_asking());
        let Some(context) = self.reads.next_round().filter(|_| needed) else {
            return;
        };
        if cx.consensus.read_index(context) {
            self.reads.on_begun(cx.now, context);
            cx.out.counters.read_rounds += 1;
        }
    }

    /// Reads under the lease. The answers are held back until the clock was read once more.
    pub(in crate::group) fn read_under_lease(&mut self, cx: &mut Cx<'_>) {
        let Some(state) = cx.state else { return };
        let current = state.applied_index() >= cx.raft().committed();
        if !self.reads.has_waiting() || !may_use_lease(cx) || !current {
            return;
        }
        let position = state.applied_position().as_u64();
        let group_time_ns = cx.clock.stamp(cx.now);
        let mut bytes = 0;
        for read in self.reads.take_waiting() {
            if bytes >= READ_ANSWER_BYTES_PER_TURN {
                self.reads.unread(read);
                continue;
            }
            if !read.is_allowed_at(state.store().users().changed_at()) {
                refuse(cx, read.token, ClientStatus::Busy);
                self.reads.give_up(read);
                continue;
            }
            if self.reads.may_wait_for_sweep() && waits_for_sweep(cx.now, &read, state.store()) {
                bytes += WALK_CHARGE_BYTES;
                self.reads.wait_for_sweep(read);
                continue;
            }
            let answer = match read.answer {
                AnswerWith::Value => Command::decode(&read.command).ok().and_then(|command| {
                    bytes += least_bytes(&command, state.store());
                    let response = state.store().read_at(&command, group_time_ns);
                    cx.out.response(cx.local.cluster, position, &response)
                }),
                denied => denial(cx, denied, &read.reason()),
            };
            match answer {
                Some(answer) => {
                    bytes += answer.len();
                    self.reads.hold(read, answer);
                }
                None => self.reads.unread(read),
            }
        }
    }

    /// The clock was read again: returns the reads that were made under the lease, or repeats them in another way.
    pub(in crate::group) fn release_reads(&mut self, cx: &mut Cx<'_>) {
        if !self.reads.holds_answers() {
            return;
        }
        if !may_use_lease(cx) {
            return self.reads.distrust_held();
        }
        for (read, answer) in self.reads.take_held() {
            cx.out.counters.reads_linearizable += 1;
            cx.out.counters.reads_under_lease += 1;
            cx.out.reply_bytes(read.token, answer);
            self.reads.recycle(read);
        }
    }

    /// Followers only: only they repeat a question that was lost on its way to the leader or back, and without a leader
    /// there is no replica to ask.
    pub(in crate::group) fn mind_forwarded_reads(&mut self, cx: &mut Cx<'_>) {
        if cx.raft().is_leader() || self.reads.count() == 0 {
            return;
        }
        let before = |ns: u64| Instant::from_nanos(cx.now.as_nanos().saturating_sub(ns));
        let heartbeat = cx.local.config.tick.as_nanos() * cx.local.config.heartbeat_ticks as u64;
        self.reads.ask_again(before(heartbeat));
        let patience = match cx.raft().leader() {
            0 => 0,
            _ => 2 * cx.local.election_timeout().as_nanos(),
        };
        for read in self.reads.take_older(before(patience)) {
            refuse(cx, read.token, ClientStatus::NotLeader);
        }
    }

    /// Answers the reads whose round is confirmed and applied.
    pub(in crate::group) fn answer_ready_reads(&mut self, cx: &mut Cx<'_>) {
        let Some(applied) = cx.state.map(StateMachine::applied_index) else {
            return;
        };
        let leads = cx.raft().is_leader();
        self.stale_bytes = 0;
        let mut bytes = 0;
        let mut ready = self.reads.take_ready(applied).into_iter();
        while bytes < READ_ANSWER_BYTES_PER_TURN
            && let Some(read) = ready.next()
        {
            let is_read = read.answer == AnswerWith::Value;
            let store = cx.state.map(StateMachine::store);
            if self.reads.may_wait_for_sweep()
                && store.is_some_and(|store| waits_for_sweep(cx.now, &read, store))
            {
                bytes += WALK_CHARGE_BYTES;
                self.reads.ready_waits_for_sweep(read);
                continue;
            }
            cx.out.counters.reads_linearizable += u64::from(is_read);
            cx.out.counters.reads_following += u64::from(is_read && !leads);
            bytes += answer_allowed(cx, &read);
            self.reads.recycle(read);
        }
        if ready.len() > 0 {
            self.reads.put_back(cx.now, applied, ready.collect());
        }
    }

    /// Whether reads are left that the next turn can answer.
    pub(in crate::group) fn has_ready_reads(&self, state: Option<&StateMachine>) -> bool {
        state.is_some_and(|state| self.reads.has_ready(state.applied_index()))
    }

    /// Answers a read from the state as it is here and now. Small requests for large pages must not hold up a turn: beyond
    /// what other reads may take of one, the client is told to ask again.
    pub(super) fn read_now(&mut self, cx: &mut Cx<'_>, token: ReplyToken, command: &[u8]) {
        if self.stale_bytes >= READ_ANSWER_BYTES_PER_TURN {
            return refuse(cx, token, ClientStatus::Busy);
        }
        cx.out.counters.reads_stale += 1;
        self.stale_bytes += answer_read(cx, token, command);
    }
}

/// Whether a read counts what is left of keys, while more have expired than it can leave out. Its caller would only ask
/// again.
fn waits_for_sweep(now: Instant, read: &Read, store: &Store) -> bool {
    // Nearly always the only question.
    if !store.has_expired_items() || read.answer != AnswerWith::Value {
        return false;
    }
    // The cheapest question first: the state of the sweep takes thousands of steps to find out, and a range is counted to
    // find out whether it can be.
    let counts = |command: Command<'_>| {
        matches!(command, Command::Count | Command::CountRange { .. })
            && store.is_sweep_behind()
            && store.read(&command) == Response::Error(StoreError::SweepBehind)
    };
    read.since >= too_long_ago(now) && Command::decode(&read.command).is_ok_and(counts)
}

/// Reads that came before this moment wait for the sweep no longer.
fn too_long_ago(now: Instant) -> Instant {
    let ns = now.as_nanos();
    Instant::from_nanos(ns.saturating_sub(READ_WAITS_FOR_SWEEP_MAX.as_nanos()))
}

fn may_use_lease(cx: &Cx<'_>) -> bool {
    cx.consensus.lease_until(cx.now, cx.local).is_some()
}

/// The same for a read that was allowed when it came. Its client asks again if the users were changed since: the follower
/// may have allowed it by what was not true any more.
fn answer_allowed(cx: &mut Cx<'_>, read: &Read) -> usize {
    let changed_at = cx.state.map(|state| state.store().users().changed_at());
    if changed_at.is_some_and(|changed_at| !read.is_allowed_at(changed_at)) {
        refuse(cx, read.token, ClientStatus::Busy);
        return 0;
    }
    if read.answer != AnswerWith::Value {
        let bytes = denial(cx, read.answer, &read.reason());
        cx.out.reply_or_owe(read.token, bytes);
        return read.command.len();
    }
    answer_read(cx, read.token, &read.command)
}

/// A request that its sender has no right to.
pub(super) fn denial(cx: &mut Cx<'_>, answer: AnswerWith, reason: &str) -> Option<MsgBuf> {
    cx.out.counters.denied += 1;
    if answer == AnswerWith::RegistrationDenial {
        let refusal = refusal(cx, ClientStatus::Denied);
        return cx.out.message(&refusal);
    }
    // A longer one would not fit beside those of a batch, whose sender had to take it for an unknown outcome.
    let reason = &reason[..reason.floor_char_boundary(REFUSAL_TEXT_BYTES_MAX)];
    cx.out
        .response(cx.local.cluster, 0, &Response::Denied { reason })
}

/// Returns the bytes of the store's response, or what the answer counts as.
fn answer_read(cx: &mut Cx<'_>, token: ReplyToken, command: &[u8]) -> usize {
    let Some(state) = cx.state else {
        refuse(cx, token, ClientStatus::NotAttached);
        return 0;
    };
    match Command::decode(command) {
        Ok(command) => {
            let position = state.applied_position().as_u64();
            // In an idle group no entry carries a stamp, but the leader knows how much time has passed. Elsewhere times
            // to live are as of the last entry.
            let response = match cx.raft().is_leader() {
                true => state.store().read_at(&command, cx.clock.stamp(cx.now)),
                false => state.store().read(&command),
            };
            cx.out
                .reply_response(token, cx.local.cluster, position, &response);
            response
                .encoded_len()
                .max(least_bytes(&command, state.store()))
        }
        Err(_) => {
            refuse(cx, token, ClientStatus::Malformed);
            0
        }
    }
}

/// What answering a command counts as, whatever the answer.
fn least_bytes(command: &Command<'_>, store: &Store) -> usize {
    match command {
        Command::Walk { .. } | Command::WalkAt { .. } => WALK_CHARGE_BYTES,
        // It looks at items one by one.
        Command::CountAt { .. } => EXPIRED_RANGE_CHARGE_BYTES,
        Command::Count if store.has_expired_items() => EXPIRED_RANGE_CHARGE_BYTES,
        command if command.range().is_some() && store.has_expired_items() => {
            EXPIRED_RANGE_CHARGE_BYTES
        }
        command if command.range().is_some() => RANGE_READ_BYTES_MIN,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_kvstore::{KeyRange, Limits, Position};

    /// While a sweep is behind, a COUNT looks at items one by one. It counted as much as one that adds two numbers.
    #[test]
    fn a_count_costs_more_while_expired_keys_are_there() {
        let mut store = Store::new(Limits::default(), [1, 2]).with_ordered();
        for number in 0..100_u8 {
            let (key, value) = (&[number][..], &b"v"[..]);
            let index = u64::from(number) + 1;
            store.apply(Position::new(index, 0), &Command::Put { key, value });
            let expire = Command::Expire { key, after_ns: 10 };
            store.apply(Position::new(index, 1), &expire);
        }
        let range = KeyRange::Prefix(b"");
        let cost = |store: &Store| least_bytes(&Command::CountRange { range }, store);
        assert_eq!(cost(&store), RANGE_READ_BYTES_MIN);
        store.set_group_time(10);
        assert_eq!(store.stats().items, 36, "64 are swept at a time");
        assert_eq!(cost(&store), 4 * WALK_CHARGE_BYTES);
        store.set_group_time(11);
        assert_eq!(cost(&store), RANGE_READ_BYTES_MIN);
    }
}
