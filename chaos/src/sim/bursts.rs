//! Bursts of keys that expire together, in a part of the seeds: far more than one log entry removes. No checker judges the
//! calls. The replicas have to stay alike, and a leader must not rest while expired keys are left.

use super::Host;
use trine_client::{ClientId, Clients, Mode, Submission};
use trine_kvstore::{Command, ExecuteMode, List, SetExpiry, SetOptions};
use trine_replica::Replica;
use trine_transport::prng::Prng;
use trine_transport::time::{Duration, Instant};

/// Tags of their calls have this bit.
const BURST_TAG: u64 = 1 << 57;
/// Keys of a burst. An entry removes 500 where nothing measures what that costs.
const KEYS: std::ops::RangeInclusive<u64> = 600..=4_000;
/// Keys that one command writes.
const KEYS_AT_ONCE: usize = 500;
/// How long they live, in milliseconds.
const LIVE_MS: std::ops::RangeInclusive<u64> = 5..=1_500;
/// Pause between two bursts of a machine, in milliseconds.
const PAUSE_MS: std::ops::RangeInclusive<u64> = 1_000..=6_000;
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a leader may rest that could go on with the sweep. Without client's writes its usual entries for the time
/// alone are at least 10 ms apart.
const REST_MAX: Duration = Duration::from_millis(5);

/// One seed of five has them, if nothing else is drawn that looks at all keys.
pub(crate) fn is_drawn(seed: u64) -> bool {
    Prng::new(seed ^ 0x0b02_57e5_0b02_57e5).below(5) == 0
}

/// Whether the replicas of such a seed begin with the version that knows no numbers of sweeps.
pub(crate) fn begins_without_numbers(seed: u64) -> bool {
    Prng::new(seed ^ 0x0b02_57e6_0b02_57e6).below(3) == 0
}

/// The bursts of one machine.
pub(crate) struct Bursts {
    prng: Prng,
    next: Instant,
}

impl Bursts {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            prng: Prng::new(seed ^ 0xb0_0057),
            next: Instant::ZERO,
        }
    }

    /// Whether an operation with this tag is one of these.
    pub(crate) fn owns(tag: u64) -> bool {
        tag & BURST_TAG != 0
    }

    /// Writes a burst now and then.
    pub(crate) fn call(
        &mut self,
        clients: &mut Clients<Host>,
        id: ClientId,
        now: Instant,
        simulated: Instant,
    ) {
        if simulated < self.next {
            return;
        }
        self.next = simulated + Duration::from_millis(self.prng.in_range(PAUSE_MS));
        let options = SetOptions {
            expiry: SetExpiry::After(self.prng.in_range(LIVE_MS) * 1_000_000),
            ..SetOptions::default()
        };
        let count = self.prng.in_range(KEYS);
        let keys: Vec<String> = (0..count).map(|number| format!("e{number}")).collect();
        for (number, keys) in keys.chunks(KEYS_AT_ONCE).enumerate() {
            let set = |key: &String| {
                let key = key.clone().into_bytes();
                (key, options)
            };
            let owned: Vec<_> = keys.iter().map(set).collect();
            let operations: Vec<Command<'_>> = owned
                .iter()
                .map(|(key, options)| Command::Set {
                    key,
                    value: b"",
                    options: *options,
                })
                .collect();
            let command = Command::Execute {
                mode: ExecuteMode::AllOrNothing,
                conditions: List::default(),
                operations: List::from(operations.as_slice()),
            };
            let submission = Submission {
                mode: Mode::Write,
                command: &command,
                deadline: Some(now + PATIENCE),
                tag: BURST_TAG | number as u64,
            };
            // A full window refuses it; there will be others.
            let _ = clients.submit(now, id, submission);
        }
    }
}

/// Does a leader rest although expired keys are left?
#[derive(Default)]
pub(crate) struct SweepLedger {
    pub(crate) finding: Option<String>,
}

/// Since when, and after which entry, a replica rests that could go on with the sweep.
#[derive(Default)]
pub(crate) struct Rest(Option<(u64, Instant)>);

impl Rest {
    /// Looks at a replica after a turn of its.
    pub(crate) fn look(&mut self, replica: &Replica, simulated: Instant, ledger: &mut SweepLedger) {
        let Some(index) = replica.rests_behind_sweep() else {
            self.0 = None;
            return;
        };
        let (since_index, since) = *self.0.get_or_insert((index, simulated));
        if since_index != index {
            self.0 = Some((index, simulated));
            return;
        }
        let rested = simulated.saturating_since(since);
        if rested >= REST_MAX {
            let incarnation = replica.incarnation().0;
            ledger.finding.get_or_insert_with(|| {
                format!(
                    "sweep: replica {incarnation:x} leads, has expired keys left after index {index}, and proposes nothing for {rested:?}"
                )
            });
        }
    }
}
