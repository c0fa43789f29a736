//! Commands that have no place in `trine sim`: the transport alone under faults, and the search for planted bugs.

use std::process::ExitCode;
use trine_chaos::seeds::for_each_seed;
use trine_chaos::sim::{Trace, rpc};

const USAGE: &str = "usage: trine-chaos rpc seeds FROM COUNT [JOBS]   the transport alone, each seed twice
       trine-chaos rpc seed N [trace]             one such seed
       trine-chaos canaries [JOBS] [NAME]         finds every planted bug (in a build with debug assertions)
       trine-chaos canaries JOBS --short          the same from recorded seeds on, for those that take long

Whole groups are simulated by `trine sim`.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let passed = match words.as_slice() {
        ["rpc", rest @ ..] => rpc_command(rest),
        ["canaries", rest @ ..] => canaries(rest),
        _ => None,
    };
    match passed {
        Some(true) => ExitCode::SUCCESS,
        Some(false) => ExitCode::FAILURE,
        None => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// Whether all passed; `None` for words that are no command.
fn rpc_command(words: &[&str]) -> Option<bool> {
    match words {
        ["seeds", from, count, rest @ ..] => {
            let jobs = match rest {
                [] => 1,
                [jobs] => jobs.parse().ok()?,
                _ => return None,
            };
            Some(rpc_seeds(from.parse().ok()?, count.parse().ok()?, jobs))
        }
        ["seed", seed] => Some(rpc_seed(seed.parse().ok()?, Trace::Off)),
        ["seed", seed, "trace"] => Some(rpc_seed(
            seed.parse().ok()?,
            Trace::To(Box::new(|line| println!("{line}"))),
        )),
        _ => None,
    }
}

fn rpc_seed(seed: u64, trace: Trace) -> bool {
    let report = rpc::run_caught(&rpc::RpcConfig::new(seed), trace);
    println!(
        "seed {seed}: {} packets, ends {:?}, faults {:?}, hash {:016x}\n{}",
        report.packets, report.ended, report.faults, report.hash, report.verdict
    );
    report.verdict.is_pass()
}

fn rpc_seeds(from: u64, count: u64, jobs: u64) -> bool {
    let mut failed = 0;
    let run = |seed| {
        let config = rpc::RpcConfig::new(seed);
        let report = rpc::run_caught(&config, Trace::Off);
        let replays = rpc::run_caught(&config, Trace::Off).hash == report.hash;
        (seed, report, replays)
    };
    for_each_seed(
        from,
        count,
        jobs,
        || true,
        run,
        |(seed, report, replays)| {
            if report.verdict.is_pass() && replays {
                return;
            }
            failed += 1;
            match report.verdict.is_pass() {
                false => println!("seed {seed}: {}", report.verdict),
                true => println!("seed {seed} does not replay: two runs have different hashes"),
            }
            println!("replay it with: {}\n", rpc::replay_command(seed));
        },
    );
    println!("{count} seeds from {from}, each run twice: {failed} failed");
    failed == 0
}

#[cfg(not(debug_assertions))]
fn canaries(_words: &[&str]) -> Option<bool> {
    eprintln!("this build has no planted bugs: cargo run --profile sim -p trine-chaos -- canaries");
    Some(false)
}

#[cfg(debug_assertions)]
fn canaries(words: &[&str]) -> Option<bool> {
    use trine_chaos::canaries::{CANARIES, search};
    let (jobs, name, short) = match words {
        [] => (2, None, false),
        [jobs] => (jobs.parse().ok()?, None, false),
        [jobs, "--short"] => (jobs.parse().ok()?, None, true),
        [jobs, name] => (jobs.parse().ok()?, Some(*name), false),
        _ => return None,
    };
    // Assertions of the system find some of the bugs; their output is not news here.
    std::panic::set_hook(Box::new(|_| {}));
    let chosen = CANARIES
        .iter()
        .filter(|canary| name.is_none_or(|name| canary.name == name));
    let mut searches = Vec::new();
    println!("| planted bug | from seed | found by | seconds | found as |\n|---|---|---|---|---|");
    for canary in chosen {
        let from = if short { canary.short_from } else { 1 };
        let search = search(*canary, from, jobs);
        print_row(&search);
        searches.push(search);
    }
    run_without(&mut searches, jobs);
    let known = searches
        .iter()
        .filter(|search| search.is_as_it_should_be())
        .count();
    println!(
        "{known} of {} planted bugs found, and missed while they were not planted",
        searches.len()
    );
    Some(known == searches.len() && known > 0)
}

#[cfg(debug_assertions)]
fn print_row(search: &trine_chaos::canaries::Search) {
    let (seed, text) = match &search.found {
        Some((seed, text)) => (seed.to_string(), text.as_str()),
        None => ("-".to_owned(), "**not found**"),
    };
    let line = text.lines().next().unwrap_or_default();
    let line: String = line.chars().take(100).collect();
    let (name, seconds) = (search.canary.name, search.took.as_secs_f64());
    println!(
        "| {name} | {} | {seed} | {seconds:.1} | {line} |",
        search.from
    );
}

/// The same seeds, with nothing planted.
#[cfg(debug_assertions)]
fn run_without(searches: &mut [trine_chaos::canaries::Search], jobs: u64) {
    use trine_chaos::canaries::{Subject, false_alarms, seeds_run};
    for subject in [Subject::Group, Subject::Transport] {
        let seeds = seeds_run(searches, subject);
        if seeds.is_empty() {
            continue;
        }
        let alarms = false_alarms(subject, &seeds, jobs);
        println!(
            "\n{subject:?}: {} seeds with nothing planted, {} alarms {alarms:?}",
            seeds.len(),
            alarms.len()
        );
        let of_subject =
            |search: &&mut trine_chaos::canaries::Search| search.canary.subject == subject;
        for search in searches.iter_mut().filter(of_subject) {
            search.silent_without = alarms.is_empty();
        }
    }
}
