//! `trine export`, `trine import` and `trine flush`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use crate::common::{Cluster, TempFile, finish, program, trine};

/// The lines of an export without what changes from one to the next, and when their keys expire.
type Lines = BTreeMap<String, Option<SystemTime>>;

/// How far apart two exports may say that a key expires. Each adds the time that is left to the machine's clock.
const EXPIRY_TOLERANCE: Duration = Duration::from_secs(300);

fn lines(bytes: &[u8]) -> Lines {
    let text = String::from_utf8(bytes.to_vec()).expect("text");
    let parted = |line: &str| {
        let mut document: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let object = document.as_object_mut().expect("an object");
        object.remove("version").expect("a version");
        object.remove("expires_in_ms");
        let expires = object.remove("expires_at").map(|at| {
            let text = at.as_str().expect("text");
            humantime::parse_rfc3339(text).expect("a time")
        });
        (document.to_string(), expires)
    };
    text.lines().map(parted).collect()
}

/// The same keys and values, and the keys expire at about the same times.
#[track_caller]
fn assert_same(now: &Lines, before: &Lines) {
    assert!(now.keys().eq(before.keys()), "other keys or values");
    for (line, &expires) in now {
        match (expires, before[line]) {
            (None, None) => {}
            (Some(one), Some(other)) => {
                let apart = one.max(other).duration_since(one.min(other));
                let apart = apart.expect("the later one first");
                assert!(apart < EXPIRY_TOLERANCE, "{line}: {apart:?}");
            }
            (one, other) => panic!("{line} expires: {one:?}, before {other:?}"),
        }
    }
}

#[test]
fn an_export_comes_back_by_an_import() {
    let cluster = Cluster::start(&[]);
    let peers = cluster.group.peers();
    let mut script = String::new();
    for number in 0..3_000 {
        script += &format!("put user:{number} value-{number}\n");
    }
    script += "put \"bin\\xff\" \"\\x00\\xfe\"\nput empty ''\nset timed v ex 100000\n";
    trine(&[], &peers, script.as_bytes()).expect_status(0);
    let large = "x".repeat(900_000);
    trine(&["put", "large", "-"], &peers, large.as_bytes()).expect_status(0);

    let ran = cluster.run(&["export"]).expect_status(0);
    assert!(ran.stderr.contains("wrote 3,004 keys"), "{}", ran.stderr);
    let before = lines(&ran.stdout);
    assert_eq!(before.len(), 3_004);
    assert!(before.values().any(Option::is_some));
    assert!(
        before
            .keys()
            .any(|line| line.contains("\"value_base64\":\"AP4=\""))
    );

    let file = TempFile::new("users");
    let text = cluster.ok(&["export", file.path(), "user:"]);
    assert_eq!(text, b"wrote 3,000 keys\n");
    let users = std::fs::read(&file.0).expect("it was written");
    assert_eq!(lines(&users).len(), 3_000);
    cluster.run(&["export", file.path()]).expect_error(
        2,
        &["already exists; nothing was written", "remove that one"],
    );
    assert_eq!(std::fs::read(&file.0).expect("it is still there"), users);
    an_export_that_finds_no_room_leaves_nothing(&cluster);

    // The whole one, through a pipe.
    cluster.run(&["flush"]).expect_error(
        2,
        &["every key of the group", "nothing was deleted", "--yes"],
    );
    assert_eq!(cluster.ok(&["flush", "--yes"]), b"3,004 keys deleted\n");
    assert!(cluster.ok(&["export"]).is_empty());
    let told = trine(&["import"], &peers, &ran.stdout).expect_status(0);
    assert_eq!(told.stdout, b"3,004 keys written\n");
    assert_same(&lines(&cluster.ok(&["export"])), &before);

    // A part, from a file, over what is there.
    let told = cluster
        .run(&["--json", "import", file.path()])
        .expect_status(0);
    assert_eq!(told.json()["written"], 3_000);
    assert_same(&lines(&cluster.ok(&["export"])), &before);
}

/// A limit to the size of files ended the process, and half an export stayed under the name of a whole one.
fn an_export_that_finds_no_room_leaves_nothing(cluster: &Cluster) {
    let file = TempFile::new("limited");
    let (program, path) = (program(), file.path());
    let line = format!("ulimit -f 200; exec {} export {path}", program.display());
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &line])
        .env("TRINE_PEERS", cluster.group.peers())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let ran = finish(shell.spawn().expect("starts"));
    ran.expect_error(
        2,
        &["its file removed", "File too large", "free some space"],
    );
    assert!(!file.0.exists());
    assert!(!Path::new(&format!("{path}.partial")).exists());
}

/// Two keys are always written together. An export of several pages has both as of one moment. It needs no ordered index.
#[test]
fn an_export_is_one_moment() {
    let cluster = Cluster::start(&[]);
    let peers = cluster.group.peers();
    let value = "v".repeat(1_000);
    let mut lines: String = (0..2_000)
        .map(|number| format!("put k/{number:04} {value}\n"))
        .collect();
    let names: Vec<String> = (0..20).map(|number| format!("pair/{number}")).collect();
    let all = |value: u32| {
        let pairs = names.iter().map(|name| format!("{name} {value} "));
        format!("mput {}\n", pairs.collect::<String>())
    };
    lines.push_str(&all(0));
    trine(&[], &peers, lines.as_bytes()).expect_status(0);
    let changes: String = (1..2_000).map(all).collect();
    let writer = {
        let peers = peers.clone();
        std::thread::spawn(move || trine(&[], &peers, changes.as_bytes()).expect_status(0))
    };
    let mut exports = 0;
    while exports < 3 || !writer.is_finished() {
        let file = TempFile::new("moment");
        let told = cluster.run(&["export", file.path(), "--json"]);
        let told = told.expect_status(0).json();
        assert_eq!(told["keys"], 2_020);
        assert!(told["position"].as_u64() > Some(0));
        let text = std::fs::read_to_string(&file.0).expect("it was written");
        let values: BTreeSet<String> = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .filter(|line: &serde_json::Value| line["key"].as_str() > Some("pair/"))
            .map(|line| line["value"].to_string())
            .collect();
        assert_eq!(values.len(), 1, "{values:?}");
        exports += 1;
    }
    writer.join().expect("the writer ends");
    let file = TempFile::new("pages");
    let told = cluster.run(&["export", file.path(), "--json", "--no-atomic"]);
    let told = told.expect_status(0).json();
    assert_eq!(
        (&told["keys"], &told["position"]),
        (&2_020.into(), &serde_json::Value::Null)
    );
}

#[test]
fn a_bad_line_is_named_and_nothing_is_written_unless_that_is_asked_for() {
    let cluster = Cluster::start(&[]);
    let peers = cluster.group.peers();
    let import = |args: &[&str], text: &str| {
        let args = [&["import"], args].concat();
        trine(&args, &peers, text.as_bytes())
    };
    let good = r#"{"key":"a","value":"1"}"#;
    let over = r#"{"key":"b","value":"1","expires_at":"2001-01-02T03:04:05Z"}"#;
    let bad = format!("{good}\n\n{over}\n{{\"key\":\"c\"}}\n{{\"key\":\"d\",\"value\":\"1\"}}\n");
    import(&[], &bad).expect_error(
        1,
        &[
            "line 4: neither \"value\"",
            "nothing was written",
            "--partial",
        ],
    );
    assert!(cluster.ok(&["export"]).is_empty());
    let file = TempFile::new("bad");
    std::fs::write(&file.0, &bad).expect("written");
    import(&[file.path()], "").expect_error(1, &["line 4: neither"]);
    assert!(cluster.ok(&["export"]).is_empty());

    let ran = import(&["--partial"], &bad).expect_error(1, &["line 4: neither", "1 line skipped"]);
    assert_eq!(ran.stdout, b"2 keys written, 1 line had expired\n");
    assert_eq!(lines(&cluster.ok(&["export"])).len(), 2);
    import(&["/no/such/file"], "").expect_error(2, &["cannot read /no/such/file"]);
    let empty = import(&["-"], "").expect_status(0);
    assert_eq!(empty.stdout, b"0 keys written\n");

    // What the group does not take is an error with the number of the line, and what is done is told.
    cluster.ok(&["config", "set", "memory", "1MiB"]);
    let mut many = String::new();
    for number in 0..2_000 {
        many += &format!(
            "{{\"key\":\"{number}\",\"value\":\"{}\"}}\n",
            "v".repeat(1_000)
        );
    }
    let ran = import(&[], &many).expect_error(1, &["the store is full", "keys written", "line "]);
    assert!(ran.stdout.is_empty());
}
