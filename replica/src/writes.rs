//! Client commands on their way through the log: the ones that wait for the next entry, and the ones that wait for
//! their commit.

use std::collections::VecDeque;

use crate::state_machine::entry::EntryBuilder;
use crate::timing::{SAMPLE_EVERY, TRACES_MAX, Trace, Traces};
use trine_protocol::message::{ClientRequest, ReplyToken};
use trine_transport::time::Instant;

/// An entry that this leader has proposed and that is not applied yet.
struct Proposed {
    index: u64,
    term: u64,
    bytes: usize,
    /// One for each command, in their order.
    tokens: Vec<ReplyToken>,
    traces: Traces,
}

/// The data of an entry that is being applied.
pub(crate) struct Applied {
    /// One for each command, in their order.
    pub(crate) tokens: Vec<ReplyToken>,
    /// Its commands that are watched.
    pub(crate) traces: Traces,
}

/// The write path of a leader. Every token that goes in comes out exactly once.
#[derive(Default)]
pub(crate) struct Writes {
    builder: EntryBuilder,
    /// One for each command in `builder`.
    waiting: Vec<ReplyToken>,
    /// Of the commands in `builder` those that are watched.
    traces: Vec<Trace>,
    /// Entries until the next of which a command is watched.
    until_sample: u32,
    /// In the order of their indexes.
    proposed: VecDeque<Proposed>,
    proposed_bytes: usize,
    proposed_commands: usize,
    spare: Vec<Vec<ReplyToken>>,
}

impl Writes {
    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.builder.bytes() + self.proposed_bytes
    }

    /// Commands that wait.
    pub(crate) fn commands(&self) -> usize {
        self.waiting.len() + self.proposed_commands
    }

    /// Whether the next entry has room for this command.
    pub(crate) fn has_room(&self, request: &ClientRequest<'_>) -> bool {
        self.builder.has_room(request.command.len())
    }

    /// Adds a command to the next entry.
    pub(crate) fn push(&mut self, token: ReplyToken, request: &ClientRequest<'_>) {
        self.builder.push(request);
        self.waiting.push(token);
    }

    /// Whether the command that comes next is to be watched.
    pub(crate) fn watches_next(&self, wanted: bool) -> bool {
        let sampled = self.until_sample == 0 && self.waiting.is_empty();
        (sampled || wanted) && self.traces.len() < TRACES_MAX
    }

    /// Watches the command that comes next.
    pub(crate) fn watch_next(&mut self, received: Instant, wanted: bool) {
        assert!(
            self.traces.len() < TRACES_MAX,
            "it is asked first whether there is room"
        );
        self.traces.push(Trace {
            place: self.waiting.len(),
            received,
            wanted,
        });
    }

    /// Whether commands of the next entry are watched.
    pub(crate) fn watches(&self) -> bool {
        !self.traces.is_empty()
    }

    /// The newest entries were appended to the log, and handed out to the followers.
    pub(crate) fn on_appended(&mut self, now: impl FnOnce() -> Instant) {
        let unnoted = |entry: &&mut Proposed| {
            !entry.traces.list.is_empty() && entry.traces.appended.is_none()
        };
        // The last of several in one turn represents all: the others are given the moment of their commit.
        if let Some(entry) = self.proposed.back_mut().filter(unnoted) {
            entry.traces.appended = Some(now());
        }
    }

    /// Whether commands wait for the next entry.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The next entry's data. It removes up to `sweep_most` expired items ahead of its commands.
    pub(crate) fn take_entry(&mut self, group_time_ns: u64, sweep_most: u16) -> Vec<u8> {
        self.builder.finish_sweeping(group_time_ns, sweep_most)
    }

    /// The entry that was taken is in the log.
    pub(crate) fn on_proposed(
        &mut self,
        index: u64,
        term: u64,
        bytes: usize,
        proposed: Option<Instant>,
    ) {
        self.until_sample = match self.until_sample {
            0 => SAMPLE_EVERY - 1,
            left => left - 1,
        };
        let traces = Traces {
            list: std::mem::take(&mut self.traces),
            proposed,
            appended: None,
        };
        let last = self.proposed.back();
        assert!(
            last.is_none_or(|last| last.index < index),
            "entries are proposed in the order of their indexes"
        );
        assert!(!self.waiting.is_empty(), "an entry of clients has commands");
        let tokens = std::mem::replace(&mut self.waiting, self.spare.pop().unwrap_or_default());
        self.proposed_bytes += bytes;
        self.proposed_commands += tokens.len();
        self.proposed.push_back(Proposed {
            index,
            term,
            bytes,
            tokens,
            traces,
        });
    }

    /// The entry that was taken was not accepted, or will not be: its tokens.
    pub(crate) fn take_waiting(&mut self) -> Vec<ReplyToken> {
        self.builder = EntryBuilder::default();
        self.traces.clear();
        std::mem::take(&mut self.waiting)
    }

    /// The entry at `index` is being applied: returns its data, if this leader has proposed it in `term`.
    pub(crate) fn take_applied(&mut self, index: u64, term: u64) -> Option<Applied> {
        let front = self
            .proposed
            .front()
            .filter(|front| front.index == index && front.term == term)?;
        (self.proposed_bytes, self.proposed_commands) = (
            self.proposed_bytes - front.bytes,
            self.proposed_commands - front.tokens.len(),
        );
        let Proposed { tokens, traces, .. } = self.proposed.pop_front()?;
        let left = (self.proposed_bytes, self.proposed_commands);
        assert!(
            !self.proposed.is_empty() || left == (0, 0),
            "what is counted is in the log"
        );
        Some(Applied { tokens, traces })
    }

    /// Gives the vector of [`Writes::take_applied`] back for reuse.
    pub(crate) fn recycle(&mut self, mut tokens: Vec<ReplyToken>) {
        const SPARE_MAX: usize = 32;
        if self.spare.len() < SPARE_MAX {
            tokens.clear();
            self.spare.push(tokens);
        }
    }

    /// Leadership is lost: the tokens of everything that is in the log and may still come to be committed.
    pub(crate) fn take_proposed(&mut self) -> Vec<ReplyToken> {
        (self.proposed_bytes, self.proposed_commands) = (0, 0);
        self.proposed
            .drain(..)
            .flat_map(|proposed| proposed.tokens)
            .collect()
    }
}
