//! `trine chaos` with schedules of faults on real processes.

use crate::common::{children_of, command, finish, leave_out, signal, trine};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

fn run(line: &str) -> Value {
    let args: Vec<&str> = line.split(' ').collect();
    trine(&args, "", b"").expect_status(0).json()
}

fn assert_fired(document: &Value, kinds: &[&str]) {
    for kind in kinds {
        assert!(
            document["faults"][kind].as_u64() > Some(0),
            "{kind}: {document}"
        );
    }
}

#[test]
fn replicas_stand_still_and_links_are_cut_on_a_schedule_and_the_report_shows_it() {
    let path = std::env::temp_dir().join(format!("trine-chaos-{}.html", std::process::id()));
    let html = path.to_str().expect("a path of text");
    let kinds = "pause,partition,one-way,lossy,restart";
    let document = run(&format!(
        "chaos --faults {kinds} --fault-every 900ms --for 6s --clients 4 --seed 11 --html {html} --json"
    ));
    assert_eq!(document["passed"], true, "{document}");
    assert_fired(&document, &kinds.split(',').collect::<Vec<_>>());
    let seed_fixes = document["seed_fixes"].as_str().expect("text");
    assert!(seed_fixes.contains("not the interleaving"), "{seed_fixes}");
    let faults = document["timeline"]["faults"].as_array().expect("a list");
    assert!(
        faults.len() >= 5 && !faults[0]["first_write_ns"].is_null(),
        "{document}"
    );
    assert!(
        !document["timeline"]["leaders"]
            .as_array()
            .expect("a list")
            .is_empty()
    );

    let page = std::fs::read_to_string(&path).expect("a report");
    std::fs::remove_file(&path).expect("the report");
    assert_eq!(page.matches("role=\"img\"").count(), 4);
    assert!(page.contains("paused replica") && page.contains("PASS"));
}

/// With root's rights and the tools, the kernel cuts links and fills disks. Elsewhere the run says so and does the
/// rest, and with `TRINE_NEED_SANDBOX=1` the test fails.
#[test]
fn namespaces_are_made_for_the_run_and_go_with_it() {
    let interfaces = || {
        let listed = std::fs::read_dir("/sys/class/net").expect("interfaces");
        listed
            .map(|entry| entry.expect("an entry").file_name())
            .collect::<Vec<_>>()
    };
    let before = interfaces();
    let path = std::env::temp_dir().join(format!("trine-chaos-disks-{}", std::process::id()));
    let line = format!(
        "chaos --netns --faults partition,disk-full --fault-every 1500ms --for 5s --clients 4 --seed 2 --log disk \
         --data-dir {} --json",
        path.display()
    );
    let document = run(&line);
    assert_eq!(document["passed"], true, "{document}");
    let skipped = document["skipped"].as_array().expect("a list");
    assert_fired(&document, &["partition"]);
    match skipped.is_empty() {
        true => assert_fired(&document, &["disk-full"]),
        false => assert!(
            skipped.len() == 2 && document["faults"]["disk-full"].is_null(),
            "{document}"
        ),
    }
    assert_eq!(interfaces(), before);
    std::fs::remove_dir_all(&path).expect("nothing is mounted there any more");
    if !skipped.is_empty() {
        leave_out(&format!("{skipped:?}"), "TRINE_NEED_SANDBOX");
    }
}

/// A short run with one kind of fault, in networks of its own and on disk. None where this machine cannot do that.
fn in_a_sandbox(kind: &str, more: &str) -> Option<Value> {
    let name = format!("trine-chaos-{kind}-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    let line = format!(
        "chaos --netns --log disk --data-dir {} --faults {kind} --clients 8 --json{more}",
        directory.display()
    );
    let args: Vec<&str> = line.split(' ').collect();
    let ran = trine(&args, "", b"");
    let _ = std::fs::remove_dir_all(&directory);
    let impossible = "no fault that was asked for can be here";
    if ran.status == Some(2) && ran.stderr.contains(impossible) {
        leave_out(&ran.stderr, "TRINE_NEED_SANDBOX");
        return None;
    }
    let document = ran.expect_status(0).json();
    assert_eq!(document["passed"], true, "{document}");
    assert_fired(&document, &[kind]);
    Some(document)
}

/// What was done to replicas, in the words of the report.
fn done(document: &Value) -> Vec<String> {
    let faults = document["timeline"]["faults"].as_array().expect("a list");
    let words = faults.iter().map(|fault| fault["what"].as_str());
    words.map(|what| what.expect("text").to_owned()).collect()
}

/// One value of 1,300 bytes stopped a group for good on a link that carried less than an Ethernet.
#[test]
fn links_that_carry_less_for_a_while_cost_no_write() {
    let line = " --mtu 8952 --fault-every 2s --for 6s --seed 3";
    let Some(document) = in_a_sandbox("mtu", line) else {
        return;
    };
    let done = done(&document);
    assert!(
        done.iter().all(|what| what.contains("of 8980 bytes")),
        "{done:?}"
    );
    let first = document["timeline"]["faults"][0]["first_write_ns"].as_u64();
    assert!(first.is_some(), "{document}");
}

/// A leader whose disk hung for 25 s led for 25 s without an answer. One that hands over is waited for less than the disk.
#[test]
fn a_disk_that_hangs_is_thawed_and_the_group_is_whole_again() {
    let line = " --fault-every 2s --for 7s --seed 3";
    let Some(document) = in_a_sandbox("disk-hang", line) else {
        return;
    };
    let done = done(&document);
    assert!(
        done.iter().all(|what| what.contains("hung for")),
        "{done:?}"
    );
    let disks = std::fs::read_to_string("/proc/self/mounts").expect("a table");
    assert!(!disks.contains("trine-chaos-disk-hang"), "{disks}");
}

/// Replicas were sent to where they had been for good.
#[test]
fn replicas_that_move_are_found_by_their_names() {
    let line = " --fault-every 3s --for 5s --seed 3";
    let Some(document) = in_a_sandbox("addresses", line) else {
        return;
    };
    let done = done(&document);
    assert!(done[0].contains("moved from 10.77.0."), "{done:?}");
}

/// A replica that was started while names did not resolve ended with status 2.
#[test]
fn a_replica_that_starts_while_names_fail_waits_for_them() {
    let line = " --fault-every 3s --for 8s --seed 4";
    let Some(document) = in_a_sandbox("resolver", line) else {
        return;
    };
    let done = done(&document);
    assert!(
        done[0].contains("was started meanwhile and waited"),
        "{done:?}"
    );
    // The others did not need the names.
    let first = document["timeline"]["faults"][0]["first_write_ns"].as_u64();
    assert!(first < Some(2_000_000_000), "{document}");
}

#[test]
fn schedules_that_cannot_be_are_refused_before_anything_is_started() {
    for (line, parts) in [
        ("chaos --faults gremlins", &["gremlins", "one-way"][..]),
        ("chaos --fault-every 1s", &["--faults"]),
        (
            "chaos --faults pause,kill --for 4s",
            &["do not fit", "--for 11s"],
        ),
        (
            "chaos --faults pause --fault-every 1ms",
            &["no time for a fault"],
        ),
        ("chaos --faults disk-full", &["--log disk"]),
        ("chaos --faults mtu", &["mtu", "--netns"]),
        (
            "chaos --netns --faults addresses",
            &["addresses", "--log disk"],
        ),
        (
            "chaos --kill-leader-every 30s --for 20s",
            &["has no turn", "--for longer than 30"],
        ),
        (
            "chaos --loss 1% --html /nowhere/report.html",
            &["cannot write the report", "/nowhere/report.html"],
        ),
        (
            "chaos --check /nowhere/history",
            &["cannot judge /nowhere/history"],
        ),
        ("chaos --check x --loss 1%", &["--check", "--loss"]),
    ] {
        let args: Vec<&str> = line.split(' ').collect();
        trine(&args, "", b"").expect_error(2, parts);
    }
}

/// The run opened the directories of the group that was there, killed its replicas, and wrote over its keys.
#[test]
fn a_directory_that_holds_a_group_is_refused_before_anything_is_started() {
    let directory = std::env::temp_dir().join(format!("trine-chaos-kept-{}", std::process::id()));
    let file = directory.join("replica-1/identity");
    std::fs::create_dir_all(file.parent().expect("a directory")).expect("made");
    std::fs::write(&file, "of a replica").expect("written");
    let data = directory.to_str().expect("text");
    let chaos = [
        "chaos",
        "--log",
        "disk",
        "--fsync",
        "none",
        "--data-dir",
        data,
    ];
    let parts = [
        "holds a group",
        "replica-1",
        "nothing was started",
        "that is new",
    ];
    let ran = trine(&chaos, "", b"").expect_error(2, &parts);
    assert!(ran.stdout.is_empty(), "{ran:?}");
    assert_eq!(std::fs::read(&file).expect("it is there"), b"of a replica");
    assert!(!directory.join("replica-2").exists());
    std::fs::remove_dir_all(&directory).expect("the files");
}

/// A replica that ends by itself is the worst finding of a live run. It used to end the run without a verdict, and
/// history and report were not written.
#[test]
fn a_replica_that_ends_by_itself_fails_the_run_which_keeps_what_was_seen() {
    let directory = std::env::temp_dir().join(format!("trine-chaos-broken-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let file = |name: &str| directory.join(name).to_str().expect("text").to_owned();
    let (history, html) = (file("history"), file("report.html"));
    let line = format!("chaos --loss 1% --for 60s --clients 4 --history {history} --html {html}");
    let args: Vec<&str> = line.split(' ').collect();
    let mut command = command(&args, "");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program");
    let mut told = BufReader::new(child.stdout.take().expect("piped"));
    let mut told_line = String::new();
    while !told_line.contains("clients work") {
        told_line.clear();
        assert!(told.read_line(&mut told_line).expect("text") > 0, "ended");
    }
    // There is nothing more to read yet.
    child.stdout = Some(told.into_inner());
    let replicas = children_of(child.id());
    assert_eq!(replicas.len(), 3);
    signal(replicas[2], "KILL");
    let ran = finish(child).expect_error(1, &["broken off", "replica", "ended"]);
    let told = String::from_utf8_lossy(&ran.stdout);
    assert!(
        told.contains("broken off   replica") && told.contains("FAIL"),
        "{told}"
    );
    let page = std::fs::read_to_string(&html).expect("a report");
    assert!(page.contains("FAIL") && page.contains("Why the run was broken off"));
    // A separate check of the kept history succeeds, because the group did nothing wrong.
    let again = run(&format!("chaos --check {history} --json"));
    assert_eq!(again["passed"], true, "{again}");

    let text = std::fs::read_to_string(&history).expect("a history");
    let other = text.replacen("\"trine_history\":1", "\"trine_history\":9", 1);
    std::fs::write(&history, other).expect("written");
    let args = ["chaos", "--check", &history];
    trine(&args, "", b"").expect_error(2, &["history of version 9", "reads version 1"]);
    std::fs::remove_dir_all(&directory).expect("the files");
}
