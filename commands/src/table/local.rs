//! The commands that the connection itself does, by name.

use super::{ALL_KEYS, Action, NO_KEY, Spec, Subcommand, Verb};
use crate::arguments::{Argument, KEY, Kind, word};

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
        name: "auth",
        arity: -2,
        flags: &["fast", "noscript", "no_auth"],
        keys: NO_KEY,
        group: "connection",
        since: "1.0.0",
        summary: "Gives the password.",
        arguments: &[USER, PASSWORD],
        action: Action::Local {
            verb: Verb::Auth,
            subcommands: &[],
        },
    },
    Spec {
        name: "client",
        arity: -2,
        flags: &["noscript"],
        keys: NO_KEY,
        group: "connection",
        since: "2.4.0",
        summary: "Names and lists connections.",
        arguments: &[],
        action: Action::Local {
            verb: Verb::Client,
            subcommands: CLIENT,
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
        name: "echo",
        arity: 2,
        flags: &["fast"],
        keys: NO_KEY,
        group: "connection",
        since: "1.0.0",
        summary: "Sends its argument back.",
        arguments: &[MESSAGE],
        action: Action::Local {
            verb: Verb::Echo,
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
        name: "hello",
        arity: -1,
        flags: &["fast", "noscript", "no_auth"],
        keys: NO_KEY,
        group: "connection",
        since: "6.0.0",
        summary: "Chooses the protocol and gives the password.",
        arguments: &[Argument::new("arguments", Kind::Block(HELLO)).optional()],
        action: Action::Local {
            verb: Verb::Hello,
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
        name: "ping",
        arity: -1,
        flags: &["fast"],
        keys: NO_KEY,
        group: "connection",
        since: "1.0.0",
        summary: "Says that the connection works.",
        arguments: &[MESSAGE.optional()],
        action: Action::Local {
            verb: Verb::Ping,
            subcommands: &[],
        },
    },
    Spec {
        name: "psubscribe",
        arity: -2,
        flags: &["pubsub", "noscript", "loading"],
        keys: NO_KEY,
        group: "pubsub",
        since: "2.0.0",
        summary: "Begins to tell of the channels that fit a pattern.",
        arguments: &[PATTERN.multiple()],
        action: Action::Local {
            verb: Verb::PSubscribe,
            subcommands: &[],
        },
    },
    Spec {
        name: "pubsub",
        arity: -2,
        flags: &[],
        keys: NO_KEY,
        group: "pubsub",
        since: "2.8.0",
        summary: "Describes the subscriptions at this server.",
        arguments: &[],
        action: Action::Local {
            verb: Verb::PubSub,
            subcommands: PUBSUB,
        },
    },
    Spec {
        name: "punsubscribe",
        arity: -1,
        flags: &["pubsub", "noscript", "loading"],
        keys: NO_KEY,
        group: "pubsub",
        since: "2.0.0",
        summary: "Ends subscriptions to patterns.",
        arguments: &[PATTERN.optional().multiple()],
        action: Action::Local {
            verb: Verb::PUnsubscribe,
            subcommands: &[],
        },
    },
    Spec {
        name: "quit",
        arity: -1,
        flags: &["fast", "no_auth"],
        keys: NO_KEY,
        group: "connection",
        since: "1.0.0",
        summary: "Ends the connection.",
        arguments: &[],
        action: Action::Local {
            verb: Verb::Quit,
            subcommands: &[],
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
        name: "reset",
        arity: 1,
        flags: &["fast", "no_auth"],
        keys: NO_KEY,
        group: "connection",
        since: "6.2.0",
        summary: "Makes the connection as new.",
        arguments: &[],
        action: Action::Local {
            verb: Verb::Reset,
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
        name: "select",
        arity: 2,
        flags: &["fast"],
        keys: NO_KEY,
        group: "connection",
        since: "1.0.0",
        summary: "Chooses database 0, the only one.",
        arguments: &[Argument::new("index", Kind::Integer)],
        action: Action::Local {
            verb: Verb::Select,
            subcommands: &[],
        },
    },
    Spec {
        name: "subscribe",
        arity: -2,
        flags: &["pubsub", "noscript", "loading"],
        keys: NO_KEY,
        group: "pubsub",
        since: "2.0.0",
        summary: "Begins to tell of channels.",
        arguments: &[CHANNEL.multiple()],
        action: Action::Local {
            verb: Verb::Subscribe,
            subcommands: &[],
        },
    },
    Spec {
        name: "unsubscribe",
        arity: -1,
        flags: &["pubsub", "noscript", "loading"],
        keys: NO_KEY,
        group: "pubsub",
        since: "2.0.0",
        summary: "Ends subscriptions to channels.",
        arguments: &[CHANNEL.optional().multiple()],
        action: Action::Local {
            verb: Verb::Unsubscribe,
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

const CLIENT: &[Subcommand] = &[
    Subcommand::new(
        "caching",
        3,
        "Says whether the next command is tracked, with OPTIN or OPTOUT.",
        &[Argument::new(
            "mode",
            Kind::OneOf(&[word("yes", "YES"), word("no", "NO")]),
        )],
    ),
    Subcommand::new("getname", 2, "Says the name of this connection.", &[]),
    Subcommand::new(
        "getredir",
        2,
        "Says which connection is told instead of this one.",
        &[],
    ),
    Subcommand::new("help", 2, "Says what subcommands there are.", &[]),
    Subcommand::new("id", 2, "Says the number of this connection.", &[]),
    Subcommand::new("info", 2, "Describes this connection.", &[]),
    Subcommand::new("list", -2, "Describes all connections.", &[]),
    Subcommand::new(
        "setinfo",
        4,
        "Takes the name or the version of the client's library.",
        &[LIBRARY],
    ),
    Subcommand::new(
        "setname",
        3,
        "Names this connection.",
        &[Argument::new("connection-name", Kind::Text)],
    ),
    Subcommand::new(
        "tracking",
        -3,
        "Lets the client hear when keys that it has read change.",
        TRACKING,
    ),
    Subcommand::new("trackinginfo", 2, "Says what this connection tracks.", &[]),
];

const TRACKING: &[Argument] = &[
    Argument::new(
        "status",
        Kind::OneOf(&[word("on", "ON"), word("off", "OFF")]),
    ),
    Argument::new("client-id", Kind::Integer)
        .behind("REDIRECT")
        .optional(),
    Argument::new("prefix", Kind::Text)
        .behind("PREFIX")
        .optional()
        .multiple(),
    word("bcast", "BCAST").optional(),
    word("optin", "OPTIN").optional(),
    word("optout", "OPTOUT").optional(),
    word("noloop", "NOLOOP").optional(),
];

const PUBSUB: &[Subcommand] = &[
    Subcommand::new(
        "channels",
        -2,
        "Lists channels with subscribers.",
        &[PATTERN.optional()],
    ),
    Subcommand::new("help", 2, "Says what subcommands there are.", &[]),
    Subcommand::new("numpat", 2, "Counts the patterns.", &[]),
    Subcommand::new(
        "numsub",
        -2,
        "Counts the subscribers of channels.",
        &[CHANNEL.optional().multiple()],
    ),
];

const LIBRARY: Argument = Argument::new(
    "attr",
    Kind::OneOf(&[
        Argument::new("libname", Kind::Text).behind("LIB-NAME"),
        Argument::new("libver", Kind::Text).behind("LIB-VER"),
    ]),
);

const COMMAND: &[Subcommand] = &[
    Subcommand::new("count", 2, "Counts the commands.", &[]),
    Subcommand::new("docs", -2, "Documents commands.", NAMES),
    Subcommand::new("help", 2, "Says what subcommands there are.", &[]),
    Subcommand::new("info", -2, "Describes commands.", NAMES),
    Subcommand::new("list", -2, "Lists the names of commands.", &[FILTER]),
];

const NAMES: &[Argument] = &[Argument::new("command-name", Kind::Text)
    .optional()
    .multiple()];

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

const PARAMETERS: &[Argument] = &[Argument::new("parameter", Kind::Text).multiple()];

const CHANNEL: Argument = Argument::new("channel", Kind::Text);
const PATTERN: Argument = Argument::new("pattern", Kind::Text);

const SCAN: &[Argument] = &[
    Argument::new("cursor", Kind::Integer),
    PATTERN.behind("MATCH").optional(),
    Argument::new("count", Kind::Integer)
        .behind("COUNT")
        .optional(),
    Argument::new("type", Kind::Text).behind("TYPE").optional(),
];

const FLUSH_TYPE: Argument = Argument::new(
    "flush-type",
    Kind::OneOf(&[word("async", "ASYNC"), word("sync", "SYNC")]),
)
.optional();

const USER: Argument = Argument::new("username", Kind::Text).optional();
const PASSWORD: Argument = Argument::new("password", Kind::Text);
const MESSAGE: Argument = Argument::new("message", Kind::Text);
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
