//! `trine chaos`: a group of real processes under faults, clients that record all they see, and
//! the checkers that judge it.

mod clients;
mod faults;
mod nemesis;
mod report;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use trine_chaos::checker::{Verdict, coverage, exactly_once, linearizability};
use trine_chaos::history::History;
use trine_chaos::live::Group;
use trine_transport::backend::{Faults, MonotonicClock};
use trine_transport::time::{Clock, Instant};

pub(crate) use self::faults::{FAULTS_LINE, Fired};

use self::clients::Crew;
use self::faults::ReplicaFaults;
use self::nemesis::Failover;
use self::report::Report;
use crate::args::{ChaosArguments, replica_count};
use crate::config::CHAOS_OPERATIONS_LEAST;
use crate::failure::Failure;
use crate::network::Network;
use crate::output::Output;
use crate::{group, interrupt};

pub(crate) fn run<N: Network>(
    network: &N,
    arguments: &ChaosArguments,
    output: Output,
) -> Result<(), Failure> {
    interrupt::start()?;
    let faults = requested_faults(arguments);
    let replica_faults = Arc::new(ReplicaFaults::default());
    let mut group = start_group(network, arguments, faults, &replica_faults, output)?;
    output.line(format_args!(
        "{} clients work for {}",
        arguments.clients,
        humantime::format_duration(arguments.duration)
    ));
    let crew = Crew::start(network, arguments, faults, group.addresses())?;
    let mut failovers = Vec::new();
    let worked = nemesis::work(
        network,
        &mut group,
        arguments,
        &crew,
        output,
        &mut failovers,
    );
    let finished = crew.finish()?;
    if !interrupt::interrupted() {
        worked?;
    }
    output.line(format_args!(
        "checking {} operations",
        finished.history.len()
    ));
    // Counts of the replicas arrive once a second; the last ones come with their orderly end.
    group.stop().map_err(group::live_failure)?;
    let mut fired = replica_faults.total();
    fired.add(&finished.fired);
    if let Some(path) = &arguments.history {
        std::fs::write(path, finished.history.to_text()).map_err(|error| {
            Failure::usage(
                format!("cannot write the history to {}: {error}", path.display()),
                "",
            )
        })?;
    }
    let counts = fired.requested(&faults);
    let verdicts = judge(&finished.history, &counts, &failovers, finished.reread_from);
    let report = Report {
        arguments,
        history: &finished.history,
        counts,
        failovers,
        verdicts,
    };
    report.print(output);
    // A run that was cut short has not read everything again; what it saw is judged all the same.
    interrupt::check()?;
    report.result()
}

/// The faults that the options ask for.
fn requested_faults(arguments: &ChaosArguments) -> Faults {
    Faults {
        loss: arguments.loss,
        duplicate: arguments.duplicate,
        reorder: arguments.reorder,
        corrupt: arguments.corrupt,
        delay: None,
    }
}

fn start_group<N: Network>(
    network: &N,
    arguments: &ChaosArguments,
    faults: Faults,
    replica_faults: &Arc<ReplicaFaults>,
    output: Output,
) -> Result<Group, Failure> {
    let count = replica_count(&arguments.replicas);
    let addresses = network.group_addresses(count)?;
    let list: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    output.line(format_args!(
        "starting {count} replicas, a process each: {}",
        list.join(" ")
    ));
    let mut serve_args: Vec<OsString> = Vec::new();
    if !faults.is_none() {
        output.line(format_args!(
            "faults on every link: {faults} (seed {})",
            arguments.seed
        ));
        serve_args.extend(["--fault".into(), faults.to_string().into()]);
        serve_args.extend(["--fault-seed".into(), arguments.seed.to_string().into()]);
    }
    serve_args.extend(arguments.log.as_serve_args());
    group::start(network, addresses, serve_args, Some(replica_faults.sink()))
}

/// What each checker says.
pub(super) struct Verdicts {
    pub(super) linearizability: linearizability::Report,
    pub(super) exactly_once: Verdict,
    pub(super) coverage: Verdict,
}

fn judge(
    history: &History,
    counts: &BTreeMap<String, u64>,
    failovers: &[Failover],
    reread_from: Instant,
) -> Verdicts {
    let required = coverage::Required {
        completed_operations: CHAOS_OPERATIONS_LEAST,
        faults_fired: counts.clone(),
        fault_kinds: 0,
        failovers_ns: failovers
            .iter()
            .map(|failover| failover.killed_at.as_nanos())
            .collect(),
        reread_from_ns: Some(reread_from.as_nanos()),
    };
    Verdicts {
        linearizability: linearizability::check(history),
        exactly_once: exactly_once::check(history),
        coverage: coverage::check(history, &required),
    }
}

/// Now, on the clock by which histories are recorded.
fn now() -> Instant {
    MonotonicClock.now()
}

/// How long one operation may take: longer than any failover, so that few outcomes are unknown.
const OPERATION_LIMIT: Duration = Duration::from_secs(15);
