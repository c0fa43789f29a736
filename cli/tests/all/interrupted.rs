//! Ctrl-C, and a terminal that goes away: a command ends at once, says how far it came, and undoes what it has to.

use std::io::Write;
use std::process::{Child, Command, Stdio};

use crate::common::terminal::AtTerminal;
use crate::common::{Cluster, command, finish, program, signal, wait_for};
use trine_base::ports::free_addresses;

/// Starts a command with a pipe as its input, and waits until it catches signals.
pub(crate) fn start(args: &[&str], peers: &str) -> Child {
    let child = command(args, peers)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let pid = child.id();
    // The signal is caught once the thread that waits for signals runs.
    wait_for("the watch for signals", || {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
        let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
        let mut names = tasks.flatten().flat_map(name);
        names.any(|name| name.trim() == "signals").then_some(())
    });
    child
}

/// The first Ctrl-C set a flag that nobody looked at while a server was silent.
#[test]
fn ctrl_c_ends_the_wait_for_a_silent_server() {
    let nobody = free_addresses(1).expect("a port")[0].to_string();
    for args in [
        &["sequencer", "next"][..],
        &["sequencer", "bench"],
        &["index", "bench"],
        &["index", "put", "1", "2"],
        &["index", "del", "1"],
        &["cache", "bench"],
        &["cache", "put", "k", "v"],
        &["cache", "del", "k"],
    ] {
        let line = [args, &["--connect", &nobody, "--timeout", "10m"]].concat();
        let child = start(&line, "");
        signal(child.id(), "INT");
        let ran = finish(child).expect_error(130, &["interrupted"]);
        assert!(ran.stdout.is_empty(), "{args:?}");
    }
}

/// The input is a pipe in which nothing comes.
#[test]
fn ctrl_c_ends_an_import_that_waits_for_lines() {
    for args in [&["import"][..], &["import", "--partial"]] {
        let mut child = start(args, "127.0.0.1:1");
        // It stays open until the program has ended.
        let input = child.stdin.take();
        signal(child.id(), "INT");
        let ran = finish(child).expect_error(130, &["interrupted"]);
        assert!(ran.stdout.is_empty(), "{args:?}");
        drop(input);
    }
}

/// Ctrl-C reaches the program that writes into the pipe, too, and its end is the end of the input. The import wrote what it
/// had, and said that all was done.
#[test]
fn an_import_whose_producer_ctrl_c_has_ended_is_no_success() {
    let mut child = start(&["import", "--partial"], "127.0.0.1:1");
    let mut input = child.stdin.take().expect("piped");
    input
        .write_all(b"{\"key\":\"a\",\"value\":\"1\"}\n")
        .expect("written");
    // It has taken the line, and waits for more.
    wait_for("an empty pipe", || {
        (rustix::io::ioctl_fionread(&input) == Ok(0)).then_some(())
    });
    signal(child.id(), "INT");
    drop(input);
    let ran = finish(child).expect_error(130, &["0 keys written", "interrupted"]);
    assert!(ran.stdout.is_empty());
}

/// Before: it ended with status 0, as if all lines had been printed. Without a number, Ctrl-C is the usual end.
#[test]
fn ctrl_c_before_the_last_line_that_was_asked_for_is_no_success() {
    let cluster = Cluster::start(&[]);
    let peers = cluster.group.peers();
    let ended = |args: &[&str]| {
        let child = start(args, &peers);
        signal(child.id(), "INT");
        finish(child)
    };
    ended(&["stat", "0.1"]).expect_status(0);
    ended(&["stat", "0.1", "1000"]).expect_error(130, &["interrupted: ", "of 1,000 lines printed"]);
    let ran = ended(&["stat", "0.1", "1000", "--json"]).expect_status(130);
    let text = String::from_utf8(ran.stdout).expect("text");
    let last = text.lines().next_back().expect("a line");
    let last: serde_json::Value = serde_json::from_str(last).expect("JSON");
    assert_eq!(last["error"]["kind"], "interrupted");
}

/// The state of a process, as the system names it: T is stopped.
fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = stat.rsplit(") ").next();
    after_name.is_some_and(|rest| rest.starts_with('T'))
}

/// The signal of a closed terminal ended `top` before it had healed, and a replica stayed stopped for good.
#[test]
fn a_screen_whose_terminal_goes_away_heals_its_faults() {
    let cluster = Cluster::start(&["--fault-injection"]);
    let pids = cluster.group.pids();
    let mut at_size = Command::new("sh");
    at_size
        .args(["-c", "stty rows 24 cols 80; exec \"$@\"", "sh"])
        .arg(program())
        .args(["top", "--fault-injection"])
        .env_remove("TRINE_KEY")
        .env("TRINE_PEERS", cluster.group.peers());
    let mut top = AtTerminal::start(at_size);
    wait_for("a paused replica", || {
        // It knows the replicas only after a moment. Keys that come too early do nothing.
        top.press("sy");
        pids.iter().any(|pid| is_stopped(*pid)).then_some(())
    });
    signal(top.child().id(), "HUP");
    // Terminals tell it more than once.
    signal(top.child().id(), "HUP");
    wait_for("the end of top", || top.child().try_wait().expect("wait"));
    assert!(!pids.iter().any(|pid| is_stopped(*pid)));
}
