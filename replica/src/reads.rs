//! Linearizable reads: one ReadIndex round confirms every read that had arrived before it began.
//!
//! A follower does the same, only that its question goes to the leader first. A question that was lost on that way is
//! not repeated. A follower therefore asks again, under another context, for the reads of a round that is not confirmed
//! in time. If the first question was not lost but slow, its late answer still settles the round: the leader was
//! confirmed after it.
//!
//! A round begins with `read_index`, whose context comes back once a quorum has confirmed that this replica still led
//! after that moment. A read may only ride in a round that began after the read had arrived, and is answered once the
//! commit index of the round's beginning is applied. Rounds that get no answer are asked again by raft itself: each
//! heartbeat carries the context of the last one, and its confirmation settles all earlier ones.

use std::borrow::Cow;
use std::collections::VecDeque;

use trine_canary as canary;
use trine_kvstore::Position;
use trine_protocol::message::ReplyToken;
use trine_transport::buf::MsgBuf;
use trine_transport::time::Instant;

use crate::config::READ_ROUNDS_MAX;
use crate::config::READS_BEHIND_SWEEP_MAX;

/// A read that waits, or a denial: this replica may have been deposed without knowing it, and may not know who was added
/// since. So a denial waits for the same confirmation as a value does.
pub(crate) struct Read {
    pub(crate) token: ReplyToken,
    pub(crate) answer: AnswerWith,
    /// A read-only command of the store, or the reason of a denial.
    pub(crate) command: Vec<u8>,
    /// When it came.
    pub(crate) since: Instant,
    /// Where the users were changed last when it was allowed or denied, if it is a user's: it is not answered behind the
    /// next change.
    pub(crate) users: Option<Position>,
}

/// What a read is answered with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AnswerWith {
    /// What the command reads.
    Value,
    /// The denial of a command.
    Denial,
    /// The denial of a registration.
    RegistrationDenial,
}

impl Read {
    /// Why it is denied, if it is.
    pub(crate) fn reason(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.command)
    }

    /// Whether it is still allowed, or denied, where the users were changed last at `changed_at`. If not, its client asks again.
    pub(crate) fn is_allowed_at(&self, changed_at: Position) -> bool {
        self.users.is_none_or(|users| users == changed_at)
    }
}

struct Round {
    context: u64,
    begun: Instant,
    /// The commit index of the round's beginning, once the round is confirmed.
    index: Option<u64>,
    /// Its question may be lost: another one is asked for it, and it keeps no other round from beginning.
    late: bool,
    reads: Vec<Read>,
}

/// The read path of a replica. Every token that goes in comes out exactly once.
#[derive(Default)]
pub(crate) struct Reads {
    waiting: Vec<Read>,
    /// In the order of their beginnings. Invariant: those with an index come first.
    rounds: VecDeque<Round>,
    /// Read under a lease, and not given out before the clock was read once more.
    held: Vec<(Read, MsgBuf)>,
    /// They cannot be answered until expired items are removed. Then they begin again.
    behind_sweep: Vec<Read>,
    next_context: u64,
    /// Rounds have become late since the last one began.
    must_ask_again: bool,
    count: usize,
    /// Bytes of the commands of all of them.
    bytes: usize,
    /// Buffers of commands that were answered.
    spare: Vec<Vec<u8>>,
}

/// Most buffers that are kept for reuse, and the largest capacity worth keeping.
const SPARE_MAX: usize = 256;
const SPARE_BYTES_MAX: usize = 4096;

impl Reads {
    /// Rounds are numbered from `context` on.
    pub(crate) fn starting_at(context: u64) -> Self {
        Self {
            next_context: context,
            ..Self::default()
        }
    }

    /// Reads that wait.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Bytes of their commands.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// A read has arrived.
    pub(crate) fn push(
        &mut self,
        now: Instant,
        token: ReplyToken,
        answer: AnswerWith,
        command: &[u8],
        users: Option<Position>,
    ) {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.extend_from_slice(command);
        self.waiting.push(Read {
            token,
            answer,
            command: buffer,
            since: now,
            users,
        });
        self.count += 1;
        self.bytes += command.len();
    }

    /// A read was answered: its buffer can be used again.
    pub(crate) fn recycle(&mut self, read: Read) {
        let mut buffer = read.command;
        if self.spare.len() < SPARE_MAX && buffer.capacity() <= SPARE_BYTES_MAX {
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    /// Whether reads wait that are in no round yet.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether a round has to begin: reads wait for one, or the question of an earlier one may be lost.
    pub(crate) fn needs_round(&self) -> bool {
        self.has_waiting() || self.must_ask_again
    }

    /// Whether a round is under way.
    pub(crate) fn is_asking(&self) -> bool {
        let asks = |round: &Round| round.index.is_none() && !round.late;
        self.rounds.iter().any(asks)
    }

    /// The context of the next round, unless too many are outstanding.
    pub(crate) fn next_round(&self) -> Option<u64> {
        let outstanding = self
            .rounds
            .iter()
            .filter(|round| round.index.is_none() && !round.late)
            .count();
        (outstanding < READ_ROUNDS_MAX).then_some(self.next_context)
    }

    /// The context that the next round to begin will have.
    pub(crate) fn upcoming(&self) -> u64 {
        self.next_context
    }

    /// The round has begun: it carries everything that had arrived by now.
    pub(crate) fn on_begun(&mut self, now: Instant, context: u64) {
        assert_eq!(context, self.next_context, "a context is of one round");
        self.next_context = context + 1;
        self.must_ask_again = false;
        let reads = std::mem::take(&mut self.waiting);
        self.rounds.push_back(Round {
            context,
            begun: now,
            index: None,
            late: false,
            reads,
        });
    }

    /// A quorum has confirmed the round: returns when it had begun. A late confirmation returns nothing, for it proves
    /// nothing about the present leadership. Unknown contexts are of an earlier leadership, or in disk mode of the time
    /// before a restart. Their numbers may be greater than the present ones: they prove nothing about any round.
    pub(crate) fn on_confirmed(&mut self, context: u64, index: u64) -> Option<Instant> {
        let asked = |round: &Round| round.index.is_none() && round.context == context;
        let own = self.rounds.iter().find(|round| asked(round))?;
        let begun = Some(own.begun).filter(|_| !own.late);
        for round in &mut self.rounds {
            if round.index.is_none() && round.context <= context {
                // An earlier round began at a lower commit index; the later one's is safe for it, too.
                round.index = Some(index);
            }
        }
        let waits = |round: &Round| round.index.is_none();
        assert!(
            self.rounds.iter().is_sorted_by_key(waits),
            "those with an index come first"
        );
        begun
    }

    /// Unconfirmed rounds that began before `limit` are asked again. The confirmation of a later round settles them,
    /// and so does their own if it still comes. A leader that is slow to answer is not asked in vain.
    pub(crate) fn ask_again(&mut self, limit: Instant) {
        for round in &mut self.rounds {
            if round.index.is_none() && round.begun < limit && !round.late {
                round.late = true;
                self.must_ask_again |= !round.reads.is_empty();
            }
        }
        self.must_ask_again |=
            self.rounds.iter().any(|r| r.late && !r.reads.is_empty()) && !self.is_asking();
        self.drop_empty_late();
    }

    /// Takes the reads that came before `limit` and that seem to stay unconfirmed, or whose entries do not come.
    pub(crate) fn take_older(&mut self, limit: Instant) -> Vec<Read> {
        let is_old = |read: &mut Read| read.since < limit;
        let mut old: Vec<Read> = self.waiting.extract_if(.., is_old).collect();
        old.extend(self.behind_sweep.extract_if(.., is_old));
        for round in self
            .rounds
            .iter_mut()
            .filter(|round| round.late || round.index.is_some())
        {
            old.extend(round.reads.extract_if(.., is_old));
        }
        self.drop_empty_late();
        self.forget(old.iter());
        old
    }

    /// A round without waiting reads need not be remembered; a confirmation settles by its number.
    fn drop_empty_late(&mut self) {
        let settled = |round: &Round| round.late || round.index.is_some();
        self.rounds
            .retain(|round| !(settled(round) && round.reads.is_empty()));
    }

    /// Reads that may be answered from a state machine that has applied everything up to `applied`.
    pub(crate) fn take_ready(&mut self, applied: u64) -> Vec<Read> {
        let mut ready = Vec::new();
        let early = canary::planted("read before its index is applied");
        while self
            .rounds
            .front()
            .is_some_and(|round| round.index.is_some_and(|index| index <= applied || early))
        {
            ready.extend(
                self.rounds
                    .pop_front()
                    .into_iter()
                    .flat_map(|round| round.reads),
            );
        }
        self.forget(ready.iter());
        ready
    }

    /// The turn was not long enough for these, which were ready at `applied`: they stay ready.
    pub(crate) fn put_back(&mut self, now: Instant, applied: u64, reads: Vec<Read>) {
        self.count += reads.len();
        self.bytes += reads.iter().map(|read| read.command.len()).sum::<usize>();
        self.rounds.push_front(Round {
            context: 0,
            begun: now,
            index: Some(applied),
            late: false,
            reads,
        });
    }

    /// Whether reads may be answered from the state up to `applied`.
    pub(crate) fn has_ready(&self, applied: u64) -> bool {
        let index = self.rounds.front().and_then(|round| round.index);
        index.is_some_and(|index| index <= applied)
    }

    /// Reads in no round: to be answered under a lease. Each comes back through [`Reads::hold`] [`Reads::unread`] or
    /// [`Reads::give_up`].
    pub(crate) fn take_waiting(&mut self) -> Vec<Read> {
        std::mem::take(&mut self.waiting)
    }

    /// A read that was answered under a lease, with its answer.
    pub(crate) fn hold(&mut self, read: Read, answer: MsgBuf) {
        self.held.push((read, answer));
    }

    /// A read that was not answered after all.
    pub(crate) fn unread(&mut self, read: Read) {
        self.waiting.push(read);
    }

    /// A read of [`Reads::take_waiting`] has to wait for the sweep.
    pub(crate) fn wait_for_sweep(&mut self, read: Read) {
        self.behind_sweep.push(read);
    }

    /// A read of [`Reads::take_ready`] has to wait for the sweep.
    pub(crate) fn ready_waits_for_sweep(&mut self, read: Read) {
        self.count += 1;
        self.bytes += read.command.len();
        self.behind_sweep.push(read);
    }

    /// Whether one more read may wait for the sweep. All of them have places among the requests of a replica.
    pub(crate) fn may_wait_for_sweep(&self) -> bool {
        self.behind_sweep.len() < READS_BEHIND_SWEEP_MAX
    }

    /// Whether reads wait for the sweep.
    pub(crate) fn has_behind_sweep(&self) -> bool {
        !self.behind_sweep.is_empty()
    }

    /// The reads that wait for the sweep and came before `limit` begin again: they may ride in the next round.
    pub(crate) fn resume_behind_sweep(&mut self, limit: Instant) {
        let is_old = |read: &mut Read| read.since < limit;
        let resumed = self.behind_sweep.extract_if(.., is_old);
        self.waiting.extend(resumed);
    }

    /// A read that was refused after all.
    pub(crate) fn give_up(&mut self, read: Read) {
        self.forget(std::iter::once(&read));
        self.recycle(read);
    }

    /// Whether answers are held.
    pub(crate) fn holds_answers(&self) -> bool {
        !self.held.is_empty()
    }

    /// The lease was still running after these were read.
    pub(crate) fn take_held(&mut self) -> Vec<(Read, MsgBuf)> {
        let held = std::mem::take(&mut self.held);
        self.forget(held.iter().map(|(read, _)| read));
        held
    }

    fn forget<'a>(&mut self, gone: impl Iterator<Item = &'a Read>) {
        for read in gone {
            self.count -= 1;
            self.bytes -= read.command.len();
        }
        assert!(
            self.count > 0 || self.bytes == 0,
            "the bytes are those of the reads"
        );
    }

    /// The lease had ended before the clock was read again: the values that were read are worth
    /// nothing.
    pub(crate) fn distrust_held(&mut self) {
        let held = std::mem::take(&mut self.held);
        self.waiting.extend(held.into_iter().map(|(read, _)| read));
        assert!(
            self.waiting.len() <= self.count,
            "each read that waits is counted"
        );
    }

    /// Leadership is lost: all reads, none of which may be answered here.
    pub(crate) fn take_all(&mut self) -> Vec<Read> {
        self.must_ask_again = false;
        self.distrust_held();
        let (count, bytes) = (
            std::mem::take(&mut self.count),
            std::mem::take(&mut self.bytes),
        );
        let mut all: Vec<Read> = self
            .rounds
            .drain(..)
            .flat_map(|round| round.reads)
            .collect();
        all.append(&mut self.waiting);
        all.append(&mut self.behind_sweep);
        assert_eq!(all.len(), count, "each read that went in comes out");
        let of_all: usize = all.iter().map(|read| read.command.len()).sum();
        assert_eq!(of_all, bytes, "the bytes are those of the reads");
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(reads: &mut Reads, token: u64) {
        reads.push(
            Instant::ZERO,
            ReplyToken(token),
            AnswerWith::Value,
            &[],
            None,
        );
    }

    fn tokens(reads: &[Read]) -> Vec<u64> {
        reads.iter().map(|read| read.token.0).collect()
    }

    #[test]
    fn a_read_never_rides_in_a_round_that_began_before_it() {
        let mut reads = Reads::default();
        push(&mut reads, 1);
        let first = reads.next_round().unwrap();
        reads.on_begun(Instant::ZERO, first);
        push(&mut reads, 2);
        reads.on_confirmed(first, 10);
        assert_eq!(tokens(&reads.take_ready(10)), [1]);
        assert_eq!(reads.count(), 1);
        let second = reads.next_round().unwrap();
        assert_ne!(first, second);
    }

    #[test]
    fn a_confirmed_read_waits_until_its_index_is_applied() {
        let mut reads = Reads::default();
        push(&mut reads, 1);
        reads.on_begun(Instant::ZERO, 0);
        reads.on_confirmed(0, 10);
        assert!(reads.take_ready(9).is_empty());
        assert_eq!(tokens(&reads.take_ready(10)), [1]);
    }

    /// Large values take a turn's time. The rest is answered in the next one, ahead of later rounds.
    #[test]
    fn reads_that_are_put_back_are_ready_and_come_first() {
        let mut reads = Reads::default();
        for token in 0..4 {
            push(&mut reads, token);
        }
        reads.on_begun(Instant::ZERO, 0);
        reads.on_confirmed(0, 10);
        let mut ready = reads.take_ready(10);
        let rest = ready.split_off(1);
        reads.put_back(Instant::ZERO, 10, rest);
        assert_eq!(reads.count(), 3);
        push(&mut reads, 4);
        reads.on_begun(Instant::ZERO, 1);
        assert!(reads.has_ready(10));
        assert_eq!(tokens(&reads.take_ready(10)), [1, 2, 3]);
        assert!(!reads.has_ready(10));
        reads.on_confirmed(1, 12);
        assert_eq!(tokens(&reads.take_ready(12)), [4]);
        assert_eq!((reads.count(), reads.bytes()), (0, 0));
    }

    #[test]
    fn a_later_confirmation_settles_earlier_rounds_and_rounds_are_bounded() {
        let mut reads = Reads::default();
        for token in 0..READ_ROUNDS_MAX as u64 {
            push(&mut reads, token);
            let context = reads.next_round().unwrap();
            reads.on_begun(Instant::ZERO, context);
        }
        push(&mut reads, 99);
        assert_eq!(reads.next_round(), None);
        reads.on_confirmed(READ_ROUNDS_MAX as u64 - 1, 5);
        assert_eq!(reads.take_ready(5).len(), READ_ROUNDS_MAX);
        assert!(reads.next_round().is_some());
    }

    #[test]
    fn a_question_that_was_lost_is_asked_again() {
        let at = |ns| Instant::from_nanos(ns);
        let mut reads = Reads::default();
        push(&mut reads, 1);
        reads.on_begun(at(10), 0);
        push(&mut reads, 2);
        reads.on_begun(at(20), 1);
        reads.on_confirmed(0, 5);
        reads.ask_again(at(20));
        assert!(!reads.needs_round(), "the second is not late yet");
        reads.ask_again(at(21));
        assert!(reads.needs_round());
        let next = reads.next_round().unwrap();
        reads.on_begun(at(30), next);
        assert!(!reads.needs_round());
        assert_eq!(tokens(&reads.take_ready(100)), [1]);
        reads.on_confirmed(next, 9);
        assert_eq!(tokens(&reads.take_ready(100)), [2]);
        assert!(reads.take_ready(100).is_empty());
        assert_eq!((reads.count(), reads.bytes()), (0, 0));
    }

    /// A leader's answers to a follower waited behind 40 ms of appends on a session with two credits. The follower gave
    /// each round up after 30 ms, took its reads into the next, and ignored the answer that came 10 ms later. For as
    /// long as the load lasted it answered next to no read (`sim --measure`, seed 1: a `get` of 2.8 s, "not live").
    #[test]
    fn an_answer_that_is_always_late_settles_its_round_all_the_same() {
        let at = |ns| Instant::from_nanos(ns);
        let mut reads = Reads::default();
        let mut answered = Vec::new();
        for turn in 0..20_u64 {
            push(&mut reads, turn);
            reads.ask_again(at(turn * 10).min(at((turn * 10).saturating_sub(30))));
            let context = reads.next_round().expect("late rounds block none");
            reads.on_begun(at(turn * 10), context);
            if let Some(late) = context.checked_sub(4) {
                reads.on_confirmed(late, 1);
                answered.extend(tokens(&reads.take_ready(1)));
            }
        }
        assert_eq!(answered, (0..16).collect::<Vec<_>>());
        assert_eq!(reads.count(), 4);
    }

    #[test]
    fn a_late_answer_settles_no_read_that_came_after_its_question() {
        let at = |ns| Instant::from_nanos(ns);
        let mut reads = Reads::default();
        push(&mut reads, 1);
        reads.on_begun(at(10), 0);
        reads.ask_again(at(50));
        push(&mut reads, 2);
        let next = reads.next_round().unwrap();
        reads.on_begun(at(60), next);
        reads.on_confirmed(0, 7);
        assert_eq!(tokens(&reads.take_ready(7)), [1]);
        assert_eq!(reads.count(), 1);
    }

    #[test]
    fn reads_of_late_rounds_are_given_back_too_and_the_rounds_forgotten() {
        let at = |ns| Instant::from_nanos(ns);
        let mut reads = Reads::default();
        for turn in 0..100 {
            reads.push(at(turn), ReplyToken(turn), AnswerWith::Value, b"a", None);
            let context = reads.next_round().unwrap();
            reads.on_begun(at(turn), context);
            reads.ask_again(at(turn + 1));
            reads.take_older(at(turn.saturating_sub(8)));
            assert!(reads.rounds.len() < 12 && reads.count() < 12);
        }
    }

    #[test]
    fn reads_that_nobody_confirms_are_given_back() {
        let mut reads = Reads::default();
        reads.push(
            Instant::from_nanos(5),
            ReplyToken(1),
            AnswerWith::Value,
            b"abc",
            None,
        );
        reads.push(
            Instant::from_nanos(6),
            ReplyToken(2),
            AnswerWith::Value,
            b"de",
            None,
        );
        assert_eq!(tokens(&reads.take_older(Instant::from_nanos(6))), [1]);
        assert_eq!((reads.count(), reads.bytes()), (1, 2));
    }

    #[test]
    fn a_context_of_an_earlier_leadership_confirms_nothing() {
        let mut reads = Reads::default();
        push(&mut reads, 1);
        let context = reads.next_round().unwrap();
        reads.on_begun(Instant::ZERO, context);
        assert_eq!(tokens(&reads.take_all()), [1]);
        push(&mut reads, 2);
        let next = reads.next_round().unwrap();
        reads.on_begun(Instant::ZERO, next);
        reads.on_confirmed(context, 7);
        assert!(reads.take_ready(100).is_empty());
    }
}
