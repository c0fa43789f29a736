//! `trine count` counts the keys, all of them or those of a range, or those of several prefixes as of one moment.

use std::ffi::OsString;
use std::time::Instant;

use clap::Args;
use serde_json::{Map, Value, json};
use trine_base::answers::{response_of, unexpected};
use trine_base::arguments::ClientArguments;
use trine_base::client::{CommandClient, call, open};
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::network::Network;
use trine_base::output::{Output, insert_bytes};
use trine_base::values::key_bytes;
use trine_base::words::show;
use trine_client::PinnedCount;
use trine_kvstore::{Command, KeyRange, Position, Response, StoreError};

use super::range::{Bounds, PartArguments, ReplicaArguments};
use super::stream::{PinGuard, PinnedRead, response_at_pin};
use super::unordered;

/// Counts the keys that begin with each PREFIX, or a range of them; without a PREFIX, all keys.
///
/// With an ordered index (`trine config set ordered on`), a range is counted at once. Without one, the group reads all
/// keys. A count of a range excludes expired keys; a count of all keys includes them until they are removed, a moment
/// later. Each of several prefixes has its own line. With an ordered index, all counts are of one moment.
#[derive(Debug, Args)]
pub(crate) struct CountArguments {
    /// Prefix of the keys; all keys if absent.
    #[arg(value_name = "PREFIX")]
    prefixes: Vec<OsString>,
    #[command(flatten)]
    part: PartArguments,
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
    let prefix = match arguments.prefixes.as_slice() {
        [] => None,
        [prefix] => Some(prefix.as_os_str()),
        prefixes => return several(network, arguments, prefixes, output),
    };
    let bounds = Bounds::of(prefix, &arguments.part)?;
    let command = match (prefix, bounds.is_everything()) {
        (None, true) => Command::Count,
        _ => Command::CountRange {
            range: bounds.range(),
        },
    };
    let mode = arguments.replica.mode();
    let replica = arguments.replica.replica;
    let client = replica.towards(network, &arguments.client)?;
    let answer = call(network, &client, mode, &command, output)?;
    let (keys, position) = match answer.response() {
        Ok(Response::Error(StoreError::NotOrdered { .. })) => {
            let mut session = open(network, &client, |_| {})?;
            (unordered::count(&mut session, mode, &bounds)?, None)
        }
        _ => match response_of(&answer)? {
            Response::Count { items } => (items, Some(answer.position().as_u64())),
            other => return Err(unexpected(&other)),
        },
    };
    output.document(&json!({ "keys": keys, "position": position }));
    output.line(keys);
    Ok(())
}

/// Counts each prefix, all as of one moment.
fn several<N: Network>(
    network: &N,
    arguments: &CountArguments,
    prefixes: &[OsString],
    output: Output,
) -> Result<(), Failure> {
    const COUNT: PinnedRead = PinnedRead {
        what: "the count",
        hint: "run the count again, or count the prefixes one by one",
    };
    if arguments.replica.stale {
        return Err(Failure::usage(
            "counting several prefixes as of one moment needs a majority",
            "omit --stale, or count the prefixes one by one",
        ));
    }
    if arguments.part.is_named() {
        return Err(Failure::usage(
            "--from, --to and --after apply to a single prefix",
            "count the prefixes one by one",
        ));
    }
    let prefixes: Vec<&[u8]> = prefixes
        .iter()
        .map(|prefix| key_bytes(prefix))
        .collect::<Result<_, _>>()?;
    let ranges: Vec<_> = prefixes.iter().copied().map(KeyRange::Prefix).collect();
    // A Ctrl-C leaves time to give the pin back.
    interrupt::start()?;
    let replica = arguments.replica.replica;
    let client = replica.towards(network, &arguments.client)?;
    let mut session = open(network, &client, |_| {})?;
    let everything = Bounds::of(None, &PartArguments::default())?;
    if !unordered::is_ordered(&mut session, arguments.replica.mode(), &everything)? {
        return one_by_one(&mut session, arguments, &prefixes, output);
    }
    let mut held = PinGuard::by(&mut session);
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
    let position = count.position().map(Position::as_u64);
    tell(&prefixes, count.counts(), position, output);
    Ok(())
}

/// Counts each prefix without the ordered index, as of a moment of its own.
fn one_by_one(
    session: &mut CommandClient,
    arguments: &CountArguments,
    prefixes: &[&[u8]],
    output: Output,
) -> Result<(), Failure> {
    let mode = arguments.replica.mode();
    let mut counts = Vec::with_capacity(prefixes.len());
    for prefix in &arguments.prefixes {
        let bounds = Bounds::of(Some(prefix), &PartArguments::default())?;
        counts.push(unordered::count(session, mode, &bounds)?);
    }
    tell(prefixes, &counts, None, output);
    Ok(())
}

fn tell(prefixes: &[&[u8]], counts: &[u64], position: Option<u64>, output: Output) {
    let document = |(prefix, count): (&&[u8], &u64)| {
        let mut document = Map::new();
        insert_bytes(&mut document, "prefix", prefix);
        document.insert("keys".to_owned(), (*count).into());
        Value::Object(document)
    };
    let counts = || prefixes.iter().zip(counts);
    let documents: Vec<_> = counts().map(document).collect();
    output.document(&json!({ "counts": documents, "position": position }));
    for (prefix, count) in counts() {
        output.line(format_args!("{}\t{count}", show(prefix)));
    }
}
