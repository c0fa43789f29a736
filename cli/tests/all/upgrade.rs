//! `trine chaos --upgrade-from`: replicas that are replaced by another program under load. The other program is this one, as long
//! as a test has no earlier release.

use std::path::Path;

use serde_json::Value;

use crate::common::{TempFile, program, trine};

/// A short run; the replicas take as long as they need.
fn upgrade_from(program: &Path, more: &[&str]) -> crate::common::Ran {
    let program = program.to_str().expect("text");
    let line = "--for 6s --clients 2 --keys 16 --seed 5 --json";
    let args = ["chaos", "--upgrade-from", program].into_iter();
    let args: Vec<&str> = args
        .chain(line.split(' '))
        .chain(more.iter().copied())
        .collect();
    trine(&args, "", b"")
}

#[test]
fn replicas_become_another_program_and_back_under_load() {
    let page = TempFile::new("upgrade.html");
    let document = upgrade_from(&program(), &["--html", page.path()])
        .expect_status(0)
        .json();
    assert_eq!(document["passed"], true, "{document}");
    let upgrade = &document["upgrade"];
    assert_eq!(upgrade["programs"]["from"], upgrade["programs"]["to"]);
    let legs = upgrade["legs"].as_array().expect("a list");
    let names: Vec<&Value> = legs.iter().map(|leg| &leg["leg"]).collect();
    assert_eq!(names, ["on", "back", "on again"]);
    for leg in legs {
        // Three clients, each at least this often.
        assert!(leg["answers_to_old_clients"].as_u64() >= Some(60), "{leg}");
    }
    assert_eq!(upgrade["backups"].as_array().map(Vec::len), Some(4));
    assert!(
        upgrade["snapshots_from_the_other"].as_u64() > Some(0),
        "{upgrade}"
    );
    let switch = upgrade["switch"].as_str().expect("text");
    assert!(switch.contains("none to switch to"), "{switch}");
    let steps = document["timeline"]["faults"].as_array().expect("a list");
    assert_eq!(steps.len(), 9);
    let page = std::fs::read_to_string(page.path()).expect("a report");
    assert!(page.contains("the old program took its place") && page.contains("PASS"));
}

/// What the checkers are for: a program that tells its group to add two where its client asks for one.
#[test]
fn a_program_whose_increments_count_twice_fails_the_run() {
    let trine = program();
    let trine = trine.display();
    let script = TempFile::new("counts-twice");
    trine_child::script(
        &script.0,
        &format!(
            "[ \"$1\" = shell ] || exec '{trine}' \"$@\"\n\
             sed -u 's/^\\(incr counted-by-.*\\) 1$/\\1 2/' | '{trine}' \"$@\""
        ),
    );
    let ran = upgrade_from(Path::new(script.path()), &[]).expect_error(1, &["did not pass"]);
    let document = ran.json();
    assert_eq!(document["upgrade"]["passed"], false);
    let text = document["upgrade"]["text"].as_str().expect("text");
    assert!(text.contains("an increment was applied twice"), "{text}");
    assert_eq!(document["linearizable"]["passed"], false);
}

#[test]
fn programs_that_cannot_be_upgraded_from_are_refused() {
    let plain = TempFile::holding("no-program", "#!/bin/sh\n");
    for (program, reason) in [
        ("/nowhere/trine", "there is no such file"),
        ("/tmp", "it is a directory"),
        (plain.path(), "it cannot be executed"),
        ("/bin/echo", "does not say which release of trine it is"),
    ] {
        let ran = upgrade_from(Path::new(program), &[]);
        let parts = ["\"kind\": \"usage\"", reason, "--upgrade-from names"];
        let text = String::from_utf8_lossy(&ran.expect_status(2).stdout).into_owned();
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
    for (more, option) in [
        ("--faults=pause", "--faults"),
        ("--kill-leader-every=2s", "--kill-leader-every"),
        ("--netns", "--netns"),
        ("--check=history", "--check"),
    ] {
        let program = program();
        let args = [
            "chaos",
            "--upgrade-from",
            program.to_str().expect("text"),
            more,
        ];
        trine(&args, "", b"").expect_error(2, &["--upgrade-from", option, "cannot be used with"]);
    }
}
