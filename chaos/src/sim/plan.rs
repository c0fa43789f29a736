//! The command that replays a run: every input of a run, as the options of `trine sim`.

use super::config::{Load, SimConfig, SimConfigError};
use crate::fault::{Fault, FaultSet, Need};
use std::fmt::Write as _;
use trine_kvstore::command::STATE_VERSION_FIRST;
use trine_replica::config::ReadMode;
use trine_transport::time::Duration;

/// The settings of `trine sim` for one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// The load that is measured, instead of the one that the seed draws.
    pub measured: bool,
    /// The kinds of fault, instead of those that the seed draws.
    pub faults: Option<FaultSet>,
    /// Machines that clients run on.
    pub client_machines: Option<usize>,
    /// Clients on each of them.
    pub clients_per_machine: Option<usize>,
    /// Simulated time in which faults happen.
    pub faulty: Option<Duration>,
    /// Packets are sealed, whatever the seed draws.
    pub sealed: bool,
}

impl Plan {
    /// The run as planned.
    ///
    /// # Errors
    /// When the faults exclude each other, or a number is out of its range.
    pub fn config(&self) -> Result<SimConfig, SimConfigError> {
        let mut config = SimConfig::of(self.load(), self.seed);
        config.sealed |= self.sealed;
        if let Some(FaultSet(faults)) = &self.faults {
            config.make_room_for(faults)?;
            config.faults = Some(faults.clone());
        }
        let made_smaller = [self.client_machines, self.clients_per_machine] != [None, None]
            || self.faulty.is_some();
        if made_smaller {
            config.ask_for_less(1);
        }
        config.client_machines = self.client_machines.unwrap_or(config.client_machines);
        config.clients_per_machine = self
            .clients_per_machine
            .unwrap_or(config.clients_per_machine);
        config.faulty = self.faulty.unwrap_or(config.faulty);
        config.validate()?;
        Ok(config)
    }

    fn load(&self) -> Load {
        let calm = self
            .faults
            .as_ref()
            .is_some_and(|faults| faults.0.is_empty());
        match (self.measured, calm) {
            (false, _) => Load::Drawn,
            (true, false) => Load::Measured,
            (true, true) => Load::MeasuredCalm,
        }
    }

    /// The plan that leads to `config`, if no other setting of it was changed.
    pub(super) fn of(config: &SimConfig) -> Self {
        let usual = SimConfig::of(config.load, config.seed);
        let named = config.faults != usual.faults || config.load == Load::MeasuredCalm;
        let mut asked = config.faults.iter().flatten();
        let asks_for_keys = asked.any(|fault| fault.needs(Need::Sealed));
        let changed = |now: usize, before: usize| (now != before).then_some(now);
        Self {
            seed: config.seed,
            measured: config.load != Load::Drawn,
            faults: config.faults.clone().filter(|_| named).map(FaultSet),
            client_machines: changed(config.client_machines, usual.client_machines),
            clients_per_machine: changed(config.clients_per_machine, usual.clients_per_machine),
            faulty: (config.faulty != usual.faulty).then_some(config.faulty),
            sealed: config.sealed && !usual.sealed && !asks_for_keys,
        }
    }

    /// The command that simulates it and prints its events.
    pub fn command(&self) -> String {
        let mut command = format!("cargo run --profile sim -- sim --seed {}", self.seed);
        let mut option = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                // Writing into a string cannot fail.
                let _ = write!(command, " --{name} {value}");
            }
        };
        option("faults", self.faults.as_ref().map(ToString::to_string));
        option(
            "client-machines",
            self.client_machines.map(|n| n.to_string()),
        );
        option("clients", self.clients_per_machine.map(|n| n.to_string()));
        let nanos = self.faulty.map(Duration::as_nanos);
        option("faulty", nanos.map(|ns| format!("{ns}ns")));
        if self.measured {
            command.push_str(" --measure");
        }
        if self.sealed {
            command.push_str(" --sealed");
        }
        command + " --trace"
    }
}

impl SimConfig {
    /// The run of a seed under a load.
    pub fn of(load: Load, seed: u64) -> Self {
        match load {
            Load::Drawn => Self::from_seed(seed),
            Load::Measured => Self::measured_with_faults(seed),
            Load::MeasuredCalm => Self::measured_without_faults(seed),
        }
    }

    /// Changes the group so that the faults can happen in it.
    fn make_room_for<'a>(
        &mut self,
        faults: impl IntoIterator<Item = &'a Fault> + Copy,
    ) -> Result<(), SimConfigError> {
        let asked = |need| faults.into_iter().copied().find(|fault| fault.needs(need));
        match (asked(Need::Disk), asked(Need::Memory)) {
            (Some(other), Some(fault)) => return Err(SimConfigError::Exclude { fault, other }),
            (Some(_), None) => self.put_on_disk(),
            (None, Some(_)) => self.disk = None,
            (None, None) => {}
        }
        if asked(Need::Syncs).is_some() {
            self.sync_disks();
        }
        if asked(Need::OldVersion).is_some() && !self.mixes_versions() {
            self.first_state_version = STATE_VERSION_FIRST;
            (self.ordered, self.replica.ordered) = (None, false);
            self.workload.mix = crate::workload::Mix::BASIC;
        }
        if asked(Need::Sealed).is_some() {
            self.sealed = true;
        }
        self.small_paths |= asked(Need::SmallPaths).is_some();
        if faults.into_iter().any(|fault| *fault == Fault::Users)
            && asked(Need::OldVersion).is_none()
        {
            // Old versions know no users, and without deaths the group never switches.
            self.first_state_version = self.replica.state_version;
        }
        if asked(Need::Spares).is_some() {
            (self.moves, self.backups) = (true, false);
        }
        if asked(Need::NewAddresses).is_some() {
            self.renumbers = true;
            (self.backups, self.watches, self.sealed) = (false, false, false);
        }
        if asked(Need::SetBack).is_some() {
            (self.sets_back, self.backups) = (true, false);
        }
        if asked(Need::IndexReads).is_some() {
            self.replica.reads = ReadMode::Index;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{Report as _, Trace, run};

    /// Settings have no equality of their own; everything in them is printed.
    fn text(config: &SimConfig) -> String {
        format!("{config:?}")
    }

    fn faults(names: &str) -> Option<FaultSet> {
        Some(names.parse().unwrap())
    }

    /// The command for a run of `sim --measure` named the run of the seed without `--measure`: another load, and a pass.
    #[test]
    fn every_plan_is_found_again_in_the_configuration_it_leads_to() {
        for seed in 1..40 {
            for measured in [false, true] {
                for named in [None, faults("none"), faults("loss"), faults("members,jump")] {
                    for clients in [None, Some(5)] {
                        let plan = Plan {
                            seed,
                            measured,
                            faults: named.clone(),
                            client_machines: clients,
                            faulty: clients.map(|_| Duration::from_millis(1_500)),
                            sealed: !measured
                                && seed % 2 == 0
                                && !SimConfig::from_seed(seed).sealed,
                            ..Plan::default()
                        };
                        let config = plan.config().unwrap();
                        assert_eq!(Plan::of(&config), plan);
                        assert_eq!(text(&Plan::of(&config).config().unwrap()), text(&config));
                    }
                }
            }
        }
    }

    #[test]
    fn faults_that_need_a_disk_or_another_version_get_one() {
        let of = |seed, names| {
            let plan = Plan {
                seed,
                faults: faults(names),
                ..Plan::default()
            };
            plan.config()
        };
        for seed in 1..20 {
            assert!(of(seed, "disk-full").unwrap().disk.is_some());
            assert!(of(seed, "versions").unwrap().mixes_versions());
            assert_eq!(of(seed, "jump").unwrap().replica.reads, ReadMode::Index);
            assert!(of(seed, "forged").unwrap().sealed);
        }
        let refused = of(1, "members,disk-full").unwrap_err().to_string();
        assert!(
            refused.contains("`members`") && refused.contains("`disk-full`"),
            "{refused}"
        );
    }

    #[test]
    fn a_plan_that_is_run_twice_gives_one_history() {
        let plan = Plan {
            seed: 4,
            faults: faults("loss,pause"),
            faulty: Some(Duration::from_secs(3)),
            clients_per_machine: Some(1),
            ..Plan::default()
        };
        let report = run(plan.config().unwrap(), Trace::Off).unwrap();
        assert_eq!(report.plan, plan);
        let again = run(report.plan.config().unwrap(), Trace::Off).unwrap();
        assert_eq!(report.hash, again.hash);
        assert!(report.replay_command().ends_with(
            "sim --seed 4 --faults loss,pause --clients 1 --faulty 3000000000ns --trace"
        ));
    }
}
