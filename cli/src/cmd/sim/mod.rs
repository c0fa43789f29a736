//! `trine sim` runs whole groups on virtual time, from a seed. The same seed gives the same history, byte for byte.

mod args;
mod part;
#[cfg(debug_assertions)]
mod planted;

use std::time::Instant;

use serde_json::{Value, json};
use trine_chaos::checker::Verdict;
use trine_chaos::seeds::for_each_seed;
use trine_chaos::shrink::shrink;
use trine_chaos::sim::{Plan, Report, Run, SimConfig, SimConfigError, SimReport, Summary, Trace};

use trine_base::bars::above_bars;
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::output::Output;
use trine_base::progress::Progress;

pub(crate) use self::args::SimArguments;

/// The most runs of one shrinking search.
const SHRINK_RUNS_MAX: u64 = 200;

pub(crate) fn run(arguments: &SimArguments, output: Output) -> Result<(), Failure> {
    interrupt::start()?;
    // Replicas that come and go touch only a small part of their reserved memory. So the kernel need not clear two
    // megabytes each time. A system without this setting is only slower.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    if let Some(name) = &arguments.planted_bugs {
        return planted_bugs(name, arguments, output);
    }
    if arguments.rpc {
        return part::transport(arguments, output);
    }
    if arguments.sequencer {
        return part::sequencers(arguments, output);
    }
    match arguments.seed {
        None if arguments.measure && arguments.faults.is_some() => Err(Failure::usage(
            "what is measured is the same everywhere: --measure takes no faults",
            "leave --fault-kinds out, or name the run to replay with --seed",
        )),
        None if arguments.measure => measure(output),
        Some(seed) if arguments.shrink => {
            shrink_seed(seed, &chosen(seed, arguments)?, document, output)
        }
        Some(seed) => one(seed, arguments, output),
        None => many(arguments, output),
    }
}

#[cfg(debug_assertions)]
use self::planted::run as planted_bugs;

#[cfg(not(debug_assertions))]
fn planted_bugs(_: &str, _: &SimArguments, _: Output) -> Result<(), Failure> {
    Err(Failure::usage(
        "this build has no planted bugs",
        "cargo run --profile sim -- sim --planted-bugs",
    ))
}

fn goes_on() -> bool {
    !interrupt::interrupted()
}

/// The run of one seed, with the changes of the options.
fn chosen(seed: u64, arguments: &SimArguments) -> Result<SimConfig, Failure> {
    let plan = Plan {
        seed,
        measured: arguments.measure,
        faults: arguments.faults.clone(),
        client_machines: arguments.client_machines,
        clients_per_machine: arguments.clients_per_machine,
        faulty: arguments.faulty.map(Into::into),
        sealed: arguments.sealed,
    };
    let refused = |error: SimConfigError| {
        Failure::usage(
            error.to_string(),
            "see `trine sim --help` for what can be set",
        )
    };
    plan.config().map_err(refused)
}

fn trace(arguments: &SimArguments, output: Output) -> Trace {
    match arguments.trace {
        // A trace has millions of lines. A reader that closes the pipe has seen enough.
        true => Trace::To(Box::new(move |line| output.line(line))),
        false => Trace::Off,
    }
}

fn one(seed: u64, arguments: &SimArguments, output: Output) -> Result<(), Failure> {
    let report = chosen(seed, arguments)?.simulate(trace(arguments, output), goes_on);
    if arguments.history {
        output.line(report.history.to_text());
    }
    show(&report, document, output);
    judge(&report)
}

fn show<R: Report>(report: &R, document: fn(&R) -> Value, output: Output) {
    output.document(&document(report));
    output.line(report);
}

fn shrink_seed<C: Run>(
    seed: u64,
    config: &C,
    document: fn(&C::Report) -> Value,
    output: Output,
) -> Result<(), Failure> {
    let Some(shrunk) = shrink(config, SHRINK_RUNS_MAX, goes_on) else {
        interrupt::check()?;
        return Err(Failure::usage(
            format!("seed {seed} passes: there is nothing to shrink"),
            "give --shrink the seed of a run that failed",
        ));
    };
    show(&shrunk.report, document, output);
    output.line(format_args!("shrunk in {} runs", shrunk.tried));
    // The finding is reported, although it may not be the smallest.
    interrupt::check()?;
    judge(&shrunk.report)
}

fn judge(report: &impl Report) -> Result<(), Failure> {
    match report.verdict() {
        Verdict::Pass => Ok(()),
        Verdict::Undecided { .. } if report.ended_early() => Err(Failure::interrupted()),
        _ => Err(Failure::negative(
            format!("seed {} failed", report.seed()),
            format!("replay it with: {}", report.replay_command()),
        )),
    }
}

/// Measured runs of each load; the median counts.
const MEASURED_RUNS: u64 = 5;

fn measure(output: Output) -> Result<(), Failure> {
    let (mut times_real, mut per_second) = (Vec::new(), Vec::new());
    for seed in 1..=MEASURED_RUNS {
        let (report, seconds) = timed(SimConfig::measured_with_faults(seed))?;
        let simulated = report.simulated.as_nanos() as f64 / 1e9;
        times_real.push(simulated / seconds);
        output.line(format_args!(
            "seed {seed}, faults as drawn: {simulated:.0} s and {} operations ({:.0} a simulated second) in {seconds:.2} s",
            report.tally.called,
            report.tally.called as f64 / simulated,
        ));
        let (report, seconds) = timed(SimConfig::measured_without_faults(seed))?;
        per_second.push(report.tally.called as f64 / seconds);
        output.line(format_args!(
            "seed {seed}, no fault: {} operations in {seconds:.2} s",
            report.tally.called
        ));
    }
    let (times_real, per_second) = (median(times_real), median(per_second));
    output.document(&json!({ "times_real_time": times_real, "operations_per_second": per_second }));
    output.line(format_args!(
        "medians on one thread: {times_real:.0} times real time with faults, {per_second:.0} operations a second without"
    ));
    Ok(())
}

fn timed(config: SimConfig) -> Result<(SimReport, f64), Failure> {
    let started = Instant::now();
    let report = config.simulate(Trace::Off, goes_on);
    let seconds = started.elapsed().as_secs_f64();
    interrupt::check()?;
    match report.verdict.is_pass() {
        true => Ok((report, seconds)),
        false => Err(Failure::negative(
            format!(
                "the measured run of seed {} failed: {}",
                report.seed, report.verdict
            ),
            format!(
                "what fails fast is no measure of speed; replay it with: {}",
                report.replay_command()
            ),
        )),
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The result of one seed, and whether a second run gave the same.
struct SeedOutcome<R> {
    report: R,
    replays: bool,
    /// Whether the result counts: the simulation is complete, or its part before an interruption has found a violation.
    counts: bool,
}

impl<R: Report> SeedOutcome<R> {
    fn of<C: Run<Report = R>>(config: &C, twice: bool) -> Self {
        let once = || config.simulate(Trace::Off, goes_on);
        let report = once();
        let again = (twice && !report.ended_early()).then(once);
        let again_ended = again.as_ref().is_none_or(|again| !again.ended_early());
        Self {
            // A run that was cut short always differs.
            replays: !again_ended || again.is_none_or(|again| again.hash() == report.hash()),
            counts: !report.ended_early() && again_ended
                || matches!(report.verdict(), Verdict::Violation(_)),
            report,
        }
    }
}

/// The runs of many seeds, counted.
#[derive(Default)]
struct SeedTally {
    seeds: u64,
    failed: Vec<u64>,
    /// The command that repeats the first failure.
    replay: Option<String>,
}

/// Runs many seeds, says which fail, and hands each report to `sum`.
fn each_seed<C: Run>(
    arguments: &SimArguments,
    output: Output,
    config: impl Fn(u64) -> C + Sync,
    mut sum: impl FnMut(&C::Report) + Send,
) -> SeedTally
where
    C::Report: Send,
{
    let mut ended = SeedTally::default();
    let mut progress = Progress::new("simulating", arguments.seeds);
    let run = |seed| SeedOutcome::of(&config(seed), arguments.twice);
    let take = |outcome: SeedOutcome<C::Report>| {
        let SeedOutcome {
            report, replays, ..
        } = &outcome;
        if !outcome.counts {
            return;
        }
        ended.seeds += 1;
        let (seed, bad) = (report.seed(), ended.failed.len());
        progress.set(ended.seeds, || {
            format!("{} of {} seeds, {bad} failed", ended.seeds, arguments.seeds)
        });
        if !report.verdict().is_pass() {
            above_bars(|| output.line(format_args!("{report}\n")));
        } else if !replays {
            above_bars(|| {
                output.line(format_args!(
                    "seed {seed} does not replay: two runs differ\n"
                ));
            });
        }
        if !report.verdict().is_pass() || !replays {
            ended.failed.push(seed);
            let replay = &mut ended.replay;
            replay.get_or_insert_with(|| report.replay_command());
        }
        sum(report);
    };
    for_each_seed(
        arguments.first_seed,
        arguments.seeds,
        arguments.threads,
        goes_on,
        run,
        take,
    );
    drop(progress);
    ended
}

/// What the runs are called that were made.
fn of_seeds(ended: &SeedTally, arguments: &SimArguments) -> String {
    let runs = ["", ", each run twice"][usize::from(arguments.twice)];
    format!("{} seeds from {}{runs}", ended.seeds, arguments.first_seed)
}

fn many(arguments: &SimArguments, output: Output) -> Result<(), Failure> {
    let started = Instant::now();
    let mut summary = Summary::default();
    // Whether faults exclude each other does not depend on the seed.
    chosen(arguments.first_seed, arguments)?;
    let config = |seed| chosen(seed, arguments).expect("what one seed allows all do");
    let ended = each_seed(arguments, output, config, |report| summary.add(report));
    let took = started.elapsed();
    let speed = summary.simulated_ns() as f64 / 1e9 / took.as_secs_f64().max(1e-9);
    output.document(&json!({
        "seeds": ended.seeds, "from": arguments.first_seed, "twice": arguments.twice, "failed": ended.failed,
        "simulated_ns": summary.simulated_ns(), "operations": summary.operations(),
        "failovers": summary.failovers(), "faults": fault_counts(summary.faults()),
        "seconds": took.as_secs_f64(),
    }));
    output.line(format_args!("{summary}"));
    output.line(format_args!(
        "{} in {:.0} s ({speed:.0} times real time): {} failed",
        of_seeds(&ended, arguments),
        took.as_secs_f64(),
        ended.failed.len()
    ));
    judge_all(ended)
}

fn judge_all(ended: SeedTally) -> Result<(), Failure> {
    match ended.replay {
        Some(command) => Err(Failure::negative(
            format!("{} of {} seeds failed", ended.failed.len(), ended.seeds),
            format!("replay the first with: {command}"),
        )),
        None => interrupt::check(),
    }
}

fn document(report: &SimReport) -> Value {
    let tally = &report.tally;
    json!({
        "seed": report.seed, "pass": report.verdict.is_pass(), "verdict": report.verdict.to_string(),
        "history_hash": format!("{:016x}", report.hash), "simulated_ns": report.simulated.as_nanos(),
        "operations": { "called": tally.called, "answered": tally.completed, "unknown": tally.unknown, "failed": tally.failed },
        "failovers": report.failovers, "packets": report.packets, "states_compared": report.states_compared,
        "faults": fault_counts(&report.faults),
    })
}

fn fault_counts<K: std::fmt::Display>(faults: &std::collections::BTreeMap<K, u64>) -> Value {
    faults
        .iter()
        .map(|(fault, fired)| (fault.to_string(), json!(fired)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}
