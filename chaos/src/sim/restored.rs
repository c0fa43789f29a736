//! Behind the run of a group with backups: all its replicas die, and another group begins with the last backup. It has clients
//! and faults of its own, and is judged like the first one.

use super::chaos::Chaos;
use super::cluster::{Cluster, OldLife};
use super::config::SimConfig;
use super::report::SimReport;
use super::{READING, draw_faults};
use crate::checker::Verdict;
use crate::fault::{Fault, Need, Schedule};
use std::collections::BTreeSet;
use trine_transport::time::Duration;

/// How long the clients of the old group call once more, so that some of their calls are open when it dies.
const LAST_CALLS: Duration = Duration::from_millis(400);
/// How long the first replica may take to take the others in, while nothing goes wrong.
const FORMING_MAX: Duration = Duration::from_secs(20);
const FORMING_STEP: Duration = Duration::from_millis(100);
/// Simulated time in which faults happen.
const FAULTY: Duration = Duration::from_secs(8);
/// Fewest operations that must complete.
const OPERATIONS_MIN: u64 = 100;

/// Goes on with a run that has passed, if it has a backup. The result is that of both groups.
pub(super) fn go_on(mut cluster: Cluster, mut report: SimReport) -> SimReport {
    let Some(file) = cluster.last_backup() else {
        return report;
    };
    if !report.verdict.is_pass() {
        return report;
    }
    cluster.resume_callers(&report.history);
    let died_at = cluster.world.now() + LAST_CALLS;
    Chaos::of_cluster().run_until(&mut cluster, died_at);
    match cluster.restored(&file) {
        Ok((cluster, old)) => add(&mut report, run(cluster, &old)),
        Err(wrong) => report.verdict = Verdict::violation(format!("restore: {wrong}")),
    }
    report
}

/// Runs a group that begins with a backup.
fn run(mut cluster: Cluster, old: &OldLife) -> SimReport {
    let mut chaos = Chaos::of_cluster();
    let started = cluster.world.now();
    cluster.config.ask_for_less(OPERATIONS_MIN);
    while !cluster.nodes_without_vote().is_empty()
        && cluster.world.now() < started + FORMING_MAX
        && cluster.goes_on()
    {
        let next = cluster.world.now() + FORMING_STEP;
        chaos.run_until(&mut cluster, next);
    }
    let formed = cluster.nodes_without_vote().is_empty();
    let schedule = draw_schedule(&mut cluster);
    cluster.prepare_for(&schedule.enabled);
    chaos.play_through(&mut cluster, &schedule);
    cluster.end_haste();
    chaos.rest(&mut cluster, schedule.quiet_from);
    let silent_from = cluster.world.now();
    let reread_from = cluster.read_everything(READING);
    let mut report = SimReport::of(&cluster, &schedule, started, silent_from, reread_from);
    let whole = match formed || cluster.ended_early {
        true => Verdict::Pass,
        false => Verdict::violation(format!(
            "not whole again: {FORMING_MAX:?} after a restore some replica does not vote"
        )),
    };
    // First, because it names the cause. To the other judges, a value of an old client is one that was never written.
    let lives = old.verdict(&report.history);
    report.verdict = lives.and(report.verdict).and(whole);
    report
}

fn draw_schedule(cluster: &mut Cluster) -> Schedule {
    let config = &cluster.config;
    let (from, faulty) = (cluster.world.now(), config.faulty.min(FAULTY));
    let until = from + faulty;
    let topology = config.topology();
    let mut prng = cluster.prng.fork();
    let kinds = kinds_of(config, draw_faults(config, &mut prng));
    match config.script {
        Some(_) => Schedule {
            quiet_from: from,
            ..Schedule::calm()
        },
        None => Schedule::of(kinds, &mut prng, topology, from, until),
    }
}

/// Nobody administrates users of a restored group, and it has one version.
fn kinds_of(config: &SimConfig, drawn: BTreeSet<Fault>) -> BTreeSet<Fault> {
    let mut kinds = config.faults.clone().unwrap_or(drawn);
    kinds.retain(|fault| *fault != Fault::Users && !fault.needs(Need::OldVersion));
    kinds
}

/// What both groups came to.
fn add(report: &mut SimReport, restored: SimReport) {
    report.backups.restored_operations = restored.tally.completed;
    report.hash ^= restored.hash.rotate_left(1);
    report.ended_early |= restored.ended_early;
    report.simulated += restored.simulated;
    report.packets += restored.packets;
    report.turns += restored.turns;
    report.states_compared += restored.states_compared;
    report.entries_compared += restored.entries_compared;
    report.verdict = match restored.verdict {
        Verdict::Violation(mut violation) => {
            violation.explanation = of_restored(&violation.explanation);
            Verdict::Violation(violation)
        }
        Verdict::Undecided { reason } => Verdict::Undecided {
            reason: of_restored(&reason),
        },
        Verdict::Pass => Verdict::Pass,
    };
}

/// The property that was broken stays in front of the first colon.
fn of_restored(text: &str) -> String {
    match text.split_once(':') {
        Some((property, how)) => format!("{property}: in the group that was restored:{how}"),
        None => format!("{text}, in the group that was restored"),
    }
}
