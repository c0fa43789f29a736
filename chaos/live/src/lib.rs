//! `trine chaos`: a group of real processes under faults, clients that record all they see, and checkers that judge the
//! record.

// They panic where the stream cannot be written: results go through `output`, everything else through `announce`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod args;
mod check;
mod clients;
mod config;
mod data_dir;
mod disks;
mod faults;
mod gaps;
mod html;
mod links;
mod minimal;
mod names;
mod nemesis;
mod report;
mod sandbox;
mod schedule;
mod small_disk;
mod timeline;
mod tools;
mod upgrade;
mod values;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use trine_chaos::checker::{Verdict, coverage, exactly_once, linearizability};
use trine_chaos::fault::Fault;
use trine_chaos::history::History;
use trine_local::Group;
use trine_transport::backend::{Faults, MonotonicClock};
use trine_transport::time::{Clock, Instant};

pub use self::args::ChaosArguments;

use self::clients::{Crew, Seen};
use self::faults::ReplicaFaults;
use self::links::Links;
use self::names::Names;
use self::nemesis::{Clock as WorkClock, Failover, Nemesis};
use self::report::LiveReport;
use self::sandbox::Sandbox;
use self::schedule::Planned;
use self::timeline::{Leads, Timeline};
use self::upgrade::{Course, Findings, OldClients, OldSeen, Rolling, Upgrade};
use crate::config::CHAOS_OPERATIONS_LEAST;
use trine_base::arguments::replica_count;
use trine_base::failure::Failure;
use trine_base::network::Network;
use trine_base::output::Output;
use trine_base::{interrupt, result_file};
use trine_local::config::START_LIMIT;
use trine_local::start as group;

/// Starts a group, injects faults, and checks what its clients saw.
pub fn run<N: Network>(
    network: &N,
    arguments: &ChaosArguments,
    output: Output,
) -> Result<(), Failure> {
    if let Some(path) = &arguments.check {
        return check::run(path, output);
    }
    refuse_contradictions(network, arguments)?;
    // This has to be done while there is only one thread, because it may replace this program.
    let sandbox = sandbox::enter(arguments, sandbox::link_bytes(network.settings().mtu))?;
    let upgrade = Upgrade::of(network, arguments)?;
    let schedule = match &upgrade {
        Some(upgrade) => upgrade.schedule.clone(),
        None => schedule::draw(arguments, &possible(arguments, &sandbox))?,
    };
    let faults = requested_faults(arguments);
    if !arguments.faults.is_empty() && schedule.is_empty() && faults.is_none() {
        return Err(Failure::usage(
            format!(
                "no fault that was asked for can be here: {}",
                sandbox.skipped.join("; ")
            ),
            "ask for other faults as well, or remove the obstacle: a run without a fault proves nothing about faults",
        ));
    }
    interrupt::start()?;
    let run = LiveRun {
        network,
        arguments,
        faults,
        sandbox,
        schedule,
        upgrade,
        output,
    };
    run.tell();
    run.run()
}

/// Refuses options that no run can satisfy, before anything starts.
fn refuse_contradictions<N: Network>(
    network: &N,
    arguments: &ChaosArguments,
) -> Result<(), Failure> {
    arguments.log.check()?;
    if let Some(fault) = arguments.faults_that(args::needs_small_disks).first()
        && arguments.log.directory().is_none()
    {
        return Err(Failure::usage(
            format!("{fault} needs replicas that keep their logs on disk"),
            "add --log disk --data-dir DIR, where DIR is new",
        ));
    }
    if arguments.faults.contains(&Fault::Addresses) && arguments.log.directory().is_none() {
        return Err(Failure::usage(
            format!(
                "{} needs replicas that keep their logs on disk: others are new ones after a start",
                Fault::Addresses
            ),
            "add --log disk --data-dir DIR, where DIR is new",
        ));
    }
    if let Some(directory) = arguments.log.directory() {
        data_dir::require_new(directory)?;
    }
    if let Some(fault) = arguments.faults_that(args::needs_networks).first()
        && !arguments.netns
    {
        return Err(Failure::usage(
            format!("{fault} needs networks of the run's own"),
            "add --netns, as root",
        ));
    }
    if arguments.netns && !network.is_ip() {
        return Err(Failure::usage(
            "--netns is for kernel UDP: other networks do not pass through the kernel's rules",
            "leave --transport or --netns out",
        ));
    }
    schedule::draw(arguments, &arguments.faults)?;
    // The run reports an unwritable file at its start instead of at its end.
    for (what, path) in [("history", &arguments.history), ("report", &arguments.html)] {
        if let Some(path) = path {
            result_file::check(what, path)?;
        }
    }
    Ok(())
}

/// The kinds of fault that are possible here.
fn possible(arguments: &ChaosArguments, sandbox: &Sandbox) -> Vec<Fault> {
    let mut kinds = arguments.faults.clone();
    kinds.sort_by_key(|kind| Fault::LIVE.iter().position(|listed| listed == kind));
    kinds.dedup();
    kinds.retain(|&kind| {
        (!args::needs_small_disks(kind) || !sandbox.disks.is_empty())
            && (!args::needs_networks(kind) || sandbox.network)
            && (kind != Fault::DiskHang || !sandbox.below.is_empty())
    });
    kinds
}

/// The clients' observations, and the faults meanwhile.
struct Worked {
    seen: Seen,
    failovers: Vec<Failover>,
    timeline: Timeline,
    /// What became of the upgrade, if there was one, and what clients of the old program saw.
    upgraded: Option<(Course, OldSeen)>,
    /// Why the work ended early; the worst findings cause that.
    aborted: Option<Failure>,
}

/// One run.
struct LiveRun<'a, N> {
    network: &'a N,
    arguments: &'a ChaosArguments,
    /// Faults on every link, from the beginning to the end.
    faults: Faults,
    sandbox: Sandbox,
    schedule: Vec<Planned>,
    upgrade: Option<Upgrade>,
    output: Output,
}

impl<N: Network> LiveRun<'_, N> {
    /// Announces the plan, as far as it is fixed.
    fn tell(&self) {
        for skipped in &self.sandbox.skipped {
            self.output.line(skipped);
        }
        self.output.line(report::seed_line(self.arguments.seed));
        if let Some(upgrade) = &self.upgrade {
            return upgrade.tell(self.output);
        }
        for planned in &self.schedule {
            let seconds = planned.at.as_nanos() as f64 / 1e9;
            self.output
                .line(format_args!("{seconds:>9.3} s  {planned}"));
        }
    }

    fn run(self) -> Result<(), Failure> {
        let (arguments, output) = (self.arguments, self.output);
        let (replica_faults, leads) = (Arc::default(), Arc::default());
        let mut group = self.start_group(&replica_faults, &leads)?;
        output.line(format_args!(
            "{} clients work for {}",
            arguments.clients,
            humantime::format_duration(arguments.duration)
        ));
        let mut worked = self.work(&mut group)?;
        let history = &worked.seen.history;
        output.line(format_args!("checking {} operations", history.len()));
        let addresses = group.addresses().len();
        // Counts of the replicas arrive a few times a second. The last ones come with their orderly end.
        let stopped = group.stop().map_err(group::live_failure);
        worked.timeline.leads = leads.all();
        let timeline = &worked.timeline;
        let mut fired = replica_faults.total();
        fired.add(&worked.seen.fired);
        let asked = fired.of(&self.faults);
        let mut counts: BTreeMap<String, u64> = asked
            .map(|(name, count)| (name.to_owned(), count))
            .collect();
        counts.extend(timeline.fired(arguments, &possible(arguments, &self.sandbox)));
        if self.upgrade.is_some() {
            counts.extend(timeline.fired_by_kind());
        }
        let failovers = worked.failovers;
        let upgraded = worked.upgraded;
        let findings = self.upgrade.as_ref().zip(upgraded);
        let findings =
            findings.map(|(upgrade, (course, old))| Findings::of(upgrade, course, &old, history));
        let report = LiveReport {
            arguments,
            history,
            verdicts: judge(history, &counts, &failovers, worked.seen.reread_from),
            counts,
            failovers,
            timeline,
            upgrade: findings,
            aborted: worked.aborted.or(stopped.err()),
            schedule: &self.schedule,
            skipped: &self.sandbox.skipped,
            addresses,
        };
        report.print(output);
        self.keep(&report)?;
        // An interrupted run has not read everything again. Its observations are checked all the same.
        interrupt::check()?;
        report.result()
    }

    /// Runs the clients while faults begin and end.
    fn work(&self, group: &mut Group) -> Result<Worked, Failure> {
        let crew = Crew::start(self.network, self.arguments, self.faults, group.addresses())?;
        let old_clients = match &self.upgrade {
            Some(upgrade) => {
                Some(upgrade.start_clients(self.network, self.arguments, &group.peers())?)
            }
            None => None,
        };
        let mut nemesis = Nemesis {
            network: self.network,
            group,
            crew: &crew,
            links: match self.sandbox.network {
                true => Links::Kernel,
                false => Links::Injectors(self.faults),
            },
            sandbox: &self.sandbox,
            output: self.output,
            failovers: Vec::new(),
            done: Vec::new(),
        };
        let mut clock = WorkClock::new(self.arguments.duration.into());
        let mut missed = self.schedule.clone();
        let mut course = Course::default();
        let worked = match &self.upgrade {
            Some(upgrade) => Rolling::new(upgrade, &mut nemesis, &mut course)
                .and_then(|rolling| rolling.work(&mut clock, &mut missed)),
            None => nemesis.work(&mut clock, &mut missed),
        };
        let Nemesis {
            failovers, done, ..
        } = nemesis;
        // The work ends if a replica ended by itself or the group does not recover. The observations until then are
        // still checked and kept, because they show the cause.
        let aborted = worked.err().filter(|_| !interrupt::interrupted());
        let old = old_clients.map(OldClients::finish);
        let counters = old.as_ref().map(OldSeen::counters).unwrap_or_default();
        let mut seen = crew.finish(group.addresses(), counters)?;
        let upgraded = old.map(|mut old| {
            let of_old = std::mem::take(&mut old.history);
            seen.history = History::merge([std::mem::take(&mut seen.history), of_old]);
            (course, old)
        });
        let timeline = Timeline {
            begun: clock.begun,
            faults: done,
            leads: Vec::new(),
            missed,
        };
        Ok(Worked {
            seen,
            failovers,
            timeline,
            upgraded,
            aborted,
        })
    }

    /// Writes the files that were asked for.
    fn keep(&self, report: &LiveReport<'_>) -> Result<(), Failure> {
        if let Some(path) = &self.arguments.history {
            result_file::write("history", path, &report.history.to_text())?;
        }
        if let Some(path) = &self.arguments.html {
            result_file::write("report", path, &html::page(report))?;
        }
        Ok(())
    }

    fn start_group(
        &self,
        replica_faults: &Arc<ReplicaFaults>,
        leads: &Arc<Leads>,
    ) -> Result<Group, Failure> {
        let Self {
            arguments,
            faults,
            output,
            ..
        } = self;
        let count = replica_count(&arguments.replicas);
        let mut serve_args: Vec<OsString> = vec!["--fault-injection".into()];
        let (addresses, launcher) = match self.sandbox.network {
            true => {
                serve_args.push("--insecure".into());
                let launcher = sandbox::launcher(self.sandbox.names.as_ref());
                (sandbox::addresses(count), launcher)
            }
            false => (self.network.group_addresses(count)?, Vec::new()),
        };
        let list: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        output.line(format_args!(
            "starting {count} replicas, a process each: {}",
            list.join(" ")
        ));
        if !faults.is_none() {
            output.line(format_args!(
                "faults on every link: {faults} (seed {})",
                arguments.seed
            ));
            serve_args.extend(["--fault".into(), faults.to_string().into()]);
        }
        serve_args.extend(["--fault-seed".into(), arguments.seed.to_string().into()]);
        serve_args.extend(arguments.log.as_serve_args());
        if self.upgrade.is_some() {
            serve_args.extend(Upgrade::serve_args());
        }
        if !self.sandbox.disks.is_empty() {
            // Small segments make a log need room soon after the disk is full.
            serve_args.extend(["--log-segment".into(), SMALL_SEGMENT.into()]);
        }
        let names = match self.sandbox.names {
            Some(_) => Names::peers(&addresses),
            None => Vec::new(),
        };
        let sink = leads.sink(replica_faults.sink());
        let mut config = group::config(self.network, addresses, serve_args, Some(sink))?;
        if let Some(upgrade) = &self.upgrade {
            config.program = upgrade.first_program();
        }
        group::start_by(self.network, config, launcher, names, START_LIMIT)
    }
}

/// The faults of the options.
fn requested_faults(arguments: &ChaosArguments) -> Faults {
    Faults {
        loss: arguments.loss,
        duplicate: arguments.duplicate,
        reorder: arguments.reorder,
        corrupt: arguments.corrupt,
        delay: None,
    }
}

/// The size of log segments on a small disk.
const SMALL_SEGMENT: &str = "64KiB";

/// The verdict of each checker.
pub(crate) struct Verdicts {
    pub(crate) linearizability: linearizability::LinearizabilityReport,
    pub(crate) exactly_once: Verdict,
    pub(crate) coverage: Verdict,
}

fn judge(
    history: &History,
    counts: &BTreeMap<String, u64>,
    failovers: &[Failover],
    reread_from: Instant,
) -> Verdicts {
    let required = coverage::Required {
        completed_operations: CHAOS_OPERATIONS_LEAST,
        passed_ns: 0,
        least_ns: 0,
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

/// The time limit of one operation. It is longer than any failover, so that few outcomes are unknown.
const OPERATION_LIMIT: Duration = Duration::from_secs(15);
