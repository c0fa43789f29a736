//! `trine sim --sequencer` simulates sequencers. Each number comes once, and numbers grow.

use serde_json::{Value, json};
use trine_base::failure::Failure;
use trine_base::output::Output;
use trine_chaos::sim::Run as _;
use trine_chaos::sim::numbers::{KINDS, NumbersConfig, NumbersReport};

use super::{
    SimArguments, each_seed, fault_counts, goes_on, judge, judge_all, of_seeds, show, shrink_seed,
    trace,
};

pub(super) fn run(arguments: &SimArguments, output: Output) -> Result<(), Failure> {
    let config = |seed| chosen(seed, arguments);
    match arguments.seed {
        Some(seed) if arguments.shrink => shrink_seed(seed, &config(seed)?, document, output),
        Some(seed) => {
            let report = config(seed)?.simulate(trace(arguments, output), goes_on);
            show(&report, document, output);
            judge(&report)
        }
        None => many(arguments, output),
    }
}

/// The run of one seed, with the changes of the options.
fn chosen(seed: u64, arguments: &SimArguments) -> Result<NumbersConfig, Failure> {
    let mut config = NumbersConfig::new(seed);
    if let Some(faults) = &arguments.faults {
        let mut named = faults.0.iter();
        if let Some(fault) = named.find(|fault| !KINDS.contains(fault)) {
            let known = KINDS.map(|fault| fault.name()).join(", ");
            return Err(Failure::usage(
                format!("`{fault}` does not happen to sequencers"),
                format!("there are: {known}"),
            ));
        }
        config = config.with_faults(faults.0.clone());
    }
    if let Some(faulty) = arguments.faulty {
        config.faulty = faulty.into();
        config.answers_min = 1;
    }
    Ok(config)
}

fn many(arguments: &SimArguments, output: Output) -> Result<(), Failure> {
    // Whether a fault is one of sequencers does not depend on the seed.
    chosen(arguments.from, arguments)?;
    let config = |seed| chosen(seed, arguments).expect("what one seed allows all do");
    let ended = each_seed(arguments, output, config, |_| ());
    output.document(&json!({
        "seeds": ended.seeds, "from": arguments.from, "twice": arguments.twice, "failed": ended.failed,
    }));
    output.line(format_args!(
        "sequencers: {}: {} failed",
        of_seeds(&ended, arguments),
        ended.failed.len()
    ));
    judge_all(ended)
}

fn document(report: &NumbersReport) -> Value {
    json!({
        "seed": report.seed, "pass": report.verdict.is_pass(), "verdict": report.verdict.to_string(),
        "kept_in": report.keeping, "answered": report.answered, "packets": report.packets, "history_hash": format!("{:016x}", report.hash),
        "faults": fault_counts(&report.faults),
    })
}
