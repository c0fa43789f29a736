//! What a connection has under way at the store, and what it expects of the next answer.
//!
//! ```text
//!          begin                       take
//!     idle ------> waiting --------------------------> idle
//!      ^              ^  |
//!      |              |  | take, and the page was not the last one: walk_on
//!      |        begin |  v
//!      +------------ walking
//! ```
//!
//! A key is looked at behind a call in the same way, with one page.
//!
//! Invariant: one call is under way at a time, so replies are in the order of the requests.

use trine_commands::acl::UsersAsked;
use trine_commands::keyspace::Walk;
use trine_commands::plan::Item;
use trine_kvstore::config::LIST_RESPONSE_BYTES_MAX;

use super::profile::ClientNames;
use super::standing::ActsAs;
use super::tracking::Options;

/// About the bytes of an answer without a value.
const ANSWER_BYTES: usize = 24;
/// A value is expected to have at least so many bytes.
const VALUE_BYTES_MIN: usize = 128;

/// The work of one connection at the store.
#[derive(Default, Debug)]
pub(super) struct Run {
    stage: RunStage,
    last: LastCall,
    /// This many commands are sent one by one.
    alone: usize,
    /// About the bytes of a value in the last answer.
    value_bytes: usize,
}

#[derive(Default, Debug)]
enum RunStage {
    #[default]
    Idle,
    /// A call is under way.
    Waiting { call: Waiting, read_only: bool },
    /// Another page is to be asked for.
    Walking(Box<Walk>),
    /// The version of this key is to be asked for, which the reply names.
    Looking(Vec<u8>),
}

/// What the last call was.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum LastCall {
    /// It changed nothing.
    #[default]
    Read,
    /// It had writes.
    Write,
    /// It was refused as a whole. Its commands are sent once more, and are not answered yet.
    Split,
}

/// The call that a connection waits for.
#[derive(Debug)]
pub(super) enum Waiting {
    /// The commands of a run.
    Run(Vec<Item>),
    /// A transaction's EXEC. Without the store's consent nothing of it was done: the settings are those before.
    Transaction {
        items: Vec<Item>,
        before: Box<Settings>,
    },
    /// A write in a session of the client's own.
    Numbered(Vec<Item>),
    /// A session with this number.
    Opening { number: u64 },
    /// The end of a session.
    Closing,
    /// The version of the key that a write has found another version of.
    Look,
    /// The versions of keys that WATCH named.
    Watch(Vec<Vec<u8>>),
    /// Who the client is.
    Auth(Then),
    /// The users of the group.
    Users(UsersAsked),
    /// A page of the keys.
    Walk(Box<Walk>),
    /// The stream of changes.
    Stream(OnStream),
}

/// What follows once the client is known.
#[derive(Debug)]
pub(super) enum Then {
    /// OK.
    Ok,
    /// The reply of HELLO.
    Welcome { resp3: bool, name: Option<Vec<u8>> },
}

/// What commands of a transaction that need no store can change at the connection.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) names: ClientNames,
    pub(super) user: ActsAs,
}

/// What follows once the stream of changes is there.
#[derive(Debug)]
pub(super) enum OnStream {
    /// CLIENT TRACKING ON.
    Track(Options),
    /// SUBSCRIBE, or PSUBSCRIBE.
    Subscribe { names: Vec<Vec<u8>>, patterns: bool },
}

impl Waiting {
    /// Bytes of memory that it holds: replies that are known already, and names.
    fn held_bytes(&self) -> usize {
        let of_names = |names: &[Vec<u8>]| -> usize {
            let of_name = |name: &Vec<u8>| size_of::<Vec<u8>>() + name.capacity();
            names.iter().map(of_name).sum()
        };
        match self {
            Self::Run(items) | Self::Numbered(items) | Self::Transaction { items, .. } => {
                items.iter().map(Item::held_bytes).sum()
            }
            Self::Watch(keys) => of_names(keys),
            Self::Stream(OnStream::Subscribe { names, .. }) => of_names(names),
            Self::Walk(walk) => walk.held_bytes(),
            Self::Stream(OnStream::Track(options)) => of_names(options.prefixes()),
            Self::Auth(_) | Self::Users(_) | Self::Opening { .. } | Self::Closing | Self::Look => 0,
        }
    }
}

impl Run {
    /// Whether a call is under way, or is to follow another one.
    pub(super) fn is_busy(&self) -> bool {
        !matches!(self.stage, RunStage::Idle)
    }

    /// Whether a call is under way that only reads; none without a call.
    pub(super) fn call_reads(&self) -> Option<bool> {
        match self.stage {
            RunStage::Waiting { read_only, .. } => Some(read_only),
            RunStage::Idle | RunStage::Walking(_) | RunStage::Looking(_) => None,
        }
    }

    /// A call is under way.
    pub(super) fn begin(&mut self, call: Waiting, read_only: bool) {
        assert!(!self.is_busy(), "one call is under way at a time");
        self.stage = RunStage::Waiting { call, read_only };
    }

    /// The call that has ended, if it is one that `fits`, and whether it only read.
    pub(super) fn take_if(
        &mut self,
        fits: impl FnOnce(&Waiting) -> bool,
    ) -> Option<(Waiting, bool)> {
        match std::mem::take(&mut self.stage) {
            RunStage::Waiting { call, read_only } if fits(&call) => {
                self.last = match read_only {
                    true => LastCall::Read,
                    false => LastCall::Write,
                };
                Some((call, read_only))
            }
            other => {
                self.stage = other;
                None
            }
        }
    }

    /// The walk has another page, which is asked for next.
    pub(super) fn walk_on(&mut self, walk: Box<Walk>) {
        assert!(!self.is_busy(), "the page before was taken");
        self.stage = RunStage::Walking(walk);
    }

    /// The walk of which another page is to be asked for, if there is one.
    pub(super) fn take_walk(&mut self) -> Option<Box<Walk>> {
        match std::mem::take(&mut self.stage) {
            RunStage::Walking(walk) => Some(walk),
            other => {
                self.stage = other;
                None
            }
        }
    }

    /// The reply names the version of this key, which is asked for next.
    pub(super) fn look_at(&mut self, key: Vec<u8>) {
        assert!(!self.is_busy(), "the answer was taken");
        self.stage = RunStage::Looking(key);
    }

    /// The key whose version is to be asked for, if there is one.
    pub(super) fn take_look(&mut self) -> Option<Vec<u8>> {
        match std::mem::take(&mut self.stage) {
            RunStage::Looking(key) => Some(key),
            other => {
                self.stage = other;
                None
            }
        }
    }

    /// The last call was refused as a whole: its commands are sent once more, one by one.
    pub(super) fn split(&mut self, commands: usize) {
        (self.alone, self.last) = (commands, LastCall::Split);
    }

    /// What the last call was.
    pub(super) fn last(&self) -> LastCall {
        self.last
    }

    /// The most commands of the next call.
    pub(super) fn commands_max(&self, pipeline_max: usize) -> usize {
        match self.alone {
            0 => pipeline_max,
            _ => 1,
        }
    }

    /// So many commands are about to be sent, or answered without a call.
    pub(super) fn on_commands(&mut self, count: usize) {
        self.alone = self.alone.saturating_sub(count);
    }

    /// A guess with room: a response that does not fit costs a second attempt. A connection's values are expected to be
    /// as large as its last ones, so that its large reads are recognized and take turns.
    pub(super) fn expected_bytes(&self, operations: usize, values: usize) -> usize {
        let value = VALUE_BYTES_MIN.max(self.value_bytes + ANSWER_BYTES);
        let others = operations.saturating_sub(values);
        (ANSWER_BYTES + values * value + others * ANSWER_BYTES)
            .min(LIST_RESPONSE_BYTES_MAX + VALUE_BYTES_MIN)
    }

    /// The replies to so many answers took so many bytes.
    pub(super) fn learn(&mut self, bytes: usize, answers: usize) {
        self.value_bytes = bytes.checked_div(answers).unwrap_or(self.value_bytes);
    }

    /// Bytes of memory that it holds beside itself.
    pub(super) fn held_bytes(&self) -> usize {
        match &self.stage {
            RunStage::Idle => 0,
            RunStage::Waiting { call, .. } => call.held_bytes(),
            RunStage::Walking(walk) => walk.held_bytes(),
            RunStage::Looking(key) => key.capacity(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_taken_once_and_by_whom_it_fits() {
        let mut run = Run::default();
        assert!(run.take_if(|_| true).is_none() && !run.is_busy());
        run.begin(Waiting::Auth(Then::Ok), false);
        assert!(
            run.take_if(|call| matches!(call, Waiting::Run(_)))
                .is_none()
        );
        assert_eq!(
            (run.call_reads(), run.last()),
            (Some(false), LastCall::Read)
        );
        assert!(run.take_if(|_| true).is_some() && !run.is_busy());
        assert_eq!((run.call_reads(), run.last()), (None, LastCall::Write));
    }

    #[test]
    #[should_panic(expected = "one call is under way at a time")]
    fn no_call_begins_beside_another() {
        let mut run = Run::default();
        run.begin(Waiting::Watch(Vec::new()), true);
        run.begin(Waiting::Watch(Vec::new()), true);
    }

    #[test]
    fn commands_of_a_split_call_go_alone() {
        let mut run = Run::default();
        assert_eq!(run.commands_max(256), 256);
        run.split(2);
        run.on_commands(1);
        assert_eq!(run.commands_max(256), 1);
        run.on_commands(1);
        assert_eq!((run.commands_max(256), run.last()), (256, LastCall::Split));
    }
}
