//! The options that `serve` and `up` share about a replica: limits, reads, timing, and the number of replicas.

use std::ffi::OsString;
use std::fmt;
use std::time::Duration;

use clap::ArgAction;
use clap::Args;
use clap::ValueEnum;

use trine_base::announce::note;
use trine_base::failure::Failure;
use trine_base::placement;
use trine_base::units::parse_bytes;
use trine_base::units::parse_duration;
use trine_base::units::parse_positive_duration;
use trine_base::units::parse_store_bytes;
use trine_replica::config::WATCH_HISTORY_BYTES_MIN;

/// The longest history that can be asked for.
const WATCH_HISTORY_BYTES_LIMIT: u64 = 64 << 30;
/// The default size limit of a group's store.
const STORE_BYTES: &str = "1GiB";

/// The limits that a new group gets; they are part of its replicated state.
#[derive(Clone, Debug, Args)]
pub struct LimitArguments {
    /// Maximum size of the group's keys and values (applied by the bootstrapping replica; `trine config set memory`
    /// changes it later).
    #[arg(long, default_value = STORE_BYTES, value_name = "SIZE", value_parser = parse_store_bytes)]
    pub memory: u64,
    /// Create the new group with an ordered index of its keys, for `trine scan` and other range commands (applied by
    /// the bootstrapping replica; `trine config set ordered` changes it later). It adds at least 32 bytes per key to
    /// what counts towards the memory limit.
    #[arg(long)]
    pub ordered: bool,
    /// How long a replica polls for packets before it sleeps.
    #[arg(long, default_value = "50us", value_name = "TIME", value_parser = parse_duration)]
    pub spin: Duration,
}

impl LimitArguments {
    /// The same limits, as options of `trine serve`.
    pub fn as_serve_args(&self) -> Vec<OsString> {
        let spin = format!("{}ns", self.spin.as_nanos());
        let mut arguments: Vec<OsString> = vec![
            "--memory".into(),
            self.memory.to_string().into(),
            "--spin".into(),
            spin.into(),
        ];
        if self.ordered {
            arguments.push("--ordered".into());
        }
        arguments
    }
}

impl LimitArguments {
    /// Whether the machine and the control group have the memory that these replicas may need. A size above the default is
    /// refused if they have not. Up to the default it is said: a small machine can also serve a small group, because memory
    /// is taken as the store fills.
    ///
    /// # Errors
    /// Says which limit the size exceeds.
    pub fn require_memory(&self, replicas: u64) -> Result<(), Failure> {
        let fits = placement::require_memory(self.memory, replicas);
        match fits {
            Err(failure) if self.memory <= default_store_bytes() => {
                note(format_args!(
                    "WARNING: {}. Memory is taken as the store fills, and a replica that needs more than there is ends \
                     without a chance to say so; give --memory less, or it more room",
                    failure.message()
                ));
                Ok(())
            }
            fits => fits,
        }
    }
}

/// The size limit of a store without `--memory`.
#[must_use]
pub fn default_store_bytes() -> u64 {
    parse_store_bytes(STORE_BYTES).expect("the default is a size")
}

/// How a replica answers linearizable reads while it leads.
#[derive(Clone, Debug, Args)]
pub struct ReadArguments {
    /// How linearizable reads are confirmed. Each leader uses its own setting, so give all replicas the same.
    #[arg(long, default_value = "index", value_enum)]
    pub reads: Reads,
    /// With --reads lease: how far two replicas' clocks may drift apart during one election timeout. If they drift
    /// further, a read may be stale.
    #[arg(long, default_value = "10ms", value_name = "TIME", value_parser = parse_duration)]
    pub lease_drift: Duration,
    /// Memory for the latest changes, from which `trine watch` is served: 0, or at least 1MiB. With 0, clients cannot
    /// watch keys at this replica. With a larger history, a watch can resume after a longer absence.
    #[arg(long, default_value = "16MiB", value_name = "SIZE", value_parser = parse_history)]
    pub watch_history: u64,
    /// How long all members must run a newer release before the group switches to its state version: at once with 0,
    /// and only at `trine upgrade finish` with never. Until the switch, you can go back to the older release. Each
    /// leader uses its own setting and clock.
    #[arg(long, default_value = "24h", value_name = "TIME", value_parser = parse_upgrade_after)]
    pub upgrade_after: UpgradeAfter,
    /// Memory for overwritten and deleted items that running scans still need: 0, or at least 1MiB. By default 64MiB,
    /// or half the size of the items if that is more. Beyond the limit, this replica drops its oldest snapshot, and
    /// scans resume on another replica.
    #[arg(long, value_name = "SIZE", value_parser = parse_retained)]
    pub retain_bytes: Option<u64>,
}

/// How linearizable reads are confirmed.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum Reads {
    /// The leader asks a majority, once for all waiting reads; needs no assumption about clocks.
    Index,
    /// The leader answers alone while a majority has promised to elect no other replica; relies on --lease-drift.
    Lease,
}

/// How long all members have to understand a newer state-machine version before a leader switches to it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct UpgradeAfter(
    /// None: only an operator switches.
    pub Option<Duration>,
);

impl fmt::Display for UpgradeAfter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(after) => write!(formatter, "{}ns", after.as_nanos()),
            None => formatter.write_str(NEVER),
        }
    }
}

const NEVER: &str = "never";

fn parse_upgrade_after(text: &str) -> Result<UpgradeAfter, String> {
    if text == NEVER {
        return Ok(UpgradeAfter(None));
    }
    let after = parse_duration(text).map_err(|why| format!("{why}; or write never"))?;
    Ok(UpgradeAfter(Some(after)))
}

impl ReadArguments {
    /// The same settings, as options of `trine serve`.
    pub fn as_serve_args(&self) -> Vec<OsString> {
        let reads = match self.reads {
            Reads::Index => "index",
            Reads::Lease => "lease",
        };
        let drift = format!("{}ns", self.lease_drift.as_nanos());
        let (history, after) = (
            self.watch_history.to_string(),
            self.upgrade_after.to_string(),
        );
        let options = ["--reads", reads, "--lease-drift", &drift];
        let retained = self.retain_bytes.map(|bytes| bytes.to_string());
        let retained = retained.iter().flat_map(|bytes| ["--retain-bytes", bytes]);
        let options = options.into_iter().chain(["--watch-history", &history]);
        let options = options.chain(["--upgrade-after", &after]);
        options.chain(retained).map(OsString::from).collect()
    }
}

/// Room for the largest events, and no more than a machine has.
fn parse_history(text: &str) -> Result<u64, String> {
    const LEAST: u64 = WATCH_HISTORY_BYTES_MIN as u64;
    match parse_bytes(text)? {
        bytes @ (0 | LEAST..=WATCH_HISTORY_BYTES_LIMIT) => Ok(bytes),
        _ => Err("0, or at least 1MiB and at most 64GiB".to_owned()),
    }
}

/// A limit that a single value passes would end every scan of several pages.
fn parse_retained(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        bytes @ (0 | 0x10_0000..) => Ok(bytes),
        _ => Err("0, or at least 1MiB".to_owned()),
    }
}

/// The election timeout, and the watchdog.
#[derive(Clone, Debug, Args)]
pub struct TimingArguments {
    /// Minimum silence of a leader before another one is elected. Each replica waits up to half as long again, and also
    /// for twice the longest gap between the leader's messages of the last seconds. A shorter timeout means faster
    /// failover and more false alarms. The value is fixed when the group is created: a replica with a shorter one uses
    /// the group's.
    #[arg(long, default_value = "120ms", value_name = "TIME", value_parser = parse_election_timeout)]
    pub election_timeout: Duration,
    /// Run a watchdog process for each replica, which notifies the other replicas as soon as the replica dies. They
    /// then elect another leader at once. Without it, and when the whole machine fails, they wait for
    /// --election-timeout. Only over UDP.
    #[arg(long, default_value_t = true, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub death_notice: bool,
}

impl TimingArguments {
    /// The same settings, as options of `trine serve`.
    pub fn as_serve_args(&self) -> Vec<OsString> {
        let timeout = format!("{}ns", self.election_timeout.as_nanos());
        let death_notice = format!("--death-notice={}", self.death_notice);
        let timeout = ["--election-timeout".into(), timeout.into()];
        timeout.into_iter().chain([death_notice.into()]).collect()
    }
}

/// The minimum is 3 ms. Below it a tick would be shorter than a thread's wait for its turn.
fn parse_election_timeout(text: &str) -> Result<Duration, String> {
    let timeout = parse_positive_duration(text)?;
    if (Duration::from_millis(3)..=Duration::from_secs(60)).contains(&timeout) {
        Ok(timeout)
    } else {
        Err("at least 3ms and at most 60s".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine of 2 GiB once refused three replicas of the default size, 1 GiB, although the user had not asked for a
    /// size.
    #[test]
    fn the_default_starts_on_every_machine() {
        let limits = |memory| LimitArguments {
            memory,
            ordered: false,
            spin: Duration::ZERO,
        };
        let default = default_store_bytes();
        assert!(limits(default).require_memory(u64::MAX).is_ok());
        let failure = limits(default + 1).require_memory(u64::MAX);
        assert_eq!(failure.expect_err("refused").exit_status(), 2);
    }
}
