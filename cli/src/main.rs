//! The `trine` command runs replicas, talks to them, measures them, and injects faults into them.

// These macros panic where the stream cannot be written. Results go through `output`, everything else through
// `announce`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod args;
mod cmd;
mod config;
mod observe;
mod settings;

use std::ffi::OsString;
use std::io::{ErrorKind, IsTerminal, Write, stdin, stdout};
use std::process::ExitCode;

use crate::args::{Arguments, Command, command_line};
use crate::cmd::backup::{BackupArguments, BackupCommand};
use crate::cmd::key::KeyCommand;
use crate::cmd::shell::ShellArguments;
use crate::settings::{ConfigCommand, Stop};
use trine_base::announce;
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::network::{KeyChoice, Network, NetworkArguments, OnNetwork, on_chosen};
use trine_base::output::{Output, OutputForm, unwritten};
use trine_protocol::program::Program;
use trine_server::companion;
use trine_server::from_file::FromFile;

/// raft allocates for every message; this allocator halves the cost of large batches.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    Program::set_commit(env!("TRINE_COMMIT"));
    if let Err(error) = trine_local::die_with_parent() {
        announce::note(format_args!("trine: {error}"));
        return ExitCode::from(2);
    }
    if let Err(error) = interrupt::survive_file_limits() {
        announce::note(format_args!("trine: {error}"));
        return ExitCode::from(2);
    }
    let line: Vec<OsString> = std::env::args_os().collect();
    // A replica starts it with a pipe. Typed at a terminal, it is no command.
    if line.get(1).is_some_and(|first| first == companion::COMMAND) && !stdin().is_terminal() {
        return companion::run();
    }
    let (json, objects) = (wants_json(&line), wants_objects(&line));
    let arguments = match parse(line) {
        Ok(arguments) => arguments,
        Err(stop) => return ExitCode::from(tell_mistake(stop, json, objects)),
    };
    let output = Output {
        json: arguments.global.json || arguments.global.output == OutputForm::Json,
    };
    let Some(command) = &arguments.command else {
        unreachable!("a line without a command was read as the shell's");
    };
    let done = run(command, &arguments.global.network, output);
    let status = match done.and_then(|()| interrupt::check_processor_time()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // The failure follows earlier announcements, which went to the other stream.
            announce::finish();
            match command {
                // They print documents line by line, and the last one is no exception.
                Command::Shell(_) | Command::Scan(_) | Command::Watch(_) | Command::Stat(_) => {
                    output.complain(&failure);
                }
                _ => output.failure(&failure),
            }
            ExitCode::from(failure.exit_status())
        }
    };
    announce::finish();
    status
}

/// Runs a command, on the chosen network if it sends packets.
fn run(command: &Command, network: &NetworkArguments, output: Output) -> Result<(), Failure> {
    match command {
        Command::Recover(arguments) => cmd::recover::run(arguments, output),
        Command::Down(arguments) => cmd::down::run(arguments, output),
        Command::Restore(arguments) => cmd::restore::run(arguments, output),
        Command::Backup(BackupArguments {
            command: Some(BackupCommand::Verify { file }),
            ..
        }) => cmd::backup::verify::run(file, output),
        Command::Sim(arguments) => cmd::sim::run(arguments, output),
        Command::Config(ConfigCommand::Files(command)) => cmd::config::run(command, output),
        Command::Key(KeyCommand::Files(command)) => cmd::key::run(command, output),
        Command::Key(KeyCommand::Rotate(arguments)) => {
            // The file is the key of an administrator, too.
            let mut network = network.clone();
            network
                .key
                .file
                .get_or_insert_with(|| arguments.path.clone());
            on_keyed(command, &network, output)
        }
        Command::LogLevel(arguments) => cmd::log_level::run(arguments, output),
        Command::Doctor(arguments) if arguments.peers.is_none() => {
            cmd::doctor::run(arguments, &network.key.choice(), output)
        }
        Command::Completions(arguments) => cmd::completions::run(arguments, command_line(), output),
        Command::Man(arguments) => cmd::man::run(arguments, command_line(), output),
        Command::Version(_) => {
            cmd::version::run(output);
            Ok(())
        }
        command => {
            let mut network = network.clone();
            if matches!(command, Command::Serve(_)) {
                // A replica has the key that it is given, also where it asks others: it finds none by itself.
                network.key.file.get_or_insert_default();
            }
            on_keyed(command, &network, output)
        }
    }
}

/// Runs a command that sends packets.
fn on_keyed(command: &Command, network: &NetworkArguments, output: Output) -> Result<(), Failure> {
    if !matches!(command, Command::Cache(_)) {
        network.verbs.check_path_of_others()?;
    }
    let run = CommandRun {
        command,
        network_arguments: network,
        key: &network.key.choice(),
        output,
    };
    on_chosen(network, command.key_stage(), run)
}

/// Reads the command line. Without a command it means the shell.
fn parse(mut line: Vec<OsString>) -> Result<Arguments, Stop> {
    let arguments = args::parse(line.clone())?;
    if arguments.command.is_some() {
        return Ok(arguments);
    }
    line.push("shell".into());
    args::parse(line)
}

/// Says what is wrong with the command line or the settings, and returns the exit status.
fn tell_mistake(stop: Stop, json: bool, objects: bool) -> u8 {
    if objects {
        announce::speak_in_objects();
    }
    let failure = match stop {
        Stop::Usage(error) if (json || objects) && error.use_stderr() => usage(&error),
        Stop::Usage(error) => match print(&error) {
            Ok(()) => return u8::try_from(error.exit_code()).unwrap_or(2),
            Err(unwritten) => unwritten,
        },
        Stop::Settings(failure) => failure,
    };
    Output { json }.failure(&failure);
    failure.exit_status()
}

/// Prints a mistake, or the help that was asked for. Help that cannot be written is a failure; a reader that goes away has read
/// enough.
fn print(error: &clap::Error) -> Result<(), Failure> {
    if error.use_stderr() {
        // As every other failure begins.
        let text = error.render().to_string();
        let text = text.strip_prefix("error: ").unwrap_or(&text);
        announce::note(format_args!("trine: {}", text.trim_end()));
        return Ok(());
    }
    match error.print().and_then(|()| stdout().flush()) {
        Err(why) if why.kind() != ErrorKind::BrokenPipe => Err(unwritten(&why)),
        _ => Ok(()),
    }
}

/// A mistake in the command line: what is wrong, and what the right line looks like.
fn usage(error: &clap::Error) -> Failure {
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let (message, hint) = text.split_once("\n\n").unwrap_or((text, ""));
    let joined = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    Failure::usage(joined(message), joined(hint))
}

/// Whether a mistake in the settings has to be in JSON form. At this point the line is not parsed yet.
fn wants_json(line: &[OsString]) -> bool {
    let words = ["--json", "-ojson", "-o=json", "--output=json"];
    let one = line
        .iter()
        .any(|argument| words.iter().any(|word| argument == word));
    let two = |pair: &[OsString]| (pair[0] == "-o" || pair[0] == "--output") && pair[1] == "json";
    one || line.windows(2).any(two)
}

/// Whether a server is to write all its lines as objects; also asked before the line is parsed.
fn wants_objects(line: &[OsString]) -> bool {
    let option = |pair: &[OsString]| pair[0] == "--log-format" && pair[1] == "json";
    let is_server = line.iter().any(|word| word == "serve" || word == "up");
    let of_environment = std::env::var_os("TRINE_LOG_FORMAT").is_some_and(|form| form == "json");
    is_server
        && (of_environment
            || line.iter().any(|word| word == "--log-format=json")
            || line.windows(2).any(option))
}

/// Whether a command that the shell knows sends no packets.
fn touches_only_files(command: &Command) -> bool {
    match command {
        Command::Backup(arguments) => arguments.command.is_some(),
        Command::Config(command) => matches!(command, ConfigCommand::Files(_)),
        _ => false,
    }
}

/// Runs a command on the chosen network.
#[derive(Clone, Copy)]
struct CommandRun<'a> {
    command: &'a Command,
    network_arguments: &'a NetworkArguments,
    key: &'a KeyChoice,
    output: Output,
}

impl CommandRun<'_> {
    /// Runs a command that was typed into the shell.
    fn in_shell<N: Network>(
        self,
        network: &N,
        shell: &ShellArguments,
        words: Vec<OsString>,
    ) -> Result<(), Failure> {
        let read = args::in_shell(words, &shell.client.group.peers, self.output)?;
        let Some((command, output)) = read else {
            return Ok(());
        };
        match touches_only_files(&command) {
            true => run(&command, self.network_arguments, output),
            false => CommandRun {
                command: &command,
                output,
                ..self
            }
            .run(network),
        }
    }
}

impl OnNetwork for CommandRun<'_> {
    fn run<N: Network>(self, network: &N) -> Result<(), Failure> {
        let output = self.output;
        match self.command {
            Command::Demo(arguments) => cmd::demo::run(network, arguments, output),
            Command::Up(arguments) => cmd::up::run(network, self.key, arguments, output),
            Command::Serve(arguments) => {
                let from_file = FromFile {
                    log_level: settings::log_level_of_file,
                    key_stage: settings::key_stage_of_file,
                };
                trine_server::serve::run(network, arguments, from_file, output)
            }
            Command::Put(arguments) => cmd::put::run(network, arguments, output),
            Command::Get(arguments) => cmd::get::run(network, arguments, output),
            Command::Backup(arguments) => cmd::backup::run(network, arguments, output),
            Command::Del(arguments) => cmd::del::run(network, arguments, output),
            Command::Scan(arguments) => cmd::scan::run(network, arguments, output),
            Command::Watch(arguments) => cmd::watch::run(network, arguments, output),
            Command::Count(arguments) => cmd::count::run(network, arguments, output),
            Command::Rm(arguments) => cmd::rm::run(network, arguments, output),
            Command::Flush(arguments) => cmd::flush::run(network, arguments, output),
            Command::Export(arguments) => cmd::export::run(network, arguments, output),
            Command::Import(arguments) => cmd::import::run(network, arguments, output),
            Command::Top(arguments) => cmd::top::run(network, arguments, output),
            Command::Stat(arguments) => cmd::stat::run(network, arguments, output),
            Command::Latency(arguments) => cmd::latency::run(network, arguments, output),
            Command::Shell(arguments) => {
                let of_line = |words| self.in_shell(network, arguments, words);
                cmd::shell::run(network, arguments, output, &of_line)
            }
            Command::Doctor(arguments) => {
                cmd::doctor::run_with_group(network, arguments, self.key, output)
            }
            Command::Status(arguments) => cmd::status::run(network, arguments, output),
            Command::Member(command) => cmd::member::run(network, command, output),
            Command::Leader(command) => cmd::leader::run(network, command, output),
            Command::Upgrade(command) => cmd::upgrade::run(network, command, output),
            Command::Key(KeyCommand::Rotate(arguments)) => {
                cmd::key::rotate::run(network, arguments, output)
            }
            Command::User(command) => cmd::user::run(network, command, output),
            Command::Net(command) => cmd::net::run(network, command, output),
            Command::Bench(arguments) => trine_bench::run(network, arguments, output),
            Command::Chaos(arguments) => trine_live::run(network, arguments, output),
            Command::Debug(command) => cmd::debug::run(network, command, output),
            Command::Cache(command) => cmd::cache::run(network, command, output),
            Command::Index(arguments) => {
                trine_apps::index::run(network, &arguments.command, output)
            }
            Command::Sequencer(arguments) => {
                trine_apps::sequencer::run(network, &arguments.command, output)
            }
            Command::Config(ConfigCommand::Get(arguments)) => {
                cmd::config::get(network, arguments, output)
            }
            Command::Config(ConfigCommand::Set(command)) => {
                cmd::config::set(network, command, output)
            }
            Command::Recover(_)
            | Command::Down(_)
            | Command::Restore(_)
            | Command::Sim(_)
            | Command::Config(ConfigCommand::Files(_))
            | Command::Key(KeyCommand::Files(_))
            | Command::LogLevel(_)
            | Command::Completions(_)
            | Command::Version(_)
            | Command::Man(_) => unreachable!("it runs without a network"),
        }
    }
}
