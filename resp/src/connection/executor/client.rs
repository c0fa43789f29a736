//! CLIENT: what a client says of itself, and what it is told of itself and of others.

use trine_commands::describe::help;
use trine_commands::errors::{Refusal, SYNTAX};
use trine_commands::limits::REPEATED_BYTES_MAX;
use trine_kvstore::integer;

use super::Executor;
use crate::connection::{Connection, Environment};

impl Executor {
    pub(super) fn client(&mut self, words: &[&[u8]], environment: &Environment<'_>) {
        let subcommand = words[0].to_ascii_lowercase();
        match (subcommand.as_slice(), &words[1..]) {
            (b"id", []) => self.replies.writer().integer(self.profile.id() as i64),
            (b"getname", []) => match self.profile.name() {
                [] => self.replies.writer().null(),
                name => self.replies.writer().bulk(name),
            },
            (b"setname", [name]) => self.replies.done(self.profile.set_name(name)),
            (b"setinfo", [field, value]) => {
                self.replies.done(self.profile.set_library(field, value));
            }
            (b"info", []) => {
                let line = self.describe(environment.unix_ms, 0, 0);
                self.replies.writer().text(&line);
            }
            (b"list", filter) => match Filter::read(filter) {
                Ok(filter) => {
                    let own = match filter.fits(self) {
                        true => self.describe(environment.unix_ms, 0, 0),
                        false => String::new(),
                    };
                    let fits = |other: &Connection| filter.fits(&other.executor);
                    let lines = own + &environment.host.others(&fits);
                    self.replies.writer().text(&lines);
                }
                Err(text) => self.replies.error(&text),
            },
            (b"tracking", [_, ..]) => self.client_tracking(&words[1..], environment),
            (b"caching", [word]) => self.replies.done(self.tracker.choose(word)),
            (b"getredir", []) => {
                let redirect = self.tracker.redirected_to();
                self.replies.writer().integer(redirect);
            }
            (b"trackinginfo", []) => self.tracker.write_info(&mut self.replies.writer()),
            (b"help", []) => help(&mut self.replies.writer(), "CLIENT", &CLIENT_HELP),
            _ => self.replies.error(SYNTAX),
        }
    }

    /// The line of CLIENT LIST. The input has so many bytes that are not answered, and holds so many.
    pub(in crate::connection) fn describe(
        &self,
        unix_ms: i64,
        unanswered: usize,
        input_bytes: usize,
    ) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        format!(
            "id={} addr={} name={} age={} db=0 sub={} psub={} multi={} watch={} qbuf={} obl={} omem={} tot-mem={} user={} redir={} resp={} lib-name={} lib-ver={} tot-cmds={}\n",
            self.profile.id(),
            self.profile.peer(),
            text(self.profile.name()),
            self.profile.age_seconds(unix_ms),
            self.subscriptions.counts()[0],
            self.subscriptions.counts()[1],
            if self.transaction.is_open() { 0 } else { -1 },
            self.transaction.watched(),
            unanswered,
            self.replies.unread().len(),
            self.replies.capacity(),
            size_of::<Connection>() + input_bytes + self.held_bytes(),
            self.standing.name(),
            self.tracker.redirected_to(),
            self.replies.protocol(),
            text(&self.profile.library()[0]),
            text(&self.profile.library()[1]),
            self.counts.commands,
        )
    }
}

const CLIENT_HELP: [&str; 20] = [
    "CACHING (YES|NO)",
    "    Enable/disable tracking of the keys for next command in OPTIN/OPTOUT modes.",
    "GETNAME",
    "    Return the name of the current connection.",
    "GETREDIR",
    "    Return the client ID we are redirecting to when tracking is enabled.",
    "ID",
    "    Return the ID of the current connection.",
    "INFO",
    "    Return information about the current client connection.",
    "LIST [TYPE (NORMAL|PUBSUB|MASTER|REPLICA)|ID <id> [<id> ...]]",
    "    Return information about client connections.",
    "SETINFO <option> <value>",
    "    Set client meta attr: LIB-NAME or LIB-VER.",
    "SETNAME <name>",
    "    Assign the name <name> to the current connection.",
    "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]] [OPTIN] [OPTOUT] [NOLOOP]",
    "    Control server assisted client side caching.",
    "TRACKINGINFO",
    "    Report tracking status for the current connection.",
];

/// Which connections CLIENT LIST tells of.
enum Filter {
    All,
    Ids(Vec<u64>),
    /// Those of clients that subscribe, or the others. No connection is one of a replica.
    Type {
        subscribes: Option<bool>,
    },
}

impl Filter {
    fn read(words: &[&[u8]]) -> Result<Self, Refusal> {
        let is = |word: &[u8], name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        match words {
            [] => Ok(Self::All),
            [filter, kind] if is(filter, "type") => {
                let subscribes = match kind.to_ascii_lowercase().as_slice() {
                    b"normal" => Some(false),
                    b"pubsub" => Some(true),
                    b"master" | b"replica" | b"slave" => None,
                    _ => {
                        let shown = &kind[..kind.len().min(REPEATED_BYTES_MAX)];
                        let shown = String::from_utf8_lossy(shown);
                        return Err(format!("ERR Unknown client type '{shown}'"));
                    }
                };
                Ok(Self::Type { subscribes })
            }
            [filter, ids @ ..] if is(filter, "id") && !ids.is_empty() => {
                let read = |id: &&[u8]| integer(id).and_then(|id| u64::try_from(id).ok());
                let mut ids = ids
                    .iter()
                    .map(read)
                    .collect::<Option<Vec<u64>>>()
                    .ok_or("ERR Invalid client ID")?;
                ids.sort_unstable();
                Ok(Self::Ids(ids))
            }
            _ => Err(SYNTAX.to_owned()),
        }
    }

    fn fits(&self, client: &Executor) -> bool {
        match self {
            Self::All => true,
            Self::Ids(ids) => ids.binary_search(&client.profile.id()).is_ok(),
            Self::Type { subscribes } => *subscribes == Some(client.subscriptions.count() > 0),
        }
    }
}
