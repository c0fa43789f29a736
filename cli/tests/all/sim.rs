//! An interrupted `trine sim` ends, reports the work so far, and exits like every interrupted command.
//!
//! A single seed used to ignore SIGTERM and Ctrl-C until its end, which took minutes with a wide session. Only a second
//! signal ended it, and then there was no report.

use std::process::{Child, Command, Stdio};

use crate::common::terminal::AtTerminal;
use crate::common::{Ran, TempFile, command, finish, program, signal, wait_for};

const INTERRUPTED: i32 = 130;

/// Whether the process has installed a handler for this signal. Before that, the signal would kill it.
fn catches(pid: u32, number: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a child's status");
    let caught = status
        .lines()
        .find_map(|line| line.strip_prefix("SigCgt:"))
        .expect("the kernel tells which signals are caught");
    let caught = u64::from_str_radix(caught.trim(), 16).expect("a mask");
    caught & 1 << (number - 1) != 0
}

fn begin(args: &[&str]) -> Child {
    let mut command = command(args, "");
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the program starts")
}

/// The output of a run that gets the signal as soon as it has a handler.
fn interrupted(args: &[&str], name: &str, number: u32) -> Ran {
    let child = begin(args);
    let pid = child.id();
    wait_for("the handler of signals", || {
        catches(pid, number).then_some(())
    });
    signal(pid, name);
    finish(child).expect_error(INTERRUPTED, &["interrupted"])
}

/// Ten simulated hours: minutes at best.
const LONG: &[&str] = &["sim", "--seed", "7", "--faulty", "10h"];

#[test]
fn a_single_seed_tells_what_it_has_done_and_ends() {
    for (name, number) in [("TERM", 15), ("INT", 2)] {
        let ran = interrupted(LONG, name, number);
        let told = String::from_utf8_lossy(&ran.stdout);
        assert!(told.contains("undecided: interrupted after"), "{told}");
        assert!(told.contains("operations"), "{told}");
        // The run was taken for a failure that the user might want to replay.
        assert!(!told.contains("replay with"), "{told}");
    }
    let ran = interrupted(&[LONG, &["--json"]].concat(), "TERM", 15);
    assert_eq!(ran.json()["pass"], false);
}

/// The sums of a run that gets the signal once its bar tells of a seed that has ended. Only a terminal shows a bar.
fn interrupted_after_a_seed(args: &[&str]) -> serde_json::Value {
    let sums = TempFile::new("sums");
    // The shell becomes the program.
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$0\" \"$@\" > \"$SUMS\""]);
    shell.arg(program()).args(args).env("SUMS", sums.path());
    let mut run = AtTerminal::start(shell);
    run.expect(" of 5000 seeds");
    signal(run.child().id(), "TERM");
    let status = wait_for("the end", || run.child().try_wait().expect("wait"));
    run.expect("interrupted");
    assert_eq!(status.code(), Some(INTERRUPTED));
    let text = std::fs::read(&sums.0).expect("they were written");
    serde_json::from_slice(&text).expect("JSON")
}

#[test]
fn many_seeds_count_those_that_ended() {
    let args = ["sim", "--seeds", "5000", "--threads", "2", "--json"];
    for twice in [&[][..], &["--twice"]] {
        let sums = interrupted_after_a_seed(&[&args[..], twice].concat());
        let seeds = sums["seeds"].as_u64().expect("a count");
        assert!((1..5000).contains(&seeds), "{sums}");
        assert_eq!(sums["failed"], serde_json::json!([]));
    }
}

#[test]
fn shrinking_and_measuring_end_as_well() {
    interrupted(&[LONG, &["--shrink"]].concat(), "TERM", 15);
    interrupted(&["sim", "--measure"], "TERM", 15);
}
