//! `trine put KEY [VALUE]` writes a value.

mod timing;

use serde_json::{Map, Value, json};
use trine_client::{Answer, Mode};
use trine_kvstore::{
    AbortCause, Command, Position, Response, SetCondition, SetExpiry, SetOptions, StoreError,
};

use trine_base::answers::{response_of, store_failure, unexpected};

use super::condition::{IfVersion, Unmet, present_version};
use clap::Args;
use std::ffi::OsString;
use trine_base::arguments::ClientArguments;
use trine_base::client::call_with;
use trine_base::failure::Failure;
use trine_base::network::Network;
use trine_base::output::{Output, insert_bytes};
use trine_base::units::parse_time_to_live;
use trine_base::values::{key_bytes, read_value};

#[derive(Debug, Args)]
pub(crate) struct PutArguments {
    /// The key.
    pub(crate) key: OsString,
    /// The value. If absent or -, it is read from standard input; with @FILE, from a file.
    pub(crate) value: Option<OsString>,
    /// Time after which the key expires; without it, the key does not expire.
    #[arg(long, value_name = "TIME", value_parser = parse_time_to_live)]
    pub(crate) ttl: Option<u64>,
    /// Write only if the key does not exist; otherwise exit with status 1.
    #[arg(long, conflicts_with = "if_version")]
    pub(crate) if_absent: bool,
    /// Write only if the key has this version; otherwise exit with status 1.
    ///
    /// `put`, `get --json` and `watch` print versions.
    #[arg(long, value_name = "VERSION")]
    pub(crate) if_version: Option<u64>,
    /// Show how long the write spent in each stage, with a bar for each.
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
    let key = key_bytes(&arguments.key)?;
    let value = read_value(arguments.value.as_deref())?;
    let expected = arguments.if_version.map(Position::from_u64);
    let options = options_of(arguments);
    let set = Command::Set {
        key,
        options,
        value: &value,
    };
    let conditional;
    let command = match expected {
        None if options == SetOptions::default() => Command::Put { key, value: &value },
        None => set,
        Some(expected) if arguments.ttl.is_none() => Command::CompareAndSwap {
            key,
            expected,
            value: &value,
        },
        Some(version) => {
            conditional = IfVersion::new(key, version, set);
            conditional.command()
        }
    };
    let mode = Mode::WriteAndClose;
    let answer = call_with(
        network,
        &arguments.client,
        mode,
        &command,
        output,
        |config| {
            config.time_every = u32::from(arguments.timing);
        },
    )?;
    let version = match outcome(&answer)? {
        PutOutcome::Written(version) => version,
        unmet => {
            let present = match unmet {
                PutOutcome::Unmet { present } => present,
                _ => present_version(network, &arguments.client, key, output)?,
            };
            let unmet = Unmet {
                key,
                expected,
                present,
            };
            return Err(unmet.report("written", output));
        }
    };
    tell(arguments, output, key, value.len(), version, &answer);
    Ok(())
}

fn options_of(arguments: &PutArguments) -> SetOptions {
    SetOptions {
        condition: match arguments.if_absent {
            true => SetCondition::Absent,
            false => SetCondition::Always,
        },
        expiry: arguments.ttl.map_or(SetExpiry::Never, SetExpiry::After),
        return_previous: false,
    }
}

/// Says what was written.
fn tell(
    arguments: &PutArguments,
    output: Output,
    key: &[u8],
    bytes: usize,
    version: Position,
    answer: &Answer,
) {
    let mut document = Map::new();
    insert_bytes(&mut document, "key", key);
    document.insert("bytes".into(), bytes.into());
    document.insert("version".into(), json!(version.as_u64()));
    if let Some(timing) = answer.timing() {
        document.insert("timing_ns".into(), timing::document(timing));
    }
    output.document(&Value::Object(document));
    match answer.timing() {
        Some(timing) => output.line(timing::draw(timing)),
        None if arguments.timing => {
            output.line("no timing: the replica runs an older release");
        }
        None => output.at_terminal(format_args!(
            "ok, version {} (`trine watch --since` starts after it, `--if-version` compares with \
             it)",
            version.as_u64()
        )),
    }
}

enum PutOutcome {
    Written(Position),
    /// The condition does not hold: the key has this version, or is absent.
    Unmet {
        present: Option<Position>,
    },
    /// The condition does not hold, and the answer does not say why.
    Aborted,
}

fn outcome(answer: &Answer) -> Result<PutOutcome, Failure> {
    if let Ok(Response::Error(StoreError::KeyMissing)) = answer.response() {
        return Ok(PutOutcome::Unmet { present: None });
    }
    Ok(match response_of(answer)? {
        Response::Written { version } => PutOutcome::Written(version),
        Response::Conflict { current } => PutOutcome::Unmet { present: current },
        Response::Aborted {
            cause: AbortCause::Refused { error, .. },
        } => return Err(store_failure(error)),
        Response::Aborted { .. } => PutOutcome::Aborted,
        Response::List(answers) => match answers.iter().next() {
            Some(Response::Written { version }) => PutOutcome::Written(version),
            _ => return Err(unexpected(&Response::List(answers))),
        },
        other => return Err(unexpected(&other)),
    })
}
