//! `trine put KEY [VALUE]` writes a value.

use serde_json::{Map, Value, json};
use trine_client::{Answer, Mode, WriteTiming};
use trine_kvstore::{Command, Response};

use trine_base::answers::{response_of, unexpected};

use clap::Args;
use std::ffi::OsString;
use trine_base::arguments::ClientArguments;
use trine_base::client::call_with;
use trine_base::failure::Failure;
use trine_base::network::Network;
use trine_base::output::{Output, insert_bytes};
use trine_base::units::show_ns;
use trine_base::values::{key_bytes, read_value};

#[derive(Debug, Args)]
pub(crate) struct PutArguments {
    /// The key.
    pub(crate) key: OsString,
    /// The value; - or nothing reads it from standard input, @FILE from a file.
    pub(crate) value: Option<OsString>,
    /// Say where the time of the write went, stage by stage.
    #[arg(long)]
    pub(crate) timing: bool,
    #[command(flatten)]
    pub(crate) client: ClientArguments,
}

pub(crate) fn run<N: Network>(
    network: &N,
    arguments: &PutArguments,
    output: Output,
) -> Result<(), Failure> {
    let (document, answer) = write(network, arguments)?;
    output.document(&document);
    if arguments.timing {
        tell_timing(answer.timing(), output);
    }
    Ok(())
}

/// Writes the value. Returns the answer and all facts about it for programs.
pub(super) fn write<N: Network>(
    network: &N,
    arguments: &PutArguments,
) -> Result<(Value, Answer), Failure> {
    let key = key_bytes(&arguments.key)?;
    let value = read_value(arguments.value.as_deref())?;
    let command = Command::Put { key, value: &value };
    let mode = Mode::WriteAndClose;
    let answer = call_with(network, &arguments.client, mode, &command, |config| {
        config.time_every = u32::from(arguments.timing);
    })?;
    let version = match response_of(&answer)? {
        Response::Written { version } => version,
        other => return Err(unexpected(&other)),
    };
    let mut document = Map::new();
    insert_bytes(&mut document, "key", key);
    document.insert("bytes".into(), value.len().into());
    document.insert("version".into(), json!(version.as_u64()));
    if let Some(timing) = answer.timing() {
        document.insert("timing_ns".into(), timing_document(timing));
    }
    Ok((Value::Object(document), answer))
}

/// The stages of a write that the client knows, in order.
pub(super) fn stages(timing: &WriteTiming) -> Vec<(&'static str, &'static str, u64)> {
    let leader = &timing.leader;
    vec![
        (
            "client",
            "find the leader, open a session",
            timing.client.as_nanos(),
        ),
        (
            "network",
            "to the leader and back",
            timing.network().as_nanos(),
        ),
        (
            "queue",
            "wait for the entry to be proposed",
            leader.queue_ns.into(),
        ),
        (
            "append",
            "into the leader's log, out to the followers",
            leader.append_ns.into(),
        ),
        ("quorum", "until a majority has it", leader.quorum_ns.into()),
        (
            "apply",
            "into the store, and the answer made",
            leader.apply_ns.into(),
        ),
    ]
}

pub(super) fn total_ns(timing: &WriteTiming) -> u64 {
    timing.client.as_nanos() + timing.round_trip.as_nanos()
}

fn timing_document(timing: &WriteTiming) -> Value {
    let mut document = Map::new();
    for (stage, _, ns) in stages(timing) {
        document.insert(stage.into(), ns.into());
    }
    document.insert("total".into(), total_ns(timing).into());
    Value::Object(document)
}

fn tell_timing(timing: Option<&WriteTiming>, output: Output) {
    let Some(timing) = timing else {
        return output.line("no timing: the replica runs an older release");
    };
    for (stage, what, ns) in stages(timing) {
        output.line(format_args!("  {stage:<8} {:>9}  {what}", show_ns(ns)));
    }
    output.line(format_args!(
        "  {:<8} {:>9}",
        "total",
        show_ns(total_ns(timing))
    ));
}
