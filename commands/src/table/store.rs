//! The commands that the store does, by name. A row says all that is known of a command: who describes commands to clients,
//! checks their parts, plans them or shows help reads it here.

use super::{ALL_KEYS, Action, NO_KEY, ONE_KEY, PAIRS, Spec};
use crate::arguments::{
    AT_MILLISECONDS, AT_SECONDS, Argument, EXPIRE_CONDITION, GETEX_EXPIRY, KEY, Kind, MILLISECONDS,
    SECONDS, SET_CONDITION, SET_EXPIRY, VALUE, word,
};
use crate::errors::NOT_AN_INTEGER;
use crate::plan::Unit;
use crate::shape::Shape;
use trine_kvstore::{Command, SetCondition, SetExpiry, integer};

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
        name: "dbsize",
        arity: 1,
        flags: &["readonly", "fast"],
        keys: NO_KEY,
        group: "server",
        since: "1.0.0",
        summary: "Counts the keys.",
        arguments: &[],
        action: Action::Store {
            plan: |plan, _| plan.one(Shape::Number, Command::Count),
            example: "dbsize",
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
            plan: |plan, asked| plan.increment(asked.key(), -1),
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
                plan.increment(asked.key(), delta)
            },
            example: "decrby stock 5",
        },
    },
    Spec {
        name: "del",
        arity: -2,
        flags: &["write"],
        keys: ALL_KEYS,
        group: "generic",
        since: "1.0.0",
        summary: "Deletes keys.",
        arguments: &[KEY.multiple()],
        action: Action::Store {
            plan: |plan, asked| {
                plan.each(Shape::HowMany, asked.behind(1), |key| Command::Delete {
                    key,
                })
            },
            example: "del greeting draft",
        },
    },
    Spec {
        name: "exists",
        arity: -2,
        flags: &["readonly", "fast"],
        keys: ALL_KEYS,
        group: "generic",
        since: "1.0.0",
        summary: "Counts which of the keys exist.",
        arguments: &[KEY.multiple()],
        action: Action::Store {
            plan: |plan, asked| {
                plan.each(Shape::HowMany, asked.behind(1), |key| Command::TimeToLive {
                    key,
                })
            },
            example: "exists greeting draft",
        },
    },
    Spec {
        name: "expire",
        arity: -3,
        flags: &["write", "fast"],
        keys: ONE_KEY,
        group: "generic",
        since: "1.0.0",
        summary: "Lets a key expire after seconds.",
        arguments: &[KEY, SECONDS, EXPIRE_CONDITION],
        action: Action::Store {
            plan: |plan, asked| plan.expire(asked, Unit::Seconds),
            example: "expire session 3600",
        },
    },
    Spec {
        name: "expireat",
        arity: -3,
        flags: &["write", "fast"],
        keys: ONE_KEY,
        group: "generic",
        since: "1.2.0",
        summary: "Lets a key expire at a second of Unix time.",
        arguments: &[KEY, AT_SECONDS, EXPIRE_CONDITION],
        action: Action::Store {
            plan: |plan, asked| plan.expire(asked, Unit::AtSeconds),
            example: "expireat session 2000000000",
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
            plan: |plan, asked| plan.get_and_expire(asked),
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
            plan: |plan, asked| plan.exchange(asked),
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
            plan: |plan, asked| plan.increment(asked.key(), 1),
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
                plan.increment(asked.key(), delta)
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
            plan: |plan, asked| plan.put_pairs(asked),
            example: "mset a 1 b 2",
        },
    },
    Spec {
        name: "persist",
        arity: 2,
        flags: &["write", "fast"],
        keys: ONE_KEY,
        group: "generic",
        since: "2.2.0",
        summary: "Takes the expiry from a key.",
        arguments: &[KEY],
        action: Action::Store {
            plan: |plan, asked| plan.one(Shape::Changed, Command::Persist { key: asked.key() }),
            example: "persist session",
        },
    },
    Spec {
        name: "pexpire",
        arity: -3,
        flags: &["write", "fast"],
        keys: ONE_KEY,
        group: "generic",
        since: "2.6.0",
        summary: "Lets a key expire after milliseconds.",
        arguments: &[KEY, MILLISECONDS, EXPIRE_CONDITION],
        action: Action::Store {
            plan: |plan, asked| plan.expire(asked, Unit::Milliseconds),
            example: "pexpire session 1500 gt",
        },
    },
    Spec {
        name: "pexpireat",
        arity: -3,
        flags: &["write", "fast"],
        keys: ONE_KEY,
        group: "generic",
        since: "2.6.0",
        summary: "Lets a key expire at a millisecond of Unix time.",
        arguments: &[KEY, AT_MILLISECONDS, EXPIRE_CONDITION],
        action: Action::Store {
            plan: |plan, asked| plan.expire(asked, Unit::AtMilliseconds),
            example: "pexpireat session 2000000000000",
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
            plan: |plan, asked| plan.set_for(asked, Unit::Milliseconds),
            example: "psetex code 1500 123456",
        },
    },
    Spec {
        name: "pttl",
        arity: 2,
        flags: &["readonly", "fast"],
        keys: ONE_KEY,
        group: "generic",
        since: "2.6.0",
        summary: "Says how many milliseconds a key has to live.",
        arguments: &[KEY],
        action: Action::Store {
            plan: |plan, asked| {
                plan.one(
                    Shape::Milliseconds,
                    Command::TimeToLive { key: asked.key() },
                )
            },
            example: "pttl session",
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
            plan: |plan, asked| plan.set(asked),
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
            plan: |plan, asked| plan.set_for(asked, Unit::Seconds),
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
                plan.set_with(
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
    Spec {
        name: "touch",
        arity: -2,
        flags: &["readonly", "fast"],
        keys: ALL_KEYS,
        group: "generic",
        since: "3.2.1",
        summary: "Counts which of the keys exist.",
        arguments: &[KEY.multiple()],
        action: Action::Store {
            plan: |plan, asked| {
                plan.each(Shape::HowMany, asked.behind(1), |key| Command::TimeToLive {
                    key,
                })
            },
            example: "touch greeting draft",
        },
    },
    Spec {
        name: "ttl",
        arity: 2,
        flags: &["readonly", "fast"],
        keys: ONE_KEY,
        group: "generic",
        since: "1.0.0",
        summary: "Says how many seconds a key has to live.",
        arguments: &[KEY],
        action: Action::Store {
            plan: |plan, asked| plan.one(Shape::Seconds, Command::TimeToLive { key: asked.key() }),
            example: "ttl session",
        },
    },
    Spec {
        name: "type",
        arity: 2,
        flags: &["readonly", "fast"],
        keys: ONE_KEY,
        group: "generic",
        since: "1.0.0",
        summary: "Says that a key holds a string, the only kind.",
        arguments: &[KEY],
        action: Action::Store {
            plan: |plan, asked| plan.one(Shape::Type, Command::TimeToLive { key: asked.key() }),
            example: "type greeting",
        },
    },
    Spec {
        name: "unlink",
        arity: -2,
        flags: &["write", "fast"],
        keys: ALL_KEYS,
        group: "generic",
        since: "4.0.0",
        summary: "Deletes keys.",
        arguments: &[KEY.multiple()],
        action: Action::Store {
            plan: |plan, asked| {
                plan.each(Shape::HowMany, asked.behind(1), |key| Command::Delete {
                    key,
                })
            },
            example: "unlink greeting draft",
        },
    },
];
