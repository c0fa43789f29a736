//! ACL: who the client is, and what the users of the group may do, in Redis's rule syntax.
//!
//! The users are trine's, so their rules are shown and not changed here: `trine user` changes them.

use std::fmt::Write as _;

use trine_kvstore::{Command, Response, User};

use super::command::help;
use super::standing::DEFAULT;
use super::{Call, Connection, Environment, Failure, Submit, Waiting};
use crate::limits::REPEATED_BYTES_MAX;
use crate::reply::Writer;
use crate::table;

/// The categories that Redis has. Some have no command here.
const CATEGORIES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// What is done with the list of users.
#[derive(Debug)]
pub(super) struct UsersAsked {
    what: What,
    default: DefaultUser,
}

#[derive(Debug)]
enum What {
    Rules,
    Names,
    One(Vec<u8>),
}

/// How a client becomes the default user.
#[derive(Clone, Copy, Debug)]
enum DefaultUser {
    WithoutPassword,
    WithPassword,
    Never,
}

impl DefaultUser {
    fn of(environment: &Environment<'_>) -> Self {
        match (environment.password, environment.requires_auth) {
            (Some(_), _) => Self::WithPassword,
            (None, false) => Self::WithoutPassword,
            (None, true) => Self::Never,
        }
    }

    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::WithoutPassword => &["on", "nopass"],
            Self::WithPassword => &["on"],
            Self::Never => &["off"],
        }
    }
}

/// A user in the words of Redis's rules.
struct Rules {
    name: String,
    flags: &'static [&'static str],
    keys: String,
    channels: &'static str,
    commands: &'static str,
}

impl Rules {
    fn of_default(default: DefaultUser) -> Self {
        Self {
            name: DEFAULT.to_owned(),
            flags: default.flags(),
            keys: "~*".to_owned(),
            channels: "&*",
            commands: "+@all",
        }
    }

    fn of(user: &User<'_>) -> Self {
        let commands = match user.role.word() {
            "read" => {
                "-@all +@read +@connection +@transaction +info +command +acl|whoami +acl|cat -client|list"
            }
            "write" => {
                "-@all +@read +@write +@connection +@transaction +info +command +acl|whoami +acl|cat -client|list"
            }
            _ => "+@all",
        };
        Self {
            name: user.name.to_string(),
            flags: &["on"],
            keys: format!("~{}*", literally(user.prefix)),
            channels: "",
            commands,
        }
    }

    /// The line of ACL LIST.
    fn line(&self) -> String {
        let mut line = format!("user {} {}", self.name, self.flags.join(" "));
        // Writing to a string cannot fail.
        let channels = match self.channels {
            "" => "resetchannels",
            channels => channels,
        };
        let _ = write!(line, " {} {channels} {}", self.keys, self.commands);
        line
    }

    /// The reply of ACL GETUSER.
    fn write(&self, writer: &mut Writer<'_>) {
        writer.map(6);
        writer.bulk(b"flags");
        writer.set(self.flags.len());
        self.flags.iter().for_each(|flag| writer.simple(flag));
        writer.bulk(b"passwords");
        writer.array(0);
        for (field, value) in [
            ("commands", self.commands),
            ("keys", &self.keys),
            ("channels", self.channels),
        ] {
            writer.bulk(field.as_bytes());
            writer.bulk(value.as_bytes());
        }
        writer.bulk(b"selectors");
        writer.array(0);
    }
}

/// A prefix as a pattern that fits nothing else.
fn literally(prefix: &[u8]) -> String {
    let mut text = String::new();
    for &byte in prefix {
        if b"*?[]\\".contains(&byte) {
            text.push('\\');
        }
        match byte.is_ascii_graphic() {
            true => text.push(char::from(byte)),
            // A space would end the rule.
            false => {
                let _ = write!(text, "\\x{byte:02x}");
            }
        }
    }
    text
}

impl Connection {
    pub(super) fn acl(
        &mut self,
        words: &[&[u8]],
        environment: &Environment<'_>,
        submit: &mut dyn Submit,
    ) {
        let subcommand = words[0].to_ascii_lowercase();
        let what = match (subcommand.as_slice(), &words[1..]) {
            (b"whoami", []) => {
                let user = self.standing.name().to_owned();
                return self.replies.writer().bulk(user.as_bytes());
            }
            (b"cat", []) => return write_names(&CATEGORIES, &mut self.replies.writer()),
            (b"cat", [category]) => return write_category(category, &mut self.replies.writer()),
            (b"help", []) => return help(&mut self.replies.writer(), "ACL", &ACL_HELP),
            (b"list", []) => What::Rules,
            (b"users", []) => What::Names,
            (b"getuser", [name]) => What::One(name.to_vec()),
            _ => return self.replies.error(crate::errors::SYNTAX),
        };
        let asked = UsersAsked {
            what,
            default: DefaultUser::of(environment),
        };
        let call = Call {
            command: &Command::ListUsers,
            read_only: true,
            response_bytes: self.run.expected_bytes(1, 1),
            for_user: self.standing.on_behalf(),
        };
        let begun = submit.submit(&call);
        self.wait_for(begun, Waiting::Users(asked), true);
    }

    pub(super) fn on_users_answer(
        &mut self,
        asked: &UsersAsked,
        result: Result<Response<'_>, Failure>,
    ) {
        match result {
            Ok(Response::Users(users)) => {
                let default = Rules::of_default(asked.default);
                let mut all = vec![default];
                all.extend(users.iter().map(|user| Rules::of(&user)));
                write_users(&asked.what, &all, &mut self.replies.writer());
            }
            other => self.write_failed_read(other),
        }
    }
}

fn write_users(what: &What, all: &[Rules], writer: &mut Writer<'_>) {
    match what {
        What::Rules => {
            writer.array(all.len());
            all.iter()
                .for_each(|user| writer.bulk(user.line().as_bytes()));
        }
        What::Names => {
            writer.array(all.len());
            all.iter()
                .for_each(|user| writer.bulk(user.name.as_bytes()));
        }
        What::One(name) => match all.iter().find(|user| user.name.as_bytes() == name) {
            Some(user) => user.write(writer),
            None => writer.null(),
        },
    }
}

fn write_category(category: &[u8], writer: &mut Writer<'_>) {
    let known = |name: &&str| category.eq_ignore_ascii_case(name.as_bytes());
    let Some(category) = CATEGORIES.into_iter().find(known) else {
        let shown = &category[..category.len().min(REPEATED_BYTES_MAX)];
        let text = format!("ERR Unknown category '{}'", String::from_utf8_lossy(shown));
        return writer.error(&text);
    };
    let all = table::all().into_iter();
    let names: Vec<&str> = all
        .filter(|spec| spec.categories().contains(&category))
        .map(|spec| spec.name)
        .collect();
    write_names(&names, writer);
}

fn write_names(names: &[&str], writer: &mut Writer<'_>) {
    writer.array(names.len());
    names.iter().for_each(|name| writer.bulk(name.as_bytes()));
}

const ACL_HELP: [&str; 10] = [
    "CAT [<category>]",
    "    List all commands that belong to <category>, all command categories",
    "    when no category is specified.",
    "GETUSER <username>",
    "    Get the user's details.",
    "LIST",
    "    Show users details in config file format.",
    "USERS",
    "    List all the registered usernames.",
    "WHOAMI (return the current connection username)",
];
