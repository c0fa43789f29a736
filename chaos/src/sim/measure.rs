//! The simulations that measure how fast the simulator is: two loads that are the same on every machine. Their group is
//! as its users have it: in memory, of one version, with the replicas' and clients' own settings of sessions.

use super::callers::Pace;
use super::{Load, QUIET_MIN, SimConfig};
use crate::fault::Fault;
use crate::workload::Mix;
use std::collections::BTreeSet;
use trine_replica::ReplicaConfig;
use trine_transport::prng::Ratio;
use trine_transport::time::Duration;

/// Operations of the load without a fault.
const CALM_OPERATIONS: u64 = 200_000;

impl SimConfig {
    /// Three replicas, 2,000 operations a simulated second, and the faults that the seed draws.
    pub fn measured_with_faults(seed: u64) -> Self {
        let mut config = Self::measured(seed, Load::Measured);
        // Eight clients, one call each every 4 ms on average.
        config.pace.pause = Duration::from_millis(4);
        config.faults = None;
        config
    }

    /// Three replicas without a fault; the clients call as fast as they are answered.
    pub fn measured_without_faults(seed: u64) -> Self {
        let mut config = Self::measured(seed, Load::MeasuredCalm);
        config.pace.pause = Duration::from_nanos(2_000);
        // Half of a client's window: unjudged operations need room, too, and a refusal is no operation.
        config.pace.open_max = 32;
        // The same number of calls whatever the seed draws: sessions are so wide that a second holds a million of them.
        config.pace.rush = CALM_OPERATIONS;
        config.faults = Some(BTreeSet::<Fault>::new());
        (config.faulty, config.quiet) = (Duration::from_millis(100), QUIET_MIN);
        config.ask_for_less(CALM_OPERATIONS);
        config
    }

    fn measured(seed: u64, load: Load) -> Self {
        let mut config = Self::from_seed(seed);
        config.load = load;
        config.replicas = 3;
        (config.client_machines, config.clients_per_machine) = (2, 4);
        config.workload.keys = 10;
        config.workload.mix = Mix::FULL;
        config.workload.value_bytes = 16..=64;
        config.pace = Pace {
            open_max: 16,
            hasty: Ratio::ZERO,
            ..Pace::default()
        };
        config.forming = Duration::from_millis(1_500);
        config.replica = ReplicaConfig::default();
        config.disk = None;
        config.first_state_version = config.replica.state_version;
        config.sealed = false;
        config.small_paths = false;
        config.sets_back = false;
        config.watches = false;
        config.backups = false;
        config.moves = false;
        config.renumbers = false;
        config.ordered = None;
        config
    }
}
