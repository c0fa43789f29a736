//! `trine index` as documented, with real processes on free ports.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Bound::{Excluded, Unbounded};

use crate::common::serving::Serving;
use crate::common::{Cluster, Ran, signal, trine, wait_for};
use crate::keys::Keys;
use trine_base::ports::free_addresses;

/// A running server and what it is asked.
struct Server(Serving);

impl Server {
    fn start(threads: usize, options: &[&str]) -> Self {
        Self(Serving::start("index", threads, options))
    }

    /// Runs a command at one of the server's threads.
    fn run_at(&self, thread: u16, args: &[&str]) -> Ran {
        let port = self.0.address.port() + thread;
        let address = SocketAddr::new(self.0.address.ip(), port).to_string();
        trine(
            &[&["index"], args, &["--connect", &address]].concat(),
            "",
            b"",
        )
    }

    fn run(&self, args: &[&str]) -> Ran {
        self.run_at(0, args)
    }

    fn interrupt(&mut self) -> Ran {
        self.0.end("INT")
    }
}

/// Puts some keys, deletes one, and compares scans with those of a map. Returns the server for more.
#[track_caller]
fn scans_are_those_of_a_map(options: &[&str]) -> Server {
    let server = Server::start(1, options);
    let mut model = BTreeMap::new();
    for number in 1..=12_u64 {
        let (key, value) = (
            number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            u64::MAX / number,
        );
        let (key_text, value_text) = (key.to_string(), value.to_string());
        server
            .run(&["put", &key_text, &value_text])
            .expect_status(0);
        model.insert(key, value);
    }
    let first = *model.keys().next().expect("twelve keys");
    server.run(&["del", &first.to_string()]).expect_status(0);
    model.remove(&first);
    for (start, limit) in [
        (0, 128),
        (first, 3),
        (*model.keys().nth(4).expect("a key"), 5),
    ] {
        let expected: Vec<u64> = model
            .range((Excluded(start), Unbounded))
            .take(limit)
            .map(|(_, value)| *value)
            .collect();
        let sum = expected
            .iter()
            .fold(0_u64, |sum, value| sum.wrapping_add(*value));
        let (start, limit) = (start.to_string(), limit.to_string());
        let answer = server
            .run(&["scan", &start, "--limit", &limit, "--json"])
            .expect_status(0)
            .json();
        assert_eq!(answer["sum"], sum);
        assert_eq!(answer["keys"], expected.len());
    }
    server
}

#[test]
fn values_come_back_and_scans_are_those_of_a_map() {
    let mut server = scans_are_those_of_a_map(&["--workers", "2"]);
    server.run(&["put", "7", "70"]).expect_status(0);
    server.run(&["put", "7", "71"]).expect_status(0);
    let got = server.run(&["get", "7"]).expect_status(0);
    assert_eq!(got.stdout, b"71\n");
    server.run(&["del", "7"]).expect_status(0);
    for args in [["get", "7"], ["del", "7"]] {
        server.run(&args).expect_error(1, &["not in the index: 7"]);
    }
    let ran = server.interrupt();
    assert_eq!(ran.status, Some(0), "{ran:?}");
}

#[test]
fn scans_in_dispatch_find_the_same() {
    scans_are_those_of_a_map(&["--scans", "dispatch", "--workers", "0"]);
}

#[test]
fn all_threads_serve_the_same_keys() {
    let server = Server::start(2, &[]);
    server.run_at(0, &["put", "5", "50"]).expect_status(0);
    let got = server.run_at(1, &["get", "5"]).expect_status(0);
    assert_eq!(got.stdout, b"50\n");
    let scan = server.run_at(1, &["scan", "0"]).expect_status(0);
    assert_eq!(scan.stdout, b"50 over 1 key after 0\n");
}

#[test]
fn scans_without_workers_are_refused() {
    trine(&["index", "serve", "--workers", "0"], "", b"").expect_error(
        2,
        &[
            "--workers 0 leaves no thread",
            "use --workers 1, or --scans dispatch",
        ],
    );
}

#[test]
fn a_full_index_takes_no_further_key() {
    let server = Server::start(1, &["--keys-max", "2"]);
    for key in ["1", "2"] {
        server.run(&["put", key, "1"]).expect_status(0);
    }
    server
        .run(&["put", "3", "1"])
        .expect_error(2, &["the index is full", "larger --keys-max"]);
    server.run(&["put", "2", "9"]).expect_status(0);
    let scan = server.run(&["scan", "0"]).expect_status(0);
    assert_eq!(scan.stdout, b"10 over 2 keys after 0\n");
}

#[test]
fn limits_and_keys_that_are_none_are_refused() {
    for (args, said) in [
        (&["scan", "1", "--limit", "0"][..], "0 is not in"),
        (&["scan", "1", "--limit", "65537"], "65537 is not in"),
        (&["get", "key"], "invalid digit"),
        (&["bench", "--in-process", "--cpu", "1"], "write two"),
    ] {
        trine(&[&["index"], args].concat(), "", b"").expect_error(2, &[said]);
    }
}

#[test]
fn a_server_that_is_none_is_recognized() {
    let address = free_addresses(1).expect("a free port")[0].to_string();
    trine(
        &[
            "index",
            "get",
            "1",
            "--connect",
            &address,
            "--timeout",
            "200ms",
        ],
        "",
        b"",
    )
    .expect_error(3, &["no answer from", "trine index serve"]);
    let cluster = Cluster::start(&[]);
    let replica = cluster.group.addresses()[0].to_string();
    trine(&["index", "get", "1", "--connect", &replica], "", b"")
        .expect_error(2, &["nothing was done", "trine index serve"]);
}

/// One small run of each kind; the figures themselves are nobody's here.
#[test]
fn the_benchmark_reports_every_part() {
    let short = [
        "bench", "--keys", "2000", "--for", "50ms", "--rounds", "1", "--loads", "10%", "--json",
    ];
    let server = Server::start(1, &[]);
    let remote = server.run(&short).expect_status(0).json();
    let loads = remote["loads"].as_array().expect("a list");
    assert_eq!(loads.len(), 3);
    assert!(
        loads
            .iter()
            .all(|load| load["get_p99_ns"].as_u64() > Some(0)),
        "{remote}"
    );
    server
        .run(&["bench", "--keys", "4000", "--filled", "--for", "50ms"])
        .expect_error(2, &["a key that the benchmark needs", "--filled"]);

    let in_process = trine(
        &[
            &["index"],
            &short[..],
            &["--in-process", "--scan-share", "50%"],
        ]
        .concat(),
        "",
        b"",
    );
    let document = in_process.expect_status(0).json();
    assert_eq!(document["loads"].as_array().expect("a list").len(), 6);
    assert!(document["get_p99_worker_over_dispatch"][0]["ratio"].as_f64() > Some(0.0));
    assert!(
        document["loads"][1]["scan_p99_ns"].as_u64() > Some(0),
        "{document}"
    );
}

#[test]
fn users_may_do_what_the_list_of_a_sealed_server_says() {
    let keys = Keys::new("index-users");
    let (key, users) = (keys.text("ours"), keys.text("list"));
    let alice = keys.text("alice");
    std::fs::write(keys.path("list"), "alice read\n").expect("written");
    let denied = "user alice has role read, and role write is needed";
    for scans in ["workers", "dispatch"] {
        let server = Server::start(1, &["--scans", scans, "--key", &key, "--users", &users]);
        let run = |key: &str, args: &[&str]| server.run(&[args, &["--key", key]].concat());
        run(&key, &["put", "7", "70"]).expect_status(0);
        let read = run(&alice, &["get", "7"]).expect_status(0);
        assert_eq!(read.stdout, b"70\n");
        run(&alice, &["scan", "0"]).expect_status(0);
        for args in [&["put", "7", "71"][..], &["del", "7"]] {
            run(&alice, args).expect_error(1, &[denied, "nothing was done"]);
        }
        let short = ["bench", "--keys", "9", "--for", "1ms", "--rounds", "1"];
        run(&alice, &short).expect_error(1, &[denied]);
        let read = run(&key, &["get", "7"]).expect_status(0);
        assert_eq!(read.stdout, b"70\n");

        // SIGHUP makes the server read the list again.
        std::fs::write(keys.path("list"), "alice write\n").expect("written");
        signal(server.0.pid(), "HUP");
        wait_for("the right to write", || {
            let ran = run(&alice, &["put", "7", "70"]);
            (ran.status == Some(0)).then_some(())
        });
        std::fs::write(keys.path("list"), "alice read\n").expect("written");

        // Worker threads run scans: they are denied before.
        let unlisted = Server::start(1, &["--scans", scans, "--key", &key]);
        for args in [&["scan", "0"][..], &["get", "7"]] {
            let args = [args, &["--key", &alice]].concat();
            unlisted
                .run(&args)
                .expect_error(1, &["user alice is not in the server's list"]);
        }
    }
}
