//! `trine net` shows and changes the network faults of replicas with fault injection.

mod args;

use std::net::SocketAddr;

use serde_json::json;

pub(crate) use self::args::{NetCommand, NetSetArguments};

use trine_base::failure::Failure;
use trine_base::network::Network;
use trine_base::output::{Output, Table};
use trine_base::peers;
use trine_base::survey::{LOOK_MAX, ask_everybody};
use trine_local::faults::{AskError, Linked, Order, State, ask};

const CURE: &str = "`trine up` and `trine demo` start their replicas in the lab; for others there is `trine serve --lab`";

pub(crate) fn run<N: Network>(
    network: &N,
    command: &NetCommand,
    output: Output,
) -> Result<(), Failure> {
    match command {
        NetCommand::Set(arguments) => {
            let lab = Lab::find(network, &arguments.peers.peers)?;
            show(
                &[lab.order(arguments.place, &set_order(arguments))?],
                output,
            );
        }
        NetCommand::Clear(arguments) => {
            let lab = Lab::find(network, &arguments.peers.peers)?;
            let order = Order::Clear {
                link: arguments.link.clone(),
            };
            let states = match arguments.place {
                Some(place) => vec![lab.order(place, &order)?],
                None => lab.order_all(&order)?,
            };
            show(&states, output);
        }
        NetCommand::Show(arguments) => {
            let lab = Lab::find(network, &arguments.peers)?;
            show(&lab.states, output);
        }
    }
    Ok(())
}

fn set_order(arguments: &NetSetArguments) -> Order {
    Order::Set {
        link: arguments.link.clone(),
        way: arguments.direction,
        faults: arguments.faults.to_string(),
    }
}

/// The replicas of a group that take fault-injection commands here.
pub(super) struct Lab<'a, N> {
    network: &'a N,
    addresses: Vec<SocketAddr>,
    states: Vec<State>,
}

impl<'a, N: Network> Lab<'a, N> {
    /// Asks every replica of the list; fails if none has fault injection.
    pub(super) fn find(network: &'a N, list: &str) -> Result<Self, Failure> {
        let addresses = peers::resolve(list)?;
        let mut states = Vec::new();
        for &address in &addresses {
            match ask(address, &Order::Show) {
                Ok(state) => states.push(state),
                Err(AskError::Nobody(_)) => {}
                Err(error) => return Err(failure(&error)),
            }
        }
        let lab = Self {
            network,
            addresses,
            states,
        };
        match lab.states.is_empty() {
            true => Err(lab.nobody(None)),
            false => Ok(lab),
        }
    }

    /// Sends a command to the replica at a place.
    pub(super) fn order(&self, place: u32, order: &Order) -> Result<State, Failure> {
        let state = self.state(place)?;
        ask(state.address, order).map_err(|error| failure(&error))
    }

    /// Sends a command to all of them.
    pub(super) fn order_all(&self, order: &Order) -> Result<Vec<State>, Failure> {
        let ask = |state: &State| ask(state.address, order).map_err(|error| failure(&error));
        self.states.iter().map(ask).collect()
    }

    /// The reported state of the replica at a place.
    pub(super) fn state(&self, place: u32) -> Result<&State, Failure> {
        let found = self.states.iter().find(|state| state.place == place);
        found.ok_or_else(|| self.nobody(Some(place)))
    }

    /// Why no replica takes commands: none was found, or none has fault injection.
    fn nobody(&self, place: Option<u32>) -> Failure {
        let limit = LOOK_MAX.into();
        let reports = match ask_everybody(self.network, &self.addresses, limit) {
            Ok(reports) => reports,
            Err(failure) => return failure,
        };
        let mut running = reports.iter().filter_map(|report| report.status());
        let running = running.find(|status| place.is_none_or(|place| status.place == place));
        let who = place.map_or("no replica".to_owned(), |place| {
            format!("no replica {place}")
        });
        match running {
            Some(status) => Failure::usage(
                format!(
                    "replica {} at {} runs, but takes no orders about its network on this machine: it was not started \
                     with --lab",
                    status.place, status.address
                ),
                CURE,
            ),
            None => Failure::not_reachable(
                format!("{who} of the list takes orders or answers"),
                "`trine status` shows the replicas; --peers or TRINE_PEERS names them",
            ),
        }
    }
}

fn failure(error: &AskError) -> Failure {
    match error {
        AskError::Nobody(_) => Failure::not_reachable(error.to_string(), CURE),
        AskError::Refused(_) => Failure::usage(format!("{error}; nothing was changed"), ""),
        AskError::NoAnswer(..) => {
            Failure::outcome_unknown(error.to_string(), "`trine net show` shows what is so")
        }
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
        let lost = state.fired.lost().to_string();
        let all = ["all".to_owned(), none(&state.out), none(&state.inward)];
        let [link, out, inward] = all;
        table.row([state.place.to_string(), link, out, inward, lost]);
        for linked in &state.links {
            let Linked {
                address,
                place,
                out,
                inward,
            } = linked;
            let name = place.map_or_else(|| address.to_string(), |place| format!("to {place}"));
            table.row([String::new(), name, own(out), own(inward), String::new()]);
        }
    }
    table
}
