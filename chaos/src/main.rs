//! Runs simulations: `trine-chaos seeds FROM COUNT [JOBS]`, `trine-chaos seed N [trace|shrink]`,
//! and the same for the transport alone with `rpc` in front.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use trine_chaos::checker::Verdict;
use trine_chaos::sim::{self, SimConfig, Trace, rpc};

const USAGE: &str = "usage: trine-chaos [rpc] seeds FROM COUNT [JOBS]
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
        ["seeds", from, count] => Some(seeds(subject, from.parse().ok()?, count.parse().ok()?, 1)),
        ["seeds", from, count, jobs] => Some(seeds(
            subject,
            from.parse().ok()?,
            count.parse().ok()?,
            jobs.parse().ok()?,
        )),
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
    let (text, verdict) = simulate(subject, seed, trace);
    println!("{text}");
    verdict.is_pass()
}

/// Prints the history of a run instead of its report.
fn history(seed: u64) -> bool {
    let report = sim::run(SimConfig::from_seed(seed), Trace::Off);
    let report = report.expect("seeds stand for sound configurations");
    print!("{}", report.history.to_text());
    report.verdict.is_pass()
}

fn simulate(subject: Subject, seed: u64, trace: Trace) -> (String, Verdict) {
    match subject {
        Subject::Group => {
            let report = sim::run(SimConfig::from_seed(seed), trace)
                .expect("seeds stand for sound configurations");
            (report.to_string(), report.verdict)
        }
        Subject::Rpc => {
            let report = rpc::run(&rpc::RpcConfig::new(seed), trace);
            let text = format!(
                "seed {seed}: {} packets, ends {:?}, faults {:?}, hash {:016x}\n{}",
                report.packets, report.ended, report.faults, report.hash, report.verdict
            );
            (text, report.verdict)
        }
    }
}

/// Runs seeds on several threads; each run is a world of its own.
fn seeds(subject: Subject, from: u64, count: u64, jobs: u64) -> bool {
    let next = AtomicU64::new(from);
    let failed = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= from.saturating_add(count) {
                        return;
                    }
                    let (text, verdict) = simulate(subject, seed, Trace::Off);
                    if !verdict.is_pass() {
                        failed.fetch_add(1, Ordering::Relaxed);
                        println!("{text}\n");
                    }
                }
            });
        }
    });
    let failed = failed.into_inner();
    println!("{count} seeds from {from}: {failed} failed");
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
