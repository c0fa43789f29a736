//! `trine sim`: whole groups on virtual time, from a seed; the same seed gives the same history, byte for byte.

use std::time::Instant;

use serde_json::{Value, json};
use trine_chaos::seeds::for_each_seed;
use trine_chaos::shrink::shrink;
use trine_chaos::sim::{self, SimConfig, SimReport, Summary, Trace};

use crate::args::SimArguments;
use crate::failure::Failure;
use crate::interrupt;
use crate::output::Output;
use crate::progress::Progress;

/// Runs that shrinking tries at most.
const SHRINK_RUNS_MAX: u64 = 200;

pub(crate) fn run(arguments: &SimArguments, output: Output) -> Result<(), Failure> {
    interrupt::start()?;
    match arguments.seed {
        None if arguments.measure => measure(output),
        Some(seed) if arguments.shrink => shrink_seed(chosen(seed, arguments), output),
        Some(seed) => one(seed, arguments, output),
        None => many(arguments, output),
    }
}

fn simulate(config: SimConfig, trace: Trace) -> SimReport {
    sim::run(config, trace).expect("every seed stands for a sound configuration")
}

/// The run that one seed stands for, alone or among those that are measured.
fn chosen(seed: u64, arguments: &SimArguments) -> SimConfig {
    match arguments.measure {
        true => SimConfig::measured_with_faults(seed),
        false => SimConfig::from_seed(seed),
    }
}

fn one(seed: u64, arguments: &SimArguments, output: Output) -> Result<(), Failure> {
    let trace = match arguments.trace {
        // Traces are millions of lines; whoever closes the pipe has seen enough.
        true => Trace::To(Box::new(move |line| output.line(line))),
        false => Trace::Off,
    };
    let report = simulate(chosen(seed, arguments), trace);
    if arguments.history {
        output.line(report.history.to_text());
    }
    output.document(&document(&report));
    output.line(&report);
    judge(&report)
}

fn shrink_seed(config: SimConfig, output: Output) -> Result<(), Failure> {
    let seed = config.seed;
    let Some(shrunk) = shrink(&config, SHRINK_RUNS_MAX) else {
        return Err(Failure::usage(
            format!("seed {seed} passes: there is nothing to shrink"),
            "give --shrink the seed of a run that failed",
        ));
    };
    output.document(&document(&shrunk.report));
    output.line(&shrunk.report);
    output.line(format_args!(
        "after {} runs: {:#?}",
        shrunk.tried, shrunk.config
    ));
    judge(&shrunk.report)
}

fn judge(report: &SimReport) -> Result<(), Failure> {
    match report.verdict.is_pass() {
        true => Ok(()),
        false => Err(Failure::negative(
            format!("seed {} failed", report.seed),
            format!("replay it with: {}", report.replay_command()),
        )),
    }
}

/// Runs of each load that are measured; the median counts.
const MEASURED_RUNS: u64 = 5;

fn measure(output: Output) -> Result<(), Failure> {
    let (mut times_real, mut per_second) = (Vec::new(), Vec::new());
    for seed in 1..=MEASURED_RUNS {
        let (report, seconds) = timed(SimConfig::measured_with_faults(seed))?;
        let simulated = report.simulated.as_nanos() as f64 / 1e9;
        times_real.push(simulated / seconds);
        output.line(format_args!(
            "seed {seed}, faults as drawn: {simulated:.0} s and {} operations in {seconds:.2} s",
            report.tally.called
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
    let report = sim::run(config, Trace::Off).expect("the measured configurations are sound");
    let seconds = started.elapsed().as_secs_f64();
    let asked_nothing = report.faults.is_empty() && report.tally.completed == report.tally.called;
    match report.verdict.is_pass() || asked_nothing {
        true => Ok((report, seconds)),
        false => Err(Failure::negative(
            format!(
                "the measured run of seed {} failed: {}",
                report.seed, report.verdict
            ),
            format!(
                "what fails fast is no measure of speed; replay it with: cargo run --profile sim -- sim --measure --seed {} --trace",
                report.seed
            ),
        )),
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// What one seed gave, and whether a second run gave the same.
struct Outcome {
    report: SimReport,
    replays: bool,
}

fn many(arguments: &SimArguments, output: Output) -> Result<(), Failure> {
    let started = Instant::now();
    let (mut ended, mut failed) = (0, Vec::new());
    let mut summary = Summary::default();
    let mut progress = Progress::new("simulating", arguments.seeds);
    let run = |seed| {
        let once = || simulate(SimConfig::from_seed(seed), Trace::Off);
        let report = once();
        let replays = !arguments.twice || once().hash == report.hash;
        Outcome { report, replays }
    };
    let take = |Outcome { report, replays }| {
        ended += 1;
        let bad = failed.len();
        progress.set(ended, || {
            format!("{} of {} seeds, {bad} failed", ended, arguments.seeds)
        });
        if !report.verdict.is_pass() {
            progress.suspend(|| output.line(format_args!("{report}\n")));
        } else if !replays {
            let seed = report.seed;
            progress.suspend(|| {
                output.line(format_args!(
                    "seed {seed} does not replay: two runs differ\n"
                ));
            });
        }
        if !report.verdict.is_pass() || !replays {
            failed.push(report.seed);
        }
        summary.add(&report);
    };
    let go_on = || !interrupt::interrupted();
    for_each_seed(
        arguments.from,
        arguments.seeds,
        arguments.jobs,
        go_on,
        run,
        take,
    );
    drop(progress);
    let took = started.elapsed();
    let speed = summary.simulated_ns() as f64 / 1e9 / took.as_secs_f64().max(1e-9);
    let runs = ["", ", each run twice,"][usize::from(arguments.twice)];
    output.document(&json!({
        "seeds": ended, "from": arguments.from, "twice": arguments.twice, "failed": failed,
        "simulated_ns": summary.simulated_ns(), "operations": summary.operations(),
        "failovers": summary.failovers(), "faults": fault_counts(summary.faults()),
        "seconds": took.as_secs_f64(),
    }));
    output.line(format_args!("{summary}"));
    output.line(format_args!(
        "{ended} seeds from {}{} in {:.0} s ({speed:.0} times real time): {} failed",
        arguments.from,
        runs,
        took.as_secs_f64(),
        failed.len()
    ));
    match failed.first() {
        Some(seed) => Err(Failure::negative(
            format!("{} of {ended} seeds failed", failed.len()),
            format!("replay the first with: cargo run --profile sim -- sim --seed {seed} --trace"),
        )),
        None if interrupt::interrupted() => Err(Failure::interrupted()),
        None => Ok(()),
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
