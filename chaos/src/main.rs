//! Runs simulations: many seeds or one, of a whole group or (with `rpc` in front) of the transport
//! alone. `twice` runs each seed a second time and compares the two runs by their hash.

use std::process::ExitCode;
use trine_chaos::seeds::for_each_seed;
use trine_chaos::sim::{self, SimConfig, SimReport, Summary, Trace, rpc};

const USAGE: &str = "usage: trine-chaos [rpc] seeds FROM COUNT [JOBS] [twice]
       trine-chaos [rpc] seed N [trace]
       trine-chaos seed N shrink|history";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (subject, words) = match words.split_first() {
        Some((&"rpc", rest)) => (Subject::Rpc, rest),
        _ => (Subject::Group, words.as_slice()),
    };
    match command(subject, words) {
        Some(true) => ExitCode::SUCCESS,
        Some(false) => ExitCode::FAILURE,
        None => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// What is simulated.
#[derive(Copy, Clone)]
enum Subject {
    Group,
    Rpc,
}

/// Whether all passed; `None` for words that are no command.
fn command(subject: Subject, words: &[&str]) -> Option<bool> {
    match words {
        ["seeds", from, count, rest @ ..] => {
            let (jobs, twice) = match rest {
                [] => (1, false),
                ["twice"] => (1, true),
                [jobs] => (jobs.parse().ok()?, false),
                [jobs, "twice"] => (jobs.parse().ok()?, true),
                _ => return None,
            };
            Some(seeds(
                subject,
                from.parse().ok()?,
                count.parse().ok()?,
                jobs,
                twice,
            ))
        }
        ["seed", seed] => Some(one(subject, seed.parse().ok()?, Trace::Off)),
        ["seed", seed, "trace"] => Some(one(
            subject,
            seed.parse().ok()?,
            Trace::To(Box::new(|line| println!("{line}"))),
        )),
        ["seed", seed, "history"] => Some(history(seed.parse().ok()?)),
        ["seed", seed, "shrink"] => shrink(seed.parse().ok()?),
        _ => None,
    }
}

fn one(subject: Subject, seed: u64, trace: Trace) -> bool {
    let outcome = simulate(subject, seed, trace);
    println!("{}", outcome.text);
    outcome.passed
}

/// What came of one seed.
struct Outcome {
    text: String,
    passed: bool,
    hash: u64,
    report: Option<SimReport>,
}

/// Prints the history of a run instead of its report.
fn history(seed: u64) -> bool {
    let report = sim::run(SimConfig::from_seed(seed), Trace::Off);
    let report = report.expect("seeds stand for sound configurations");
    print!("{}", report.history.to_text());
    report.verdict.is_pass()
}

fn simulate(subject: Subject, seed: u64, trace: Trace) -> Outcome {
    match subject {
        Subject::Group => {
            let report = sim::run(SimConfig::from_seed(seed), trace);
            let report = report.expect("seeds stand for sound configurations");
            let (text, passed) = (report.to_string(), report.verdict.is_pass());
            Outcome {
                text,
                passed,
                hash: report.hash,
                report: Some(report),
            }
        }
        Subject::Rpc => {
            let report = rpc::run(&rpc::RpcConfig::new(seed), trace);
            let text = format!(
                "seed {seed}: {} packets, ends {:?}, faults {:?}, hash {:016x}\n{}",
                report.packets, report.ended, report.faults, report.hash, report.verdict
            );
            Outcome {
                text,
                passed: report.verdict.is_pass(),
                hash: report.hash,
                report: None,
            }
        }
    }
}

fn seeds(subject: Subject, from: u64, count: u64, jobs: u64, twice: bool) -> bool {
    let mut failed = 0;
    let mut summary = Summary::default();
    let run = |seed| {
        let outcome = simulate(subject, seed, Trace::Off);
        let replays = !twice || simulate(subject, seed, Trace::Off).hash == outcome.hash;
        (seed, outcome, replays)
    };
    for_each_seed(
        from,
        count,
        jobs,
        || true,
        run,
        |(seed, outcome, replays)| {
            if !outcome.passed {
                println!("{}\n", outcome.text);
            }
            if !replays {
                println!("seed {seed} does not replay: two runs have different hashes\n");
            }
            failed += u64::from(!outcome.passed || !replays);
            if let Some(report) = &outcome.report {
                summary.add(report);
            }
        },
    );
    print!("{summary}");
    println!(
        "{count} seeds from {from}{}: {failed} failed",
        if twice { ", each run twice" } else { "" }
    );
    failed == 0
}

fn shrink(seed: u64) -> Option<bool> {
    let shrunk = trine_chaos::shrink::shrink(&SimConfig::from_seed(seed), 200)?;
    println!(
        "{}\nafter {} runs: {:#?}",
        shrunk.report, shrunk.tried, shrunk.config
    );
    Some(false)
}
