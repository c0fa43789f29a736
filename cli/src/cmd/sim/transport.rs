//! `trine sim --rpc` simulates the transport alone. Every request ends once, with its own answer, and no credit is
//! lost.

use serde_json::json;
use trine_base::failure::Failure;
use trine_base::output::Output;
use trine_chaos::seeds::for_each_seed;
use trine_chaos::sim::Trace;
use trine_chaos::sim::rpc::{RpcConfig, RpcReport, replay_command, run_caught};

use super::{SimArguments, goes_on, judge_all, trace};

pub(super) fn run(arguments: &SimArguments, output: Output) -> Result<(), Failure> {
    match arguments.seed {
        Some(seed) => one(seed, arguments, output),
        None => many(arguments, output),
    }
}

fn one(seed: u64, arguments: &SimArguments, output: Output) -> Result<(), Failure> {
    let report = run_caught(&RpcConfig::new(seed), trace(arguments, output));
    let passed = report.verdict.is_pass();
    output.document(&json!({
        "seed": seed, "pass": passed, "verdict": report.verdict.to_string(), "packets": report.packets,
        "history_hash": format!("{:016x}", report.hash),
    }));
    output.line(format_args!(
        "seed {seed}: {} packets, ends {:?}, faults {:?}, hash {:016x}\n{}",
        report.packets, report.ended, report.faults, report.hash, report.verdict
    ));
    match passed {
        true => Ok(()),
        false => judge_all(Some(replay_command(seed)), 1, 1),
    }
}

struct Outcome {
    seed: u64,
    report: RpcReport,
    /// Whether a second run, if requested, gave the same result.
    replays: bool,
}

fn many(arguments: &SimArguments, output: Output) -> Result<(), Failure> {
    let run = |seed| {
        let once = || run_caught(&RpcConfig::new(seed), Trace::Off);
        let report = once();
        let replays = !arguments.twice || once().hash == report.hash;
        Outcome {
            seed,
            report,
            replays,
        }
    };
    let (mut ended, mut failed) = (0, Vec::new());
    let take = |outcome: Outcome| {
        ended += 1;
        let Outcome {
            seed,
            report,
            replays,
        } = outcome;
        match (report.verdict.is_pass(), replays) {
            (true, true) => return,
            (false, _) => output.line(format_args!("seed {seed}: {}", report.verdict)),
            (true, false) => output.line(format_args!(
                "seed {seed} does not replay: two runs have different hashes"
            )),
        }
        failed.push(seed);
    };
    let (from, seeds, jobs) = (arguments.from, arguments.seeds, arguments.jobs);
    for_each_seed(from, seeds, jobs, goes_on, run, take);
    let runs = ["", ", each run twice"][usize::from(arguments.twice)];
    output.document(&json!({
        "seeds": ended, "from": from, "twice": arguments.twice, "failed": failed,
    }));
    output.line(format_args!(
        "the transport alone: {ended} seeds from {from}{runs}: {} failed",
        failed.len()
    ));
    let replay = failed.first().map(|&seed| replay_command(seed));
    judge_all(replay, failed.len(), ended)
}
