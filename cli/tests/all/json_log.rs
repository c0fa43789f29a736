//! `--log-format json`: servers write nothing but objects.

use std::process::Stdio;

use serde_json::Value;
use trine_base::ports::free_addresses;

use crate::common::{Ran, TempFile, command, finish, signal, trine, wait_for};

/// With `--log-format json` the announcements, the last error and whatever a wrong command line causes were plain text, and
/// each change of role was told twice: the parser of a service manager, which has both streams as one, stopped there.
#[test]
fn a_json_log_has_objects_alone_from_the_first_line_to_the_last() {
    let addresses = free_addresses(2).expect("ports");
    let [address, other] = [0, 1].map(|at: usize| addresses[at].to_string());
    let serve = |address: &str, more: &[&str]| {
        let words = ["serve", "--id", "1", "--bootstrap", "--log-format", "json"];
        let mut command = command(&[&words, more].concat(), address);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().expect("starts")
    };
    let replica = serve(&address, &[]);
    wait_for("the leader", || {
        trine(&["status"], &address, b"")
            .status
            .filter(|status| *status == 0)
    });
    // A file stands where the directory is to be, a file is not there, and an option is unknown.
    let taken = TempFile::holding("json-taken", "no directory");
    for more in [
        &["--log", "disk", "--data-dir", taken.path()][..],
        &[
            "--resp-password-file",
            "/nonexistent",
            "--resp",
            "127.0.0.1:0",
        ],
        &["--nonsense"],
    ] {
        let ran = finish(serve(&other, more));
        assert_eq!(ran.status, Some(2), "{ran:?}");
        let objects = assert_objects(&ran);
        let last = objects.last().expect("a line");
        assert_eq!(last["level"], "ERROR", "{last}");
    }
    signal(replica.id(), "TERM");
    let ran = finish(replica).expect_status(0);
    let objects = assert_objects(&ran);
    let leads = |object: &&Value| {
        let fields = object["fields"].to_string();
        fields.contains("leads in term") || fields.contains("\"role\":\"leader\"")
    };
    assert_eq!(objects.iter().filter(leads).count(), 1, "{objects:?}");

    let port = address.rsplit(':').next().expect("a port");
    let words = [
        "up",
        "--replicas",
        "1",
        "--base-port",
        port,
        "--log-format",
        "json",
    ];
    let mut up = command(&words, &address);
    up.stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let up = up.spawn().expect("starts");
    wait_for("the leader", || {
        trine(&["status"], &address, b"")
            .status
            .filter(|status| *status == 0)
    });
    signal(up.id(), "INT");
    let objects = assert_objects(&finish(up).expect_status(0));
    assert!(
        objects.iter().any(|object| object["replica"] == 1),
        "{objects:?}"
    );
}

/// Only `trine serve` and `trine up` had the option.
#[test]
fn other_servers_write_objects_alone_too() {
    let free = free_addresses(3).expect("ports");
    let state = TempFile::new("json-numbers");
    for (server, ask, address) in [
        ("cache", &["get", "k"][..], free[0]),
        ("index", &["get", "7"], free[1]),
        ("sequencer", &["next"], free[2]),
    ] {
        let address = address.to_string();
        let words = [
            server,
            "serve",
            "--log-format",
            "json",
            "--listen",
            &address,
        ];
        let words = match server {
            "cache" => [&words[..], &["--memory", "16MiB"]].concat(),
            "index" => [&words[..], &["--keys-max", "1000"]].concat(),
            _ => [&words[..], &["--state", state.path()]].concat(),
        };
        let mut serving = command(&words, "");
        serving
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let serving = serving.spawn().expect("starts");
        let ask = [&[server], ask, &["--connect", &address]].concat();
        wait_for("the server", || {
            let status = trine(&ask, "", b"").status;
            status.filter(|status| *status <= 1)
        });
        // A second one at the same address cannot listen.
        let refused = trine(&words, "", b"");
        assert_ne!(refused.status, Some(0));
        let last = assert_objects(&refused);
        assert_eq!(last.last().expect("a line")["level"], "ERROR");
        signal(serving.id(), "TERM");
        let objects = assert_objects(&finish(serving).expect_status(0));
        assert!(!objects.is_empty(), "{server} announces nothing");
    }
}

/// Each line of both streams is a JSON object.
#[track_caller]
fn assert_objects(ran: &Ran) -> Vec<Value> {
    let stdout = String::from_utf8_lossy(&ran.stdout);
    let lines = stdout.lines().chain(ran.stderr.lines());
    let parsed = lines.map(|line| match serde_json::from_str(line) {
        Ok(Value::Object(object)) => Value::Object(object),
        _ => panic!("{line:?} is no object"),
    });
    parsed.collect()
}
