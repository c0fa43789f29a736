//! `trine chaos` with schedules of faults on real processes.

mod common;

use common::trine;
use serde_json::Value;

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
    assert_eq!(page.matches("<svg").count(), 4);
    assert!(page.contains("paused replica") && page.contains("PASS"));
}

/// As root with its tools the kernel cuts links and disks run full; elsewhere that is said, and the rest is done.
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
    ] {
        let args: Vec<&str> = line.split(' ').collect();
        trine(&args, "", b"").expect_error(2, parts);
    }
}
