//! The coverage of many seeds together.

use std::collections::BTreeMap;
use std::fmt;

use super::SimReport;
use super::counted::counted;
use super::deaths::DeathCounts;
use crate::fault::Fault;

/// Sums over the reports of many seeds.
#[derive(Clone, Default, Debug)]
pub struct Summary {
    seeds: u64,
    simulated_ns: u64,
    operations: u64,
    unknown: u64,
    failovers: u64,
    deaths: DeathCounts,
    packets: u64,
    states_compared: u64,
    faults: BTreeMap<Fault, u64>,
    undecided_by_positions: u64,
    backups: u64,
    restored: u64,
}

impl Summary {
    /// Counts one report in.
    pub fn add(&mut self, report: &SimReport) {
        self.seeds += 1;
        self.simulated_ns += report.simulated.as_nanos();
        self.operations += report.tally.called;
        self.unknown += report.tally.unknown;
        self.failovers += report.failovers;
        self.deaths += report.deaths;
        self.packets += report.packets;
        self.states_compared += report.states_compared;
        for (fault, fired) in &report.faults {
            *self.faults.entry(*fault).or_default() += fired;
        }
        let judged = &report.linearizability;
        self.undecided_by_positions += judged.keys_by_zones + judged.keys_by_search;
        self.backups += report.backups.whole;
        self.restored += u64::from(report.backups.restored_operations > 0);
    }

    /// Simulated time of all runs, in nanoseconds.
    #[must_use]
    pub fn simulated_ns(&self) -> u64 {
        self.simulated_ns
    }

    /// Operations that clients called.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// Changes of the leader.
    #[must_use]
    pub fn failovers(&self) -> u64 {
        self.failovers
    }

    /// How often each fault fired.
    #[must_use]
    pub fn faults(&self) -> &BTreeMap<Fault, u64> {
        &self.faults
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.seeds == 0 {
            return Ok(());
        }
        let hours = self.simulated_ns as f64 / 3.6e12;
        writeln!(
            f,
            "{hours:.2} simulated hours, {} operations checked ({} of unknown outcome), {} failovers, {} packets, \
             {} states compared, {} keys that positions alone did not prove",
            self.operations,
            self.unknown,
            self.failovers,
            self.packets,
            self.states_compared,
            self.undecided_by_positions
        )?;
        if self.deaths.are_any() {
            writeln!(f, "{}", self.deaths)?;
        }
        if self.backups > 0 {
            let (backups, restored) = (self.backups, self.restored);
            writeln!(f, "{backups} backups, {restored} groups restored from one")?;
        }
        writeln!(f, "faults fired: {}", counted(&self.faults))
    }
}
