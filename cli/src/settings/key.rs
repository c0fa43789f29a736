//! The settings: every option of `trine serve` and `trine up` is one.

use clap::builder::Resettable;
use clap::{Arg, ArgAction, Command};

use super::Configured;
use super::configurable::command_line;

/// Options that are no settings, because they say where settings come from, which form one answer has, or how a group
/// begins. `allow-remote` is gone, and is known only to say so.
const NO_SETTINGS: [&str; 8] = [
    "config",
    "json",
    "output",
    "help",
    "version",
    "allow-remote",
    "restore",
    "expiry",
];

/// One setting.
#[derive(Clone, Debug)]
pub(crate) struct SettingKey {
    /// Its name in the file, and after `--` among the options.
    pub(crate) name: String,
    /// Its environment variable.
    pub(crate) variable: String,
    /// The value without any setting.
    pub(crate) default: Option<String>,
    /// Its purpose.
    pub(crate) help: String,
    /// The name of its value; `None` for a switch, which is true or false.
    pub(crate) value_name: Option<String>,
    /// The only allowed words, if it has such.
    pub(crate) words: Vec<String>,
    /// Names that it had before, which files may still have.
    pub(crate) earlier_names: Vec<String>,
    /// Its heading in the help.
    pub(crate) heading: Option<String>,
    /// The commands that have it.
    pub(crate) commands: Vec<Configured>,
    /// The option itself, which parses values.
    arg: Arg,
}

impl SettingKey {
    fn new(arg: &Arg, name: &str) -> Self {
        let is_switch = matches!(arg.get_action(), ArgAction::SetTrue);
        let values = || arg.get_value_names().into_iter().flatten();
        let help = arg.get_long_help().or(arg.get_help());
        let defaults: Vec<String> = arg
            .get_default_values()
            .iter()
            .map(|value| value.to_string_lossy().into_owned())
            .collect();
        let value_name = values().map(ToString::to_string).collect::<Vec<_>>();
        Self {
            name: name.to_owned(),
            variable: variable_of(arg, name),
            default: match is_switch {
                true => Some("false".to_owned()),
                false => (!defaults.is_empty()).then(|| defaults.join(",")),
            },
            help: help.map(ToString::to_string).unwrap_or_default(),
            value_name: (!is_switch).then(|| match value_name.is_empty() {
                true => name.to_uppercase(),
                false => value_name.join(" "),
            }),
            words: match is_switch {
                true => vec!["true".to_owned(), "false".to_owned()],
                false => words_of(arg),
            },
            earlier_names: arg
                .get_all_aliases()
                .unwrap_or_default()
                .into_iter()
                .map(str::to_owned)
                .collect(),
            heading: arg.get_help_heading().map(str::to_owned),
            commands: Vec::new(),
            arg: arg.clone(),
        }
    }

    /// Whether a settings file means it by this name.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.name == name || self.earlier_names.iter().any(|earlier| earlier == name)
    }

    /// Whether it is true or false, and takes no value as an option.
    pub(crate) fn is_switch(&self) -> bool {
        self.value_name.is_none()
    }

    /// Whether the value itself is a secret. The name of a file with a secret is none.
    pub(crate) fn is_secret(&self) -> bool {
        let secret = ["password", "secret", "token"];
        secret.iter().any(|word| self.name.contains(word)) && !self.name.ends_with("-file")
    }

    /// The id of its option in clap's matches.
    pub(crate) fn id(&self) -> &str {
        self.arg.get_id().as_str()
    }

    /// Checks that `text` is a value of this setting; the error says why not.
    pub(crate) fn check(&self, text: &str) -> Result<(), String> {
        if self.is_switch() {
            return match text {
                "true" | "false" => Ok(()),
                _ => Err(format!("{text} is neither true nor false")),
            };
        }
        // The option is checked alone. The check of all settings together covers what it requires and excludes.
        let alone = Arg::new("value")
            .long(self.name.clone())
            .value_parser(self.arg.get_value_parser().clone())
            .allow_hyphen_values(true);
        let line = ["check".to_owned(), format!("--{}={text}", self.name)];
        match Command::new("check").arg(alone).try_get_matches_from(line) {
            Ok(_) => Ok(()),
            Err(error) => Err(reason_of(&error)),
        }
    }

    /// `value` as an option of the command; `None` for a switch that is off.
    pub(crate) fn as_option(&self, value: &str) -> Option<String> {
        match (self.is_switch(), value) {
            (true, "true") => Some(format!("--{}", self.name)),
            (true, _) => None,
            (false, value) => Some(format!("--{}={value}", self.name)),
        }
    }
}

/// clap's own words, without its headline and its hint at `--help`.
pub(crate) fn reason_of(error: &clap::Error) -> String {
    let text = error.to_string();
    let about = text.lines().take_while(|line| !line.trim().is_empty());
    let words: Vec<&str> = about.map(str::trim).collect();
    let words = words.join(" ");
    let words = words.strip_prefix("error: ").unwrap_or(&words);
    // "invalid value 'x' for '--key <KEY>': why" names the option a second time.
    match (words.find(" for '--"), words.find("': ")) {
        (Some(from), Some(to)) if from < to => {
            format!("{}: {}", &words[..from], &words[to + 3..])
        }
        (Some(from), _) => match words[from..].find("' [") {
            Some(to) => format!("{} {}", &words[..from], &words[from + to + 2..]),
            None => words[..from].to_owned(),
        },
        _ => words.to_owned(),
    }
}

/// The only values that an argument takes. Those that help does not show are examples for completions.
fn words_of(arg: &Arg) -> Vec<String> {
    if arg.is_hide_possible_values_set() {
        return Vec::new();
    }
    arg.get_possible_values()
        .iter()
        .map(|value| value.get_name().to_owned())
        .collect()
}

fn variable_of(arg: &Arg, name: &str) -> String {
    match arg.get_env() {
        Some(variable) => variable.to_string_lossy().into_owned(),
        None => format!("TRINE_{}", name.replace('-', "_").to_uppercase()),
    }
}

/// Every setting in the order of the help: those of `serve`, then the others of `up`, then those of all commands.
pub(crate) fn keys() -> Vec<SettingKey> {
    let definition = command_line();
    let mut found: Vec<SettingKey> = Vec::new();
    for command in Configured::ALL {
        let named = definition.find_subcommand(command.name());
        let own = named.expect("both commands exist").get_arguments();
        let global = definition.get_arguments().filter(|arg| arg.is_global_set());
        for arg in own.chain(global) {
            let Some(name) = arg.get_long() else { continue };
            if NO_SETTINGS.contains(&name) {
                continue;
            }
            match found.iter_mut().find(|key| key.name == name) {
                Some(key) => key.commands.push(command),
                None => {
                    let mut key = SettingKey::new(arg, name);
                    key.commands.push(command);
                    found.push(key);
                }
            }
        }
    }
    found
}

/// The command line, with an environment variable for each setting. Relaxed, it requires nothing, because the file may
/// have the missing options.
pub(crate) fn definition(mut definition: Command, relaxed: bool) -> Command {
    for command in Configured::ALL {
        definition = definition.mut_subcommand(command.name(), |command| {
            command.mut_args(|arg| {
                let arg = match relaxed {
                    true => arg.required(false),
                    false => arg,
                };
                match arg.get_long().map(str::to_owned) {
                    Some(name) if arg.get_env().is_none() && !NO_SETTINGS.contains(&&*name) => {
                        let variable = variable_of(&arg, &name);
                        arg.env(variable)
                    }
                    _ => arg,
                }
            })
        });
    }
    definition
}

/// The same without the environment, to check a file alone.
pub(super) fn definition_without_environment() -> Command {
    let blind = |arg: Arg| arg.env(Resettable::Reset);
    let mut definition = command_line().mut_args(blind);
    for command in Configured::ALL {
        definition = definition.mut_subcommand(command.name(), |command| command.mut_args(blind));
    }
    definition
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> SettingKey {
        keys()
            .into_iter()
            .find(|key| key.name == name)
            .expect("a setting")
    }

    #[test]
    fn every_option_is_a_setting_once() {
        let keys = keys();
        let mut names: Vec<&str> = keys.iter().map(|key| key.name.as_str()).collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
        for expected in ["id", "peers", "memory", "reads", "base-port", "transport"] {
            assert!(names.contains(&expected), "{expected} is missing");
        }
        for key in &keys {
            assert!(!key.help.is_empty(), "{} says nothing", key.name);
            assert!(key.variable.starts_with("TRINE_"), "{}", key.variable);
            if let Some(default) = &key.default {
                assert_eq!(key.check(default), Ok(()), "the default of {}", key.name);
            }
        }
        assert_eq!(key("lease-drift").variable, "TRINE_LEASE_DRIFT");
        assert_eq!(key("memory").commands, Configured::ALL);
        assert_eq!(key("id").commands, [Configured::Serve]);
    }

    #[test]
    fn passwords_are_secret_and_their_files_names_are_not() {
        let keys = keys();
        let secret = keys.iter().filter(|key| key.is_secret());
        let names: Vec<&str> = secret.map(|key| key.name.as_str()).collect();
        assert_eq!(names, ["resp-password"]);
    }

    #[test]
    fn values_are_read_as_options_are() {
        assert_eq!(key("memory").check("2GiB"), Ok(()));
        let why = key("memory").check("2 gallons").expect_err("no size");
        assert!(
            why.contains("is not a size") && !why.contains("--"),
            "{why}"
        );
        let why = key("reads").check("maybe").expect_err("no such word");
        assert!(why.contains("maybe") && why.contains("index"), "{why}");
        assert!(key("bootstrap").check("yes").is_err());
        assert_eq!(key("bootstrap").as_option("false"), None);
        assert_eq!(key("id").as_option("2").as_deref(), Some("--id=2"));
    }
}
