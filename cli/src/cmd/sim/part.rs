//! `trine sim --rpc` and `trine sim --sequencer` simulate one part of the system. For the transport every request ends once,
//! with its own answer, and no credit is lost. Of sequencers each number comes once, and numbers grow.

use serde_json::{Value, json};
use trine_base::failure::Failure;
use trine_base::output::Output;
use trine_chaos::sim::numbers::{NumbersReport, Sequencers};
use trine_chaos::sim::rpc::{RpcReport, Transport};
use trine_chaos::sim::{Part, PartConfig, PartReport, Run as _};

use super::{
    SimArguments, each_seed, fault_counts, goes_on, judge, judge_all, of_seeds, show, shrink_seed,
    trace,
};

/// How a part is named in reports.
trait ReportedPart: Part {
    /// The part.
    const NAME: &'static str;

    /// A report for programs.
    fn document(report: &PartReport<Self::Facts>) -> Value;
}

impl ReportedPart for Transport {
    const NAME: &'static str = "the transport alone";

    fn document(report: &RpcReport) -> Value {
        json!({
            "seed": report.seed, "pass": report.verdict.is_pass(), "verdict": report.verdict.to_string(),
            "packets": report.packets, "history_hash": format!("{:016x}", report.hash),
            "faults": fault_counts(&report.faults),
        })
    }
}

impl ReportedPart for Sequencers {
    const NAME: &'static str = "sequencers";

    fn document(report: &NumbersReport) -> Value {
        let given = &report.facts;
        json!({
            "seed": report.seed, "pass": report.verdict.is_pass(), "verdict": report.verdict.to_string(),
            "kept_in": given.keeping, "answered": given.answered, "packets": report.packets,
            "history_hash": format!("{:016x}", report.hash), "faults": fault_counts(&report.faults),
        })
    }
}

pub(super) fn transport(arguments: &SimArguments, output: Output) -> Result<(), Failure> {
    run::<Transport>(arguments, output)
}

pub(super) fn sequencers(arguments: &SimArguments, output: Output) -> Result<(), Failure> {
    run::<Sequencers>(arguments, output)
}

fn run<P: ReportedPart>(arguments: &SimArguments, output: Output) -> Result<(), Failure> {
    let config = |seed| chosen::<P>(seed, arguments);
    match arguments.seed {
        Some(seed) if arguments.shrink => shrink_seed(seed, &config(seed)?, P::document, output),
        Some(seed) => {
            let report = config(seed)?.simulate(trace(arguments, output), goes_on);
            show(&report, P::document, output);
            judge(&report)
        }
        None => many::<P>(arguments, output),
    }
}

/// The run of one seed, with the changes of the options.
fn chosen<P: ReportedPart>(seed: u64, arguments: &SimArguments) -> Result<PartConfig<P>, Failure> {
    let mut config = PartConfig::new(seed);
    if let Some(faults) = &arguments.faults {
        let mut named = faults.0.iter();
        if let Some(fault) = named.find(|fault| !P::KINDS.contains(fault)) {
            let known: Vec<_> = P::KINDS.iter().map(|fault| fault.name()).collect();
            return Err(Failure::usage(
                format!("`{fault}` does not happen to {}", P::NAME),
                format!("there are: {}", known.join(", ")),
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

fn many<P: ReportedPart>(arguments: &SimArguments, output: Output) -> Result<(), Failure> {
    // Whether a fault happens to the part does not depend on the seed.
    chosen::<P>(arguments.first_seed, arguments)?;
    let config = |seed| chosen::<P>(seed, arguments).expect("what one seed allows all do");
    let ended = each_seed(arguments, output, config, |_| ());
    output.document(&json!({
        "seeds": ended.seeds, "from": arguments.first_seed, "twice": arguments.twice, "failed": ended.failed,
    }));
    output.line(format_args!(
        "{}: {}: {} failed",
        P::NAME,
        of_seeds(&ended, arguments),
        ended.failed.len()
    ));
    judge_all(ended)
}
