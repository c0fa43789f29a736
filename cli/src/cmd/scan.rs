//! `trine scan` prints the keys of a range in their order, with their values.

use std::io::IsTerminal;

use clap::Args;
use serde_json::{Map, Value, json};
use trine_base::answers::{response_of, unexpected};
use trine_base::arguments::ClientArguments;
use trine_base::client;
use trine_base::failure::Failure;
use trine_base::network::Network;
use trine_base::output::{Output, insert_bytes, print_all};
use trine_base::words::show;
use trine_client::RangeWalk;
use trine_kvstore::{KeyRange, RangeItem};

use super::range::{RangeArguments, ReplicaArguments};

/// Prints the keys that begin with PREFIX, or of a range, in the order of their bytes, with their values.
///
/// The group has to keep an ordered index: `trine config set ordered on`. A scan reads pages of at most 256 KiB. Each page is
/// the state of one moment. A later page is newer: what is written between two pages may be in the later one.
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
    #[command(flatten)]
    pub(crate) replica: ReplicaArguments,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

pub(crate) fn run<N: Network>(
    network: &N,
    arguments: &ScanArguments,
    output: Output,
) -> Result<(), Failure> {
    let mut walk = walk(arguments)?;
    let mode = arguments.replica.mode();
    let mut session = client::open(network, &arguments.client, |_| {})?;
    let (mut items, mut position) = (0_u64, 0);
    while let Some(command) = walk.command() {
        let answer = session.execute(mode, &command)?;
        let response = response_of(&answer)?;
        let mut page = String::new();
        let taken = walk.take(&response, |item| {
            items += 1;
            page.push_str(&line(&item, output));
            page.push('\n');
        });
        if !taken {
            return Err(unexpected(&response));
        }
        print_all(page.as_bytes());
        position = answer.position().as_u64();
    }
    output.json_line(&json!({ "items": items, "position": position }));
    if items == 0 && std::io::stdout().is_terminal() {
        output.line("no keys there");
    }
    Ok(())
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
    use trine_kvstore::{Position, Versioned};

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
