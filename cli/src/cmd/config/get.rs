//! `trine config get` shows the settings that a group's replicas share.

use serde_json::{Map, Value, json};
use trine_base::failure::Failure;
use trine_base::network::Network;
use trine_base::output::Output;
use trine_base::peers;
use trine_base::survey::{SURVEY_TIMEOUT, ask_everybody};
use trine_base::units::show_bytes;
use trine_client::leader_of;
use trine_protocol::status::{OrderedStatus, StoreStatus};

use crate::cmd::status::{no_leader, nobody};
use crate::settings::{GetArguments, GroupSetting};

pub(crate) fn get<N: Network>(
    network: &N,
    arguments: &GetArguments,
    output: Output,
) -> Result<(), Failure> {
    let addresses = peers::resolve(&arguments.group.peers)?;
    let limit = arguments.group.timeout.min(SURVEY_TIMEOUT);
    let reports = ask_everybody(network, &addresses, limit.into())?;
    // A follower may not have applied the latest change.
    let Some(leader) = leader_of(&reports) else {
        return Err(
            match reports.iter().all(|report| report.status().is_none()) {
                true => nobody(&reports),
                false => no_leader(&reports),
            },
        );
    };
    let mut document = Map::new();
    for setting in [GroupSetting::Memory, GroupSetting::Ordered] {
        if arguments.setting.is_some_and(|wanted| wanted != setting) {
            continue;
        }
        let (name, value, text) = value(setting, &leader.store);
        document.insert(name.to_owned(), value);
        output.line(format_args!("{name}: {text}"));
    }
    output.document(&Value::Object(document));
    Ok(())
}

/// The name of a setting, its value for programs and for people: as `trine config set` takes and prints it.
fn value(setting: GroupSetting, store: &StoreStatus) -> (&'static str, Value, String) {
    match setting {
        GroupSetting::Memory => {
            let bytes = store.memory_bytes;
            ("memory", json!(bytes), show_bytes(bytes))
        }
        GroupSetting::Ordered => {
            let state = match store.ordered {
                OrderedStatus::Off => "off",
                OrderedStatus::Building { .. } => "building",
                OrderedStatus::On => "on",
                OrderedStatus::Unknown => "unknown",
            };
            ("ordered", json!(state), state.to_owned())
        }
    }
}
