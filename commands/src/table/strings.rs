//! Commands about one string, or several: GET, SET, INCR and their relatives.

use trine_kvstore::{Command, Pair, SetCondition, SetExpiry, SetOptions, integer};

use super::{ALL_KEYS, Action, ONE_KEY, PAIRS, Spec};
use crate::arguments::{
    Argument, GETEX_EXPIRY, KEY, Kind, MILLISECONDS, SECONDS, SET_CONDITION, SET_EXPIRY, VALUE,
    word,
};
use crate::errors::{NOT_AN_INTEGER, Refusal, SYNTAX, wrong_arity};
use crate::expiry::{Expiry, Unit};
use crate::plan::{Asked, Plan, Planned};
use crate::shape::Shape;

pub(super) const ROWS: &[Spec] = &[
    Spec {
        name: "append",
        arity: 3,
        flags: &["write", "denyoom", "fast"],
        keys: ONE_KEY,
        group: "string",
        since: "2.0.0",
        summary: "Appends to the value of a key.",
        arguments: &[KEY, VALUE],
        action: Action::Store {
            plan: |plan, asked| {
                plan.one(
                    Shape::Number,
                    Command::Append {
                        key: asked.key(),
                        value: asked.part(2),
                    },
                )
            },
            example: "append log more",
        },
    },
    Spec {
        name: "decr",
        arity: 2,
        flags: &["write", "denyoom", "fast"],
        keys: ONE_KEY,
        group: "string",
        since: "1.0.0",
        summary: "Takes one from a number.",
        arguments: &[KEY],
        action: Action::Store {
            plan: |plan, asked| increment(plan, asked.key(), -1),
            example: "decr stock",
        },
    },
    Spec {
        name: "decrby",
        arity: 3,
        flags: &["write", "denyoom", "fast"],
        keys: ONE_KEY,
        group: "string",
        since: "1.0.0",
        summary: "Takes from a number.",
        arguments: &[KEY, Argument::new("decrement", Kind::Integer)],
        action: Action::Store {
            plan: |plan, asked| {
                let by = integer(asked.part(2)).ok_or(NOT_AN_INTEGER)?;
                let delta = by.checked_neg().ok_or("ERR decrement would overflow")?;
                increment(plan, asked.key(), delta)
            },
            example: "decrby stock 5",
        },
    },
    Spec {
        name: "get",
        arity: 2,
        flags: &["readonly", "fast"],
        keys: ONE_KEY,
        group: "string",
        since: "1.0.0",
        summary: "Reads the value of a key.",
        arguments: &[KEY],
        action: Action::Store {
            plan: |plan, asked| plan.one(Shape::Value, Command::Get { key: asked.key() }),
            example: "get greeting",
        },
    },
    Spec {
        name: "getdel",
        arity: 2,
        flags: &["write", "fast"],
        keys: ONE_KEY,
        group: "string",
        since: "6.2.0",
        summary: "Reads the value of a key and deletes it.",
        arguments: &[KEY],
        action: Action::Store {
            plan: |plan, asked| plan.one(Shape::Value, Command::GetDelete { key: asked.key() }),
            example: "getdel job",
        },
    },
    Spec {
        name: "getex",
        arity: -2,
        flags: &["write", "fast"],
        keys: ONE_KEY,
        group: "string",
        since: "6.2.0",
        summary: "Reads the value of a key and changes its expiry.",
        arguments: &[KEY, GETEX_EXPIRY],
        action: Action::Store {
            plan: |plan, asked| get_and_expire(plan, asked),
            example: "getex session ex 3600",
        },
    },
    Spec {
        name: "getset",
        arity: 3,
        flags: &["write", "denyoom", "fast"],
        keys: ONE_KEY,
        group: "string",
        since: "1.0.0",
        summary: "Writes a value and reads the one before.",
        arguments: &[KEY, VALUE],
        action: Action::Store {
            plan: |plan, asked| exchange(plan, asked),
            example: "getset greeting hi",
        },
    },
    Spec {
        name: "incr",
        arity: 2,
        flags: &["write", "denyoom", "fast"],
        keys: ONE_KEY,
        group: "string",
        since: "1.0.0",
        summary: "Adds one to a number.",
        arguments: &[KEY],
        action: Action::Store {
            plan: |plan, asked| increment(plan, asked.key(), 1),
            example: "incr hits",
        },
    },
    Spec {
        name: "incrby",
        arity: 3,
        flags: &["write", "denyoom", "fast"],
        keys: ONE_KEY,
        group: "string",
        since: "1.0.0",
        summary: "Adds to a number.",
        arguments: &[KEY, Argument::new("increment", Kind::Integer)],
        action: Action::Store {
            plan: |plan, asked| {
                let delta = integer(asked.part(2)).ok_or(NOT_AN_INTEGER)?;
                increment(plan, asked.key(), delta)
            },
            example: "incrby hits 10",
        },
    },
    Spec {
        name: "mget",
        arity: -2,
        flags: &["readonly", "fast"],
        keys: ALL_KEYS,
        group: "string",
        since: "1.0.0",
        summary: "Reads the values of keys.",
        arguments: &[KEY.multiple()],
        action: Action::Store {
            plan: |plan, asked| {
                plan.each(Shape::Values, asked.behind(1), |key| Command::Get { key })
            },
            example: "mget a b c",
        },
    },
    Spec {
        name: "mset",
        arity: -3,
        flags: &["write", "denyoom"],
        keys: PAIRS,
        group: "string",
        since: "1.0.1",
        summary: "Writes several keys, all or none.",
        arguments: &[Argument::new("key_value", Kind::Block(&[KEY, VALUE])).multiple()],
        action: Action::Store {
            plan: |plan, asked| put_pairs(plan, asked),
            example: "mset a 1 b 2",
        },
    },
    Spec {
        name: "psetex",
        arity: 4,
        flags: &["write", "denyoom"],
        keys: ONE_KEY,
        group: "string",
        since: "2.6.0",
        summary: "Writes a value that expires after milliseconds.",
        arguments: &[KEY, MILLISECONDS, VALUE],
        action: Action::Store {
            plan: |plan, asked| set_for(plan, asked, Unit::Milliseconds),
            example: "psetex code 1500 123456",
        },
    },
    Spec {
        name: "set",
        arity: -3,
        flags: &["write", "denyoom"],
        keys: ONE_KEY,
        group: "string",
        since: "1.0.0",
        summary: "Writes the value of a key.",
        arguments: &[
            KEY,
            VALUE,
            SET_CONDITION,
            word("get", "GET").optional(),
            SET_EXPIRY,
        ],
        action: Action::Store {
            plan: |plan, asked| set(plan, asked),
            example: "set lock me nx ex 30",
        },
    },
    Spec {
        name: "setex",
        arity: 4,
        flags: &["write", "denyoom"],
        keys: ONE_KEY,
        group: "string",
        since: "2.0.0",
        summary: "Writes a value that expires after seconds.",
        arguments: &[KEY, SECONDS, VALUE],
        action: Action::Store {
            plan: |plan, asked| set_for(plan, asked, Unit::Seconds),
            example: "setex code 30 123456",
        },
    },
    Spec {
        name: "setnx",
        arity: 3,
        flags: &["write", "denyoom", "fast"],
        keys: ONE_KEY,
        group: "string",
        since: "1.0.0",
        summary: "Writes a value if the key does not exist.",
        arguments: &[KEY, VALUE],
        action: Action::Store {
            plan: |plan, asked| {
                set_with(
                    plan,
                    Shape::Changed,
                    asked,
                    SetCondition::Absent,
                    SetExpiry::Never,
                )
            },
            example: "setnx lock me",
        },
    },
    Spec {
        name: "strlen",
        arity: 2,
        flags: &["readonly", "fast"],
        keys: ONE_KEY,
        group: "string",
        since: "2.2.0",
        summary: "Measures the value of a key.",
        arguments: &[KEY],
        action: Action::Store {
            plan: |plan, asked| plan.one(Shape::ValueLength, Command::Get { key: asked.key() }),
            example: "strlen greeting",
        },
    },
];

/// INCR and its relatives.
fn increment<'a>(plan: &mut Plan<'a>, key: &'a [u8], delta: i64) -> Planned {
    plan.one(Shape::Number, Command::Increment { key, delta })
}

/// MSET.
fn put_pairs<'a>(plan: &mut Plan<'a>, asked: &Asked<'_, 'a>) -> Planned {
    let parts = asked.behind(1);
    if !parts.len().is_multiple_of(2) {
        return Err(wrong_arity(asked.name));
    }
    let pairs = parts.chunks_exact(2).map(|pair| Pair {
        key: pair[0],
        value: pair[1],
    });
    plan.pairs(Shape::Ok, pairs)
}

/// Writes the part after the key; nothing is returned of what was there.
fn set_with<'a>(
    plan: &mut Plan<'a>,
    shape: Shape,
    asked: &Asked<'_, 'a>,
    condition: SetCondition,
    expiry: SetExpiry,
) -> Planned {
    write(plan, shape, asked.key(), asked.part(2), condition, expiry)
}

fn write<'a>(
    plan: &mut Plan<'a>,
    shape: Shape,
    key: &'a [u8],
    value: &'a [u8],
    condition: SetCondition,
    expiry: SetExpiry,
) -> Planned {
    let options = SetOptions {
        condition,
        expiry,
        return_previous: false,
    };
    let command = match options == SetOptions::default() {
        true => Command::Put { key, value },
        false => Command::Set {
            key,
            value,
            options,
        },
    };
    plan.one(shape, command)
}

/// Writes a value and returns what was there.
fn exchange_with<'a>(
    plan: &mut Plan<'a>,
    key: &'a [u8],
    value: &'a [u8],
    condition: SetCondition,
    expiry: SetExpiry,
) -> Planned {
    let options = SetOptions {
        condition,
        expiry,
        return_previous: true,
    };
    plan.one(
        Shape::Previous,
        Command::Set {
            key,
            value,
            options,
        },
    )
}

/// GETSET.
fn exchange<'a>(plan: &mut Plan<'a>, asked: &Asked<'_, 'a>) -> Planned {
    let (key, value) = (asked.key(), asked.part(2));
    exchange_with(plan, key, value, SetCondition::Always, SetExpiry::Never)
}

/// SET.
fn set<'a>(plan: &mut Plan<'a>, asked: &Asked<'_, 'a>) -> Planned {
    let words = SetWords::read(asked.behind(3))?;
    let after = match words.expiry {
        None => None,
        Some(expiry) => Some(expiry.of_set(asked)?),
    };
    let expiry = match after {
        None if words.keep => SetExpiry::Keep,
        None => SetExpiry::Never,
        Some(after_ns) => SetExpiry::After(after_ns.unwrap_or(1)),
    };
    // The moment is over. With NX it is not known yet whether this value would be deleted, so the key goes at the
    // next step of group time.
    let deletes = after == Some(None) && words.condition != SetCondition::Absent;
    // The value that is deleted at once has no bytes: a full store would refuse a longer one, and still delete the key.
    let (key, value) = match deletes {
        true => (asked.key(), &b""[..]),
        false => (asked.key(), asked.part(2)),
    };
    match words.get {
        true => exchange_with(plan, key, value, words.condition, expiry)?,
        false => write(plan, Shape::OkOrNull, key, value, words.condition, expiry)?,
    }
    if deletes {
        plan.also(Command::Delete { key });
    }
    Ok(())
}

/// SETEX and PSETEX.
fn set_for<'a>(plan: &mut Plan<'a>, asked: &Asked<'_, 'a>, unit: Unit) -> Planned {
    let expiry = Expiry::read(unit, asked.part(2))?;
    let after_ns = expiry.of_set(asked)?.unwrap_or(1);
    let (key, value) = (asked.key(), asked.part(3));
    let expiry = SetExpiry::After(after_ns);
    write(plan, Shape::Ok, key, value, SetCondition::Always, expiry)
}

/// GETEX.
fn get_and_expire<'a>(plan: &mut Plan<'a>, asked: &Asked<'_, 'a>) -> Planned {
    let key = asked.key();
    let of_set = |expiry: Expiry| expiry.of_set(asked);
    let change = match GetexWords::read(asked.behind(2))? {
        GetexWords::None => None,
        GetexWords::Persist => Some(Command::Persist { key }),
        GetexWords::Expiry(unit, amount) => {
            match Expiry::read(unit, amount).and_then(of_set) {
                Ok(Some(after_ns)) => Some(Command::Expire { key, after_ns }),
                Ok(None) => {
                    return plan.one(Shape::Value, Command::GetDelete { key });
                }
                // Redis looks for the key first.
                Err(text) => {
                    let shape = Shape::ErrorIfPresent(text);
                    return plan.one(shape, Command::TimeToLive { key });
                }
            }
        }
    };
    plan.one(Shape::ValueFirst, Command::Get { key })?;
    if let Some(change) = change {
        plan.also(change);
    }
    Ok(())
}

/// The words behind the key of a GETEX. The same one may come again, and the last one counts.
enum GetexWords<'w> {
    None,
    Persist,
    Expiry(Unit, &'w [u8]),
}

impl<'w> GetexWords<'w> {
    fn read(words: &[&'w [u8]]) -> Result<Self, Refusal> {
        let mut asked = Self::None;
        let mut words = words.iter();
        while let Some(word) = words.next() {
            asked = match (asked, word.eq_ignore_ascii_case(b"persist")) {
                (Self::None | Self::Persist, true) => Self::Persist,
                (Self::Persist, false) | (Self::Expiry(..), true) => return Err(SYNTAX.to_owned()),
                (earlier, false) => {
                    let unit = Unit::of_word(word).ok_or(SYNTAX)?;
                    let amount = words.next().ok_or(SYNTAX)?;
                    match earlier {
                        Self::Expiry(before, _) if before != unit => {
                            return Err(SYNTAX.to_owned());
                        }
                        _ => Self::Expiry(unit, amount),
                    }
                }
            };
        }
        Ok(asked)
    }
}

/// The words behind the value of a SET.
#[derive(Default)]
struct SetWords {
    condition: SetCondition,
    get: bool,
    keep: bool,
    expiry: Option<Expiry>,
}

impl SetWords {
    fn read(words: &[&[u8]]) -> Result<Self, Refusal> {
        let mut asked = Self::default();
        let mut unit_asked = None;
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let is = |name: &[u8]| word.eq_ignore_ascii_case(name);
            if is(b"nx") && asked.condition != SetCondition::Present {
                asked.condition = SetCondition::Absent;
            } else if is(b"xx") && asked.condition != SetCondition::Absent {
                asked.condition = SetCondition::Present;
            } else if is(b"get") {
                asked.get = true;
            } else if is(b"keepttl") && unit_asked.is_none() {
                asked.keep = true;
            } else {
                let unit = Unit::of_word(word).ok_or(SYNTAX)?;
                let amount = words.next().ok_or(SYNTAX)?;
                if asked.keep || unit_asked.is_some_and(|(earlier, _)| earlier != unit) {
                    return Err(SYNTAX.to_owned());
                }
                unit_asked = Some((unit, amount));
            }
        }
        if let Some((unit, amount)) = unit_asked {
            asked.expiry = Some(Expiry::read(unit, amount)?);
        }
        Ok(asked)
    }
}
