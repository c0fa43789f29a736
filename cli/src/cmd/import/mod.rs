//! `trine import` writes the keys of an export.
//!
//! The whole input is read and checked first, so a bad line is found before anything is written. An input that can be
//! read only once is kept in a file without a name meanwhile. With `--partial` good lines are written as they come.

mod batch;
mod input;

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use trine_base::announce::note;
use trine_base::arguments::ClientArguments;
use trine_base::client::open;
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::network::Network;
use trine_base::output::Output;
use trine_base::progress::Progress;
use trine_base::units::plural;

use self::batch::Batch;
use self::input::{Input, Lines};
use super::record::ImportRecord;

/// Bad lines of which each is reported.
const REPORTED_MAX: u64 = 20;

#[derive(Debug, Args)]
pub(crate) struct ImportArguments {
    /// The file; standard input if absent or -.
    file: Option<PathBuf>,
    /// Write the valid lines even if others are invalid.
    #[arg(long)]
    partial: bool,
    #[command(flatten)]
    client: ClientArguments,
}

/// What was done so far.
#[derive(Clone, Copy, Default)]
pub(super) struct Done {
    /// Keys that were written.
    pub(super) written: u64,
    /// Lines whose time to live was over.
    pub(super) expired: u64,
    /// Bad lines.
    pub(super) bad: u64,
}

pub(crate) fn run<N: Network>(
    network: &N,
    arguments: &ImportArguments,
    output: Output,
) -> Result<(), Failure> {
    interrupt::start()?;
    let input = Input::open(arguments.file.as_deref())?;
    let lines = match arguments.partial {
        true => input.lines_once(),
        false => {
            let mut input = input;
            let checked = check(input.lines_first()?)?;
            input.lines_again(checked)?
        }
    };
    let mut session = open(network, &arguments.client, |_| {})?;
    let mut batch = Batch::new(&mut session);
    let written = write(lines, arguments.partial, &mut batch);
    let done = batch.done();
    let told = format!("{} written", plural(done.written, "key"));
    let told = match done.expired {
        0 => told,
        expired => format!("{told}, {} had expired", plural(expired, "line")),
    };
    written.map_err(|failure| failure.while_doing(&format!("the import was abandoned, {told}")))?;
    output.document(&json!({
        "written": done.written,
        "expired": done.expired,
        "bad_lines": done.bad,
    }));
    output.line(&told);
    match done.bad {
        0 => Ok(()),
        bad => Err(Failure::negative(
            format!("{} skipped: invalid", plural(bad, "line")),
            "",
        )),
    }
}

/// Reads all lines; their number.
fn check(mut lines: Lines) -> Result<u64, Failure> {
    let mut progress = Progress::towards("checking", None);
    while let Some(line) = lines.next()? {
        ImportRecord::of_line(&line).map_err(|why| bad_line(lines.number(), &why))?;
        progress.set(lines.number(), || plural(lines.number(), "line"));
        interrupt::check()?;
    }
    interrupt::check()?;
    Ok(lines.number())
}

fn bad_line(number: u64, why: &str) -> Failure {
    Failure::negative(
        format!("line {number}: {why}; nothing was written"),
        "--partial writes the valid lines and skips the others",
    )
}

fn write(mut lines: Lines, partial: bool, batch: &mut Batch<'_>) -> Result<(), Failure> {
    let mut progress = Progress::towards("importing", lines.expected());
    while let Some(line) = lines.next()? {
        let number = lines.number();
        match ImportRecord::of_line(&line) {
            Ok(record) => batch.add(number, record)?,
            Err(why) if partial => {
                batch.count_bad();
                if batch.done().bad <= REPORTED_MAX {
                    note(format_args!("line {number}: {why}"));
                }
            }
            // The file was changed since it was checked.
            Err(why) => return Err(Failure::negative(format!("line {number}: {why}"), "")),
        }
        progress.set(number, || plural(number, "line"));
        interrupt::check()?;
    }
    // The same Ctrl-C may have ended the program at the other end of the pipe, and so the input.
    interrupt::check()?;
    batch.flush()
}
