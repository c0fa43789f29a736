//! `trine export` writes keys with their values and expiries as JSON lines.
//!
//! It walks over the keys a page at a time, at a pin: all pages are the state of one position. Without one, each page is the
//! state of its own. Then a key that is there all the time is written once, and what is changed meanwhile may be written as
//! it was before or after.

mod sink;

use std::path::PathBuf;
use std::time::{Instant, SystemTime};

use clap::Args;
use serde_json::json;
use std::ffi::OsString;
use trine_base::announce::note;
use trine_base::answers::{response_of, unexpected};
use trine_base::arguments::ClientArguments;
use trine_base::client::{CommandClient, open};
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::network::Network;
use trine_base::output::Output;
use trine_base::progress::Progress;
use trine_base::units::plural;
use trine_client::{Answer, Mode, WholeWalk};
use trine_kvstore::{Command, Cursor, Found, Position, Prefix, Response, WalkContent};

use self::sink::Sink;
use super::range::{Bounds, NamedPrefix, PartArguments};
use super::record::line;
use super::stream::{PinGuard, PinnedRead, Unwritten, overlapped, response_at_pin};

/// Writes keys with their values and expiries as JSON lines, all as of one moment.
///
/// If the export exceeds one page of 256 KiB, the group keeps the state of that moment until the export ends. With
/// --no-atomic, each page shows the state of its own moment.
#[derive(Debug, Args)]
pub(crate) struct ExportArguments {
    /// The new file; standard output if absent or -. Until the export is complete, its name is FILE.partial.
    file: Option<PathBuf>,
    /// Prefix of the keys; all keys if absent. A user with a prefix must specify it.
    #[arg(value_name = "PREFIX")]
    prefix: Option<OsString>,
    #[command(flatten)]
    named: NamedPrefix,
    #[command(flatten)]
    part: PartArguments,
    /// Read each page at a later moment. The group then need not keep overwritten items.
    #[arg(long)]
    no_atomic: bool,
    #[command(flatten)]
    client: ClientArguments,
}

pub(crate) fn run<N: Network>(
    network: &N,
    arguments: &ExportArguments,
    output: Output,
) -> Result<(), Failure> {
    interrupt::start_writer()?;
    let prefix = arguments.named.or(arguments.prefix.as_deref());
    let bounds = Bounds::of(prefix, &arguments.part)?;
    let file = arguments.file.as_deref().filter(|file| *file != "-");
    let mut sink = match file {
        None => Sink::Standard,
        Some(path) => Sink::create(path)?,
    };
    let mut session = open(network, &arguments.client, |_| {})?;
    let exported = match arguments.no_atomic {
        true => by_page(&mut session, &bounds, &mut sink),
        false => at_once(&mut session, &bounds, &mut sink),
    };
    let Exported { keys, position } = match exported {
        Ok(exported) => exported,
        Err(failure) => return Err(sink.undo(failure)),
    };
    sink.finish()?;
    // Where standard output has the lines, it has nothing else.
    match file {
        Some(_) => {
            let position = position.map(Position::as_u64);
            output.document(&json!({ "keys": keys, "position": position }));
            output.line(format_args!("wrote {}", plural(keys, "key")));
        }
        None => note(format_args!("wrote {}", plural(keys, "key"))),
    }
    Ok(())
}

/// The result of an export, with its position if it has one.
struct Exported {
    keys: u64,
    position: Option<Position>,
}

/// A page, and the moment from which its times to live count.
type ExportPage = (Answer, SystemTime);

/// All items as of one moment.
fn at_once(
    session: &mut CommandClient,
    bounds: &Bounds,
    sink: &mut Sink<'_>,
) -> Result<Exported, Failure> {
    const EXPORT: PinnedRead = PinnedRead {
        what: "the export",
        hint: "run the export again; with `trine export --no-atomic` the group keeps nothing, and \
             each page is read at a later moment",
    };
    let begun = Instant::now();
    let mut walk = WholeWalk::over(bounds.prefix(), Mode::Read);
    let mut progress = Progress::towards("exporting", None);
    let read = |pass: &mut dyn FnMut(ExportPage) -> Result<(), Failure>| {
        let mut held = PinGuard::by(session);
        let (mut keys, mut pinned_at) = (0, None);
        while let Some((mode, command)) = walk.command(begun.elapsed()) {
            let Some(answer) = held.step(mode, &command)? else {
                break;
            };
            let response = response_at_pin(&answer)?;
            if let Response::Pinned { .. } = response {
                pinned_at.get_or_insert_with(SystemTime::now);
            }
            let page = walk
                .take(begun.elapsed(), answer.position(), &response)
                .map_err(|error| EXPORT.ended(error, &response, keys))?;
            let found = page.map(|page| within(&page.found, bounds));
            drop(response);
            if let Some(found) = found {
                keys += found;
                progress.set(keys, || plural(keys, "key"));
                pass((answer, pinned_at.unwrap_or_else(SystemTime::now)))?;
            }
            interrupt::check()?;
        }
        let position = walk.position();
        Ok(Exported { keys, position })
    };
    overlapped(read, |piece| write(piece, bounds, sink))
}

/// Each page as of its own moment.
fn by_page(
    session: &mut CommandClient,
    bounds: &Bounds,
    sink: &mut Sink<'_>,
) -> Result<Exported, Failure> {
    let mut progress = Progress::towards("exporting", None);
    let read = |pass: &mut dyn FnMut(ExportPage) -> Result<(), Failure>| {
        let (mut from, mut keys) = (Cursor::START, 0);
        loop {
            let command = Command::Walk {
                from,
                count: 0,
                content: WalkContent::Items,
                prefix: Prefix(bounds.prefix()),
            };
            let answer = session.execute(Mode::Read, &command)?;
            let (next, found) = match response_of(&answer)? {
                Response::Page(page) => (page.next, within(&page.found, bounds)),
                other => return Err(unexpected(&other)),
            };
            keys += found;
            progress.set(keys, || plural(keys, "key"));
            pass((answer, SystemTime::now()))?;
            if next == Cursor::START {
                let position = None;
                return Ok(Exported { keys, position });
            }
            from = next;
            interrupt::check()?;
        }
    };
    overlapped(read, |piece| write(piece, bounds, sink))
}

/// How many keys of a page lie between the bounds.
fn within(found: &Found<'_>, bounds: &Bounds) -> u64 {
    match found {
        Found::Items(items) => items
            .iter()
            .filter(|item| bounds.contains(item.key))
            .count() as u64,
        Found::Keys(keys) => keys.len() as u64,
    }
}

fn write((answer, now): ExportPage, bounds: &Bounds, sink: &mut Sink<'_>) -> Result<(), Unwritten> {
    let response = response_of(&answer)?;
    let Response::Page(page) = &response else {
        return Err(unexpected(&response).into());
    };
    let Found::Items(items) = &page.found else {
        return Err(unexpected(&response).into());
    };
    let mut lines = String::new();
    for entry in items.iter().filter(|item| bounds.contains(item.key)) {
        lines += &line(&entry, now);
        lines.push('\n');
    }
    sink.write(lines.as_bytes())
}
