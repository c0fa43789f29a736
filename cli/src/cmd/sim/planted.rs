//! `trine sim --planted-bugs`: the checkers must find every planted bug, and nothing in the same seeds without it.

use serde_json::json;
use trine_base::failure::Failure;
use trine_base::output::Output;
use trine_chaos::canaries::{CANARIES, Search, Subject, false_alarms, search, seeds_run};

use super::SimArguments;

pub(super) fn run(name: &str, arguments: &SimArguments, output: Output) -> Result<(), Failure> {
    let chosen: Vec<_> = CANARIES
        .iter()
        .filter(|canary| name == "all" || canary.name == name)
        .collect();
    if chosen.is_empty() {
        return Err(unknown(name));
    }
    // Assertions of the system find some of the bugs, so their output is expected and hidden here.
    std::panic::set_hook(Box::new(|_| {}));
    let mut searches = Vec::new();
    output.line("| planted bug | from seed | found by | seconds | found as |");
    output.line("|---|---|---|---|---|");
    for canary in chosen {
        let from = if arguments.short {
            canary.short_from
        } else {
            1
        };
        let search = search(*canary, from, arguments.threads);
        show(&search, output);
        searches.push(search);
    }
    run_without(&mut searches, arguments.threads, output);
    judge(&searches, output)
}

fn unknown(name: &str) -> Failure {
    let names: Vec<&str> = CANARIES.iter().map(|canary| canary.name).collect();
    Failure::usage(
        format!("no bug called \"{name}\" is planted"),
        format!("there are: {}", names.join("; ")),
    )
}

fn show(search: &Search, output: Output) {
    let (seed, text) = match &search.found {
        Some((seed, text)) => (seed.to_string(), text.as_str()),
        None => ("-".to_owned(), "**not found**"),
    };
    let line = text.lines().next().unwrap_or_default();
    let line: String = line.chars().take(100).collect();
    let (name, seconds) = (search.canary.name, search.took.as_secs_f64());
    output.line(format_args!(
        "| {name} | {} | {seed} | {seconds:.1} | {line} |",
        search.from
    ));
}

/// Runs the same seeds without a planted bug.
fn run_without(searches: &mut [Search], jobs: u64, output: Output) {
    for subject in [Subject::Group, Subject::Transport, Subject::Sequencer] {
        let seeds = seeds_run(searches, subject);
        if seeds.is_empty() {
            continue;
        }
        let alarms = false_alarms(subject, &seeds, jobs);
        output.line(format_args!(
            "\n{subject:?}: {} seeds with nothing planted, {} alarms {alarms:?}",
            seeds.len(),
            alarms.len()
        ));
        let of_subject = |search: &&mut Search| search.canary.subject == subject;
        for search in searches.iter_mut().filter(of_subject) {
            search.silent_without = alarms.is_empty();
        }
    }
}

fn judge(searches: &[Search], output: Output) -> Result<(), Failure> {
    let as_it_should_be = searches.iter().filter(|search| search.is_as_it_should_be());
    let (known, all) = (as_it_should_be.count(), searches.len());
    let bug = |search: &Search| {
        json!({
            "name": search.canary.name,
            "seed": search.found.as_ref().map(|(seed, _)| seed),
            "found_as": search.found.as_ref().map(|(_, text)| text),
        })
    };
    output.document(&json!({ "found": known, "planted": all, "bugs": searches.iter().map(bug).collect::<Vec<_>>() }));
    output.line(format_args!(
        "{known} of {all} planted bugs found, and missed while they were not planted"
    ));
    match known == all {
        true => Ok(()),
        false => Err(Failure::negative(
            format!("{} planted bugs were not told apart", all - known),
            "see the rows that say **not found**, and the alarms",
        )),
    }
}
