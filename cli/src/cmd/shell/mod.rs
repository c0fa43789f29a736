//! `trine` alone is a shell with a line editor at a terminal. Elsewhere it reads commands from standard input, one a
//! line.

mod answer;
mod args;
mod commands;
mod edit;
mod finder;
mod input;
mod keys;
mod parse;
mod paste;
mod worker;

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
use rustyline::error::ReadlineError;

use self::answer::{Form, tell};
pub(crate) use self::args::ShellArguments;
#[cfg(test)]
pub(crate) use self::commands::examples_of_line;
use self::finder::Finder;
use self::input::{Input, read_command, size_of_input};
use self::parse::{LineRequest, ParseError, StoreRequest};
use self::paste::{Entered, Pastes, TooLong};
use self::worker::Worker;
use crate::config::SHELL_LINE_BYTES_MAX;
use trine_base::announce::note;
use trine_base::answers::response_of;
use trine_base::arguments::ClientArguments;
use trine_base::bars::above_bars;
use trine_base::document;
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::network::Network;
use trine_base::output::{Output, print_all};
use trine_base::progress::Progress;
use trine_base::units::{plural, show_bytes, show_ns};
use trine_base::words::{printable, show};
use trine_kvstore::Response;

/// Executes a command of the command line, in its words.
type OfLine<'a> = &'a dyn Fn(Vec<OsString>) -> Result<(), Failure>;

/// `of_line` executes the commands that the shell shares with the command line.
pub(crate) fn run<N: Network>(
    network: &N,
    arguments: &ShellArguments,
    output: Output,
    of_line: OfLine<'_>,
) -> Result<(), Failure> {
    interrupt::start()?;
    document::one_a_line();
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
        of_line,
        output,
        form,
        timing: false,
        progress: None,
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
    of_line: OfLine<'a>,
    output: Output,
    form: Form,
    timing: bool,
    /// The progress of a script.
    progress: Option<Progress>,
}

const PROMPT: &str = "trine> ";

/// Whether the loop reads another line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LoopControl {
    Line,
    End,
}

/// Serves a terminal. It reports a mistake and continues with the next line.
fn converse<N: Network>(shell: &mut Shell<'_, N>) -> Result<(), Failure> {
    let unusable = |error| Failure::usage(format!("the terminal cannot be used: {error}"), "");
    restore_terminal_on_sigterm();
    let finder = Finder::new(shell.network, shell.client);
    let find_keys = Box::new(move |prefix: &[u8]| finder.keys(prefix));
    let pastes = Pastes::default();
    let (mut editor, history) = edit::editor(find_keys, &pastes).map_err(unusable)?;
    if shell.form == Form::People {
        let peers = &shell.client.group.peers;
        print_all(format!("trine at {peers}; help lists the commands, Ctrl-D ends\n").as_bytes());
    }
    let mut entered = Entered::default();
    loop {
        let unfinished = (entered.left.as_str(), entered.right.as_str());
        let read = editor.readline_with_initial(PROMPT, unfinished);
        // The editor has already handled a Ctrl-C that came before the line was complete.
        interrupt::take();
        entered = match read.map(|line| pastes.entered(line)) {
            Ok(Ok(entered)) => entered,
            Ok(Err(TooLong)) => {
                shell.output.complain(&too_long());
                Entered::default()
            }
            Err(ReadlineError::Interrupted) => Entered::default(),
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(unusable(error)),
        };
        for line in entered
            .commands
            .iter()
            .filter(|line| !line.trim().is_empty())
        {
            let _ = editor.add_history_entry(line);
        }
        edit::keep(&mut editor, history.as_ref());
        if shell.lines(&entered.commands) == LoopControl::End {
            break;
        }
    }
    Ok(())
}

fn too_long() -> Failure {
    Failure::usage(
        format!(
            "more than {} were pasted; nothing was done",
            show_bytes(SHELL_LINE_BYTES_MAX)
        ),
        "trine <FILE executes the commands in a file, however many there are",
    )
}

/// The editor reads single keys without echo. A signal handler that ends the process must undo that.
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

/// Serves a pipe. A command is a line, or several where a quote goes over their ends. After a negative answer the following lines are still executed; any other failure ends the script.
/// The failure that ends the script is the exit status, else the first negative answer.
fn obey<N: Network>(shell: &mut Shell<'_, N>) -> Result<(), Failure> {
    let mut first: Option<Failure> = None;
    let mut input = Input::new();
    let mut bytes = 0;
    let total = size_of_input();
    shell.progress = Some(Progress::towards("executing standard input", total));
    let mut number = 1;
    loop {
        let ended = |shell: &mut Shell<'_, N>| {
            shell.progress = None;
            Failure::interrupted_after(plural(number - 1, "line") + " done", "")
        };
        if interrupt::interrupted() {
            return Err(ended(shell));
        }
        let (line, lines) = match read_command(&mut input) {
            Ok(Some(read)) => read,
            // The same Ctrl-C may have ended the program that writes the pipe.
            Ok(None) if interrupt::interrupted() => return Err(ended(shell)),
            Ok(None) => break,
            Err(_) if interrupt::interrupted() => return Err(ended(shell)),
            Err(failure) => return Err(failure.at_line(number)),
        };
        let done = shell.line(&line);
        bytes += line.len() as u64 + 1;
        if let Some(progress) = &mut shell.progress {
            let done = number + lines - 1;
            let at = if total.is_some() { bytes } else { done };
            progress.set(at, || plural(done, "line"));
        }
        let first_line = number;
        number += lines;
        let failure = match done {
            Ok(LoopControl::Line) => continue,
            Ok(LoopControl::End) => break,
            Err(failure) => failure.at_line(first_line),
        };
        if !failure.is_negative() {
            // What was sent may be applied, and no earlier answer may hide that.
            shell.progress = None;
            return Err(failure);
        }
        above_bars(|| shell.output.complain(&failure));
        first.get_or_insert(failure);
    }
    shell.progress = None;
    match first {
        // The failure was already printed.
        Some(failure) => std::process::exit(i32::from(failure.exit_status())),
        None => Ok(()),
    }
}

impl<N: Network> Shell<'_, N> {
    /// Executes lines that were typed or pasted. After a mistake the following ones are executed all the same, as if each had
    /// been typed; after a Ctrl-C none is.
    fn lines(&mut self, lines: &[String]) -> LoopControl {
        let before = interrupt::taken();
        for (number, line) in lines.iter().enumerate() {
            // The editor shows the first one.
            if number > 0 && self.form == Form::People {
                print_all(format!("{PROMPT}{}\n", printable(line)).as_bytes());
            }
            match self.line(line.as_bytes()) {
                Ok(LoopControl::Line) => {}
                Ok(LoopControl::End) => return LoopControl::End,
                Err(failure) => self.output.complain(&failure),
            }
            let left = lines.len() - number - 1;
            if left > 0 && (interrupt::take() || interrupt::taken() > before) {
                note(format_args!(
                    "{} of the pasted text: not executed",
                    plural(left as u64, "line")
                ));
                return LoopControl::Line;
            }
        }
        LoopControl::Line
    }

    fn line(&mut self, line: &[u8]) -> Result<LoopControl, Failure> {
        self.request(&understood(parse::parse(line, unix_ms()))?)
    }

    fn request(&mut self, request: &LineRequest) -> Result<LoopControl, Failure> {
        match request {
            LineRequest::Nothing => {}
            LineRequest::Quit => return Ok(LoopControl::End),
            LineRequest::Help(name) => {
                let entry = name.and_then(|name| commands::find(name.as_bytes()));
                self.output.json_line(&commands::document(entry));
                self.output.line(commands::help(entry));
            }
            LineRequest::Timing(wanted) => {
                self.timing = wanted.unwrap_or(!self.timing);
                let word = if self.timing { "on" } else { "off" };
                note(format_args!("timing is {word}"));
            }
            LineRequest::Line(words) => return self.of_line(words),
            LineRequest::Clear if self.form == Form::People => print_all(b"\x1b[H\x1b[2J\x1b[3J"),
            LineRequest::Clear => {}
            LineRequest::Store(store) => self.store(store)?,
            LineRequest::Keys(pattern) => self.keys(pattern)?,
            LineRequest::Watch { every, words } => loop {
                let before = interrupt::taken();
                self.request(&understood(parse::request(words, unix_ms()))?)?;
                // A command of the command line has taken the Ctrl-C that ended it.
                if interrupt::taken() > before {
                    return Ok(LoopControl::Line);
                }
                interrupt::pause(*every);
                if interrupt::interrupted() {
                    return self.interrupted();
                }
            },
        }
        Ok(LoopControl::Line)
    }

    /// Executes a command of the command line for the shell's group. At a terminal Ctrl-C ends that command alone.
    fn of_line(&mut self, words: &[Vec<u8>]) -> Result<LoopControl, Failure> {
        let words = words.iter().map(|word| OsStr::from_bytes(word).to_owned());
        let done = (self.of_line)(words.collect());
        if interrupt::interrupted() {
            return match self.interrupted()? {
                LoopControl::Line => done.map(|()| LoopControl::Line),
                LoopControl::End => Ok(LoopControl::End),
            };
        }
        done.map(|()| LoopControl::Line)
    }

    /// Handles Ctrl-C during `\watch`. At a terminal it is the usual end of `\watch`; in a script it ends the script.
    fn interrupted(&self) -> Result<LoopControl, Failure> {
        match io::stdin().is_terminal() && interrupt::take() {
            true => Ok(LoopControl::Line),
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
            above_bars(|| print_all(&[text, &b"\n"[..]].concat()));
        }
        if let (
            Response::Items {
                next: Some(next), ..
            },
            Form::People | Form::Raw,
        ) = (&response, self.form)
        {
            let next = show(next);
            above_bars(|| {
                note(format_args!(
                    "more keys follow, from {next} on; `trine scan` shows all"
                ))
            });
        }
        if self.timing {
            above_bars(|| note(format_args!("({})", show_ns(took.as_nanos() as u64))));
        }
        told.map(drop)
    }
}

/// Milliseconds of Unix time.
/// A line or words that the shell does not understand are a mistake of the user's.
fn understood(request: Result<LineRequest, ParseError>) -> Result<LineRequest, Failure> {
    request.map_err(|error| Failure::usage(error.to_string(), ""))
}

fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    })
}
