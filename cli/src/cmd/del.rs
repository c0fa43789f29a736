//! `trine del KEY`: deletes a key.

use serde_json::{Map, Value};
use trine_kvstore::{Command, Response};
use trine_replica::client::Mode;

use super::get::no_such_key;
use super::{response_of, unexpected};
use crate::args::DelArguments;
use crate::client::call;
use crate::failure::Failure;
use crate::network::Network;
use crate::output::{Output, insert_bytes};
use crate::values::key_bytes;

pub(crate) fn run<N: Network>(
    network: &N,
    arguments: &DelArguments,
    output: Output,
) -> Result<(), Failure> {
    let key = key_bytes(&arguments.key)?;
    let answer = call(
        network,
        &arguments.client,
        Mode::WriteAndClose,
        &Command::Delete { key },
    )?;
    match response_of(&answer)? {
        Response::Deleted { existed: true } => {
            let mut document = Map::new();
            insert_bytes(&mut document, "key", key);
            document.insert("deleted".into(), true.into());
            output.document(&Value::Object(document));
            Ok(())
        }
        Response::Deleted { existed: false } => Err(no_such_key(key)),
        other => Err(unexpected(&other)),
    }
}
