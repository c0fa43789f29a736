//! Commands that Redis does not have: versions of keys, and writes that are applied once however often they come.

use trine_kvstore::{Command, Position, SetCondition, SetExpiry, SetOptions};

use super::{Action, NO_KEY, ONE_KEY, Spec, Subcommand, Verb, find};
use crate::arguments::{Argument, KEY, Kind, MILLISECONDS, VALUE};
use crate::errors::SYNTAX;
use crate::expiry::{Expiry, Unit};
use crate::plan::{Asked, Plan, Planned};
use crate::shape::Shape;

pub(super) const ROWS: &[Spec] = &[
    Spec {
        name: CAS,
        arity: -4,
        flags: &["write", "denyoom", "fast"],
        keys: ONE_KEY,
        group: "string",
        since: "0.2.0",
        summary: "Writes a value if the key has this version, or 0 for no key, and says which it has.",
        arguments: &[
            KEY,
            Argument::new("version", Kind::Integer),
            VALUE,
            MILLISECONDS.behind("PX").optional(),
        ],
        action: Action::Store {
            plan: compare_and_swap,
            example: "trine.cas greeting 0 hello",
        },
    },
    Spec {
        name: "trine.do",
        arity: -(DO_WORDS as i64 + 1),
        flags: &["write", "denyoom", "movablekeys", "noscript"],
        keys: NO_KEY,
        group: "generic",
        since: "0.2.0",
        summary: "Does a write once, on whatever connection and replica it is repeated.",
        arguments: &[
            TOKEN,
            Argument::new("sequence", Kind::Integer),
            Argument::new("lowest", Kind::Integer),
            Argument::new("command", Kind::Text),
            Argument::new("arg", Kind::Text).optional().multiple(),
        ],
        action: Action::Local {
            verb: Verb::Do,
            subcommands: &[],
        },
    },
    Spec {
        name: "trine.getv",
        arity: 2,
        flags: &["readonly", "fast"],
        keys: ONE_KEY,
        group: "string",
        since: "0.2.0",
        summary: "Reads the value of a key, and its version.",
        arguments: &[KEY],
        action: Action::Store {
            plan: |plan, asked| plan.one(Shape::Versioned, Command::Get { key: asked.key() }),
            example: "trine.getv greeting",
        },
    },
    Spec {
        name: "trine.session",
        arity: -1,
        flags: &["noscript"],
        keys: NO_KEY,
        group: "connection",
        since: "0.2.0",
        summary: "Opens a session for TRINE.DO.",
        arguments: &[],
        action: Action::Local {
            verb: Verb::Session,
            subcommands: SESSION,
        },
    },
];

const CAS: &str = "trine.cas";

/// The name TRINE.DO and the words in front of the command: token, sequence and the lowest awaited one.
pub(crate) const DO_WORDS: usize = 4;

const TOKEN: Argument = Argument::new("token", Kind::Text);

const SESSION: &[Subcommand] = &[
    Subcommand::new("close", 3, "Ends a session.", &[TOKEN]),
    Subcommand::new("help", 2, "Says what subcommands there are.", &[]),
];

/// Where the keys of the command inside TRINE.DO stand, and that command.
pub(super) fn inner_keys<'r, 'a>(parts: &'r [&'a [u8]]) -> ([i64; 3], &'r [&'a [u8]]) {
    let inner = parts.get(DO_WORDS..).unwrap_or_default();
    let spec = inner.first().and_then(|name| find(name));
    (spec.map_or(NO_KEY, |spec| spec.keys), inner)
}

/// Whether the store takes this request alone: it compares, and sets a time to live only if that went well.
pub(super) fn goes_alone(spec: &Spec, parts: &[&[u8]]) -> bool {
    parts.len() > 4 && parts[2] != b"0" && spec.name == CAS
}

/// TRINE.CAS.
fn compare_and_swap<'a>(plan: &mut Plan<'a>, asked: &Asked<'_, 'a>) -> Planned {
    let (key, value) = (asked.key(), asked.part(3));
    let version = whole_number(asked.part(2))
        .ok_or("ERR a version is a number that TRINE.GETV has answered, or 0")?;
    let after_ns = match asked.behind(4) {
        [] => None,
        [word, amount] if word.eq_ignore_ascii_case(b"px") => {
            let expiry = Expiry::read(Unit::Milliseconds, amount)?;
            Some(expiry.of_set(asked)?.unwrap_or(1))
        }
        _ => return Err(SYNTAX.to_owned()),
    };
    if version == 0 {
        let options = SetOptions {
            condition: SetCondition::Absent,
            expiry: after_ns.map_or(SetExpiry::Never, SetExpiry::After),
            return_previous: false,
        };
        let command = Command::Set {
            key,
            value,
            options,
        };
        return plan.one(Shape::Swapped, command);
    }
    let compare = Command::CompareAndSwap {
        key,
        expected: Position::from_u64(version),
        value,
    };
    match after_ns {
        None => plan.one(Shape::Swapped, compare),
        Some(after_ns) => {
            let shape = Shape::Compared(key.to_vec());
            plan.both(shape, [compare, Command::Expire { key, after_ns }])
        }
    }
}

/// A number without a sign, in decimal digits.
pub(crate) fn whole_number(text: &[u8]) -> Option<u64> {
    // The parser would take a plus.
    let is_plain = text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text)
        .ok()
        .filter(|_| is_plain)?
        .parse()
        .ok()
}
