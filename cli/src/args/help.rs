//! How help looks: `-h` is short, `--help` says everything, and `trine --help` groups its commands.

use clap::{Arg, Command};

use super::examples::EXAMPLES;

/// The commands as `trine --help` shows them. A command that has no group fails a test.
const GROUPS: [(&str, &[&str]); 5] = [
    (
        "Data",
        &[
            "put", "get", "del", "scan", "count", "rm", "watch", "flush", "export", "import",
            "shell",
        ],
    ),
    (
        "Group",
        &[
            "demo", "up", "down", "serve", "status", "top", "stat", "member", "leader", "upgrade",
            "key", "user",
        ],
    ),
    (
        "Operate",
        &[
            "config",
            "log-level",
            "backup",
            "restore",
            "recover",
            "doctor",
            "debug",
            "completions",
            "man",
            "version",
        ],
    ),
    (
        "Measure and test",
        &["bench", "latency", "net", "chaos", "sim"],
    ),
    ("Other servers", &["cache", "index", "sequencer"]),
];

/// Options below these headings are for few users of a command. `-h` leaves them out.
const RARE: [&str; 2] = ["Packet capture", "Network options"];

/// The width of the column of command names.
const NAME_WIDTH: usize = 12;

/// The command line with help in that form.
pub(super) fn with_help(definition: Command) -> Command {
    let groups = groups(&definition);
    let template = format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n\n{groups}\n\n\
         `trine COMMAND -h` shows the short help, `trine COMMAND --help` the full one.\n\n\
         Options:\n{{options}}{{after-help}}"
    );
    each(definition, "").help_template(template)
}

/// Shortens the help of a command and of those below it, and adds examples.
fn each(command: Command, path: &str) -> Command {
    let command = command.mut_args(shortened);
    let command = match EXAMPLES.iter().find(|(of, _)| *of == path) {
        Some((_, examples)) => command.after_help(format!("Examples:\n{}", indented(examples))),
        None => command,
    };
    command.mut_subcommands(|command| {
        let path = format!("{path} {}", command.get_name());
        each(command, path.trim_start())
    })
}

fn indented(lines: &[&str]) -> String {
    let lines: Vec<String> = lines.iter().map(|line| format!("  {line}")).collect();
    lines.join("\n")
}

/// One sentence in the short help; all of it in the long one.
fn shortened(arg: Arg) -> Arg {
    let is_rare = arg
        .get_help_heading()
        .is_some_and(|heading| RARE.contains(&heading));
    let arg = arg
        .clone()
        .hide_short_help(is_rare || arg.is_hide_short_help_set());
    let Some(help) = arg.get_help().map(ToString::to_string) else {
        return arg;
    };
    let all = arg
        .get_long_help()
        .map_or(help.clone(), ToString::to_string);
    arg.help(first_sentence(&help)).long_help(all)
}

/// The first sentence, without its full stop.
pub(super) fn first_sentence(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let ends = [". ", " [default"].map(|end| text.find(end).unwrap_or(text.len()));
    let end = ends[0].min(ends[1]);
    match &text[..end] {
        // clap takes the last dot away.
        sentence if sentence.ends_with(",..") => format!("{sentence}."),
        sentence if sentence.ends_with("...") => sentence.to_owned(),
        sentence => sentence.trim_end_matches('.').to_owned(),
    }
}

fn groups(definition: &Command) -> String {
    let about = |name: &str| {
        let command = definition.find_subcommand(name);
        let about = command
            .and_then(Command::get_about)
            .map(ToString::to_string);
        about.unwrap_or_default()
    };
    let group = |(title, names): &(&str, &[&str])| {
        let mut text = format!("{title}:");
        for name in *names {
            text.push_str(&format!(
                "\n  {name:<NAME_WIDTH$} {}",
                first_sentence(&about(name))
            ));
        }
        text
    };
    let groups: Vec<String> = GROUPS.iter().map(group).collect();
    groups.join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_is_in_one_group() {
        let definition = super::super::command_line();
        let mut grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        let shown = definition
            .get_subcommands()
            .filter(|command| !command.is_hide_set());
        let mut all: Vec<&str> = shown
            .map(Command::get_name)
            .filter(|name| *name != "help")
            .collect();
        grouped.sort_unstable();
        all.sort_unstable();
        assert_eq!(grouped, all);
    }

    #[test]
    fn short_help_is_short_and_long_help_says_everything() {
        let mut definition = super::super::command_line();
        definition.build();
        let put = definition.find_subcommand_mut("put").expect("a command");
        let short = put.render_help().to_string();
        for hidden in ["--capture", "--transport", "--mtu", "--key-log"] {
            assert!(!short.contains(hidden), "{short}");
        }
        for shown in ["--timing", "--peers", "Examples:", "trine put"] {
            assert!(short.contains(shown), "{short}");
        }
        assert!(short.lines().count() < 28, "{short}");
        let long = put.render_long_help().to_string();
        for shown in [
            "--capture",
            "--transport",
            "--mtu",
            "--key-log",
            "Examples:",
        ] {
            assert!(long.contains(shown), "{long}");
        }
        let whole = definition.render_help().to_string();
        for title in ["Data:\n", "Other servers:\n", "\n  put "] {
            assert!(whole.contains(title), "{whole}");
        }
        assert!(!whole.contains("--transport"), "{whole}");
    }

    #[test]
    fn a_sentence_ends_where_it_ends() {
        for (text, sentence) in [
            ("One. Two.", "One"),
            ("A list: host:port,...", "A list: host:port,..."),
            ("A list: host:port,..", "A list: host:port,..."),
            ("How many [default: 3].", "How many"),
            ("At 0.5 or\n 1.5ms", "At 0.5 or 1.5ms"),
        ] {
            assert_eq!(first_sentence(text), sentence);
        }
    }
}
