//! Commands about the connection itself.

use super::{Action, NO_KEY, Spec, Subcommand, Verb};
use crate::arguments::{Argument, Kind, word};

pub(super) const ROWS: &[Spec] = &[
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

const LIBRARY: Argument = Argument::new(
    "attr",
    Kind::OneOf(&[
        Argument::new("libname", Kind::Text).behind("LIB-NAME"),
        Argument::new("libver", Kind::Text).behind("LIB-VER"),
    ]),
);

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
