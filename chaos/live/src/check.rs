//! `trine chaos --check FILE` runs the checkers again, over a history that a run has kept.

use std::path::Path;

use serde_json::json;
use trine_chaos::checker::{exactly_once, linearizability};
use trine_chaos::history::{Action, History};

use super::report;
use trine_base::failure::Failure;
use trine_base::output::Output;
use trine_base::units::{plural, show_count};

/// Checks the history in a file. The file does not say whether the run's faults fired; only the run's own report does.
pub(super) fn run(path: &Path, output: Output) -> Result<(), Failure> {
    let history = read(path)?;
    let command = linearizability::check(&history);
    let once = exactly_once::check(&history);
    let passed = command.verdict.is_pass() && once.is_pass();
    output.document(&json!({
        "passed": passed,
        "operations": history.tally(),
        "linearizable": report::verdict(&command.verdict),
        "exactly_once": report::verdict(&once),
    }));
    output.line(format_args!(
        "operations   {}",
        show_count(history.tally().called)
    ));
    output.line(format_args!("linearizable {}", command.verdict));
    output.line(format_args!("exactly once {once}"));
    match passed {
        true => Ok(()),
        false => Err(Failure::negative("the history did not pass", "")),
    }
}

fn read(path: &Path) -> Result<History, Failure> {
    let refused = |why: String, hint: &str| {
        Failure::usage(format!("cannot judge {}: {why}", path.display()), hint)
    };
    let text = std::fs::read_to_string(path).map_err(|error| refused(error.to_string(), ""))?;
    let history = History::from_text(&text).map_err(|error| {
        refused(
            error.to_string(),
            "a history is what `trine chaos --history FILE` writes",
        )
    })?;
    if history.tally().completed == 0 {
        let why = "no operation in it was completed, so it proves nothing".to_owned();
        return Err(refused(why, ""));
    }
    let expiring = |action: &Action| matches!(action, Action::PutFor { .. });
    let count = history
        .operations()
        .iter()
        .filter(|operation| expiring(&operation.action))
        .count();
    match count {
        0 => Ok(history),
        // Their expiry times depend on clocks and faults, which only the simulator knows.
        _ => Err(refused(
            format!("it has {} for a time", plural(count as u64, "write")),
            "it is of a simulated run: judge that with `trine sim --seed N`",
        )),
    }
}
