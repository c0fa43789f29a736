//! `trine scan` prints the keys of a range in their order, with their values, all as of one moment.

use std::io::IsTerminal;
use std::time::Instant;

use clap::Args;
use serde_json::{Map, Value, json};
use trine_base::answers::{response_of, unexpected};
use trine_base::arguments::ClientArguments;
use trine_base::client::{self, Session};
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::network::Network;
use trine_base::output::{Output, insert_bytes};
use trine_base::words::show;
use trine_client::{Answer, Mode, PinnedWalk, RangeWalk};
use trine_kvstore::{KeyRange, Position, RangeItem, Response};

use super::range::{RangeArguments, ReplicaArguments};
use super::stream::{Held, Reading, Unwritten, overlapped, print, response_at_pin};

/// Prints the keys that begin with PREFIX, or of a range, in the order of their bytes, with their values.
///
/// The group has to keep an ordered index: `trine config set ordered on`. All of a scan is the state of one moment. Beyond a
/// page of 256 KiB the group keeps that state while the scan goes on. With --no-atomic, and with --stale, each page is the
/// state of a moment of its own.
///
/// A line has a key, and behind a tab its value. What is no plain text is in double quotes, with escapes. With --json each
/// item is a document on a line of its own, and the last line has their number.
#[derive(Debug, Args)]
pub(crate) struct ScanArguments {
    #[command(flatten)]
    pub(crate) range: RangeArguments,
    /// From the greatest key to the least.
    #[arg(long)]
    pub(crate) reverse: bool,
    /// End after so many keys.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    /// Print no values.
    #[arg(long)]
    pub(crate) keys_only: bool,
    /// Each page is the state of a later moment. Then the group has to keep nothing meanwhile.
    #[arg(long)]
    pub(crate) no_atomic: bool,
    #[command(flatten)]
    pub(crate) replica: ReplicaArguments,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

/// What was printed, and of which position.
#[derive(Default)]
struct Printed {
    items: u64,
    position: u64,
}

pub(crate) fn run<N: Network>(
    network: &N,
    arguments: &ScanArguments,
    output: Output,
) -> Result<(), Failure> {
    let walk = walk(arguments)?;
    let session = client::open(network, &arguments.client, |_| {})?;
    let Printed { items, position } = match arguments.no_atomic || arguments.replica.stale {
        true => by_page(walk, arguments.replica.mode(), session, output)?,
        false => at_once(walk, arguments.replica.mode(), session, output)?,
    };
    output.json_line(&json!({ "items": items, "position": position }));
    if items == 0 && std::io::stdout().is_terminal() {
        output.line("no keys there");
    }
    Ok(())
}

/// Each page as of its own moment.
fn by_page(
    mut walk: RangeWalk,
    mode: Mode,
    mut session: Session,
    output: Output,
) -> Result<Printed, Failure> {
    let read = |pass: &mut dyn FnMut(Answer) -> Result<(), Failure>| {
        let mut printed = Printed::default();
        while let Some(command) = walk.command() {
            let answer = session.execute(mode, &command)?;
            let response = response_of(&answer)?;
            if !walk.take(&response, |_| printed.items += 1) {
                return Err(unexpected(&response));
            }
            printed.position = answer.position().as_u64();
            drop(response);
            pass(answer)?;
        }
        Ok(printed)
    };
    overlapped(read, |answer| print_page(&answer, output))
}

/// All pages as of one moment.
fn at_once(
    walk: RangeWalk,
    mode: Mode,
    mut session: Session,
    output: Output,
) -> Result<Printed, Failure> {
    const SCAN: Reading = Reading {
        what: "the scan",
        hint: "run the scan again; `trine scan --no-atomic` needs nothing kept, and reads each page at a later moment",
    };
    // A Ctrl-C leaves time to give the pin back.
    interrupt::start()?;
    let begun = Instant::now();
    let mut walk = PinnedWalk::over(walk, mode);
    let read = |pass: &mut dyn FnMut(Answer) -> Result<(), Failure>| {
        let (mut held, mut items) = (Held::by(&mut session), 0);
        while let Some((mode, command)) = walk.command(begun.elapsed()) {
            let Some(answer) = held.step(mode, &command)? else {
                break;
            };
            let (before, response) = (items, response_at_pin(&answer)?);
            let taken = walk.take(begun.elapsed(), answer.position(), &response, |_| {
                items += 1;
            });
            taken.map_err(|error| SCAN.ended(error, &response, items))?;
            drop(response);
            if items > before {
                pass(answer)?;
            }
            interrupt::check()?;
        }
        let position = walk.position().map_or(0, Position::as_u64);
        Ok(Printed { items, position })
    };
    overlapped(read, |answer| print_page(&answer, output))
}

fn print_page(answer: &Answer, output: Output) -> Result<(), Unwritten> {
    let response = response_of(answer)?;
    let Response::Items { items, .. } = &response else {
        return Err(unexpected(&response).into());
    };
    let mut page = String::new();
    for item in items.iter() {
        page.push_str(&line(&item, output));
        page.push('\n');
    }
    print(page.as_bytes())
}

fn walk(arguments: &ScanArguments) -> Result<RangeWalk, Failure> {
    let range = arguments.range.range()?;
    let mut walk = RangeWalk::over(range.unwrap_or(KeyRange::Prefix(b"")));
    if arguments.reverse {
        walk = walk.reverse();
    }
    if arguments.keys_only {
        walk = walk.keys_only();
    }
    Ok(walk.limit(arguments.limit.unwrap_or(u64::MAX)))
}

fn line(item: &RangeItem<'_>, output: Output) -> String {
    if !output.json {
        return match &item.item {
            Some(value) => format!("{}\t{}", show(item.key), show(value.value)),
            None => show(item.key),
        };
    }
    let mut document = Map::new();
    insert_bytes(&mut document, "key", item.key);
    if let Some(value) = &item.item {
        insert_bytes(&mut document, "value", value.value);
        document.insert("version".to_owned(), value.version.as_u64().into());
    }
    Value::Object(document).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_kvstore::Versioned;

    #[test]
    fn a_line_can_be_taken_apart_whatever_is_in_the_item() {
        let item = RangeItem {
            key: b"a\tb",
            item: Some(Versioned {
                value: b"two\nlines",
                version: Position::from_u64(7),
            }),
        };
        let text = Output { json: false };
        assert_eq!(line(&item, text), "\"a\\tb\"\t\"two\\nlines\"");
        let json = Output { json: true };
        assert_eq!(
            line(&item, json),
            r#"{"key":"a\tb","value":"two\nlines","version":7}"#
        );
        let key = RangeItem {
            key: b"plain",
            item: None,
        };
        assert_eq!(line(&key, text), "plain");
        assert_eq!(line(&key, json), r#"{"key":"plain"}"#);
    }
}
