//! Every known command: its name, its number of parts, its keys, its documentation, and who does it.

mod connection;
mod keys;
mod pubsub;
mod server;
mod strings;
mod transactions;
mod trine;

use std::sync::LazyLock;

use crate::arguments::Argument;
use crate::errors::wrong_arity;
use crate::plan::{Asked, Clock, Plan, Planned, Planner};
pub(crate) use trine::{DO_WORDS, whole_number};

/// One command, as `COMMAND` and `COMMAND DOCS` describe it and as it is done.
#[derive(Debug)]
pub struct Spec {
    pub(crate) name: &'static str,
    /// How many parts a request has, the name included; at least as many if it is negative.
    pub(crate) arity: i64,
    pub(crate) flags: &'static [&'static str],
    /// The first key's place, the last one's (from the end if negative), and the step from one to the next.
    pub(crate) keys: [i64; 3],
    pub(crate) group: &'static str,
    /// The release of Redis that introduced it; of trine, if Redis does not have it.
    pub(crate) since: &'static str,
    pub(crate) summary: &'static str,
    /// The arguments after the name.
    pub(crate) arguments: &'static [Argument],
    pub(crate) action: Action,
}

const NO_KEY: [i64; 3] = [0, 0, 0];
const ONE_KEY: [i64; 3] = [1, 1, 1];
const ALL_KEYS: [i64; 3] = [1, -1, 1];
const PAIRS: [i64; 3] = [1, -1, 2];

/// Who does a command.
#[derive(Debug)]
pub(crate) enum Action {
    /// The store.
    Store {
        /// Makes operations of the store of a request.
        plan: Planner,
        /// A whole request, for help.
        example: &'static str,
    },
    /// The connection.
    Local {
        /// What it does.
        verb: Verb,
        /// The words of which one has to come first, if there are any.
        subcommands: &'static [Subcommand],
    },
}

/// What a connection does by itself; the file that does it matches on this.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// ACL.
    Acl,
    /// AUTH.
    Auth,
    /// CLIENT.
    Client,
    /// COMMAND.
    Command,
    /// CONFIG.
    Config,
    /// DISCARD.
    Discard,
    /// TRINE.DO.
    Do,
    /// ECHO.
    Echo,
    /// EXEC.
    Exec,
    /// FLUSHALL and FLUSHDB.
    Flush,
    /// HELLO.
    Hello,
    /// INFO.
    Info,
    /// KEYS.
    Keys,
    /// MULTI.
    Multi,
    /// PSUBSCRIBE.
    PSubscribe,
    /// PUNSUBSCRIBE.
    PUnsubscribe,
    /// PING.
    Ping,
    /// PUBSUB.
    PubSub,
    /// QUIT.
    Quit,
    /// RANDOMKEY.
    RandomKey,
    /// RESET.
    Reset,
    /// SCAN.
    Scan,
    /// SELECT.
    Select,
    /// TRINE.SESSION.
    Session,
    /// SUBSCRIBE.
    Subscribe,
    /// UNSUBSCRIBE.
    Unsubscribe,
    /// UNWATCH.
    Unwatch,
    /// WATCH.
    Watch,
}

/// A word behind a command's name that makes it another command.
#[derive(Debug)]
pub(crate) struct Subcommand {
    pub(crate) name: &'static str,
    /// As that of a command; both names count.
    pub(crate) arity: i64,
    pub(crate) summary: &'static str,
    pub(crate) arguments: &'static [Argument],
}

impl Subcommand {
    const fn new(
        name: &'static str,
        arity: i64,
        summary: &'static str,
        arguments: &'static [Argument],
    ) -> Self {
        Self {
            name,
            arity,
            summary,
            arguments,
        }
    }
}

/// Whether a request may have this many parts.
pub(crate) fn fits(arity: i64, parts: usize) -> bool {
    let least = arity.unsigned_abs();
    match arity < 0 {
        true => parts as u64 >= least,
        false => parts as u64 == least,
    }
}

impl Spec {
    /// Whether a request may have this many parts.
    pub fn takes(&self, parts: usize) -> bool {
        fits(self.arity, parts)
    }

    /// The keys of a request: of TRINE.DO those of the request inside.
    pub fn keys_of<'r, 'a>(
        &self,
        parts: &'r [&'a [u8]],
    ) -> impl Iterator<Item = &'a [u8]> + use<'r, 'a> {
        let ([first, last, step], parts) = match self.verb() {
            Some(Verb::Do) => trine::inner_keys(parts),
            _ => (self.keys, parts),
        };
        let end = match last {
            ..0 => parts.len() as i64 + last + 1,
            _ => (last + 1).min(parts.len() as i64),
        };
        let count = if first > 0 { end - first } else { 0 };
        let behind = parts.iter().skip(first.max(0) as usize);
        behind
            .take(count.max(0) as usize)
            .step_by(step.max(1) as usize)
            .copied()
    }

    /// Whether a request may name keys, although not always at the same places.
    pub(crate) fn has_keys(&self) -> bool {
        self.keys != NO_KEY || self.flags.contains(&"movablekeys")
    }

    /// Whether the store takes this request alone: not beside others in a pipeline, and not in a transaction.
    pub fn goes_alone(&self, parts: &[&[u8]]) -> bool {
        trine::goes_alone(self, parts)
    }

    /// The name, in lower case.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether it only reads.
    #[must_use]
    pub fn reads(&self) -> bool {
        self.flags.contains(&"readonly")
    }

    /// Whether a word after the name makes it another command.
    #[must_use]
    pub fn has_subcommands(&self) -> bool {
        !self.subcommands().is_empty()
    }

    /// Adds the operations of a request with these parts to a plan; none if the connection does the command. Nothing is
    /// added if it is refused. The plan has to be empty for a request that goes alone.
    pub fn plan<'a>(
        &self,
        plan: &mut Plan<'a>,
        parts: &[&'a [u8]],
        clock: Clock,
    ) -> Option<Planned> {
        let planner = self.planner()?;
        Some(match self.takes(parts.len()) {
            true => planner(plan, &self.asked(parts, clock)),
            false => Err(wrong_arity(self.name)),
        })
    }

    /// How it becomes operations of the store, if the store does it.
    pub(crate) fn planner(&self) -> Option<Planner> {
        match self.action {
            Action::Store { plan, .. } => Some(plan),
            Action::Local { .. } => None,
        }
    }

    /// A request with these parts.
    pub(crate) fn asked<'r, 'a>(&self, parts: &'r [&'a [u8]], clock: Clock) -> Asked<'r, 'a> {
        Asked {
            name: self.name,
            parts,
            clock,
        }
    }

    /// What the connection does, if it does it.
    pub fn verb(&self) -> Option<Verb> {
        match self.action {
            Action::Local { verb, .. } => Some(verb),
            Action::Store { .. } => None,
        }
    }

    /// Its subcommands.
    pub(crate) fn subcommands(&self) -> &'static [Subcommand] {
        match self.action {
            Action::Local { subcommands, .. } => subcommands,
            Action::Store { .. } => &[],
        }
    }

    /// The categories of access control, as Redis names them.
    pub(crate) fn categories(&self) -> Vec<&'static str> {
        let has = |flag| self.flags.contains(&flag);
        let of_group = match (self.group, self.verb()) {
            ("generic", _) | ("server", None | Some(Verb::Flush)) => Some("keyspace"),
            ("transactions", _) => Some("transaction"),
            ("server", _) => None,
            (other, _) => Some(other),
        };
        let speed = if has("fast") { "fast" } else { "slow" };
        let known = [
            of_group,
            has("readonly").then_some("read"),
            has("write").then_some("write"),
            Some(speed),
            has("admin").then_some("admin"),
            matches!(
                self.verb(),
                Some(Verb::Info | Verb::Config | Verb::Keys | Verb::Flush)
            )
            .then_some("dangerous"),
        ];
        known.into_iter().flatten().collect()
    }

    /// Whether it may be asked before the password is given.
    pub fn is_for_strangers(&self) -> bool {
        self.flags.contains(&"no_auth")
    }
}

/// The rows of each family. A type of values is a family of its own.
const FAMILIES: [&[Spec]; 7] = [
    strings::ROWS,
    keys::ROWS,
    transactions::ROWS,
    pubsub::ROWS,
    connection::ROWS,
    server::ROWS,
    trine::ROWS,
];

/// The command of that name, in whatever case it is written.
pub fn find(name: &[u8]) -> Option<&'static Spec> {
    let number = number_of(name)?;
    let found = INDEX.binary_search_by_key(&number, |(number, _)| *number);
    // A zero byte behind a name would make the same number.
    let spec = found.ok().map(|place| INDEX[place].1);
    spec.filter(|spec| spec.name.len() == name.len())
}

/// All commands in the order of their names' numbers. Each request is looked up here: numbers are compared faster than texts.
static INDEX: LazyLock<Vec<(u128, &'static Spec)>> = LazyLock::new(|| {
    let rows = FAMILIES.into_iter().flatten();
    let number = |spec: &Spec| number_of(spec.name.as_bytes()).expect("no name is longer");
    let mut index: Vec<(u128, &Spec)> = rows.map(|spec| (number(spec), spec)).collect();
    index.sort_unstable_by_key(|(number, _)| *number);
    index
});

/// A name in small letters as one number; none if it is longer than every command's.
fn number_of(name: &[u8]) -> Option<u128> {
    let mut lower = [0; NAME_BYTES_MAX];
    lower.get_mut(..name.len())?.copy_from_slice(name);
    lower.make_ascii_lowercase();
    Some(u128::from_be_bytes(lower))
}

/// All commands, by name.
pub fn all() -> Vec<&'static Spec> {
    let mut all: Vec<&Spec> = FAMILIES.into_iter().flatten().collect();
    all.sort_unstable_by_key(|spec| spec.name);
    all
}

/// No command has a longer name.
const NAME_BYTES_MAX: usize = 16;

#[cfg(test)]
mod tests;
