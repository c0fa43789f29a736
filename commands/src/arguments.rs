//! What can stand behind the name of a command. `COMMAND DOCS` describes it, and redis-cli makes its hints from that.

use crate::reply::Writer;

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
pub(crate) enum Kind {
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
    pub(crate) const fn new(name: &'static str, kind: Kind) -> Self {
        Self {
            name,
            kind,
            token: None,
            optional: false,
            multiple: false,
        }
    }

    pub(crate) const fn behind(self, token: &'static str) -> Self {
        Self {
            token: Some(token),
            ..self
        }
    }

    pub(crate) const fn optional(self) -> Self {
        Self {
            optional: true,
            ..self
        }
    }

    pub(crate) const fn multiple(self) -> Self {
        Self {
            multiple: true,
            ..self
        }
    }

    fn form(&self) -> String {
        let text = match (self.kind, self.token) {
            (Kind::Word, token) => token.unwrap_or(self.name).to_owned(),
            (Kind::OneOf(inner), _) => {
                let forms: Vec<String> = inner.iter().map(Self::form).collect();
                forms.join("|")
            }
            (Kind::Block(inner), _) => form(inner),
            (_, Some(token)) => format!("{token} {}", self.name.to_uppercase()),
            (_, None) => self.name.to_uppercase(),
        };
        match (self.optional, self.multiple, self.kind) {
            (true, false, _) => format!("[{text}]"),
            (true, true, _) => format!("[{text}]..."),
            (false, true, Kind::Block(_)) => format!("{text} [{text}]..."),
            (false, true, _) => format!("{text}..."),
            (false, false, _) => text,
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

/// The arguments in one line: capitals stand for values, brackets for what can be left out.
pub(crate) fn form(arguments: &[Argument]) -> String {
    let forms: Vec<String> = arguments.iter().map(Argument::form).collect();
    forms.join(" ")
}

/// Writes the list of arguments.
pub(crate) fn write(arguments: &[Argument], writer: &mut Writer<'_>) {
    writer.array(arguments.len());
    arguments.iter().for_each(|argument| argument.write(writer));
}

pub(crate) const fn word(name: &'static str, token: &'static str) -> Argument {
    Argument::new(name, Kind::Word).behind(token)
}

pub(crate) const KEY: Argument = Argument::new("key", Kind::Key);
pub(crate) const VALUE: Argument = Argument::new("value", Kind::Text);
pub(crate) const SECONDS: Argument = Argument::new("seconds", Kind::Integer);
pub(crate) const MILLISECONDS: Argument = Argument::new("milliseconds", Kind::Integer);
pub(crate) const AT_SECONDS: Argument = Argument::new("unix-time-seconds", Kind::UnixTime);
pub(crate) const AT_MILLISECONDS: Argument =
    Argument::new("unix-time-milliseconds", Kind::UnixTime);

const NX: Argument = word("nx", "NX");
const XX: Argument = word("xx", "XX");
pub(crate) const SET_CONDITION: Argument =
    Argument::new("condition", Kind::OneOf(&[NX, XX])).optional();
pub(crate) const EXPIRE_CONDITION: Argument = Argument::new(
    "condition",
    Kind::OneOf(&[NX, XX, word("gt", "GT"), word("lt", "LT")]),
)
.optional();
const EX: Argument = SECONDS.behind("EX");
const PX: Argument = MILLISECONDS.behind("PX");
const EXAT: Argument = AT_SECONDS.behind("EXAT");
const PXAT: Argument = AT_MILLISECONDS.behind("PXAT");
pub(crate) const SET_EXPIRY: Argument = Argument::new(
    "expiration",
    Kind::OneOf(&[EX, PX, EXAT, PXAT, word("keepttl", "KEEPTTL")]),
)
.optional();
pub(crate) const GETEX_EXPIRY: Argument = Argument::new(
    "expiration",
    Kind::OneOf(&[EX, PX, EXAT, PXAT, word("persist", "PERSIST")]),
)
.optional();
