//! The arguments of every command, for `COMMAND DOCS`: redis-cli makes its hints from them.

use crate::reply::Writer;
use crate::table::{Spec, Verb};

/// What stands at one place of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Argument {
    name: &'static str,
    kind: Kind,
    /// The word in front of a value.
    token: Option<&'static str>,
    optional: bool,
    multiple: bool,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Key,
    Text,
    Integer,
    UnixTime,
    /// The word itself.
    Word,
    OneOf(&'static [Argument]),
    /// All of these, one after the other.
    Block(&'static [Argument]),
}

impl Argument {
    const fn new(name: &'static str, kind: Kind) -> Self {
        Self {
            name,
            kind,
            token: None,
            optional: false,
            multiple: false,
        }
    }

    const fn behind(self, token: &'static str) -> Self {
        Self {
            token: Some(token),
            ..self
        }
    }

    const fn optional(self) -> Self {
        Self {
            optional: true,
            ..self
        }
    }

    const fn multiple(self) -> Self {
        Self {
            multiple: true,
            ..self
        }
    }

    fn write(&self, writer: &mut Writer<'_>) {
        let (kind, inner): (&str, &[Self]) = match self.kind {
            Kind::Key => ("key", &[]),
            Kind::Text => ("string", &[]),
            Kind::Integer => ("integer", &[]),
            Kind::UnixTime => ("unix-time", &[]),
            Kind::Word => ("pure-token", &[]),
            Kind::OneOf(inner) => ("oneof", inner),
            Kind::Block(inner) => ("block", inner),
        };
        let flags = [(self.optional, "optional"), (self.multiple, "multiple")];
        let flags: Vec<&str> = flags
            .iter()
            .filter(|(is, _)| *is)
            .map(|(_, flag)| *flag)
            .collect();
        let is_key = matches!(self.kind, Kind::Key);
        let more = [
            is_key,
            self.token.is_some(),
            !flags.is_empty(),
            !inner.is_empty(),
        ];
        writer.map(2 + more.iter().filter(|more| **more).count());
        for (field, text) in [("name", self.name), ("type", kind)] {
            writer.bulk(field.as_bytes());
            writer.bulk(text.as_bytes());
        }
        if is_key {
            writer.bulk(b"key_spec_index");
            writer.integer(0);
        }
        if let Some(token) = self.token {
            writer.bulk(b"token");
            writer.bulk(token.as_bytes());
        }
        if !flags.is_empty() {
            writer.bulk(b"flags");
            writer.set(flags.len());
            flags.iter().for_each(|flag| writer.simple(flag));
        }
        if !inner.is_empty() {
            writer.bulk(b"arguments");
            write(inner, writer);
        }
    }
}

/// Writes the list of arguments.
pub(crate) fn write(arguments: &[Argument], writer: &mut Writer<'_>) {
    writer.array(arguments.len());
    arguments.iter().for_each(|argument| argument.write(writer));
}

/// The arguments behind the name of a command.
pub(crate) fn of(spec: &Spec) -> &'static [Argument] {
    match spec.verb {
        Verb::Append | Verb::Getset | Verb::Setnx => &[KEY, VALUE],
        Verb::Auth => &[USER, PASSWORD],
        Verb::Decr
        | Verb::Get
        | Verb::Getdel
        | Verb::Incr
        | Verb::Persist
        | Verb::Pttl
        | Verb::Strlen
        | Verb::Ttl
        | Verb::Type => &[KEY],
        Verb::Decrby => const { &[KEY, Argument::new("decrement", Kind::Integer)] },
        Verb::Incrby => const { &[KEY, Argument::new("increment", Kind::Integer)] },
        Verb::Del | Verb::Exists | Verb::Mget | Verb::Touch | Verb::Unlink | Verb::Watch => {
            const { &[KEY.multiple()] }
        }
        Verb::Echo => &[MESSAGE],
        Verb::Ping => const { &[MESSAGE.optional()] },
        Verb::Expire => &[KEY, SECONDS, EXPIRE_CONDITION],
        Verb::Pexpire => &[KEY, MILLISECONDS, EXPIRE_CONDITION],
        Verb::Expireat => &[KEY, AT_SECONDS, EXPIRE_CONDITION],
        Verb::Pexpireat => &[KEY, AT_MILLISECONDS, EXPIRE_CONDITION],
        Verb::Getex => &[KEY, GETEX_EXPIRY],
        Verb::Hello => const { &[Argument::new("arguments", Kind::Block(HELLO)).optional()] },
        Verb::Info => const { &[Argument::new("section", Kind::Text).optional().multiple()] },
        Verb::Mset => {
            const { &[Argument::new("key_value", Kind::Block(&[KEY, VALUE])).multiple()] }
        }
        Verb::Psetex => &[KEY, MILLISECONDS, VALUE],
        Verb::Select => const { &[Argument::new("index", Kind::Integer)] },
        Verb::Set => {
            const {
                &[
                    KEY,
                    VALUE,
                    SET_CONDITION,
                    word("get", "GET").optional(),
                    SET_EXPIRY,
                ]
            }
        }
        Verb::Setex => &[KEY, SECONDS, VALUE],
        Verb::Client
        | Verb::Command
        | Verb::Config
        | Verb::Dbsize
        | Verb::Discard
        | Verb::Exec
        | Verb::Multi
        | Verb::Quit
        | Verb::Reset
        | Verb::Unwatch => &[],
    }
}

/// The subcommands of a command: their names, what they do, and their arguments.
pub(crate) fn subcommands_of(spec: &Spec) -> &'static [Subcommand] {
    match spec.verb {
        Verb::Client => CLIENT,
        Verb::Command => COMMAND,
        Verb::Config => CONFIG,
        _ => &[],
    }
}

pub(crate) type Subcommand = (&'static str, &'static str, &'static [Argument]);

const CLIENT: &[Subcommand] = &[
    ("client|getname", "Says the name of this connection.", &[]),
    ("client|help", "Says what subcommands there are.", &[]),
    ("client|id", "Says the number of this connection.", &[]),
    ("client|info", "Describes this connection.", &[]),
    ("client|list", "Describes all connections.", &[]),
    (
        "client|setinfo",
        "Takes the name or the version of the client's library.",
        &[Argument::new(
            "attr",
            Kind::OneOf(&[
                Argument::new("libname", Kind::Text).behind("LIB-NAME"),
                Argument::new("libver", Kind::Text).behind("LIB-VER"),
            ]),
        )],
    ),
    (
        "client|setname",
        "Names this connection.",
        &[Argument::new("connection-name", Kind::Text)],
    ),
];

const NAMES: &[Argument] = &[Argument::new("command-name", Kind::Text)
    .optional()
    .multiple()];

const COMMAND: &[Subcommand] = &[
    ("command|count", "Counts the commands.", &[]),
    ("command|docs", "Documents commands.", NAMES),
    ("command|help", "Says what subcommands there are.", &[]),
    ("command|info", "Describes commands.", NAMES),
    (
        "command|list",
        "Lists the names of commands.",
        &[Argument::new(
            "filterby",
            Kind::OneOf(&[
                Argument::new("module-name", Kind::Text).behind("MODULE"),
                Argument::new("category", Kind::Text).behind("ACLCAT"),
                Argument::new("pattern", Kind::Text).behind("PATTERN"),
            ]),
        )
        .behind("FILTERBY")
        .optional()],
    ),
];

const CONFIG: &[Subcommand] = &[
    (
        "config|get",
        "Shows settings.",
        &[Argument::new("parameter", Kind::Text).multiple()],
    ),
    ("config|help", "Says what subcommands there are.", &[]),
];

const fn word(name: &'static str, token: &'static str) -> Argument {
    Argument::new(name, Kind::Word).behind(token)
}

const KEY: Argument = Argument::new("key", Kind::Key);
const VALUE: Argument = Argument::new("value", Kind::Text);
const MESSAGE: Argument = Argument::new("message", Kind::Text);
const USER: Argument = Argument::new("username", Kind::Text).optional();
const PASSWORD: Argument = Argument::new("password", Kind::Text);
const SECONDS: Argument = Argument::new("seconds", Kind::Integer);
const MILLISECONDS: Argument = Argument::new("milliseconds", Kind::Integer);
const AT_SECONDS: Argument = Argument::new("unix-time-seconds", Kind::UnixTime);
const AT_MILLISECONDS: Argument = Argument::new("unix-time-milliseconds", Kind::UnixTime);

const NX: Argument = word("nx", "NX");
const XX: Argument = word("xx", "XX");
const SET_CONDITION: Argument = Argument::new("condition", Kind::OneOf(&[NX, XX])).optional();
const EXPIRE_CONDITION: Argument = Argument::new(
    "condition",
    Kind::OneOf(&[NX, XX, word("gt", "GT"), word("lt", "LT")]),
)
.optional();
const EX: Argument = SECONDS.behind("EX");
const PX: Argument = MILLISECONDS.behind("PX");
const EXAT: Argument = AT_SECONDS.behind("EXAT");
const PXAT: Argument = AT_MILLISECONDS.behind("PXAT");
const SET_EXPIRY: Argument = Argument::new(
    "expiration",
    Kind::OneOf(&[EX, PX, EXAT, PXAT, word("keepttl", "KEEPTTL")]),
)
.optional();
const GETEX_EXPIRY: Argument = Argument::new(
    "expiration",
    Kind::OneOf(&[EX, PX, EXAT, PXAT, word("persist", "PERSIST")]),
)
.optional();
const HELLO: &[Argument] = &[
    Argument::new("protover", Kind::Integer),
    Argument::new(
        "username_password",
        Kind::Block(&[Argument::new("username", Kind::Text), PASSWORD]),
    )
    .behind("AUTH")
    .optional(),
    Argument::new("clientname", Kind::Text)
        .behind("SETNAME")
        .optional(),
];
