//! Linearizable reads: one ReadIndex round confirms every read that had arrived before it began.
//!
//! A round begins with `read_index`, whose context comes back once a quorum has confirmed that this replica still led
//! after that moment. A read may only ride in a round that began after the read had arrived, and is answered once the
//! commit index of the round's beginning is applied. Rounds that get no answer are asked again by raft itself: each
//! heartbeat carries the context of the last one, and its confirmation settles all earlier ones.

use std::collections::VecDeque;

use crate::config::READ_ROUNDS_MAX;
use crate::message::ReplyToken;

/// A read that waits; its command is one of the store's read-only ones.
pub(crate) struct Read {
    pub(crate) token: ReplyToken,
    pub(crate) command: Vec<u8>,
}

struct Round {
    context: u64,
    /// The commit index of the round's beginning, once the round is confirmed.
    index: Option<u64>,
    reads: Vec<Read>,
}

/// The read path of a leader. Every token that goes in comes out exactly once.
#[derive(Default)]
pub(crate) struct Reads {
    waiting: Vec<Read>,
    /// In the order of their beginnings. Invariant: those with an index come first.
    rounds: VecDeque<Round>,
    next_context: u64,
    count: usize,
}

impl Reads {
    /// Reads that wait.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// A read has arrived.
    pub(crate) fn push(&mut self, read: Read) {
        self.waiting.push(read);
        self.count += 1;
    }

    /// The context of a round that should begin now, if reads wait and not too many rounds are outstanding.
    pub(crate) fn due(&self) -> Option<u64> {
        let outstanding = self
            .rounds
            .iter()
            .filter(|round| round.index.is_none())
            .count();
        (!self.waiting.is_empty() && outstanding < READ_ROUNDS_MAX).then_some(self.next_context)
    }

    /// The round has begun: it carries everything that had arrived by now.
    pub(crate) fn on_begun(&mut self, context: u64) {
        self.next_context = context + 1;
        let reads = std::mem::take(&mut self.waiting);
        self.rounds.push_back(Round {
            context,
            index: None,
            reads,
        });
    }

    /// A quorum has confirmed the round. Unknown contexts are of an earlier leadership, and are ignored.
    pub(crate) fn on_confirmed(&mut self, context: u64, index: u64) {
        for round in self
            .rounds
            .iter_mut()
            .filter(|round| round.index.is_none() && round.context <= context)
        {
            // An earlier round began at a lower commit index; the later one's is safe for it, too.
            round.index = Some(index);
        }
    }

    /// Reads that may be answered from a state machine that has applied everything up to `applied`.
    pub(crate) fn take_ready(&mut self, applied: u64) -> Vec<Read> {
        let mut ready = Vec::new();
        while self
            .rounds
            .front()
            .is_some_and(|round| round.index.is_some_and(|index| index <= applied))
        {
            ready.extend(
                self.rounds
                    .pop_front()
                    .into_iter()
                    .flat_map(|round| round.reads),
            );
        }
        self.count -= ready.len();
        ready
    }

    /// The lead is lost: all reads, none of which may be answered here.
    pub(crate) fn take_all(&mut self) -> Vec<Read> {
        self.count = 0;
        let mut all: Vec<Read> = self
            .rounds
            .drain(..)
            .flat_map(|round| round.reads)
            .collect();
        all.append(&mut self.waiting);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(token: u64) -> Read {
        Read {
            token: ReplyToken(token),
            command: Vec::new(),
        }
    }

    fn tokens(reads: &[Read]) -> Vec<u64> {
        reads.iter().map(|read| read.token.0).collect()
    }

    #[test]
    fn a_read_never_rides_in_a_round_that_began_before_it() {
        let mut reads = Reads::default();
        reads.push(read(1));
        let first = reads.due().unwrap();
        reads.on_begun(first);
        reads.push(read(2));
        reads.on_confirmed(first, 10);
        assert_eq!(tokens(&reads.take_ready(10)), [1]);
        assert_eq!(reads.count(), 1);
        let second = reads.due().unwrap();
        assert_ne!(first, second);
    }

    #[test]
    fn a_confirmed_read_waits_until_its_index_is_applied() {
        let mut reads = Reads::default();
        reads.push(read(1));
        reads.on_begun(0);
        reads.on_confirmed(0, 10);
        assert!(reads.take_ready(9).is_empty());
        assert_eq!(tokens(&reads.take_ready(10)), [1]);
    }

    #[test]
    fn a_later_confirmation_settles_earlier_rounds_and_rounds_are_bounded() {
        let mut reads = Reads::default();
        for token in 0..READ_ROUNDS_MAX as u64 {
            reads.push(read(token));
            let context = reads.due().unwrap();
            reads.on_begun(context);
        }
        reads.push(read(99));
        assert_eq!(reads.due(), None);
        reads.on_confirmed(READ_ROUNDS_MAX as u64 - 1, 5);
        assert_eq!(reads.take_ready(5).len(), READ_ROUNDS_MAX);
        assert!(reads.due().is_some());
    }

    #[test]
    fn a_context_of_an_earlier_leadership_confirms_nothing() {
        let mut reads = Reads::default();
        reads.push(read(1));
        let context = reads.due().unwrap();
        reads.on_begun(context);
        assert_eq!(tokens(&reads.take_all()), [1]);
        reads.push(read(2));
        let next = reads.due().unwrap();
        reads.on_begun(next);
        reads.on_confirmed(context, 7);
        assert!(reads.take_ready(100).is_empty());
    }
}
