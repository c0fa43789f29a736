//! Commands of the command line that are typed into the shell. They ask the shell's group.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{FromArgMatches, parser::ValueSource};

use super::{Arguments, Command, command_line};
use crate::settings::reason_of;
use trine_base::failure::Failure;
use trine_base::output::{Output, OutputForm};

/// Reads the words of a command, with the shell's peers where it takes some and names none. None if they asked for help, which
/// is printed.
pub(crate) fn in_shell(
    words: Vec<OsString>,
    peers: &str,
    output: Output,
) -> Result<Option<(Command, Output)>, Failure> {
    let line = |peers: Option<&str>| {
        let peers = peers.map(|peers| OsString::from(format!("--peers={peers}")));
        let name = OsString::from("trine");
        [name].into_iter().chain(words.clone()).chain(peers)
    };
    let read = |peers| command_line().try_get_matches_from(line(peers));
    let matches = match read(None) {
        Ok(matches) => matches,
        Err(error) if error.kind() == ErrorKind::DisplayHelp => {
            output.line(error.to_string().trim_end());
            return Ok(None);
        }
        Err(error) => return Err(mistake(&error)),
    };
    let mut deepest = &matches;
    while let Some((_, below)) = deepest.subcommand() {
        deepest = below;
    }
    let own = match deepest.try_contains_id("peers") {
        Ok(_) if deepest.value_source("peers") != Some(ValueSource::CommandLine) => Some(peers),
        _ => None,
    };
    let matches = read(own).map_err(|error| mistake(&error))?;
    let arguments = Arguments::from_arg_matches(&matches).map_err(|error| mistake(&error))?;
    let json = arguments.global.json || arguments.global.output == OutputForm::Json;
    let output = Output {
        json: output.json || json,
    };
    Ok(arguments.command.map(|command| (command, output)))
}

fn mistake(error: &clap::Error) -> Failure {
    Failure::usage(reason_of(error), "")
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Output = Output { json: false };

    fn read(line: &str) -> Result<Option<(Command, Output)>, Failure> {
        let words = line.split(' ').map(OsString::from).collect();
        in_shell(words, "a:1", QUIET)
    }

    #[test]
    fn commands_in_the_shell_ask_its_group_unless_they_name_another_one() {
        let peers = |line: &str| match read(line) {
            Ok(Some((Command::Scan(scan), _))) => scan.client.group.peers,
            _ => panic!("{line} is a scan"),
        };
        assert_eq!(peers("scan user/"), "a:1");
        assert_eq!(peers("scan user/ --peers b:2"), "b:2");
        let json = |line: &str| read(line).ok().flatten().map(|(_, output)| output.json);
        assert_eq!(json("member list --json"), Some(true));
        assert_eq!(json("member list"), Some(false));
        let wrong = read("scan --nosuch").expect_err("a mistake");
        assert!(wrong.to_string().contains("--nosuch"), "{wrong}");
    }

    #[test]
    fn each_example_of_the_shell_is_a_command_line() {
        for example in crate::cmd::shell::examples_of_line() {
            assert!(matches!(read(example), Ok(Some(_))), "{example}");
        }
    }
}
