//! `trine config`: check a settings file, show what holds, print a file to begin with and the reference.

use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::Output;
use crate::settings::{
    ConfigCommand, Configured, Key, SettingsFile, Stop, default_file, keys, reference,
    resolve_for_show,
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
        ConfigCommand::Show { of, options } => show(*of, options, &keys, output),
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
    keys: &[Key],
    output: Output,
) -> Result<(), Failure> {
    let resolved = match resolve_for_show(of, options, keys) {
        Ok(resolved) => resolved,
        Err(Stop::Usage(error)) => error.exit(),
        Err(Stop::Settings(failure)) => return Err(failure),
    };
    let mut document = serde_json::Map::new();
    let own: Vec<&Key> = keys
        .iter()
        .filter(|key| key.commands.contains(&of))
        .collect();
    let width = own.iter().map(|key| key.name.len()).max().unwrap_or(0);
    for key in own {
        let value = resolved.value(key);
        let entry = match &value {
            Some((value, origin)) => json!({ "value": value, "origin": origin }),
            None => Value::Null,
        };
        document.insert(key.name.clone(), entry);
        let name = &key.name;
        match value {
            Some((value, origin)) => {
                output.line(format_args!("{name:width$} = {value:<24}  # {origin}"));
            }
            None => output.line(format_args!("{name:width$}   {:<24}  # not set", "")),
        }
    }
    output.document(&document);
    Ok(())
}
