//! Commands about keys, whatever their values are: DEL, EXPIRE, SCAN and their relatives.

use trine_kvstore::{Command, ExpireCondition};

use super::{ALL_KEYS, Action, NO_KEY, ONE_KEY, Spec, Verb};
use crate::arguments::{
    AT_MILLISECONDS, AT_SECONDS, Argument, EXPIRE_CONDITION, KEY, Kind, MILLISECONDS, SECONDS,
};
use crate::expiry::{Expiry, Unit, expire_condition};
use crate::plan::{Asked, Plan, Planned};
use crate::shape::Shape;

pub(super) const ROWS: &[Spec] = &[
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
            plan: |plan, asked| expire(plan, asked, Unit::Seconds),
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
            plan: |plan, asked| expire(plan, asked, Unit::AtSeconds),
            example: "expireat session 2000000000",
        },
    },
    Spec {
        name: "keys",
        arity: 2,
        flags: &["readonly"],
        keys: NO_KEY,
        group: "generic",
        since: "1.0.0",
        summary: "Lists the keys that fit a pattern.",
        arguments: &[PATTERN],
        action: Action::Local {
            verb: Verb::Keys,
            subcommands: &[],
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
            plan: |plan, asked| expire(plan, asked, Unit::Milliseconds),
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
            plan: |plan, asked| expire(plan, asked, Unit::AtMilliseconds),
            example: "pexpireat session 2000000000000",
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
        name: "randomkey",
        arity: 1,
        flags: &["readonly"],
        keys: NO_KEY,
        group: "generic",
        since: "1.0.0",
        summary: "Names any one of the keys.",
        arguments: &[],
        action: Action::Local {
            verb: Verb::RandomKey,
            subcommands: &[],
        },
    },
    Spec {
        name: "scan",
        arity: -2,
        flags: &["readonly"],
        keys: NO_KEY,
        group: "generic",
        since: "2.8.0",
        summary: "Lists a part of the keys, and says where the next part begins.",
        arguments: SCAN,
        action: Action::Local {
            verb: Verb::Scan,
            subcommands: &[],
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

const SCAN: &[Argument] = &[
    Argument::new("cursor", Kind::Integer),
    PATTERN.behind("MATCH").optional(),
    Argument::new("count", Kind::Integer)
        .behind("COUNT")
        .optional(),
    Argument::new("type", Kind::Text).behind("TYPE").optional(),
];

const PATTERN: Argument = Argument::new("pattern", Kind::Text);

/// EXPIRE and its relatives.
fn expire<'a>(plan: &mut Plan<'a>, asked: &Asked<'_, 'a>, unit: Unit) -> Planned {
    let condition = expire_condition(asked.behind(3))?;
    let key = asked.key();
    let after_ns = Expiry::read(unit, asked.part(2))?.of_expire(asked)?;
    let command = match (condition, after_ns) {
        // The same moment of Unix time comes out a little earlier or later each time, because it is measured by the
        // clock of this replica and then by that of the leader. So the condition has to hold by more than that.
        (Some(condition), Some(after_ns)) if compares(condition) && unit.doubt_ns().is_some() => {
            Command::ExpireIfBeyond {
                key,
                after_ns,
                condition,
                margin_ns: unit.doubt_ns().unwrap_or(0),
            }
        }
        (Some(condition), after_ns) => Command::ExpireIf {
            key,
            after_ns: after_ns.unwrap_or(0),
            condition,
        },
        (None, Some(after_ns)) => Command::Expire { key, after_ns },
        (None, None) => Command::Delete { key },
    };
    plan.one(Shape::Changed, command)
}

/// Whether the condition compares the new moment with the present one.
fn compares(condition: ExpireCondition) -> bool {
    !matches!(
        condition,
        ExpireCondition::Absent | ExpireCondition::Present
    )
}
