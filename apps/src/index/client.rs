//! `trine index put`, `get`, `del` and `scan`: each sends one request to one thread of an index.

use serde_json::json;

use super::args::{IndexClientArguments, IndexKeyArguments, IndexPutArguments, IndexScanArguments};
use super::wire::{ANSWER_BYTES_MAX, IndexRefusal, IndexRequest, IndexResponse};
use crate::line::{Patience, SAME_RELEASE, Service, ThreadSession};
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::network::Network;
use trine_base::output::Output;
use trine_base::peers;
use trine_base::units::plural;

pub(super) const INDEX: Service = Service {
    name: "an index",
    start_one: "start an index with `trine index serve`, or name the right one with --connect or TRINE_INDEX",
    see_whether: "read the key to see whether it was",
};

pub(super) fn put<N: Network>(
    network: &N,
    arguments: &IndexPutArguments,
    output: Output,
) -> Result<(), Failure> {
    let (key, value) = (arguments.key, arguments.value);
    match ask(network, &arguments.client, IndexRequest::Put(key, value))? {
        IndexResponse::Done => {
            output.document(&json!({ "key": key, "value": value }));
            output.at_terminal("ok");
            Ok(())
        }
        other => Err(refused(key, other)),
    }
}

pub(super) fn get<N: Network>(
    network: &N,
    arguments: &IndexKeyArguments,
    output: Output,
) -> Result<(), Failure> {
    let key = arguments.key;
    match ask(network, &arguments.client, IndexRequest::Get(key))? {
        IndexResponse::Value(value) => {
            output.document(&json!({ "key": key, "value": value }));
            output.line(value);
            Ok(())
        }
        other => Err(refused(key, other)),
    }
}

pub(super) fn del<N: Network>(
    network: &N,
    arguments: &IndexKeyArguments,
    output: Output,
) -> Result<(), Failure> {
    let key = arguments.key;
    match ask(network, &arguments.client, IndexRequest::Delete(key))? {
        IndexResponse::Done => {
            output.document(&json!({ "key": key, "deleted": 1 }));
            output.at_terminal("1 key deleted");
            Ok(())
        }
        other => Err(refused(key, other)),
    }
}

pub(super) fn scan<N: Network>(
    network: &N,
    arguments: &IndexScanArguments,
    output: Output,
) -> Result<(), Failure> {
    let (key, limit) = (arguments.key, arguments.limit);
    match ask(network, &arguments.client, IndexRequest::Scan(key, limit))? {
        IndexResponse::Scan(scan) => {
            output.document(&json!({ "key": key, "keys": scan.keys, "sum": scan.sum }));
            let keys = plural(scan.keys.into(), "key");
            output.line(format_args!("{} over {keys} after {key}", scan.sum));
            Ok(())
        }
        other => Err(refused(key, other)),
    }
}

fn ask<N: Network>(
    network: &N,
    arguments: &IndexClientArguments,
    ask: IndexRequest,
) -> Result<IndexResponse, Failure> {
    let address = peers::resolve_server(&arguments.connect)?;
    let writes = matches!(ask, IndexRequest::Put(..) | IndexRequest::Delete(_));
    if writes {
        // A Ctrl-C that comes too late leaves a write that may be applied, and that is said. A read ends by the signal.
        interrupt::start()?;
    }
    let mut line = ThreadSession::open(network, &INDEX, address, Patience::of(arguments.timeout))?;
    // Another server would take a request for what it is not.
    let hello = line.ask(IndexRequest::Hello.kind(), &[], ANSWER_BYTES_MAX, false)?;
    if IndexResponse::decode(IndexRequest::Hello, &hello).is_none() {
        return Err(Failure::usage(
            format!("{address} is not an index of this release; nothing was done"),
            INDEX.start_one,
        ));
    }
    let answer = line.ask(ask.kind(), &ask.encode(), ANSWER_BYTES_MAX, writes)?;
    IndexResponse::decode(ask, &answer).ok_or_else(|| {
        let message = format!("the reply of {address} could not be decoded");
        Failure::usage(message, SAME_RELEASE)
    })
}

/// An answer that does not do what was asked.
pub(super) fn refused(key: u64, answer: IndexResponse) -> Failure {
    match answer {
        IndexResponse::Absent => Failure::negative(format!("not in the index: {key}"), ""),
        IndexResponse::Full(keys_max) => Failure::usage(
            format!("the index is full: it has {keys_max} keys; nothing was done"),
            "delete keys, or start it with a larger --keys-max",
        ),
        IndexResponse::Refused(IndexRefusal::BadLimit(most)) => Failure::usage(
            format!("the server accepts scans over 1 to {most} keys"),
            "take another --limit",
        ),
        _ => Failure::usage("the server did not understand the request", SAME_RELEASE),
    }
}
