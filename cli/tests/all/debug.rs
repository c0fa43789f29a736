//! `trine debug bundle`: the contents of the archive, its missing parts, and the absence of secrets.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use crate::common::{Cluster, command, signal, tcp_ports, trine, wait_for};

/// The files of a bundle, by their names without the directory.
fn unpack(path: &Path) -> BTreeMap<String, String> {
    let file = std::fs::File::open(path).expect("the archive");
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(file));
    let entries = archive.entries().expect("a tar file");
    let texts = entries.map(|entry| {
        let mut entry = entry.expect("a whole entry");
        let path = entry.path().expect("a path").into_owned();
        let name = path.file_name().expect("a name").to_string_lossy();
        let name = name.into_owned();
        let mut text = String::new();
        entry.read_to_string(&mut text).expect("text");
        (name, text)
    });
    texts.collect()
}

fn directory(name: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("trine-debug-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).expect("a directory");
    path
}

#[test]
fn a_bundle_of_a_running_group_has_everything_but_secrets() {
    let directory = directory("whole");
    let base = tcp_ports(3) - 1;
    let metrics = format!("127.0.0.1:{base}+{{node_id}}");
    let cluster = Cluster::start(&["--metrics", &metrics]);
    cluster.ok(&["put", "precious-key", "precious-value"]);
    let settings = directory.join("trine.toml");
    let password = "swordfish";
    std::fs::write(
        &settings,
        format!("resp-password = \"{password}\"\nspin = \"70us\"\n"),
    )
    .expect("written");
    let for_its_owner = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&settings, for_its_owner).expect("changed");
    let log = directory.join("replica.log");
    std::fs::write(&log, "the last line of the log\n").expect("written");
    let out = directory.join("bundle.tar.gz");
    let endpoint = format!("127.0.0.1:{}", base + 1);
    let line = [
        "debug",
        "bundle",
        "--out",
        out.to_str().expect("text"),
        "--metrics",
        &endpoint,
        "--log",
        log.to_str().expect("text"),
        "--config",
        settings.to_str().expect("text"),
    ];
    let said = String::from_utf8(cluster.ok(&line)).expect("text");
    for word in [
        "status.json",
        "metrics-1.txt",
        "log-1.txt",
        "left out on purpose",
    ] {
        assert!(said.contains(word), "{word} is missing in:\n{said}");
    }
    assert!(!said.contains("MISSING"), "{said}");
    let files = unpack(&out);
    let json = |name: &str| -> serde_json::Value {
        serde_json::from_str(&files[name]).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    assert_eq!(json("status.json")["voters_in_step"], 3);
    assert!(json("stat.json")["term"].is_u64());
    assert!(
        json("doctor.json")["findings"]
            .as_array()
            .is_some_and(|all| all.len() > 8)
    );
    assert_eq!(json("version.json")["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(json("settings.json")["spin"]["value"], "70us");
    assert_eq!(json("settings.json")["resp-password"]["value"], "***");
    assert!(files["metrics-1.txt"].contains("trine_raft_term"));
    assert_eq!(files["log-1.txt"], "the last line of the log\n");
    assert!(said.contains(files["CONTENTS.txt"].trim_end()));
    for (name, text) in &files {
        for secret in [password, "precious-key", "precious-value"] {
            assert!(!text.contains(secret), "{name} tells {secret}");
        }
    }
    // A second bundle does not overwrite it.
    cluster
        .run(&line)
        .expect_error(2, &["bundle.tar.gz already exists"]);
    std::fs::remove_dir_all(&directory).expect("removed");
}

#[test]
fn without_a_group_the_bundle_says_what_is_missing() {
    let directory = directory("alone");
    let done = command(
        &["--json", "debug", "bundle", "--timeout", "100ms"],
        "127.0.0.1:1",
    )
    .args(["--metrics", "127.0.0.1:1", "--log", "/nonexistent/log"])
    .args(["--log", "/dev/tty"])
    .current_dir(&directory)
    .output()
    .expect("run");
    assert!(done.status.success(), "{done:?}");
    let told: serde_json::Value = serde_json::from_slice(&done.stdout).expect("a document");
    let parts = told["parts"].as_array().expect("parts");
    let missing = |file: &str| {
        parts
            .iter()
            .any(|part| part["file"] == file && part["missing"].is_string())
    };
    assert!(missing("metrics-1.txt") && missing("log-1.txt"), "{told}");
    assert!(missing("log-2.txt"), "{told}");
    let name = told["bundle"].as_str().expect("a name");
    let files = unpack(&directory.join(name));
    assert!(
        files["CONTENTS.txt"].contains("log-1.txt        MISSING"),
        "{}",
        files["CONTENTS.txt"]
    );
    assert!(
        files["status.json"].contains("error"),
        "{}",
        files["status.json"]
    );
    trine(&["debug", "bundle", "--peers", "nowhere"], "", b"").expect_error(2, &["nowhere"]);
    std::fs::remove_dir_all(&directory).expect("removed");
}

/// Ctrl-C left half a bundle that looked like a whole one.
#[test]
fn an_interrupted_bundle_leaves_no_file() {
    let directory = directory("interrupted");
    let endpoint = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = endpoint.local_addr().expect("bound").to_string();
    let line = ["debug", "bundle", "--timeout", "100ms", "--metrics", &at];
    let mut child = command(&line, "127.0.0.1:1")
        .current_dir(&directory)
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    // The bundle is half done when it asks for the metrics.
    let (asking, _) = endpoint.accept().expect("asked");
    let names = || {
        let entries = std::fs::read_dir(&directory).expect("read");
        let name = |entry: std::io::Result<std::fs::DirEntry>| entry.expect("read").file_name();
        entries.map(name).collect::<Vec<_>>()
    };
    let while_made = names();
    signal(child.id(), "INT");
    drop(asking);
    let ended = wait_for("the end", || child.try_wait().expect("wait"));
    let mut told = String::new();
    let mut stderr = child.stderr.take().expect("piped");
    stderr.read_to_string(&mut told).expect("text");
    assert_eq!(ended.code(), Some(130), "{told}");
    assert!(told.contains("its file removed"), "{told}");
    let is_partial = |name: &std::ffi::OsString| name.to_string_lossy().ends_with(".gz.partial");
    assert!(
        while_made.len() == 1 && is_partial(&while_made[0]),
        "{while_made:?}"
    );
    assert!(names().is_empty(), "{:?}", names());
    std::fs::remove_dir_all(&directory).expect("removed");
}
