//! The reference of all settings and a first settings file, both made from the one definition.

use std::fmt::Write;

use super::Configured;
use super::key::SettingKey;

const INTRODUCTION: &str = "\
# Configuration

Made by `trine config reference` from the definition of the options; a test compares the two.

`trine serve` and `trine up` need no configuration file. Each setting has one of these sources; an earlier one takes
precedence over a later one:

1. an option of the command: `--memory 2GiB`;
2. an environment variable: `TRINE_MEMORY=2GiB`;
3. a line of the TOML file that `--config FILE` or `TRINE_CONFIG` names: `memory = \"2GiB\"`. No file is read unless it
   is named, not even `/etc/trine/trine.toml`;
4. the default.

A settings file may contain only the keys below. An unknown key, an invalid value, or a second line for the same key is
an error that names the line, before anything starts. Keys of the other command are allowed, so one file can serve both.
Lists may be written as TOML lists: `peers = [\"a:7471\", \"b:7471\", \"c:7471\"]`. Sizes are powers of 1024 (`64KiB`,
`2GiB`), and times have a unit (`50us`, `10ms`, `2m`).

`trine config default` prints a file that states every default as a comment. `trine config check` finds unknown keys,
invalid values, and values that conflict with each other. It also reports passwords that others can read, and transports
that this build lacks. It checks the file alone: except for `id` and `peers`, it does not take into account what the
command line or the environment will add (a directory for each machine, `--insecure`, a key). `trine config show` prints
the settings in force and the source of each. It prints `***` in place of passwords, unless `--show-secrets` is given:

```console
$ trine config default > trine.toml
$ trine config check trine.toml
trine.toml: 0 settings, no mistakes
$ trine config show serve -- --config trine.toml --memory 2GiB
...
```

Addresses are `host:port`: an IPv4 address, a name, or an IPv6 address in brackets (`[2001:db8::1]:7471`). A client
looks names up when it starts, and ignores those that do not resolve. A replica looks them up again while it runs
(docs/operations.md). All peers use one address family: IPv6 if more of the names have an IPv6 address than an IPv4
address, and IPv4 otherwise.

A replica without a key (`--key`) listens only on loopback. With `--insecure`, it listens on addresses that other
machines can reach; any client that can send packets to it can then read and write.
";

/// The text of docs/configuration.md.
pub(crate) fn reference(keys: &[SettingKey]) -> String {
    let mut text = INTRODUCTION.to_owned();
    for heading in headings(keys) {
        let title = heading.unwrap_or("Settings");
        // Writing to a string cannot fail.
        let _ = write!(text, "\n## {title}\n");
        for key in keys.iter().filter(|key| key.heading.as_deref() == heading) {
            describe(key, &mut text);
        }
    }
    text
}

fn headings(keys: &[SettingKey]) -> Vec<Option<&str>> {
    let mut found: Vec<Option<&str>> = Vec::new();
    for key in keys {
        let heading = key.heading.as_deref();
        if !found.contains(&heading) {
            found.push(heading);
        }
    }
    found
}

fn describe(key: &SettingKey, text: &mut String) {
    let value = match &key.value_name {
        None => String::new(),
        Some(_) if !key.words.is_empty() => format!(" = {}", key.words.join(" or ")),
        Some(name) => format!(" = {name}"),
    };
    let commands: Vec<&str> = key.commands.iter().map(|command| command.name()).collect();
    let default = match &key.default {
        None => "none".to_owned(),
        Some(default) if default.is_empty() => "empty".to_owned(),
        Some(default) => format!("`{default}`"),
    };
    let help = match key.help.ends_with('.') {
        true => key.help.clone(),
        false => format!("{}.", key.help),
    };
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "\n### `{}{value}`\n\n{help}\n\nOption `--{}`, variable `{}`, of `trine {}`; default {default}.\n",
        key.name,
        key.name,
        key.variable,
        commands.join("` and `trine "),
    );
}

/// A settings file in which every line is a comment and states the default.
pub(crate) fn default_file(keys: &[SettingKey]) -> String {
    let mut text =
        "# Settings of trine. Remove the # at the start of a line to change the setting.\n"
            .to_owned();
    for key in keys {
        let commands: Vec<&str> = key.commands.iter().map(|command| command.name()).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(text);
        for line in wrap(&key.help, 100) {
            let _ = writeln!(text, "# {line}");
        }
        if key.commands.len() < Configured::ALL.len() {
            let _ = writeln!(text, "# Of `trine {}`.", commands.join("`, `trine "));
        }
        let value = match &key.default {
            None => format!("\"{}\"", key.value_name.as_deref().unwrap_or_default()),
            Some(default) if default.parse::<u64>().is_ok() || key.is_switch() => default.clone(),
            Some(default) => format!("\"{default}\""),
        };
        let _ = writeln!(text, "#{} = {value}", key.name);
    }
    text
}

/// Wraps `text` into lines of at most `width` characters.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("never empty");
        if !last.is_empty() && last.len() + 1 + word.len() > width {
            lines.push(word.to_owned());
        } else {
            if !last.is_empty() {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{SettingsFile, keys};

    #[test]
    fn the_default_file_is_right_and_so_are_the_defaults_in_it() {
        let keys = keys();
        let text = default_file(&keys);
        let directory = std::env::temp_dir();
        let path = directory.join(format!("trine-default-{}.toml", std::process::id()));
        let uncommented: String = text
            .lines()
            .filter_map(|line| line.strip_prefix('#'))
            .filter(|line| !line.starts_with(' '))
            .filter(|line| {
                let name = line.split(" = ").next().unwrap_or_default();
                keys.iter()
                    .any(|key| key.name == name && key.default.is_some())
            })
            .map(|line| format!("{line}\n"))
            .collect();
        std::fs::write(&path, uncommented).expect("written");
        let file = SettingsFile::read(&path, &keys);
        std::fs::remove_file(&path).expect("removed");
        let with_default = keys.iter().filter(|key| key.default.is_some()).count();
        assert_eq!(file.expect("no mistakes").entries.len(), with_default);
    }
}
