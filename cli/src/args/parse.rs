//! The command line of this process, together with the settings of the environment and the settings file.

use std::ffi::OsString;

use clap::FromArgMatches;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::{Arguments, Command, command_line, needless_option};
use trine_server::from_file::FixedSettings;

use crate::settings::{Missing, Resolved, Stop, definition, keys};

/// Letters by which a mistyped name differs at most from what was meant.
const SLIPS_MAX: usize = 2;

/// Reads the command line of this process.
pub(crate) fn parse(line: Vec<OsString>) -> Result<Arguments, Stop> {
    read(line.clone()).map_err(|stop| match stop {
        Stop::Usage(error) => Stop::Usage(with_whole_usage(without_far_guesses(error), &line)),
        other => other,
    })
}

/// clap shows what was given beside what is required: `--peers` where TRINE_PEERS is set. The usage in the help says what is
/// required.
fn with_whole_usage(mut error: clap::Error, line: &[OsString]) -> clap::Error {
    if error.get(ContextKind::Usage).is_none() {
        return error;
    }
    let mut definition = command_line();
    definition.build();
    let mut command = &mut definition;
    for word in line.iter().skip(1).filter_map(|word| word.to_str()) {
        if command.find_subcommand(word).is_some() {
            command = command.find_subcommand_mut(word).expect("it was found");
        }
    }
    error.insert(
        ContextKind::Usage,
        ContextValue::StyledStr(command.render_usage()),
    );
    error
}

/// clap offers `bench` to somebody who types `nosuch`: half of its letters are there.
fn without_far_guesses(mut error: clap::Error) -> clap::Error {
    let typed = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(typed)) => typed.clone(),
        _ => return error,
    };
    let guesses = match error.remove(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::Strings(guesses)) => guesses,
        Some(ContextValue::String(guess)) => vec![guess],
        _ => return error,
    };
    let is_near = |guess: &String| {
        let slips = strsim::damerau_levenshtein(guess, &typed);
        let begins = guess.starts_with(&typed) || typed.starts_with(guess.as_str());
        begins || slips <= SLIPS_MAX.min(typed.chars().count() / 2)
    };
    let near: Vec<String> = guesses.into_iter().filter(is_near).collect();
    if near.is_empty() {
        // An empty list leaves an empty line.
        error.remove(ContextKind::Suggested);
    } else {
        error.insert(
            ContextKind::SuggestedSubcommand,
            ContextValue::Strings(near),
        );
    }
    error
}

fn read(line: Vec<OsString>) -> Result<Arguments, Stop> {
    let keys = keys();
    let resolved = Resolved::new(line, &keys, Missing::Refused, command_line)?;
    if let Some((command, option)) = needless_option(&resolved.matches) {
        let message = format!("trine {command} sends no packets: it does not accept --{option}");
        let error = definition(command_line(), false).error(ErrorKind::UnknownArgument, message);
        return Err(Stop::Usage(error));
    }
    let mut arguments = Arguments::from_arg_matches(&resolved.matches)?;
    if let Some(Command::Serve(serve)) = &mut arguments.command {
        serve.named = FixedSettings {
            log_level: resolved.is_named("log-level", &keys),
            keys: resolved.is_named("key-stage", &keys),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usage_names_what_is_required_and_nothing_else() {
        for (words, usage) in [
            (
                &["put", "--peers", "a:1"][..],
                "trine put [OPTIONS] <KEY> [VALUE]",
            ),
            (
                &["user", "add", "--peers=a:1", "--timeout", "1s"],
                "trine user add [OPTIONS] --role <ROLE> <NAME>",
            ),
        ] {
            let line = ["trine"].iter().chain(words).map(OsString::from).collect();
            let Err(Stop::Usage(error)) = parse(line) else {
                panic!("{words:?} lacks something")
            };
            let text = error.to_string();
            assert!(text.contains(&format!("Usage: {usage}\n")), "{text}");
        }
    }

    #[test]
    fn a_name_is_offered_only_where_it_is_likely_meant() {
        let said = |words: &[&str]| {
            let line = ["trine"].iter().chain(words).map(OsString::from).collect();
            match parse(line) {
                Err(Stop::Usage(error)) => error.to_string(),
                _ => panic!("{words:?} is no command"),
            }
        };
        for far in [&["nosuch"][..], &["x"], &["member", "nosuch"]] {
            let text = said(far);
            assert!(text.contains("unrecognized subcommand"), "{text}");
            assert!(!text.contains("similar"), "{text}");
        }
        for (near, meant) in [
            (&["bnech"][..], "'bench'"),
            (&["benchmark"], "'bench'"),
            (&["statsu"], "'status'"),
            (&["member", "lsit"], "'list'"),
        ] {
            let text = said(near);
            assert!(text.contains(meant), "{text}");
        }
    }
}
