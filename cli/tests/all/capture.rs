//! Does `--capture` write files that Wireshark reads, within its limit, and say why it cannot?

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Cluster, command, trine, wait_for};
use trine_base::ports::free_addresses;

struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str) -> Self {
        let file = format!("trine-capture-{name}-{}.pcapng", std::process::id());
        Self(std::env::temp_dir().join(file))
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("text")
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The type of a pcapng file's first block.
const SECTION_HEADER: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

#[test]
fn a_client_and_its_replicas_capture_the_same_conversation() {
    let (client, limited) = (TempFile::new("client"), TempFile::new("limited"));
    let cluster = Cluster::start(&["--capture-limit", "1MiB"]);
    cluster.ok(&[
        "put",
        "key",
        "a value to be seen",
        "--capture",
        client.path(),
    ]);
    cluster.ok(&[
        "get",
        "key",
        "--capture",
        limited.path(),
        "--capture-limit",
        "300B",
    ]);
    let bytes = std::fs::read(&client.0).expect("a capture");
    assert_eq!(bytes[..4], SECTION_HEADER);
    let has = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
    assert!(has(b"a value to be seen"));
    let size = std::fs::metadata(&limited.0).expect("a capture").len();
    assert!((100..=300).contains(&size), "{size} bytes");
    dissected(&client.0);
}

/// `trine bench` accepted the option and captured nothing; admin commands for members did not know it.
#[test]
fn a_measurement_and_an_admin_command_are_captured_too() {
    let (bench, order) = (TempFile::new("bench"), TempFile::new("order"));
    let cluster = Cluster::start(&["--capture-limit", "1MiB"]);
    let rounds = [
        "--rounds", "2", "--for", "50ms", "--warmup", "0s", "--keys", "10",
    ];
    let captured = ["--read-ratio", "0.5", "--capture", bench.path()];
    cluster.ok(&[&["bench"], &rounds[..], &captured].concat());
    let bytes = std::fs::read(&bench.0).expect("a capture");
    let sections = bytes.windows(4).filter(|word| *word == SECTION_HEADER);
    assert!(sections.count() >= 2, "each round has its section");
    dissected(&bench.0);
    cluster.ok(&["leader", "transfer", "--capture", order.path()]);
    dissected(&order.0);
}

/// Wireshark's command line has to find requests in it. Without that tool this is skipped.
fn dissected(path: &Path) {
    let script = concat!(
        "lua_script:",
        env!("CARGO_MANIFEST_DIR"),
        "/../transport/trine.lua"
    );
    let output = Command::new("tshark")
        .args(["-X", script, "-Y", "trine.type == 1", "-r"])
        .arg(path)
        .output();
    match output {
        Ok(output) => {
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{errors}");
            assert!(!output.stdout.is_empty(), "no request was found: {errors}");
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("left out: tshark is not installed");
        }
        Err(error) => panic!("tshark: {error}"),
    }
}

#[test]
fn a_replica_captures_what_reaches_it() {
    let file = TempFile::new("serve");
    let address = free_addresses(1).expect("a free port")[0].to_string();
    let serve = ["serve", "--id", "1", "--capture", file.path()];
    let mut replica = command(&serve, &address).spawn().expect("a process");
    // A replica in no group answers no client. The capture holds the client's packets once the replica sleeps again.
    wait_for("packets in the capture", || {
        trine(&["get", "key", "--timeout", "100ms"], &address, b"");
        let size = std::fs::metadata(&file.0).map_or(0, |file| file.len());
        (size > 300).then_some(())
    });
    replica.kill().expect("it runs");
    replica.wait().expect("it ends");
    let bytes = std::fs::read(&file.0).expect("a capture");
    assert_eq!(bytes[..4], SECTION_HEADER);
}

#[test]
fn a_file_that_cannot_be_written_is_told_with_its_hint() {
    let path = "/nowhere/at/all.pcapng";
    let parts = [path, "cannot be written", "No such file", "directory"];
    trine(&["get", "key", "--capture", path], "127.0.0.1:1", b"").expect_error(2, &parts);
    trine(
        &["serve", "--id", "1", "--capture", path],
        "127.0.0.1:1",
        b"",
    )
    .expect_error(2, &parts);
}
