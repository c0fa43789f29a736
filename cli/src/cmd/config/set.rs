//! `trine config set` changes a setting that a group's replicas share.

use std::time::{Duration, Instant};

use serde_json::json;
use trine_base::answers::{response_of, unexpected};
use trine_base::arguments::ClientArguments;
use trine_base::client::{CommandClient, call, open};
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::network::Network;
use trine_base::output::Output;
use trine_base::units::{show_bytes, show_duration};
use trine_client::Mode;
use trine_kvstore::{Command, KeyRange, Response, StoreError};

use crate::settings::{SetCommand, Switch};

/// Pause between two questions whether an index is whole.
const ASK_EVERY: Duration = Duration::from_millis(50);

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
        SetCommand::Ordered {
            ordered,
            no_wait,
            client,
        } => set_ordered(network, (*ordered, !no_wait), client, output),
    }
}

fn set_ordered<N: Network>(
    network: &N,
    (ordered, waits): (Switch, bool),
    client: &ClientArguments,
    output: Output,
) -> Result<(), Failure> {
    let change = Command::SetOrdered {
        on: ordered == Switch::On,
    };
    let mut session = open(network, client, |_| {})?;
    let answer = session.execute(Mode::WriteAndClose, &change)?;
    match response_of(&answer)? {
        Response::Done => {}
        other => return Err(unexpected(&other)),
    }
    let state = match ordered {
        Switch::Off => "off",
        Switch::On if waits => {
            wait_until_whole(&mut session, client.group.timeout)?;
            "on"
        }
        Switch::On => "building",
    };
    output.document(&json!({ "ordered": state }));
    output.line(format_args!("ordered: {state}"));
    Ok(())
}

/// Asks until the index is whole.
fn wait_until_whole(session: &mut CommandClient, patience: Duration) -> Result<(), Failure> {
    let empty = KeyRange::Between {
        start: b"",
        end: Some(b""),
    };
    let question = Command::CountRange { range: empty };
    let until = Instant::now() + patience;
    loop {
        let answer = session.execute(Mode::Read, &question)?;
        match answer.response() {
            Ok(Response::Error(StoreError::NotOrdered { building: true })) => {}
            _ => return response_of(&answer).map(|_| ()),
        }
        if Instant::now() > until {
            return Err(Failure::outcome_unknown(
                format!(
                    "the index is not complete after {}; it is still being built",
                    show_duration(patience)
                ),
                "`trine status` shows its progress; --timeout waits longer",
            ));
        }
        interrupt::pause(ASK_EVERY);
    }
}
