//! The whole command line, and which commands have the options of the network.

use clap::parser::ValueSource;
use clap::{Args, CommandFactory};

use super::Arguments;
use super::help::with_help;
use trine_base::network::NetworkArguments;

/// Commands that send no packet to a replica. The options of the network mean nothing to them.
const WITHOUT_NETWORK: [&str; 6] = [
    "recover",
    "sim",
    "config",
    "log-level",
    "completions",
    "man",
];

/// Defines the whole command line. Every command accepts the options of the network, but commands without use for them
/// do not show them.
pub(crate) fn command_line() -> clap::Command {
    let options = NetworkArguments::augment_args(clap::Command::new("network"));
    let hidden: Vec<clap::Arg> = options
        .get_arguments()
        .map(|option| option.clone().hide(true))
        .collect();
    let hide = |definition: clap::Command, name: &&str| {
        definition.mut_subcommand(name, |command| command.args(hidden.clone()))
    };
    with_help(WITHOUT_NETWORK.iter().fold(Arguments::command(), hide))
}

/// Returns an option of the network that was given to a command without use for it.
pub(crate) fn needless_option(matches: &clap::ArgMatches) -> Option<(&str, String)> {
    let (name, said) = matches.subcommand()?;
    // These two below `config` talk to a group.
    let asks_group = matches!(said.subcommand_name(), Some("get" | "set"));
    if !WITHOUT_NETWORK.contains(&name) || asks_group {
        return None;
    }
    let options = NetworkArguments::augment_args(clap::Command::new("network"));
    let given = options.get_arguments().find(|option| {
        said.value_source(option.get_id().as_str()) == Some(ValueSource::CommandLine)
    })?;
    Some((name, given.get_long()?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_the_network_stand_only_where_packets_are_sent() {
        let mut definition = command_line();
        definition.build();
        for command in definition
            .get_subcommands()
            .filter(|c| c.get_name() != "help")
        {
            let option = command
                .get_arguments()
                .find(|arg| arg.get_id() == "transport");
            let shown = option.is_some_and(|option| !option.is_hide_set());
            let name = command.get_name();
            assert_eq!(shown, !WITHOUT_NETWORK.contains(&name), "{name}");
        }
    }

    #[test]
    fn options_of_the_network_are_needless_where_no_packet_is_sent() {
        let needless = |line: &str| {
            let matches = command_line()
                .try_get_matches_from(line.split(' '))
                .expect("reads");
            needless_option(&matches).map(|(_, option)| option)
        };
        assert_eq!(
            needless("trine sim --transport udp").as_deref(),
            Some("transport")
        );
        assert_eq!(
            needless("trine --device mlx5_0 sim").as_deref(),
            Some("device")
        );
        assert_eq!(
            needless("trine config default --eal x").as_deref(),
            Some("eal")
        );
        assert_eq!(needless("trine sim"), None);
        assert_eq!(needless("trine status --transport udp"), None);
        assert_eq!(needless("trine config show serve -- --transport udp"), None);
    }
}
