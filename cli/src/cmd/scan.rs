//! `trine scan` prints the keys of a range in their order, with their values, all as of one moment.

use std::io::IsTerminal;
use std::time::Instant;

use clap::Args;
use serde_json::{Map, Value, json};
use trine_base::answers::{response_of, unexpected};
use trine_base::arguments::ClientArguments;
use trine_base::client::{self, CommandClient};
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::network::Network;
use trine_base::output::{Output, insert_bytes, print_all};
use trine_base::units::show_bytes;
use trine_base::words::show;
use trine_client::{Answer, Mode, PinnedWalk, RangeWalk};
use trine_kvstore::{Entry, Position, RangeItem, Response, Versioned};

use super::range::{Bounds, RangeArguments, ReplicaArguments};
use super::stream::{PinGuard, PinnedRead, Unwritten, overlapped, print, response_at_pin};
use super::unordered;
use crate::config::UNORDERED_SCAN_BYTES_MAX;

/// Prints the keys that begin with PREFIX, or a range of them, in byte order, with their values.
///
/// The whole scan shows the state of one moment. If it exceeds one page of 256 KiB, the group keeps that state until
/// the scan ends. With --no-atomic or --stale, each page shows the state of its own moment.
///
/// With an ordered index (`trine config set ordered on`), the group reads only the range. Without one, it reads all
/// keys, and this command sorts the matching ones, up to 256 MiB.
///
/// A line has a key, a tab and the value. Keys and values that are not plain text are in double quotes, with escapes.
/// With --json, each item is a document on its own line, and the last line has the number of items.
#[derive(Debug, Args)]
pub(crate) struct ScanArguments {
    #[command(flatten)]
    pub(crate) range: RangeArguments,
    /// Print the keys in descending order.
    #[arg(long)]
    pub(crate) reverse: bool,
    /// Stop after this many keys.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    /// Omit values.
    #[arg(long)]
    pub(crate) keys_only: bool,
    /// Read each page at a later moment. The group then need not keep overwritten items.
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
    let bounds = arguments.range.bounds()?;
    // A Ctrl-C leaves time to give a pin back.
    interrupt::start()?;
    let replica = arguments.replica.replica;
    let client = replica.towards(network, &arguments.client)?;
    let mut session = client::open(network, &client, |_| {})?;
    let mode = arguments.replica.mode();
    let is_ordered = unordered::is_ordered(&mut session, mode, &bounds)?;
    let by_pages = arguments.no_atomic || arguments.replica.stale;
    let Printed { items, position } = match (is_ordered, by_pages) {
        (false, _) => sorted_here(&bounds, arguments, &mut session, output)?,
        (true, true) => by_page(walk(arguments, &bounds), mode, session, output)?,
        (true, false) => at_once(walk(arguments, &bounds), mode, session, output)?,
    };
    output.json_line(&json!({ "keys": items, "position": position }));
    if items == 0 && std::io::stdout().is_terminal() {
        output.line("no keys there");
    }
    Ok(())
}

const SCAN: PinnedRead = PinnedRead {
    what: "the scan",
    hint: "run the scan again; with `trine scan --no-atomic` the group keeps nothing, and each \
         page is read at a later moment",
};

/// An item that was found without the ordered index.
struct ScanItem {
    key: Vec<u8>,
    value: Option<Vec<u8>>,
    version: Position,
}

/// All items, sorted here because the group keeps no order.
fn sorted_here(
    bounds: &Bounds,
    arguments: &ScanArguments,
    session: &mut CommandClient,
    output: Output,
) -> Result<Printed, Failure> {
    let limit = usize::try_from(arguments.limit.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
    let mut sorted = Sorted::new(limit, arguments.reverse);
    let mode = arguments.replica.mode();
    let take = |entry: &Entry<'_>| {
        sorted.add(ScanItem {
            key: entry.key.to_vec(),
            value: (!arguments.keys_only).then(|| entry.value.to_vec()),
            version: entry.version,
        })
    };
    let position = match arguments.no_atomic || arguments.replica.stale {
        true => unordered::items_by_page(session, mode, bounds, take)?,
        false => unordered::items_at_once(session, mode, bounds, &SCAN, take)?,
    };
    let items = sorted.into_items();
    for item in &items {
        let value = item.value.as_deref().map(|value| Versioned {
            value,
            version: item.version,
        });
        let item = RangeItem {
            key: &item.key,
            item: value,
        };
        print_all(format!("{}\n", line(&item, output)).as_bytes());
    }
    Ok(Printed {
        items: items.len() as u64,
        position: position.map_or(0, Position::as_u64),
    })
}

/// The first items in an order, of those that came so far.
struct Sorted {
    items: Vec<ScanItem>,
    bytes: usize,
    limit: usize,
    reverse: bool,
}

impl Sorted {
    fn new(limit: usize, reverse: bool) -> Self {
        Self {
            items: Vec::new(),
            bytes: 0,
            limit,
            reverse,
        }
    }

    fn add(&mut self, item: ScanItem) -> Result<(), Failure> {
        self.bytes += bytes_of(&item);
        self.items.push(item);
        if self.items.len() > self.limit.saturating_mul(2).max(1_024) {
            self.cut();
        }
        match self.bytes > UNORDERED_SCAN_BYTES_MAX {
            true => Err(Failure::negative(
                format!(
                    "the group keeps no ordered index, and the keys take more than the {} that can \
                     be sorted without one",
                    show_bytes(UNORDERED_SCAN_BYTES_MAX as u64)
                ),
                "`trine config set ordered on` builds an index; --limit and --keys-only need less, `trine export` sorts nothing",
            )),
            false => Ok(()),
        }
    }

    /// Forgets what lies beyond the limit.
    fn cut(&mut self) {
        let reverse = self.reverse;
        self.items.sort_unstable_by(|a, b| match reverse {
            false => a.key.cmp(&b.key),
            true => b.key.cmp(&a.key),
        });
        // With --no-atomic a key can come twice, if the table grew meanwhile.
        self.items.dedup_by(|a, b| a.key == b.key);
        self.items.truncate(self.limit);
        self.bytes = self.items.iter().map(bytes_of).sum();
    }

    fn into_items(mut self) -> Vec<ScanItem> {
        self.cut();
        self.items
    }
}

fn bytes_of(item: &ScanItem) -> usize {
    size_of::<ScanItem>() + item.key.len() + item.value.as_ref().map_or(0, Vec::len)
}

/// Each page as of its own moment.
fn by_page(
    mut walk: RangeWalk,
    mode: Mode,
    mut session: CommandClient,
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
    mut session: CommandClient,
    output: Output,
) -> Result<Printed, Failure> {
    let begun = Instant::now();
    let mut walk = PinnedWalk::over(walk, mode);
    let read = |pass: &mut dyn FnMut(Answer) -> Result<(), Failure>| {
        let (mut held, mut items) = (PinGuard::by(&mut session), 0);
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

fn walk(arguments: &ScanArguments, bounds: &Bounds) -> RangeWalk {
    let mut walk = RangeWalk::over(bounds.range());
    if arguments.reverse {
        walk = walk.reverse();
    }
    if arguments.keys_only {
        walk = walk.keys_only();
    }
    walk.limit(arguments.limit.unwrap_or(u64::MAX))
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

    #[test]
    fn the_first_keys_of_the_order_remain_however_they_come() {
        let key = |number: u32| format!("{:05}", number.wrapping_mul(7_919) % 10_007).into_bytes();
        for (reverse, limit) in [(false, 10), (true, 3_000), (false, usize::MAX)] {
            let mut sorted = Sorted::new(limit, reverse);
            for number in 0..5_000 {
                let (value, version) = (None, Position::from_u64(1));
                let added = sorted.add(ScanItem {
                    key: key(number),
                    value,
                    version,
                });
                added.expect("there is room");
            }
            let found: Vec<_> = sorted
                .into_items()
                .into_iter()
                .map(|item| item.key)
                .collect();
            let mut expected: Vec<_> = (0..5_000).map(key).collect();
            expected.sort();
            if reverse {
                expected.reverse();
            }
            expected.truncate(limit);
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn what_is_sorted_here_has_a_limit() {
        let mut sorted = Sorted::new(usize::MAX, false);
        let mut big = || {
            sorted.add(ScanItem {
                key: vec![0; 8],
                value: Some(vec![0; UNORDERED_SCAN_BYTES_MAX / 2]),
                version: Position::from_u64(1),
            })
        };
        big().expect("half of it");
        let failure = big().expect_err("too much");
        assert!(failure.to_string().contains("ordered on"), "{failure}");
    }

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
