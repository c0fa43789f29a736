//! The command line together with the environment and the file.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{ArgMatches, FromArgMatches, ValueEnum as _};
use serde_json::{Value, json};

use super::Configured;
use super::configurable::{Configurable, command_line};
use super::file::SettingsFile;
use super::key::{SettingKey, definition, definition_without_environment, keys};
use trine_base::config::PEERS_MAX;
use trine_base::failure::Failure;
use trine_base::network::KeyStage;
use trine_server::options::{RespArguments, needless_password};

/// Why no command can run.
#[derive(Debug)]
pub(crate) enum Stop {
    /// A message of clap: a mistake, the help or the version.
    Usage(clap::Error),
    /// The mistakes in the settings file.
    Settings(Failure),
}

impl From<clap::Error> for Stop {
    fn from(error: clap::Error) -> Self {
        Self::Usage(error)
    }
}

/// The arguments of `command` if the file were the only source. The replica's identity is necessary, but need not be in
/// the file.
pub(crate) fn arguments_of_file(
    command: Configured,
    file: &SettingsFile,
    keys: &[SettingKey],
) -> Result<Configurable, clap::Error> {
    let said = |name: &str| file.entries.iter().any(|entry| entry.name == name);
    let mut line = vec!["trine".to_owned(), command.name().to_owned()];
    if command == Configured::Serve && !said("id") {
        line.push("--id=1".to_owned());
    }
    if command == Configured::Serve && !said("peers") {
        // One address for every possible node id.
        let list: Vec<String> = (1..=PEERS_MAX).map(|n| format!("127.0.0.1:{n}")).collect();
        line.push(format!("--peers={}", list.join(",")));
    }
    for entry in &file.entries {
        let key = keys.iter().find(|key| key.name == entry.name);
        let key = key.filter(|key| key.commands.contains(&command));
        line.extend(key.and_then(|key| key.as_option(&entry.value)));
    }
    let matches = definition_without_environment().try_get_matches_from(line)?;
    Configurable::from_arg_matches(&matches)
}

/// The settings that `trine COMMAND OPTIONS` would use; missing ones are no mistake.
pub(crate) fn resolve_for_show(
    command: Configured,
    options: &[OsString],
    keys: &[SettingKey],
) -> Result<Resolved, Stop> {
    let mut line: Vec<OsString> = vec!["trine".into(), command.name().into()];
    line.extend_from_slice(options);
    Resolved::new(line, keys, Missing::Allowed, command_line)
}

/// The present log level in the settings file at `path`; it may have changed since the start.
pub(crate) fn log_level_of_file(path: &Path) -> Result<Option<String>, Failure> {
    let file = SettingsFile::read(path, &keys())?;
    let mut entries = file.entries.into_iter();
    Ok(entries
        .find(|entry| entry.name == "log-level")
        .map(|entry| entry.value))
}

/// Which callers a replica takes by the settings file at `path`; it may have changed since the start.
pub(crate) fn key_stage_of_file(path: &Path) -> Result<Option<KeyStage>, Failure> {
    let file = SettingsFile::read(path, &keys())?;
    let entry = file.entries.iter().find(|entry| entry.name == "key-stage");
    // The file was checked: the value is one of the stages.
    Ok(entry.and_then(|entry| KeyStage::from_str(&entry.value, true).ok()))
}

/// Whether a required setting may be missing.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Missing {
    Refused,
    Allowed,
}

/// A parsed command line, and the file that added to it.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) matches: ArgMatches,
    file: Option<SettingsFile>,
    /// The lines of the effective settings in the file, by the key's name.
    from_file: Vec<(String, usize)>,
}

impl Resolved {
    /// Parses a line by the definition `whole`, and then again with the additions of its settings file.
    pub(crate) fn new(
        mut line: Vec<OsString>,
        keys: &[SettingKey],
        missing: Missing,
        whole: fn() -> clap::Command,
    ) -> Result<Self, Stop> {
        let seen = definition(whole(), true).try_get_matches_from(&line)?;
        let file = match settings_file(&seen) {
            None => None,
            Some(path) => Some(SettingsFile::read(&path, keys).map_err(Stop::Settings)?),
        };
        let mut from_file = Vec::new();
        if let (Some(file), Some((name, said))) = (&file, seen.subcommand()) {
            for entry in &file.entries {
                let key = keys.iter().find(|key| key.name == entry.name);
                let key = key.expect("the file was checked against the keys");
                let here = key.commands.iter().any(|command| command.name() == name);
                if !here || is_said(said, key) {
                    continue;
                }
                line.extend(key.as_option(&entry.value).map(OsString::from));
                from_file.push((key.name.clone(), entry.line));
            }
        }
        let relaxed = missing == Missing::Allowed;
        let matches = definition(whole(), relaxed).try_get_matches_from(line)?;
        Ok(Self {
            matches,
            file,
            from_file,
        })
    }

    /// A password for a protocol that is not served, with the name of its source.
    pub(crate) fn needless_password(
        &self,
        resp: &RespArguments,
        keys: &[SettingKey],
    ) -> Option<Failure> {
        let name = resp.needless_password()?;
        let key = keys.iter().find(|key| key.name == name)?;
        let (_, origin) = self.value(key)?;
        let given = match origin.starts_with("--") || origin == key.variable {
            true => origin,
            false => format!("{origin}: {name}"),
        };
        Some(needless_password(&given))
    }

    /// Whether the command line or the environment names this setting, so that the file does not count.
    pub(crate) fn is_named(&self, name: &str, keys: &[SettingKey]) -> bool {
        let in_file = self.from_file.iter().any(|(of, _)| of == name);
        let key = keys.iter().find(|key| key.name == name);
        let said = self.matches.subcommand();
        !in_file
            && key
                .zip(said)
                .is_some_and(|(key, (_, said))| is_said(said, key))
    }

    /// The value of a setting and its source; `None` if it has no value.
    pub(crate) fn value(&self, key: &SettingKey) -> Option<(String, String)> {
        let (_, said) = self.matches.subcommand()?;
        let values: Vec<String> = match key.is_switch() {
            true => vec![said.get_flag(key.id()).to_string()],
            false => said
                .get_raw(key.id())?
                .map(|value| value.to_string_lossy().into_owned())
                .collect(),
        };
        Some((values.join(","), self.origin(said, key)))
    }

    /// The settings of `command` that may be shown, in the order of the help.
    pub(crate) fn shown<'k>(
        &self,
        command: Configured,
        keys: &'k [SettingKey],
        secrets: Secrets,
    ) -> Vec<Shown<'k>> {
        let own = keys.iter().filter(|key| key.commands.contains(&command));
        let shown = own.map(|key| {
            let hidden = key.is_secret() && secrets == Secrets::Hidden;
            let value = self.value(key).map(|(value, origin)| match hidden {
                true => (HIDDEN.to_owned(), origin),
                false => (value, origin),
            });
            Shown { key, value }
        });
        shown.collect()
    }

    fn origin(&self, said: &ArgMatches, key: &SettingKey) -> String {
        let in_file = self.from_file.iter().find(|(name, _)| *name == key.name);
        if let (Some((_, line)), Some(file)) = (in_file, &self.file) {
            return format!("{}:{line}", file.path.display());
        }
        match said.value_source(key.id()) {
            Some(ValueSource::CommandLine) => format!("--{}", key.name),
            Some(ValueSource::EnvVariable) => key.variable.clone(),
            _ => "default".to_owned(),
        }
    }
}

/// The replacement of a secret.
const HIDDEN: &str = "***";

/// Whether secrets are visible.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Secrets {
    /// A mark replaces them.
    Hidden,
    /// They are shown.
    Plain,
}

/// A setting in the form that may be shown.
pub(crate) struct Shown<'k> {
    pub(crate) key: &'k SettingKey,
    /// Its value and the source; `None` if it has no value.
    pub(crate) value: Option<(String, String)>,
}

/// Settings for programs.
pub(crate) fn document(settings: &[Shown<'_>]) -> Value {
    let entries = settings.iter().map(|setting| {
        let value = setting.value.as_ref();
        let entry = value.map(|(value, origin)| json!({ "value": value, "origin": origin }));
        (setting.key.name.clone(), entry.unwrap_or(Value::Null))
    });
    Value::Object(entries.collect())
}

/// Whether options or environment set `key`.
fn is_said(said: &ArgMatches, key: &SettingKey) -> bool {
    matches!(
        said.value_source(key.id()),
        Some(ValueSource::CommandLine | ValueSource::EnvVariable)
    )
}

fn settings_file(seen: &ArgMatches) -> Option<PathBuf> {
    let (name, said) = seen.subcommand()?;
    let configured = Configured::ALL.iter().any(|command| command.name() == name);
    match configured {
        true => said.get_one::<PathBuf>("config").cloned(),
        false => None,
    }
}
