//! `trine net` shows and changes the network faults of replicas with fault injection.

mod args;

use std::net::SocketAddr;

use serde_json::json;

pub(crate) use self::args::{NetCommand, NetSetArguments};

use trine_base::failure::Failure;
use trine_base::network::Network;
use trine_base::output::{Output, Table};
use trine_base::peers;
use trine_base::survey::{SURVEY_TIMEOUT, ask_everybody};
use trine_local::faults::{AskError, FaultCommand, Linked, State, ask};

const HINT: &str = "`trine up` and `trine demo` start their replicas with fault injection; for others there is `trine serve --fault-injection`";

pub(crate) fn run<N: Network>(
    network: &N,
    command: &NetCommand,
    output: Output,
) -> Result<(), Failure> {
    match command {
        NetCommand::Set(arguments) => {
            let fault_injection = FaultyGroup::find(network, &arguments.peers.peers)?;
            show(
                &[fault_injection.command(arguments.node_id, &set_command(arguments))?],
                output,
            );
        }
        NetCommand::Clear(arguments) => {
            let fault_injection = FaultyGroup::find(network, &arguments.peers.peers)?;
            let command = FaultCommand::Clear {
                link: arguments.link.clone(),
            };
            let states = match arguments.node_id {
                Some(node_id) => vec![fault_injection.command(node_id, &command)?],
                None => fault_injection.ask_all(&command)?,
            };
            show(&states, output);
        }
        NetCommand::Show(arguments) => {
            let fault_injection = FaultyGroup::find(network, &arguments.peers)?;
            show(&fault_injection.states, output);
        }
    }
    Ok(())
}

fn set_command(arguments: &NetSetArguments) -> FaultCommand {
    FaultCommand::Set {
        link: arguments.link.clone(),
        way: arguments.direction,
        faults: arguments.faults.to_string(),
    }
}

/// The replicas of a group that take fault-injection commands here.
pub(super) struct FaultyGroup<'a, N> {
    network: &'a N,
    addresses: Vec<SocketAddr>,
    states: Vec<State>,
}

impl<'a, N: Network> FaultyGroup<'a, N> {
    /// Asks every replica of the list; fails if none has fault injection.
    pub(super) fn find(network: &'a N, list: &str) -> Result<Self, Failure> {
        let addresses = peers::resolve(list)?;
        let mut states = Vec::new();
        for &address in &addresses {
            match ask(address, &FaultCommand::Show) {
                Ok(state) => states.push(state),
                Err(AskError::Nobody(_)) => {}
                Err(error) => return Err(failure(&error)),
            }
        }
        let fault_injection = Self {
            network,
            addresses,
            states,
        };
        match fault_injection.states.is_empty() {
            true => Err(fault_injection.nobody(None)),
            false => Ok(fault_injection),
        }
    }

    /// Sends a command to the replica with this node id.
    pub(super) fn command(&self, node_id: u32, command: &FaultCommand) -> Result<State, Failure> {
        let state = self.state(node_id)?;
        ask(state.address, command).map_err(|error| failure(&error))
    }

    /// Sends a command to all of them.
    pub(super) fn ask_all(&self, command: &FaultCommand) -> Result<Vec<State>, Failure> {
        let ask = |state: &State| ask(state.address, command).map_err(|error| failure(&error));
        self.states.iter().map(ask).collect()
    }

    /// The reported state of the replica with this node id.
    pub(super) fn state(&self, node_id: u32) -> Result<&State, Failure> {
        let found = self.states.iter().find(|state| state.node_id == node_id);
        found.ok_or_else(|| self.nobody(Some(node_id)))
    }

    /// Why no replica takes commands: none was found, or none has fault injection.
    fn nobody(&self, node_id: Option<u32>) -> Failure {
        let limit = SURVEY_TIMEOUT.into();
        let reports = match ask_everybody(self.network, &self.addresses, limit) {
            Ok(reports) => reports,
            Err(failure) => return failure,
        };
        let mut running = reports.iter().filter_map(|report| report.status());
        let running =
            running.find(|status| node_id.is_none_or(|node_id| status.node_id == node_id));
        let who = node_id.map_or("no replica".to_owned(), |node_id| {
            format!("no replica {node_id}")
        });
        match running {
            Some(status) => Failure::usage(
                format!(
                    "replica {} at {} runs, but does not accept fault injection: it was not started with --fault-injection",
                    status.node_id, status.address
                ),
                HINT,
            ),
            None => Failure::not_reachable(
                format!("{who} of the list accepts fault injection"),
                "`trine status` shows the replicas; --peers or TRINE_PEERS names them",
            ),
        }
    }
}

fn failure(error: &AskError) -> Failure {
    match error {
        AskError::Nobody(_) => Failure::not_reachable(error.to_string(), HINT),
        AskError::Refused(_) => Failure::usage(format!("{error}; nothing was changed"), ""),
        AskError::NoAnswer(..) => Failure::outcome_unknown(
            error.to_string(),
            "`trine net show` shows the current faults",
        ),
    }
}

fn show(states: &[State], output: Output) {
    output.document(&json!({ "replicas": states }));
    output.line(table(states));
    if states.iter().all(State::is_clear) {
        output.line("no faults are set");
    }
}

fn table(states: &[State]) -> Table {
    let mut table = Table::new(["replica", "link", "sends", "receives", "lost so far"]);
    let none = |text: &str| match text {
        "" => "-".to_owned(),
        text => text.to_owned(),
    };
    let own = |text: &Option<String>| text.as_deref().map_or("as all".to_owned(), none);
    for state in states {
        let lost = state.fired.lost.to_string();
        let all = ["all".to_owned(), none(&state.out), none(&state.inward)];
        let [link, out, inward] = all;
        table.row([state.node_id.to_string(), link, out, inward, lost]);
        for linked in &state.links {
            let Linked {
                address,
                node_id,
                out,
                inward,
            } = linked;
            let name =
                node_id.map_or_else(|| address.to_string(), |node_id| format!("to {node_id}"));
            table.row([String::new(), name, own(out), own(inward), String::new()]);
        }
    }
    table
}
