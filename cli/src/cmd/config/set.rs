//! `trine config set` changes a setting that a group's replicas share.

use serde_json::json;
use trine_base::answers::{response_of, unexpected};
use trine_base::client::call;
use trine_base::failure::Failure;
use trine_base::network::Network;
use trine_base::output::Output;
use trine_base::units::show_bytes;
use trine_client::Mode;
use trine_kvstore::{Command, Response};

use crate::settings::SetCommand;

pub(crate) fn set<N: Network>(
    network: &N,
    command: &SetCommand,
    output: Output,
) -> Result<(), Failure> {
    match command {
        SetCommand::Memory { size, client } => {
            let change = Command::SetMemory {
                memory_bytes: *size,
            };
            let answer = call(network, client, Mode::WriteAndClose, &change, output)?;
            match response_of(&answer)? {
                Response::Done => {}
                other => return Err(unexpected(&other)),
            }
            output.document(&json!({ "memory": size }));
            output.line(format_args!("memory: {}", show_bytes(*size)));
            Ok(())
        }
    }
}
