//! `trine count` counts the keys, all of them or those of a range, or those of several prefixes as of one moment.

use std::ffi::OsString;
use std::time::Instant;

use clap::Args;
use serde_json::{Map, Value, json};
use trine_base::answers::{response_of, unexpected};
use trine_base::arguments::ClientArguments;
use trine_base::client::{call, open};
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::network::Network;
use trine_base::output::{Output, insert_bytes};
use trine_base::values::key_bytes;
use trine_base::words::show;
use trine_client::PinnedCount;
use trine_kvstore::{Command, KeyRange, Position, Response};

use super::range::{ReplicaArguments, between};
use super::stream::{Held, Reading, response_at_pin};

/// Counts the keys that begin with each PREFIX, or of a range; without either all keys.
///
/// For a range the group has to keep an ordered index (`trine config set ordered on`), and keys that have expired do not
/// count. Among all keys they count until they are removed, a moment later. Several prefixes are counted as of one moment,
/// and have a line each.
#[derive(Debug, Args)]
pub(crate) struct CountArguments {
    /// The keys that begin with this; without it and without --from and --to all keys.
    #[arg(value_name = "PREFIX", conflicts_with_all = ["from", "to"])]
    prefixes: Vec<OsString>,
    /// The keys from this one on.
    #[arg(long, value_name = "KEY")]
    from: Option<OsString>,
    /// The keys before this one, which does not belong to them.
    #[arg(long, value_name = "KEY")]
    to: Option<OsString>,
    #[command(flatten)]
    replica: ReplicaArguments,
    #[command(flatten)]
    client: ClientArguments,
}

pub(crate) fn run<N: Network>(
    network: &N,
    arguments: &CountArguments,
    output: Output,
) -> Result<(), Failure> {
    let command = match arguments.prefixes.as_slice() {
        [] => match between(arguments.from.as_deref(), arguments.to.as_deref())? {
            None => Command::Count,
            Some(range) => Command::CountRange { range },
        },
        [prefix] => Command::CountRange {
            range: KeyRange::Prefix(key_bytes(prefix)?),
        },
        prefixes => return several(network, arguments, prefixes, output),
    };
    let mode = arguments.replica.mode();
    let answer = call(network, &arguments.client, mode, &command, output)?;
    match response_of(&answer)? {
        Response::Count { items } => {
            let position = answer.position().as_u64();
            output.document(&json!({ "count": items, "position": position }));
            output.line(items);
            Ok(())
        }
        other => Err(unexpected(&other)),
    }
}

/// Counts each prefix, all as of one moment.
fn several<N: Network>(
    network: &N,
    arguments: &CountArguments,
    prefixes: &[OsString],
    output: Output,
) -> Result<(), Failure> {
    const COUNT: Reading = Reading {
        what: "the count",
        hint: "run the count again, or count the prefixes one by one",
    };
    if arguments.replica.stale {
        return Err(Failure::usage(
            "several prefixes are counted as of one moment, which the group has to agree on",
            "leave --stale out, or count the prefixes one by one",
        ));
    }
    let prefixes: Vec<&[u8]> = prefixes
        .iter()
        .map(|prefix| key_bytes(prefix))
        .collect::<Result<_, _>>()?;
    let ranges: Vec<_> = prefixes.iter().copied().map(KeyRange::Prefix).collect();
    let mut session = open(network, &arguments.client, |_| {})?;
    // A Ctrl-C leaves time to give the pin back.
    interrupt::start()?;
    let mut held = Held::by(&mut session);
    let begun = Instant::now();
    let mut count = PinnedCount::of(&ranges, arguments.replica.mode());
    while let Some((mode, command)) = count.command(begun.elapsed()) {
        let Some(answer) = held.step(mode, &command)? else {
            break;
        };
        let response = response_at_pin(&answer)?;
        let taken = count.take(begun.elapsed(), answer.position(), &response);
        let keys = count.counts().iter().sum();
        taken.map_err(|error| COUNT.ended(error, &response, keys))?;
    }
    tell(&prefixes, &count, output);
    Ok(())
}

fn tell(prefixes: &[&[u8]], count: &PinnedCount, output: Output) {
    let document = |(prefix, count): (&&[u8], &u64)| {
        let mut document = Map::new();
        insert_bytes(&mut document, "prefix", prefix);
        document.insert("count".to_owned(), (*count).into());
        Value::Object(document)
    };
    let counts = || prefixes.iter().zip(count.counts());
    let position = count.position().map_or(0, Position::as_u64);
    let documents: Vec<_> = counts().map(document).collect();
    output.document(&json!({ "counts": documents, "position": position }));
    for (prefix, count) in counts() {
        output.line(format_args!("{}\t{count}", show(prefix)));
    }
}
