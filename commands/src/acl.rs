//! ACL: who the client is, and what the users of the group may do, in Redis's rule syntax.
//!
//! The users are trine's, so their rules are shown and not changed here: `trine user` changes them.

use std::fmt::Write as _;

use trine_kvstore::User;

use crate::describe::help;
use crate::errors::{Refusal, SYNTAX};
use crate::limits::REPEATED_BYTES_MAX;
use crate::reply::Writer;
use crate::table;

/// The user of clients that have named no other.
pub const DEFAULT: &str = "default";

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
pub struct UsersAsked {
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
pub enum DefaultUser {
    /// Every client is.
    WithoutPassword,
    /// By its password.
    WithPassword,
    /// No client can be.
    Never,
}

impl DefaultUser {
    /// Whether there is a password for it, and whether clients have to say who they are.
    pub fn new(has_password: bool, requires_auth: bool) -> Self {
        match (has_password, requires_auth) {
            (true, _) => Self::WithPassword,
            (false, false) => Self::WithoutPassword,
            (false, true) => Self::Never,
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

impl UsersAsked {
    /// ACL of a client that acts as `user`. None if the reply is written, and the users are not asked for.
    pub fn read(
        words: &[&[u8]],
        user: &str,
        default: DefaultUser,
        writer: &mut Writer<'_>,
    ) -> Result<Option<Self>, Refusal> {
        let subcommand = words[0].to_ascii_lowercase();
        let what = match (subcommand.as_slice(), &words[1..]) {
            (b"whoami", []) => {
                writer.bulk(user.as_bytes());
                return Ok(None);
            }
            (b"cat", []) => {
                write_names(&CATEGORIES, writer);
                return Ok(None);
            }
            (b"cat", [category]) => {
                write_names(&of_category(category)?, writer);
                return Ok(None);
            }
            (b"help", []) => {
                help(writer, "ACL", &ACL_HELP);
                return Ok(None);
            }
            (b"list", []) => What::Rules,
            (b"users", []) => What::Names,
            (b"getuser", [name]) => What::One(name.to_vec()),
            _ => return Err(SYNTAX.to_owned()),
        };
        Ok(Some(Self { what, default }))
    }

    /// Writes the reply.
    pub fn write<'u>(&self, users: impl Iterator<Item = User<'u>>, writer: &mut Writer<'_>) {
        let mut all = vec![Rules::of_default(self.default)];
        all.extend(users.map(|user| Rules::of(&user)));
        write_users(&self.what, &all, writer);
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

/// The names of the commands of a category.
fn of_category(category: &[u8]) -> Result<Vec<&'static str>, Refusal> {
    let known = |name: &&str| category.eq_ignore_ascii_case(name.as_bytes());
    let Some(category) = CATEGORIES.into_iter().find(known) else {
        let shown = &category[..category.len().min(REPEATED_BYTES_MAX)];
        let shown = String::from_utf8_lossy(shown);
        return Err(format!("ERR Unknown category '{shown}'"));
    };
    let all = table::all().into_iter();
    Ok(all
        .filter(|spec| spec.categories().contains(&category))
        .map(|spec| spec.name)
        .collect())
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
