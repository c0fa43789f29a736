//! Commands of transactions.

use super::{ALL_KEYS, Action, NO_KEY, Spec, Verb};
use crate::arguments::KEY;

pub(super) const ROWS: &[Spec] = &[
    Spec {
        name: "discard",
        arity: 1,
        flags: &["fast"],
        keys: NO_KEY,
        group: "transactions",
        since: "2.0.0",
        summary: "Forgets a transaction.",
        arguments: &[],
        action: Action::Local {
            verb: Verb::Discard,
            subcommands: &[],
        },
    },
    Spec {
        name: "exec",
        arity: 1,
        flags: &[],
        keys: NO_KEY,
        group: "transactions",
        since: "1.2.0",
        summary: "Does a transaction.",
        arguments: &[],
        action: Action::Local {
            verb: Verb::Exec,
            subcommands: &[],
        },
    },
    Spec {
        name: "multi",
        arity: 1,
        flags: &["fast"],
        keys: NO_KEY,
        group: "transactions",
        since: "1.2.0",
        summary: "Begins a transaction.",
        arguments: &[],
        action: Action::Local {
            verb: Verb::Multi,
            subcommands: &[],
        },
    },
    Spec {
        name: "unwatch",
        arity: 1,
        flags: &["fast"],
        keys: NO_KEY,
        group: "transactions",
        since: "2.2.0",
        summary: "Forgets the watched keys.",
        arguments: &[],
        action: Action::Local {
            verb: Verb::Unwatch,
            subcommands: &[],
        },
    },
    Spec {
        name: "watch",
        arity: -2,
        flags: &["fast"],
        keys: ALL_KEYS,
        group: "transactions",
        since: "2.2.0",
        summary: "Lets the next transaction fail if one of the keys is changed.",
        arguments: &[KEY.multiple()],
        action: Action::Local {
            verb: Verb::Watch,
            subcommands: &[],
        },
    },
];
