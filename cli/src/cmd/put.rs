//! `trine put KEY [VALUE]` writes a value.

mod timing;

use serde_json::{Map, Value, json};
use trine_client::Mode;
use trine_kvstore::{Command, Response};

use trine_base::answers::{response_of, unexpected};

use clap::Args;
use std::ffi::OsString;
use trine_base::arguments::ClientArguments;
use trine_base::client::call_with;
use trine_base::failure::Failure;
use trine_base::network::Network;
use trine_base::output::{Output, insert_bytes};
use trine_base::values::{key_bytes, read_value};

#[derive(Debug, Args)]
pub(crate) struct PutArguments {
    /// The key.
    pub(crate) key: OsString,
    /// The value; - or nothing reads it from standard input, @FILE from a file.
    pub(crate) value: Option<OsString>,
    /// Draw where the time of the write went, a bar for each stage.
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
    let command = Command::Put { key, value: &value };
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
    let version = match response_of(&answer)? {
        Response::Written { version } => version,
        other => return Err(unexpected(&other)),
    };
    let mut document = Map::new();
    insert_bytes(&mut document, "key", key);
    document.insert("bytes".into(), value.len().into());
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
            "ok, version {} (`trine watch --since` goes on from there, `cas` in the shell compares with it)",
            version.as_u64()
        )),
    }
    Ok(())
}
