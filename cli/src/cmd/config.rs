//! `trine config`: check a settings file, show what holds, print a file to begin with and the reference.

use serde_json::json;

use crate::failure::Failure;
use crate::output::Output;
use crate::settings::{
    ConfigCommand, Configured, Key, Secrets, SettingsFile, Stop, default_file, document, keys,
    reference, resolve_for_show,
};

pub(crate) fn run(command: &ConfigCommand, output: Output) -> Result<(), Failure> {
    let keys = keys();
    match command {
        ConfigCommand::Check { file } => {
            let found = SettingsFile::read(file, &keys).map_err(Failure::into_negative)?;
            let count = found.entries.len();
            output.document(&json!({ "file": file, "settings": count, "ok": true }));
            output.line(format_args!(
                "{}: {count} settings, no mistakes",
                file.display()
            ));
            Ok(())
        }
        ConfigCommand::Show {
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
        ConfigCommand::Default => {
            output.raw(default_file(&keys).as_bytes());
            Ok(())
        }
        ConfigCommand::Reference => {
            output.raw(reference(&keys).as_bytes());
            Ok(())
        }
    }
}

fn show(
    of: Configured,
    options: &[std::ffi::OsString],
    secrets: Secrets,
    keys: &[Key],
    output: Output,
) -> Result<(), Failure> {
    let resolved = match resolve_for_show(of, options, keys) {
        Ok(resolved) => resolved,
        Err(Stop::Usage(error)) => error.exit(),
        Err(Stop::Settings(failure)) => return Err(failure),
    };
    let settings = resolved.shown(of, keys, secrets);
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
