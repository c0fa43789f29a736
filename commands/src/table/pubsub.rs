//! Commands about channels.

use super::{Action, NO_KEY, Spec, Subcommand, Verb};
use crate::arguments::{Argument, Kind};

pub(super) const ROWS: &[Spec] = &[
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

const CHANNEL: Argument = Argument::new("channel", Kind::Text);

const PATTERN: Argument = Argument::new("pattern", Kind::Text);
