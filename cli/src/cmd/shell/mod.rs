//! `trine` alone: at a terminal a shell with a line editor, else commands from standard input, a line each.

mod answer;
mod commands;
mod edit;
mod parse;
mod words;
mod worker;

use std::io::{self, BufRead, IsTerminal, Read};
use std::time::Instant;

use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
use rustyline::error::ReadlineError;

use self::answer::{Form, tell};
use self::parse::{Request, StoreRequest, parse};
use self::worker::Worker;
use crate::args::{ClientArguments, ShellArguments, StatusArguments};
use crate::cmd::response_of;
use crate::config::SHELL_LINE_BYTES_MAX;
use crate::failure::Failure;
use crate::interrupt;
use crate::network::Network;
use crate::output::{Output, print_all};
use crate::units::show_ns;

/// Whether there is neither a terminal to ask nor a first byte to read: nobody wants a shell then.
pub(crate) fn has_no_input() -> bool {
    let stdin = io::stdin();
    !stdin.is_terminal() && stdin.lock().fill_buf().is_ok_and(<[u8]>::is_empty)
}

pub(crate) fn run<N: Network>(
    network: &N,
    arguments: &ShellArguments,
    output: Output,
) -> Result<(), Failure> {
    interrupt::start()?;
    let at_terminal = io::stdin().is_terminal();
    let form = match (output.json, at_terminal && io::stdout().is_terminal()) {
        (true, _) => Form::Json,
        (false, true) => Form::People,
        (false, false) => Form::Raw,
    };
    let mut shell = Shell {
        worker: Worker::new(network, &arguments.client),
        network,
        client: &arguments.client,
        output,
        form,
        timing: false,
    };
    match at_terminal {
        true => converse(&mut shell),
        false => obey(&mut shell),
    }
}

struct Shell<'a, N: Network> {
    worker: Worker<N>,
    network: &'a N,
    client: &'a ClientArguments,
    output: Output,
    form: Form,
    timing: bool,
}

/// Whether another line follows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Line,
    End,
}

/// At a terminal: a mistake is said, and the next line may follow.
fn converse<N: Network>(shell: &mut Shell<'_, N>) -> Result<(), Failure> {
    let unusable = |error| Failure::usage(format!("the terminal cannot be used: {error}"), "");
    restore_terminal_on_sigterm();
    let (mut editor, history) = edit::editor().map_err(unusable)?;
    if shell.form == Form::People {
        let peers = &shell.client.group.peers;
        print_all(format!("trine at {peers}; help lists the commands, Ctrl-D ends\n").as_bytes());
    }
    loop {
        let line = match editor.readline("trine> ") {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(unusable(error)),
        };
        // One that came before the line was there has been answered by the editor.
        interrupt::take();
        if !line.trim().is_empty() {
            let _ = editor.add_history_entry(&line);
            edit::keep(&mut editor, history.as_ref());
        }
        match shell.line(line.as_bytes()) {
            Ok(Next::Line) => {}
            Ok(Next::End) => break,
            Err(failure) => shell.output.complain(&failure),
        }
    }
    Ok(())
}

/// The editor reads keys one by one and without echo: whoever ends the process must undo that.
fn restore_terminal_on_sigterm() {
    let Ok(before) = tcgetattr(io::stdin()) else {
        return;
    };
    interrupt::on_interrupt(move || {
        if interrupt::terminated() {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &before);
            std::process::exit(i32::from(Failure::interrupted().exit_status()));
        }
    });
}

/// From a pipe: a clear no does not keep the following lines from being done, anything worse does. The first failure
/// is the exit status.
fn obey<N: Network>(shell: &mut Shell<'_, N>) -> Result<(), Failure> {
    let mut first: Option<Failure> = None;
    let mut stdin = io::stdin().lock();
    for number in 1_u64.. {
        let Some(line) = read_line(&mut stdin).map_err(|failure| failure.at_line(number))? else {
            break;
        };
        let failure = match shell.line(&line) {
            Ok(Next::Line) => continue,
            Ok(Next::End) => break,
            Err(failure) => failure.at_line(number),
        };
        let goes_on = failure.is_negative();
        if first.is_none() && !goes_on {
            return Err(failure);
        }
        shell.output.complain(&failure);
        first.get_or_insert(failure);
        if !goes_on {
            break;
        }
    }
    match first {
        // It has been said.
        Some(failure) => std::process::exit(i32::from(failure.exit_status())),
        None => Ok(()),
    }
}

/// The next line without its end; nothing at the end of the input.
fn read_line(input: &mut impl BufRead) -> Result<Option<Vec<u8>>, Failure> {
    let mut line = Vec::new();
    let mut bounded = input.take(SHELL_LINE_BYTES_MAX + 1);
    let read = bounded
        .read_until(b'\n', &mut line)
        .map_err(|error| Failure::usage(format!("standard input cannot be read: {error}"), ""))?;
    if read as u64 > SHELL_LINE_BYTES_MAX {
        let message = format!("the line has more than {SHELL_LINE_BYTES_MAX} bytes");
        return Err(Failure::usage(
            message,
            "trine put KEY @FILE writes large values",
        ));
    }
    Ok((read > 0).then(|| line.trim_ascii_end().to_vec()))
}

impl<N: Network> Shell<'_, N> {
    fn line(&mut self, line: &[u8]) -> Result<Next, Failure> {
        let request = parse(line).map_err(|error| Failure::usage(error.to_string(), ""))?;
        self.request(&request)
    }

    fn request(&mut self, request: &Request) -> Result<Next, Failure> {
        match request {
            Request::Nothing => {}
            Request::Quit => return Ok(Next::End),
            Request::Help(name) => {
                let entry = name.and_then(|name| commands::find(name.as_bytes()));
                print_all(format!("{}\n", commands::help(entry)).as_bytes());
            }
            Request::Timing(wanted) => {
                self.timing = wanted.unwrap_or(!self.timing);
                let word = if self.timing { "on" } else { "off" };
                eprintln!("timing is {word}");
            }
            Request::Status => {
                let group = self.client.group.clone();
                crate::cmd::status::run(self.network, &StatusArguments { group }, self.output)?;
            }
            Request::Net(command) => {
                let mut command = command.clone();
                command.set_peers(&self.client.group.peers);
                crate::cmd::net::run(self.network, &command, self.output)?;
            }
            Request::Store(store) => self.store(store)?,
            Request::Watch { every, request } => loop {
                self.request(request)?;
                interrupt::pause(*every);
                if interrupt::interrupted() {
                    return self.interrupted();
                }
            },
        }
        Ok(Next::Line)
    }

    /// Ctrl-C during `\watch`: its usual end at a terminal; in a script it ends the script.
    fn interrupted(&self) -> Result<Next, Failure> {
        match io::stdin().is_terminal() && interrupt::take() {
            true => Ok(Next::Line),
            false => Err(Failure::interrupted()),
        }
    }

    fn store(&mut self, request: &StoreRequest) -> Result<(), Failure> {
        let begun = Instant::now();
        let answer = self.worker.call(request)?;
        let took = begun.elapsed();
        let response = response_of(&answer)?;
        let told = tell(request, &response, self.form);
        if let Ok(Some(text)) = &told {
            print_all(&[text, &b"\n"[..]].concat());
        }
        if self.timing {
            eprintln!("({})", show_ns(took.as_nanos() as u64));
        }
        told.map(drop)
    }
}
