//! `trine config` checks a settings file, shows the effective settings, and prints a first file and the reference. It
//! also changes a setting of a running group.

mod get;
mod set;

use std::path::Path;

use serde_json::json;

use super::up;
use crate::settings::{
    ConfigurableCommand, Configured, FilesCommand, Mistake, Secrets, SettingKey, SettingsFile,
    Stop, arguments_of_file, default_file, document, keys, reason_of, reference, resolve_for_show,
};
use trine_base::document::path_text;
use trine_base::failure::Failure;
use trine_base::network::{self, TransportKind};
use trine_base::output::Output;
use trine_base::units::plural;
use trine_server::options;

pub(crate) use get::get;
pub(crate) use set::set;

pub(crate) fn run(command: &FilesCommand, output: Output) -> Result<(), Failure> {
    let keys = keys();
    match command {
        FilesCommand::Check { file } => check(file, &keys, output),
        FilesCommand::Show {
            of,
            show_secrets,
            options,
        } => {
            let secrets = match show_secrets {
                true => Secrets::Plain,
                false => Secrets::Hidden,
            };
            show(*of, options, secrets, &keys, output)
        }
        FilesCommand::Default => {
            output.require_text("a settings file")?;
            output.raw(default_file(&keys).as_bytes());
            Ok(())
        }
        FilesCommand::Reference => {
            output.require_text("the reference of settings")?;
            output.raw(reference(&keys).as_bytes());
            Ok(())
        }
    }
}

fn check(path: &Path, keys: &[SettingKey], output: Output) -> Result<(), Failure> {
    require_file(path)?;
    let (file, mut mistakes) = SettingsFile::read_with_mistakes(path, keys)?;
    let together = together(&file, keys, mistakes.is_empty());
    mistakes.extend(together);
    // Mistakes are what the check is for. A file that cannot be read is one that no check was made of.
    let file = file.without(mistakes).map_err(Failure::into_negative)?;
    let count = file.entries.len();
    output.document(&json!({ "file": path_text(path), "settings": count, "ok": true }));
    output.line(format_args!(
        "{}: {}, no mistakes",
        path.display(),
        plural(count as u64, "setting")
    ));
    Ok(())
}

/// A pipe could be waited for without end, and what a check has read of it would be lost to whom it is for.
fn require_file(path: &Path) -> Result<(), Failure> {
    match std::fs::metadata(path) {
        Ok(about) if !about.is_file() => Err(Failure::usage(
            format!("{} is not a regular file", path.display()),
            "name a settings file; store another program's output in a file first",
        )),
        // That there is none, or that it cannot be read, is told by the reader.
        _ => Ok(()),
    }
}

/// Returns the errors that the commands themselves would report for the combined settings, before they check anything
/// else.
fn together(file: &SettingsFile, keys: &[SettingKey], each_is_right: bool) -> Vec<Mistake> {
    let mut mistakes = Vec::new();
    for command in meant(file, keys) {
        let arguments = match arguments_of_file(command, file, keys) {
            Ok(arguments) => arguments,
            Err(error) => {
                mistakes.push(file.mistake(command.name(), reason_of(&error)));
                continue;
            }
        };
        if let Err(failure) = network::check_unused(&arguments.global.network) {
            let why = failure.in_one_line();
            let why = format!("{why} (one given on the command line is not seen here)");
            mistakes.push(file.mistake("transport", why));
        }
        if let Err(failure) = network::check_built(arguments.global.network.transport) {
            mistakes.push(file.mistake("transport", failure.in_one_line()));
        }
        let found = match &arguments.command {
            ConfigurableCommand::Serve(serve) => {
                let network = &arguments.global.network;
                let is_sealed = network.settings(serve.keys).requires_keys();
                let is_ip = network.transport == TransportKind::Udp;
                options::check(serve, is_ip && !is_sealed)
            }
            ConfigurableCommand::Up(up) => up::check(up),
        };
        for (key, failure) in found {
            // A missing setting may be the result of an earlier mistake.
            let is_said = file.entries.iter().any(|entry| entry.name == key);
            if is_said || each_is_right {
                mistakes.push(file.mistake(key, failure.in_one_line()));
            }
        }
    }
    mistakes.dedup();
    mistakes
}

/// The commands that the file is for. These are the commands that have one of its settings alone, else `serve`.
fn meant(file: &SettingsFile, keys: &[SettingKey]) -> Vec<Configured> {
    let is_of_one = |command: Configured| {
        let mut own = keys.iter().filter(|key| key.commands == [command]);
        own.any(|key| file.entries.iter().any(|entry| entry.name == key.name))
    };
    let found: Vec<Configured> = Configured::ALL
        .into_iter()
        .filter(|command| is_of_one(*command))
        .collect();
    match found.is_empty() {
        true => vec![Configured::Serve],
        false => found,
    }
}

fn show(
    of: Configured,
    options: &[std::ffi::OsString],
    secrets: Secrets,
    keys: &[SettingKey],
    output: Output,
) -> Result<(), Failure> {
    let resolved = match resolve_for_show(of, options, keys) {
        Ok(resolved) => resolved,
        Err(Stop::Usage(error)) => error.exit(),
        Err(Stop::Settings(failure)) => return Err(failure),
    };
    let settings = resolved.shown(of, keys, secrets);
    output.line(format_args!(
        "# settings that `trine {}` would use on this machine; `trine config get` shows those of a \
         running group",
        of.name()
    ));
    let names = settings.iter().map(|setting| setting.key.name.len());
    let width = names.max().unwrap_or(0);
    for setting in &settings {
        let name = &setting.key.name;
        match &setting.value {
            Some((value, origin)) => {
                output.line(format_args!("{name:width$} = {value:<24}  # {origin}"));
            }
            None => output.line(format_args!("{name:width$}   {:<24}  # not set", "")),
        }
    }
    output.document(&document(&settings));
    Ok(())
}
