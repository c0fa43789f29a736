//! Commands and replicas with paths that are no text.
//!
//! A replica whose data directory had such a name served, and panicked at every later start. Commands panicked after they
//! had done their work.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use trine_base::ports::free_addresses;

use crate::common::{Ran, command, signal, wait_for};

/// A directory whose name is no text, removed with the value.
struct Strange(PathBuf);

impl Strange {
    fn new(name: &str) -> Self {
        let name = format!("trine-paths-{name}-{}-", std::process::id());
        let name = [name.as_bytes(), b"\xff"].concat();
        let path = std::env::temp_dir().join(OsStr::from_bytes(&name));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("made");
        Self(path)
    }
}

impl Drop for Strange {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs the program with `path` as its last argument.
fn run(args: &[&str], path: &Path) -> Ran {
    let mut command = command(args, "127.0.0.1:1");
    let ran = command.arg(path).stdin(Stdio::null()).output();
    ran.expect("the program runs").into()
}

/// What documents show for it.
fn shown(path: &Path) -> Value {
    path.display().to_string().into()
}

#[test]
fn commands_name_a_path_that_is_no_text() {
    let place = Strange::new("commands");
    let settings = place.0.join("trine.toml");
    std::fs::write(&settings, "id = 1\n").expect("written");
    let check = run(&["config", "check", "--json"], &settings).expect_status(0);
    assert_eq!(check.json()["file"], shown(&settings));

    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus/backup/version-1.trine");
    let backup = place.0.join("backup");
    std::fs::copy(golden, &backup).expect("copied");
    let verified = run(&["backup", "verify", "--json"], &backup).expect_status(0);
    assert_eq!(verified.json()["file"], shown(&backup));
    // The document was made, and the panic was there, also where nobody wants it.
    run(&["backup", "verify"], &backup).expect_status(0);

    let bundle = place.0.join("bundle");
    let line = ["debug", "bundle", "--json", "--timeout", "100ms", "--out"];
    let told = run(&line, &bundle).expect_status(0).json();
    assert_eq!(told["bundle"], shown(&bundle));

    let lost = ["recover", "--json", "--remove-lost", "--data-dir"];
    let removed = run(&lost, &place.0).expect_status(0);
    assert_eq!(removed.json()["directory"], shown(&place.0));
}

#[test]
fn a_replica_goes_on_with_a_directory_whose_name_is_no_text() {
    let place = Strange::new("replica");
    let golden = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../corpus/backup/version-1.trine"
    );
    let address = free_addresses(1).expect("a port")[0].to_string();
    let restore = [
        "restore",
        golden,
        "--json",
        "--address",
        &address,
        "--data-dir",
    ];
    let restored = run(&restore, &place.0).expect_status(0);
    assert_eq!(restored.json()["directory"], shown(&place.0));

    let serve = ["serve", "--json", "--id", "1", "--log", "disk"];
    let mut command = command(&serve, &address);
    let mut replica = command
        .arg("--data-dir")
        .arg(&place.0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut lines = BufReader::new(replica.stdout.take().expect("piped")).lines();
    let told = lines.by_ref().map_while(Result::ok).find_map(|line| {
        let event: Value = serde_json::from_str(&line).ok()?;
        event.get("restored").cloned()
    });
    signal(replica.id(), "INT");
    let ended = wait_for("its end", || replica.try_wait().expect("wait"));
    assert_eq!(told, Some(shown(&place.0)), "{ended}");
    assert!(ended.success(), "{ended}");

    std::fs::write(place.0.join("condemned"), "it differs").expect("written");
    let lift = ["recover", "--json", "--quarantined", "--data-dir"];
    let lifted = run(&lift, &place.0).expect_status(0).json();
    assert_eq!(lifted["directory"], shown(&place.0));
}
