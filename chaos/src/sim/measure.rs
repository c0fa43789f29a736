//! What is simulated to say how fast the simulator is: two loads that are the same on every machine.

use super::SimConfig;
use super::callers::Pace;
use crate::fault::Fault;
use crate::workload::Mix;
use std::collections::BTreeSet;
use trine_replica::ReplicaConfig;
use trine_transport::prng::Ratio;
use trine_transport::time::Duration;

impl SimConfig {
    /// Three replicas, 2,000 operations a simulated second, and whatever faults the seed draws.
    pub fn measured_with_faults(seed: u64) -> Self {
        let mut config = Self::measured(seed);
        // Eight clients, one call each every 4 ms on average.
        config.pace.pause = Duration::from_millis(4);
        config.faults = None;
        config
    }

    /// Three replicas without a fault; the clients call as fast as they are answered.
    pub fn measured_without_faults(seed: u64) -> Self {
        let mut config = Self::measured(seed);
        config.pace.pause = Duration::from_nanos(2_000);
        config.pace.open_max = 64;
        config.faults = Some(BTreeSet::<Fault>::new());
        (config.faulty, config.quiet) = (Duration::from_millis(100), Duration::from_secs(8));
        config
    }

    fn measured(seed: u64) -> Self {
        let mut config = Self::from_seed(seed);
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
        config
    }
}
