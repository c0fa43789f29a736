//! `trine debug bundle`: the contents of the archive, its missing parts, and the absence of secrets.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use crate::common::{Cluster, command, tcp_ports, trine};

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
        json("doctor.json")
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
        .expect_error(2, &["bundle.tar.gz", "--out"]);
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
