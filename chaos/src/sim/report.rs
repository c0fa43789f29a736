//! The result of a simulation.

use super::backups::BackupCounts;
use super::cluster::Cluster;
use super::config::{EXPIRY_LATE, OPERATION, RECOVERY, SimConfig};
use super::counted::counted;
use super::deaths::DeathCounts;
use super::plan::Plan;
use super::run::Report;
use super::watchers::WatchCounts;
use crate::checker::group_time::{GroupTime, Steady};
use crate::checker::{
    Verdict, counts, coverage, exactly_once, going_on, linearizability, liveness, positions,
};
use crate::fault::{DRIFT_PER_MILLION_MAX, Fault, KINDS_MIN, Schedule};
use crate::history::{History, Tally};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use trine_protocol::message::NodeId;
use trine_transport::time::{Duration, Instant};

/// The result of a simulation.
#[derive(Clone, Debug)]
pub struct SimReport {
    /// The seed.
    pub seed: u64,
    /// The settings that led to it.
    pub plan: Plan,
    /// The worst of all judgements.
    pub verdict: Verdict,
    /// The hash of the history: the same seed at the same commit has the same.
    pub hash: u64,
    /// The history.
    pub history: History,
    /// Its operations by outcome.
    pub tally: Tally,
    /// How linearizability was decided.
    pub linearizability: linearizability::LinearizabilityReport,
    /// How often each enabled fault fired.
    pub faults: BTreeMap<Fault, u64>,
    /// It was told to end before its time: anything it has not shown by then is not shown.
    pub ended_early: bool,
    /// Changes of the leader.
    pub failovers: u64,
    /// Notices of the end of a process.
    pub deaths: DeathCounts,
    /// Simulated time.
    pub simulated: Duration,
    /// Wire packets sent.
    pub packets: u64,
    /// Turns of event loops.
    pub turns: u64,
    /// States that were seen on more than one replica, and agreed.
    pub states_compared: u64,
    /// Log entries that were seen applied on more than one replica, and agreed.
    pub entries_compared: u64,
    /// Calls of users with keys of their own: those that were answered, and those that were denied.
    pub users_calls: (u64, u64),
    /// Copies of writes that were answered after another copy.
    pub writes_repeated: u64,
    /// Answered counts of ranges.
    pub ranges_counted: u64,
    /// What watchers were told.
    pub watched: WatchCounts,
    /// Backups, and the group that was restored from the last of them.
    pub backups: BackupCounts,
}

impl SimReport {
    /// Judges a run that is over. `reread_from` is when the last reading of all keys began.
    // Long because each judgement and each figure has a line.
    pub(crate) fn of(
        cluster: &Cluster,
        schedule: &Schedule,
        started: Instant,
        silent_from: Instant,
        reread_from: Instant,
    ) -> Self {
        let config = &cluster.config;
        let history = cluster.history.take();
        let log = cluster.log.borrow();
        let states_compared = log.stores.observed() + log.states.observed();
        let simulated = cluster.world.now().saturating_since(started);
        let packets = cluster.world.network.stats.packets_sent;
        let turns = cluster.world.stats.turns;
        let machines = config.topology().machines();
        let entries_compared = log.entries.observed();
        let users_calls = cluster.users_calls();
        let time = group_time(cluster, schedule);
        let linearizability = linearizability::check_timed(&history, config.limits, &time);
        let fired = &cluster.world.network.stats.fired;
        let faults: BTreeMap<Fault, u64> = schedule
            .enabled
            .iter()
            .map(|fault| (*fault, fired.get(fault).copied().unwrap_or(0)))
            .collect();
        let safety = linearizability
            .verdict
            .clone()
            .and(exactly_once::check(&history))
            .and(positions::check(&history))
            .and(counts::check(&history, &cluster.counts.borrow()))
            .and(log.entries.verdict())
            .and(log.stores.verdict())
            .and(log.states.verdict())
            .and(cluster.repeated.borrow().verdict())
            .and(cluster.world.opened_once())
            .and(cluster.world.datagrams_fitted())
            .and(cluster.death_verdict())
            .and(cluster.seat_verdict())
            .and(cluster.place_verdict())
            .and(cluster.copy_verdict())
            .and(cluster.set_back_verdict())
            .and(cluster.sweep_verdict())
            .and(cluster.trust_verdict())
            .and(cluster.watch_verdict(schedule.quiet_from, silent_from))
            .and(cluster.backup_verdict())
            .and(cluster.upgrade_verdict())
            .and(going_on::check(&history, cluster.hangs.spans()))
            .and(nobody_spins(turns, packets, machines, simulated));
        let whole_run = || {
            states_were_compared(states_compared.min(entries_compared))
                .and(everybody_votes(&cluster.nodes_without_vote()))
                .and(everybody_follows(&cluster.nodes_left_behind()))
                .and(liveness::check(&history, &bound(schedule, silent_from)))
                .and(coverage::check(
                    &history,
                    &required(cluster, &faults, simulated, reread_from),
                ))
        };
        let verdict = safety.and(match cluster.ended_early {
            true => ended_early(simulated),
            false => whole_run(),
        });
        Self {
            seed: config.seed,
            plan: Plan::of(config),
            verdict,
            hash: history.hash(),
            tally: history.tally(),
            linearizability,
            faults,
            ended_early: cluster.ended_early,
            failovers: cluster.leaders.failovers.len() as u64,
            deaths: cluster.death_counts(),
            simulated,
            packets,
            turns,
            states_compared,
            entries_compared,
            users_calls,
            writes_repeated: cluster.repeated.borrow().repeats(),
            ranges_counted: cluster.counts.borrow().len() as u64,
            watched: cluster.watch_counts(),
            backups: cluster.backup_counts(),
            history,
        }
    }

    /// A run in which the system under test, or the simulator, panicked. The counts of faults died with it, so the
    /// report lists the planned faults without a count.
    pub(crate) fn of_panic(config: &SimConfig, asked: &BTreeSet<Fault>, message: &str) -> Self {
        let history = History::new();
        Self {
            seed: config.seed,
            plan: Plan::of(config),
            verdict: Verdict::violation(format!("panic: {message}")),
            hash: history.hash(),
            tally: history.tally(),
            linearizability: linearizability::check(&history),
            faults: asked.iter().map(|&fault| (fault, 0)).collect(),
            ended_early: false,
            failovers: 0,
            deaths: DeathCounts::default(),
            simulated: Duration::ZERO,
            packets: 0,
            turns: 0,
            states_compared: 0,
            entries_compared: 0,
            users_calls: (0, 0),
            writes_repeated: 0,
            ranges_counted: 0,
            watched: WatchCounts::default(),
            backups: BackupCounts::default(),
            history,
        }
    }
}

impl SimReport {
    fn write_backups(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BackupCounts {
            whole,
            of_followers,
            resumed,
            begun_again,
            failed,
            restored_operations,
        } = self.backups;
        if whole + failed == 0 {
            return Ok(());
        }
        writeln!(
            f,
            "backups: {whole} whole ({of_followers} from followers), {resumed} times gone on with, {begun_again} begun again, {failed} failed; \
             {restored_operations} operations of a group restored from the last one"
        )
    }
}

impl Report for SimReport {
    fn seed(&self) -> u64 {
        self.seed
    }

    fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    fn hash(&self) -> u64 {
        self.hash
    }

    fn faults(&self) -> &BTreeMap<Fault, u64> {
        &self.faults
    }

    fn ended_early(&self) -> bool {
        self.ended_early
    }

    fn replay_command(&self) -> String {
        self.plan.command()
    }
}

pub(super) fn ended_early(simulated: Duration) -> Verdict {
    Verdict::Undecided {
        reason: format!(
            "interrupted after {} simulated ms: what happened until then breaks nothing",
            simulated.as_nanos() / 1_000_000
        ),
    }
}

fn states_were_compared(compared: u64) -> Verdict {
    if compared > 0 {
        return Verdict::Pass;
    }
    Verdict::violation("nothing proved: no two replicas were ever seen at the same index")
}

/// A group that has recovered from all faults is whole again. A lost answer that no client asks for again shows only
/// here.
fn everybody_votes(without: &[NodeId]) -> Verdict {
    if without.is_empty() {
        return Verdict::Pass;
    }
    let node_ids: Vec<String> = without.iter().map(NodeId::to_string).collect();
    Verdict::violation(format!(
        "not whole again behind all faults: at the end no running replica votes for node {}",
        node_ids.join(", ")
    ))
}

/// Behind all faults the leader reaches every replica, and not only a majority: also one that has moved.
fn everybody_follows(behind: &[NodeId]) -> Verdict {
    if behind.is_empty() {
        return Verdict::Pass;
    }
    let node_ids: Vec<String> = behind.iter().map(NodeId::to_string).collect();
    Verdict::violation(format!(
        "a replica that runs does not follow the leader behind all faults: node {}",
        node_ids.join(", ")
    ))
}

/// Turns that an event loop may make without a packet, a second: its timers, and calls.
const IDLE_TURNS_PER_SECOND: u64 = 2_000;
/// Turns for each packet that was sent.
const TURNS_PER_PACKET: u64 = 3;

/// A program that names a deadline which has passed, and then does nothing about it, is turned as fast as its machine
/// goes. Clients did so while they could not connect to the replica that they took for the leader.
fn nobody_spins(turns: u64, packets: u64, machines: usize, simulated: Duration) -> Verdict {
    let seconds = simulated.as_nanos().div_ceil(1_000_000_000);
    let most = packets * TURNS_PER_PACKET + machines as u64 * seconds * IDLE_TURNS_PER_SECOND;
    if turns <= most {
        return Verdict::Pass;
    }
    Verdict::violation(format!(
        "an event loop spins: {turns} turns for {packets} packets in {seconds} s, at most {most} are plausible"
    ))
}

/// Events at one moment are recorded some nanoseconds apart.
const ROUNDING_NS: u64 = 10_000;

/// Group time runs with the leader's clock, and steadily once the group has recovered.
fn group_time(cluster: &Cluster, schedule: &Schedule) -> GroupTime {
    let drifts = schedule.enabled.contains(&Fault::Drift);
    GroupTime {
        drift_per_million: if drifts { DRIFT_PER_MILLION_MAX } else { 0 },
        jumps_ns: cluster.jumps_ns.clone(),
        rounding_ns: ROUNDING_NS,
        steady: Some(Steady {
            from_ns: (schedule.quiet_from + RECOVERY).as_nanos(),
            late_ns: EXPIRY_LATE.as_nanos(),
        }),
    }
}

fn bound(schedule: &Schedule, silent_from: Instant) -> liveness::Bound {
    liveness::Bound {
        healed_at_ns: schedule.quiet_from.as_nanos(),
        recovery_ns: RECOVERY.as_nanos(),
        ended_at_ns: silent_from.as_nanos(),
        operation_ns: OPERATION.as_nanos(),
    }
}

/// Faults that were asked for by name must all have fired; of a drawn subset some must have.
fn required(
    cluster: &Cluster,
    faults: &BTreeMap<Fault, u64>,
    simulated: Duration,
    reread_from: Instant,
) -> coverage::Required {
    let config = &cluster.config;
    let by_name = config.faults.is_some() || config.script.is_some();
    let counted = faults.iter().filter(|(_, fired)| by_name || **fired > 0);
    let kinds_min = match by_name {
        true => faults.len(),
        // The time of a restored group is too short for each of its faults.
        false if cluster.is_restored => 0,
        false => KINDS_MIN,
    };
    coverage::Required {
        completed_operations: config.operations_min,
        passed_ns: simulated.as_nanos(),
        least_ns: config.simulated_min.as_nanos(),
        faults_fired: counted
            .map(|(fault, fired)| (fault.to_string(), *fired))
            .collect(),
        fault_kinds: kinds_min as u64,
        failovers_ns: Vec::new(),
        reread_from_ns: Some(reread_from.as_nanos()),
    }
}

impl fmt::Display for SimReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tally = &self.tally;
        writeln!(
            f,
            "seed {}: {} s simulated, {} operations ({} answered, {} unknown, {} without effect), {} failovers, {} packets, {} turns, history {:016x}",
            self.seed,
            self.simulated.as_nanos() / 1_000_000_000,
            tally.called,
            tally.completed,
            tally.unknown,
            tally.failed,
            self.failovers,
            self.packets,
            self.turns,
            self.hash
        )?;
        writeln!(f, "faults: {}", counted(&self.faults))?;
        writeln!(
            f,
            "keys decided by positions {}, by zones {}, by search {}; compared {} states and {} log entries",
            self.linearizability.keys_by_witness,
            self.linearizability.keys_by_zones,
            self.linearizability.keys_by_search,
            self.states_compared,
            self.entries_compared
        )?;
        if self.users_calls != (0, 0) {
            let (answered, denied) = self.users_calls;
            writeln!(f, "calls of users: {answered} answered, {denied} denied")?;
        }
        if self.writes_repeated > 0 {
            writeln!(f, "writes repeated: {}", self.writes_repeated)?;
        }
        if self.ranges_counted > 0 {
            writeln!(f, "ranges counted: {}", self.ranges_counted)?;
        }
        if self.watched.streams > 0 {
            let WatchCounts {
                streams,
                events,
                compacted,
                moves,
            } = self.watched;
            writeln!(
                f,
                "watches: {streams} streams, {events} events, {moves} moves, {compacted} ends for want of history"
            )?;
        }
        if self.deaths.are_any() {
            writeln!(f, "{}", self.deaths)?;
        }
        self.write_backups(f)?;
        write!(f, "{}", self.verdict)?;
        match &self.verdict {
            Verdict::Pass => Ok(()),
            // The user who interrupted it knows how it began, and there is nothing to see again.
            Verdict::Undecided { .. } if self.ended_early => Ok(()),
            _ => write!(f, "\nreplay with: {}", self.replay_command()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seed 8 before and after clients stopped to spin.
    #[test]
    fn a_loop_that_spins_is_told_from_one_that_works() {
        let minute = Duration::from_secs(60);
        assert!(!nobody_spins(1_936_387, 58_654, 5, minute).is_pass());
        assert!(nobody_spins(124_972, 58_595, 5, minute).is_pass());
    }
}
