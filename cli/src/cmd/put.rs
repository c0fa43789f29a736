//! `trine put KEY [VALUE]`: writes a value.

use serde_json::{Map, Value, json};
use trine_kvstore::{Command, Response};
use trine_replica::client::Mode;

use super::{response_of, unexpected};
use crate::args::PutArguments;
use crate::client::call;
use crate::failure::Failure;
use crate::network::Network;
use crate::output::{Output, insert_bytes};
use crate::values::{key_bytes, read_value};

pub(crate) fn run<N: Network>(
    network: &N,
    arguments: &PutArguments,
    output: Output,
) -> Result<(), Failure> {
    let key = key_bytes(&arguments.key)?;
    let value = read_value(arguments.value.as_deref())?;
    let answer = call(
        network,
        &arguments.client,
        Mode::WriteAndClose,
        &Command::Put { key, value: &value },
    )?;
    match response_of(&answer)? {
        Response::Written { version } => {
            let mut document = Map::new();
            insert_bytes(&mut document, "key", key);
            document.insert("bytes".into(), value.len().into());
            document.insert("version".into(), json!(version.as_u64()));
            output.document(&Value::Object(document));
            Ok(())
        }
        other => Err(unexpected(&other)),
    }
}
