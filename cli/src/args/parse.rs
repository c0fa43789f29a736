//! The command line of this process, together with the settings of the environment and the settings file.

use std::ffi::OsString;

use clap::FromArgMatches;
use clap::error::ErrorKind;

use super::{Arguments, Command, command_line, needless_option};
use trine_server::from_file::Named;

use crate::settings::{Missing, Resolved, Stop, definition, keys};

/// Reads the command line of this process.
pub(crate) fn parse(line: Vec<OsString>) -> Result<Arguments, Stop> {
    let keys = keys();
    let resolved = Resolved::new(line, &keys, Missing::Refused, command_line)?;
    if let Some((command, option)) = needless_option(&resolved.matches) {
        let message = format!("trine {command} sends no packets: --{option} means nothing to it");
        let error = definition(command_line(), false).error(ErrorKind::UnknownArgument, message);
        return Err(Stop::Usage(error));
    }
    let mut arguments = Arguments::from_arg_matches(&resolved.matches)?;
    if let Some(Command::Serve(serve)) = &mut arguments.command {
        serve.named = Named {
            log_level: resolved.is_named("log-level", &keys),
            keys: resolved.is_named("keys", &keys),
        };
    }
    let resp = match &arguments.command {
        Some(Command::Serve(serve)) => Some(&serve.resp),
        Some(Command::Up(up)) => Some(&up.resp),
        _ => None,
    };
    match resp.and_then(|resp| resolved.needless_password(resp, &keys)) {
        Some(failure) => Err(Stop::Settings(failure)),
        None => Ok(arguments),
    }
}
