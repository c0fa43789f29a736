//! Examples that the help of a command ends with. A test reads each of them as a command line.

/// The command, and lines for it. What follows `#` explains the line.
pub(super) const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "put",
        &[
            "trine put greeting hello",
            "trine put page @index.html            # the value is the content of the file",
            "date | trine put now                  # or standard input",
            "trine put lock me --if-absent --ttl 30s",
            "trine put greeting hi --if-version 7  # exit status 1 if it was written since",
        ],
    ),
    (
        "get",
        &[
            "trine get greeting",
            "trine get greeting --replica follower   # takes load off the leader",
        ],
    ),
    (
        "del",
        &["trine del greeting", "trine del lock --if-version 7"],
    ),
    (
        "scan",
        &[
            "trine scan user/ --limit 10",
            "trine scan user/ --after user/42 --keys-only",
        ],
    ),
    (
        "count",
        &[
            "trine count",
            "trine count user/",
            "trine count user/ order/       # a line for each prefix",
        ],
    ),
    (
        "rm",
        &[
            "trine rm user/",
            "trine rm user/ --to user/100 --yes    # only the keys before user/100",
        ],
    ),
    (
        "watch",
        &[
            "trine watch user/",
            "trine watch user/ --since 458752      # every change after this position",
        ],
    ),
    ("flush", &["trine flush"]),
    (
        "export",
        &[
            "trine export keys.jsonl",
            "trine export users.jsonl user/",
            "trine export - user/                  # to standard output",
        ],
    ),
    ("import", &["trine import keys.jsonl"]),
    (
        "shell",
        &[
            "trine shell",
            "trine shell --peers one:7471,two:7471,three:7471",
        ],
    ),
    ("demo", &["trine demo"]),
    ("down", &["trine down"]),
    (
        "up",
        &[
            "trine up",
            "trine up --log disk --data-dir data   # keeps its keys",
            "trine up --resp 6379                  # Redis clients are served too",
        ],
    ),
    (
        "serve",
        &[
            "trine serve --id 1 --peers one:7471,two:7471,three:7471 --key group.key --bootstrap",
            "trine serve --config /etc/trine/trine.toml",
        ],
    ),
    ("status", &["trine status", "trine status --json"]),
    ("top", &["trine top", "trine top 200ms"]),
    (
        "stat",
        &[
            "trine stat",
            "trine stat 5s 12                      # twelve lines in a minute",
        ],
    ),
    ("latency", &["trine latency --for 10s"]),
    ("upgrade status", &["trine upgrade status"]),
    ("upgrade finish", &["trine upgrade finish"]),
    ("member list", &["trine member list"]),
    ("member add", &["trine member add 4 --address four:7471"]),
    ("member remove", &["trine member remove 4"]),
    ("member replace", &["trine member replace 2"]),
    (
        "leader transfer",
        &["trine leader transfer", "trine leader transfer 2"],
    ),
    ("key new", &["trine key new group.key"]),
    ("key show", &["trine key show group.key"]),
    (
        "key rotate",
        &["trine key rotate group.key            # the next step"],
    ),
    (
        "user add",
        &["trine --key group.key user add bob --role write --prefix bob/ --out bob.key"],
    ),
    ("user list", &["trine --key group.key user list"]),
    (
        "net set",
        &[
            "trine net set 1 loss=20% --link 2",
            "trine net set 1 blocked --direction in",
        ],
    ),
    ("net clear", &["trine net clear"]),
    (
        "backup",
        &[
            "trine backup today.trine",
            "trine backup today.trine --replica leader --max-rate 100MiB",
        ],
    ),
    (
        "restore",
        &["trine restore today.trine --data-dir data --address one:7471"],
    ),
    (
        "recover",
        &["trine recover --data-dir data --id 2 --address two:7471 --i-accept-data-loss"],
    ),
    (
        "bench",
        &[
            "trine bench --clients 8 --for 5s --clean",
            "trine bench --target redis://127.0.0.1:6379 --target trine://",
        ],
    ),
    (
        "chaos",
        &["trine chaos --loss 5% --for 20s --seed 7 --kill-leader-every 5s"],
    ),
    (
        "sim",
        &[
            "trine sim --seeds 300 --threads 2",
            "trine sim --seed 4 --trace",
        ],
    ),
    (
        "cache serve",
        &["trine cache serve --memory 4GiB --threads 2"],
    ),
    ("cache put", &["trine cache put greeting hello"]),
    ("index serve", &["trine index serve"]),
    ("index put", &["trine index put 7 42"]),
    (
        "sequencer serve",
        &["trine sequencer serve --state numbers"],
    ),
    ("sequencer next", &["trine sequencer next --count 100"]),
    (
        "config check",
        &["trine config check /etc/trine/trine.toml"],
    ),
    (
        "config show",
        &["trine config show serve -- --config /etc/trine/trine.toml"],
    ),
    (
        "config get",
        &["trine config get", "trine config get memory"],
    ),
    ("config set memory", &["trine config set memory 4GiB"]),
    ("config set ordered", &["trine config set ordered on"]),
    (
        "log-level",
        &[
            "trine log-level --at 127.0.0.1:9471",
            "trine log-level --at 127.0.0.1:9471 info,raft=debug",
        ],
    ),
    (
        "doctor",
        &[
            "trine doctor",
            "trine doctor --peers one:7471,two:7471,three:7471 --key group.key",
        ],
    ),
    (
        "debug bundle",
        &["trine debug bundle --at one:9471 --log-file /var/log/trine.log"],
    ),
    (
        "completions",
        &["trine completions bash > /usr/share/bash-completion/completions/trine"],
    ),
    ("man", &["trine man /usr/local/share/man/man1"]),
    ("version", &["trine version", "trine version --json"]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_example_is_a_command_line() {
        for (command, lines) in EXAMPLES {
            for line in *lines {
                let typed = line.split(" #").next().expect("a line");
                let typed = typed.split('|').next_back().expect("a command");
                let typed = typed.split('>').next().expect("a command");
                let words = typed.split_whitespace();
                // A settings file may have what a line lacks.
                let definition = crate::settings::definition(super::super::command_line(), true);
                let read = definition.try_get_matches_from(words);
                let read = read.unwrap_or_else(|error| panic!("{line}: {error}"));
                let mut names = Vec::new();
                let mut matches = &read;
                while let Some((name, below)) = matches.subcommand() {
                    names.push(name);
                    matches = below;
                }
                assert!(
                    names.join(" ").starts_with(command),
                    "{line} is no {command}"
                );
            }
        }
    }

    #[test]
    fn each_command_has_an_example_of_its_own_or_of_one_below_it() {
        let with: BTreeSet<&str> = EXAMPLES.iter().map(|(command, _)| *command).collect();
        let line = super::super::command_line();
        for command in line
            .get_subcommands()
            .filter(|command| command.get_name() != "help")
        {
            let own = command.get_name();
            let mut below = command
                .get_subcommands()
                .map(|below| format!("{own} {}", below.get_name()));
            let known = with.contains(own)
                || below.any(|below| with.iter().any(|of| of.starts_with(&below)));
            assert!(known, "{own} has no example");
        }
    }
}
