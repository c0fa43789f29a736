//! `trine bench`: its targets, comparisons and reports.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use crate::common::{Cluster, TempFile, finish, signal, trine, wait_for};
use serde_json::Value;

/// A short measurement of a few keys.
const SHORT: [&str; 9] = [
    "bench",
    "--for",
    "200ms",
    "--warmup",
    "50ms",
    "--keys",
    "200",
    "--clients",
    "3",
];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&SHORT, more].concat()
}

/// Every operation of a result found what it looked for.
#[track_caller]
fn assert_all_found(document: &Value) {
    assert_eq!(
        (&document["errors"], &document["misses"]),
        (&Value::from(0), &Value::from(0)),
        "{document}"
    );
}

/// How many operations of a kind a result has.
#[track_caller]
fn count_of(document: &Value, name: &str) -> u64 {
    document[name]["count"].as_u64().expect("a count")
}

/// A server that answers GET, SET and DEL as Redis does, one thread a connection; it hangs up after `patience` commands.
fn small_redis(patience: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let values = Arc::new(Mutex::new(HashMap::new()));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let values = Arc::clone(&values);
            std::thread::spawn(move || serve_redis(&stream, &values, patience));
        }
    });
    address
}

fn serve_redis(
    stream: &TcpStream,
    values: &Mutex<HashMap<Vec<u8>, Vec<u8>>>,
    patience: usize,
) -> Option<()> {
    let (mut reader, mut writer) = (BufReader::new(stream), stream);
    for _ in 0..patience {
        let count = number(&mut reader)?;
        let words: Option<Vec<Vec<u8>>> = (0..count).map(|_| bulk(&mut reader)).collect();
        let mut words = words?.into_iter();
        let mut values = values.lock().expect("no panic");
        let answer = match (words.next()?.as_slice(), words.next()?, words.next()) {
            (b"SET", key, Some(value)) => {
                values.insert(key, value);
                b"+OK\r\n".to_vec()
            }
            (b"DEL", key, None) => {
                let removed = values.remove(&key).is_some();
                format!(":{}\r\n", u8::from(removed)).into_bytes()
            }
            (b"GET", key, None) => match values.get(&key) {
                None => b"$-1\r\n".to_vec(),
                Some(value) => {
                    [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
                }
            },
            _ => b"-ERR unknown command\r\n".to_vec(),
        };
        drop(values);
        writer.write_all(&answer).ok()?;
    }
    None
}

/// The number of a line such as "*3" or "$5".
fn number(reader: &mut impl BufRead) -> Option<usize> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    line.trim_end().get(1..)?.parse().ok()
}

fn bulk(reader: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut bytes = vec![0; number(reader)? + 2];
    reader.read_exact(&mut bytes).ok()?;
    bytes.truncate(bytes.len() - 2);
    Some(bytes)
}

#[test]
fn the_keys_stay_unless_they_are_to_be_removed() {
    let cluster = Cluster::start(&[]);
    let count = || {
        let ran = trine(&[], &cluster.group.peers(), b"count\n").expect_status(0);
        let text = String::from_utf8(ran.stdout).expect("text");
        text.trim().parse::<u64>().expect("a number")
    };
    cluster.ok(&["put", "mine", "v"]);
    cluster.ok(&with(&[]));
    assert_eq!(count(), 201);
    // Workload D inserts keys beyond those at the beginning.
    cluster.ok(&with(&["--workload", "D", "--rounds", "2", "--clean"]));
    assert_eq!(count(), 1);
    assert_eq!(cluster.ok(&["get", "mine"]), b"v");

    let server = format!("redis://{}", small_redis(usize::MAX));
    let ran = cluster.run(&with(&["--target", &server, "--clean", "--json"]));
    assert_eq!(ran.expect_status(0).json()["errors"], 0);
}

/// After an error or a Ctrl-C the keys stayed: a store that they had filled stayed full. Half of the operations could fail,
/// and the run ended with 0.
#[test]
fn keys_go_however_the_run_ends_and_failed_operations_fail_it() {
    let cluster = Cluster::start(&["--memory", "2MiB"]);
    let count = || {
        let ran = trine(&[], &cluster.group.peers(), b"count\n").expect_status(0);
        let text = String::from_utf8(ran.stdout).expect("text");
        text.trim().parse::<u64>().expect("a number")
    };
    cluster.ok(&["put", "mine", "v"]);
    let large = ["--keys", "3000", "--value-size", "10KiB", "--clean"];
    let bench =
        |more: &[&'static str]| [&["bench", "--for", "500ms", "--warmup", "0s"], more].concat();
    let full = "the store is full";
    let ran = cluster.run(&bench(&large));
    ran.expect_error(1, &["the keys could not be written", full]);
    assert_eq!(count(), 1);
    // New keys fail, and those that are there are written again. Ten values fill the store: a machine with other work has
    // that in time, too.
    let writes = [
        "--keys",
        "3000",
        "--value-size",
        "200KiB",
        "--clean",
        "--read-ratio",
        "0",
    ];
    let ran = cluster
        .run(&bench(&writes))
        .expect_error(1, &[" failed: ", full]);
    let printed = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(printed.contains("all, corrected"), "{printed}");
    assert!(!printed.contains("stay in the store"), "{printed}");
    assert_eq!(count(), 1);

    let words = [
        "bench", "--for", "1h", "--warmup", "0s", "--keys", "200", "--clean",
    ];
    let mut command = crate::common::command(&words, &cluster.group.peers());
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let running = command.spawn().expect("starts");
    wait_for("the keys", || (count() == 201).then_some(()));
    signal(running.id(), "INT");
    let ran = finish(running).expect_error(130, &["interrupted"]);
    assert!(ran.stderr.contains("deletes the keys"), "{}", ran.stderr);
    assert_eq!(count(), 1);

    let ran = cluster.run(&bench(&["--keys", "20"])).expect_status(0);
    let printed = String::from_utf8_lossy(&ran.stdout).into_owned();
    let last = printed.lines().last().expect("a line");
    assert!(last.contains("--clean deletes them"), "{printed}");
}

#[test]
fn every_workload_runs_and_results_are_compared() {
    let cluster = Cluster::start(&[]);
    for workload in ["A", "b", "C", "D", "F"] {
        let document = cluster
            .run(&with(&["--workload", workload, "-o", "json"]))
            .expect_status(0)
            .json();
        assert_all_found(&document);
        assert_eq!(document["sealed"], false);
        let count = |name: &str| count_of(&document, name);
        assert!(count("read") > 0, "{document}");
        assert_eq!(
            count("write") > 0,
            !["C", "F"].contains(&workload),
            "{workload}"
        );
        assert_eq!(count("read_modify_write") > 0, workload == "F");
        assert_eq!(document["value_bytes"], 1000);
        assert!(document["host"]["commit"].is_string() && document["series"].is_array());
    }
    // Nothing was written for a group without an ordered index.
    cluster
        .run(&with(&["--workload", "E"]))
        .expect_error(1, &["scans keys", "trine config set ordered on"]);
    let redis = with(&["--workload", "E", "--target", "redis://127.0.0.1:1"]);
    cluster
        .run(&redis)
        .expect_error(2, &["keeps none", "trine://"]);

    let (file, report) = (TempFile::new("then.json"), TempFile::new("report.html"));
    let then = cluster
        .run(&with(&["--pipeline", "4", "--json"]))
        .expect_status(0);
    std::fs::write(&file.0, &then.stdout).expect("written");
    let same = [
        "--pipeline",
        "4",
        "--compare",
        file.path(),
        "--html",
        report.path(),
    ];
    let text = String::from_utf8(cluster.ok(&with(&same))).expect("text");
    assert!(
        text.contains("now/then") && text.contains("operations/s"),
        "{text}"
    );
    let page = std::fs::read_to_string(&report.0).expect("a report");
    assert!(
        page.contains("<svg") && page.contains("Compared with"),
        "{page}"
    );
    let other = with(&["--compare", file.path()]);
    cluster
        .run(&other)
        .expect_error(1, &["pipeline: 4 then, 1 now", "--compare-anyway"]);
    let forced = cluster
        .run(&[&other[..], &["--compare-anyway", "--json"]].concat())
        .expect_status(0);
    assert!(forced.json()["comparison"].is_array() && forced.stderr.contains("not comparable"));
    std::fs::write(&file.0, "{}").expect("written");
    cluster
        .run(&other)
        .expect_error(2, &["cannot read the results", "--json"]);
}

#[test]
fn a_redis_server_gets_the_same_operations() {
    let url = format!("redis://{}", small_redis(usize::MAX));
    let document = trine(
        &with(&["--target", &url, "--pipeline", "8", "--json"]),
        "",
        b"",
    )
    .expect_status(0)
    .json();
    assert!(document["operations"].as_u64() > Some(0), "{document}");
    assert_eq!(
        (&document["errors"], &document["misses"]),
        (&Value::from(0), &Value::from(0))
    );
    let open = with(&["--target", &url, "--rate", "500", "--json"]);
    let open = trine(&open, "", b"").expect_status(0).json();
    let count = |name: &str| open[name].as_u64().expect("a count");
    assert_eq!(count("operations") + count("never_sent"), 100, "{open}");

    // There are two targets with three rounds each, and the middle round counts.
    let second = format!("redis://{}", small_redis(usize::MAX));
    let both = with(&[
        "--target", &url, "--target", &second, "--rounds", "3", "--json",
    ]);
    let both = trine(&both, "", b"").expect_status(0).json();
    for run in both["runs"].as_array().expect("two") {
        let mut rounds: Vec<f64> = run["rounds"]
            .as_array()
            .expect("three")
            .iter()
            .filter_map(Value::as_f64)
            .collect();
        rounds.sort_by(f64::total_cmp);
        assert_eq!(
            (rounds.len(), Some(rounds[1])),
            (3, run["operations_per_second"].as_f64())
        );
    }
}

#[test]
fn a_server_that_goes_away_is_told() {
    let url = format!("redis://{}", small_redis(100));
    // Closing with unread requests resets the connection. Closing at another moment just ends it.
    trine(&with(&["--target", &url]), "", b"").expect_error(3, &["broke", &url[8..]]);
    let gone = trine(&with(&["--target", "redis://127.0.0.1:1"]), "", b"");
    gone.expect_error(3, &["cannot connect to 127.0.0.1:1"]);
    trine(&with(&["--target", "http://x"]), "", b"")
        .expect_error(2, &["none of trine, redis, rediss, memcached and cache"]);
}

/// It was waited for without an end, whatever `--for` and `--timeout` said.
#[test]
fn a_server_that_falls_silent_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    for store in ["redis", "memcached"] {
        let url = format!("{store}://{address}");
        let said = format!("no answer from {store} at {address}");
        let silent = with(&["--target", &url, "--timeout", "200ms"]);
        trine(&silent, "", b"").expect_error(3, &["the keys could not be written", &said]);
        let writes_alone = [&silent[..], &["--read-ratio", "0"]].concat();
        trine(&writes_alone, "", b"").expect_error(3, &["nothing was measured", &said]);
    }
}

/// `trine put` reported a full store, while `trine bench` of the same group reported that it was not reachable.
#[test]
fn a_store_that_says_no_is_reached() {
    let cluster = Cluster::start(&["--memory", "1MiB"]);
    let peers = cluster.group.peers();
    let full = "the store is full (limit 1048576 bytes)";
    trine(&["put", "most-of-it", "-"], &peers, &[b'x'; 1_000_000]).expect_status(0);
    trine(&["put", "more", "-"], &peers, &[b'x'; 64 << 10])
        .expect_error(1, &[full, "config set memory"]);
    let large = with(&["--value-size", "64KiB"]);
    cluster.run(&large).expect_error(
        1,
        &["the keys could not be written", full, "config set memory"],
    );
    let writes_alone = [&large[..], &["--read-ratio", "0"]].concat();
    cluster
        .run(&writes_alone)
        .expect_error(1, &["no operation succeeded", full, "config set memory"]);
}

#[test]
fn scans_are_measured_where_keys_have_an_order() {
    let cluster = Cluster::start(&["--ordered"]);
    cluster.ok(&["put", "bench.", "not one of the keys"]);
    let document = cluster
        .run(&with(&["--workload", "e", "--clean", "--json"]))
        .expect_status(0)
        .json();
    assert_all_found(&document);
    let count = |name: &str| count_of(&document, name);
    assert!(
        count("scan") > count("write") && count("write") > 0,
        "{document}"
    );
    assert_eq!((count("read"), count("read_modify_write")), (0, 0));
    assert_eq!(document["settings"]["workload"], "E");
    assert_eq!(cluster.ok(&["count", "bench"]), b"1\n");
}
