//! Commands about the server and all that it holds.

use trine_kvstore::Command;

use super::{Action, NO_KEY, Spec, Subcommand, Verb};
use crate::arguments::{Argument, Kind, word};
use crate::shape::Shape;

pub(super) const ROWS: &[Spec] = &[
    Spec {
        name: "acl",
        arity: -2,
        flags: &["noscript"],
        keys: NO_KEY,
        group: "server",
        since: "6.0.0",
        summary: "Says who the client is and what users may do.",
        arguments: &[],
        action: Action::Local {
            verb: Verb::Acl,
            subcommands: ACL,
        },
    },
    Spec {
        name: "command",
        arity: -1,
        flags: &["loading"],
        keys: NO_KEY,
        group: "server",
        since: "2.8.13",
        summary: "Describes commands.",
        arguments: &[],
        action: Action::Local {
            verb: Verb::Command,
            subcommands: COMMAND,
        },
    },
    Spec {
        name: "config",
        arity: -2,
        flags: &["admin"],
        keys: NO_KEY,
        group: "server",
        since: "2.0.0",
        summary: "Shows settings.",
        arguments: &[],
        action: Action::Local {
            verb: Verb::Config,
            subcommands: CONFIG,
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
        name: "flushall",
        arity: -1,
        flags: &["write"],
        keys: NO_KEY,
        group: "server",
        since: "1.0.0",
        summary: "Deletes all keys.",
        arguments: &[FLUSH_TYPE],
        action: Action::Local {
            verb: Verb::Flush,
            subcommands: &[],
        },
    },
    Spec {
        name: "flushdb",
        arity: -1,
        flags: &["write"],
        keys: NO_KEY,
        group: "server",
        since: "1.0.0",
        summary: "Deletes all keys: there is one database.",
        arguments: &[FLUSH_TYPE],
        action: Action::Local {
            verb: Verb::Flush,
            subcommands: &[],
        },
    },
    Spec {
        name: "info",
        arity: -1,
        flags: &["loading"],
        keys: NO_KEY,
        group: "server",
        since: "1.0.0",
        summary: "Describes this replica.",
        arguments: &[Argument::new("section", Kind::Text).optional().multiple()],
        action: Action::Local {
            verb: Verb::Info,
            subcommands: &[],
        },
    },
];

const ACL: &[Subcommand] = &[
    Subcommand::new(
        "cat",
        -2,
        "Lists the categories of commands, or the commands of one.",
        &[Argument::new("category", Kind::Text).optional()],
    ),
    Subcommand::new(
        "getuser",
        3,
        "Says what a user may do.",
        &[Argument::new("username", Kind::Text)],
    ),
    Subcommand::new("help", 2, "Says what subcommands there are.", &[]),
    Subcommand::new("list", 2, "Lists the rules of all users.", &[]),
    Subcommand::new("users", 2, "Lists the names of all users.", &[]),
    Subcommand::new("whoami", 2, "Says as which user the client acts.", &[]),
];

const COMMAND: &[Subcommand] = &[
    Subcommand::new("count", 2, "Counts the commands.", &[]),
    Subcommand::new("docs", -2, "Documents commands.", NAMES),
    Subcommand::new("getkeys", -3, "Names the keys of a request.", REQUEST),
    Subcommand::new("help", 2, "Says what subcommands there are.", &[]),
    Subcommand::new("info", -2, "Describes commands.", NAMES),
    Subcommand::new("list", -2, "Lists the names of commands.", &[FILTER]),
];

const CONFIG: &[Subcommand] = &[
    Subcommand::new("get", -3, "Shows settings.", PARAMETERS),
    Subcommand::new("help", 2, "Says what subcommands there are.", &[]),
    Subcommand::new(
        "set",
        -4,
        "Changes settings of events and of tracking.",
        &[Argument::new(
            "data",
            Kind::Block(&[
                Argument::new("parameter", Kind::Text),
                Argument::new("value", Kind::Text),
            ]),
        )
        .multiple()],
    ),
];

const NAMES: &[Argument] = &[Argument::new("command-name", Kind::Text)
    .optional()
    .multiple()];

const REQUEST: &[Argument] = &[
    Argument::new("command", Kind::Text),
    Argument::new("arg", Kind::Text).optional().multiple(),
];

const FILTER: Argument = Argument::new(
    "filterby",
    Kind::OneOf(&[
        Argument::new("module-name", Kind::Text).behind("MODULE"),
        Argument::new("category", Kind::Text).behind("ACLCAT"),
        Argument::new("pattern", Kind::Text).behind("PATTERN"),
    ]),
)
.behind("FILTERBY")
.optional();

const PARAMETERS: &[Argument] = &[Argument::new("parameter", Kind::Text).multiple()];

const FLUSH_TYPE: Argument = Argument::new(
    "flush-type",
    Kind::OneOf(&[word("async", "ASYNC"), word("sync", "SYNC")]),
)
.optional();
