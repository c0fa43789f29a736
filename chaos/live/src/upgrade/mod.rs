//! `trine chaos --upgrade-from PROGRAM`: a group that begins with the program of an earlier release. Its replicas are replaced
//! one by one by this program, back again, and on again, while clients of both programs work.

mod asking;
mod crossing;
mod findings;
mod judge;
mod legs;
mod old_clients;
mod program;
mod rolling;
mod shell;

use std::ffi::OsString;
use std::path::PathBuf;

use trine_base::failure::Failure;
use trine_base::network::Network;
use trine_base::output::Output;

pub(super) use self::findings::Findings;
pub(super) use self::old_clients::{OldClients, OldSeen};
pub(super) use self::rolling::{Course, Rolling};

use self::asking::words_of_clients;
use self::legs::Leg;
use self::old_clients::Start;
use self::program::Pair;
use crate::schedule::Planned;
use crate::{ChaosArguments, OPERATION_LIMIT, clients};

/// What is fixed about an upgrade before it begins.
#[derive(Debug)]
pub(super) struct Upgrade {
    pub(super) pair: Pair,
    pub(super) schedule: Vec<Planned>,
    /// Whether restarted replicas are new ones, which take the state from others.
    pub(super) in_memory: bool,
}

impl Upgrade {
    /// What the arguments ask for, if they ask for an upgrade.
    ///
    /// # Errors
    /// The program of the earlier release cannot be used.
    pub(super) fn of<N: Network>(
        network: &N,
        arguments: &ChaosArguments,
    ) -> Result<Option<Self>, Failure> {
        let Some(path) = &arguments.upgrade_from else {
            return Ok(None);
        };
        if !network.is_ip() {
            return Err(Failure::usage(
                "--upgrade-from works over kernel UDP only",
                "leave --transport or --upgrade-from out",
            ));
        }
        Ok(Some(Self {
            pair: Pair::with(path)?,
            schedule: legs::draw(arguments),
            in_memory: arguments.log.directory().is_none(),
        }))
    }

    /// The program of all replicas at the beginning.
    pub(super) fn first_program(&self) -> PathBuf {
        self.pair.old.path.clone()
    }

    /// Arguments of all replicas. There is no way back after the switch to a newer state version, so no leader switches by
    /// itself.
    pub(super) fn serve_args() -> [OsString; 2] {
        ["--upgrade-after", "never"].map(OsString::from)
    }

    /// Starts clients of the earlier release.
    pub(super) fn start_clients<N: Network>(
        &self,
        network: &N,
        arguments: &ChaosArguments,
        peers: &str,
    ) -> Result<OldClients, Failure> {
        let limit = format!("{}s", OPERATION_LIMIT.as_secs());
        let shell = ["shell", "--json", "--timeout", &limit].map(OsString::from);
        let start = Start {
            program: self.pair.old.path.clone(),
            words: words_of_clients(network, shell, peers),
        };
        let first = clients::first_foreign_client(arguments);
        OldClients::start(&start, &clients::workload(arguments), arguments.seed, first)
    }

    /// Announces the plan.
    pub(super) fn tell(&self, output: Output) {
        let Pair { old, new } = &self.pair;
        output.line(format_args!("upgrade from {}", old.about));
        output.line(format_args!("          to {}", new.about));
        if self.pair.are_one_build() {
            output.line("both are the same build: this shows that replicas can be replaced, not that releases work together");
        }
        let replicas = self.schedule.len() / Leg::ALL.len();
        for (index, planned) in self.schedule.iter().enumerate() {
            let seconds = planned.at.as_nanos() as f64 / 1e9;
            let leg = Leg::of(index, replicas);
            output.line(format_args!("{seconds:>9.3} s  {leg}: {planned}"));
        }
    }
}
