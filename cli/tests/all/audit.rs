//! The audit log of a real replica: who has administrated, told once, also after a restart.

use std::fs::File;
use std::process::{Child, Stdio};

use trine_base::ports::free_addresses;

use crate::common::{Ran, command, signal, trine, wait_for};
use crate::keys::Keys;

/// A group of one on disk, in the stage that also takes callers without a key.
struct Audited {
    keys: Keys,
    peers: String,
    lives: usize,
}

impl Audited {
    fn new(name: &str) -> Self {
        Self {
            keys: Keys::new(name),
            peers: free_addresses(1).expect("a free port")[0].to_string(),
            lives: 0,
        }
    }

    fn start(&mut self) -> Child {
        self.lives += 1;
        let (key, data) = (self.keys.text("ours"), self.keys.text("data"));
        let settings = self.keys.path("settings.toml");
        std::fs::write(&settings, "keys = \"accept\"\n").expect("written");
        let settings = settings.display().to_string();
        let mut args = vec!["serve", "--id", "1", "--key", &key, "--config", &settings];
        args.extend(["--log", "disk", "--data-dir", &data]);
        if self.lives == 1 {
            args.push("--bootstrap");
        }
        let stderr = File::create(self.stderr()).expect("a file");
        let mut serve = command(&args, &self.peers);
        let child = serve.stdout(Stdio::null()).stderr(stderr);
        let child = child.spawn().expect("started");
        wait_for("the group", || {
            let said = self.with_key(&["get", "nothing"]);
            (said.status == Some(1)).then_some(())
        });
        child
    }

    fn stderr(&self) -> std::path::PathBuf {
        self.keys.path(&format!("stderr-{}", self.lives))
    }

    fn with_key(&self, args: &[&str]) -> Ran {
        let key = self.keys.text("ours");
        trine(&[&["--key", &key], args].concat(), &self.peers, b"")
    }

    /// The lines of the present life's audit that name this.
    fn lines(&self, part: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.stderr()).expect("text");
        let lines = text.lines().filter(|line| line.contains(" audit: "));
        lines
            .filter(|line| line.contains(part))
            .map(ToOwned::to_owned)
            .collect()
    }

    fn line(&self, part: &str) -> String {
        wait_for(part, || self.lines(part).pop())
    }
}

fn end(mut child: Child, name: &str) {
    signal(child.id(), name);
    child.wait().expect("it ends");
}

/// Every caller but a user was "no user": a stranger who had read all keys looked like the administrator.
#[test]
fn a_line_tells_the_holder_of_the_key_file_from_a_stranger_and_is_not_told_again() {
    let mut audited = Audited::new("audit-who");
    let child = audited.start();
    audited
        .with_key(&["config", "set", "memory", "1GiB"])
        .expect_status(0);
    let line = audited.line("set memory to 1073741824 bytes");
    assert!(
        line.contains("by=\"the holder of the cluster key file\""),
        "{line}"
    );
    let stranger = |args: &[&str]| trine(args, &audited.peers, b"");
    stranger(&["config", "set", "memory", "2GiB"]).expect_status(0);
    let line = audited.line("set memory to 2147483648 bytes");
    assert!(
        line.contains("by=\"a caller without a key at 127.0.0.1:"),
        "{line}"
    );
    stranger(&["backup", &audited.keys.text("stolen")]).expect_status(0);
    let line = audited.line("read all keys and users for a backup");
    assert!(
        line.contains("by=\"a caller without a key at 127.0.0.1:"),
        "{line}"
    );

    // An orderly end and a crash, each after a command. Nobody administrates afterwards.
    let mut child = child;
    for (signal, size, bytes) in [("TERM", "3GiB", 3_u64 << 30), ("KILL", "4GiB", 4 << 30)] {
        audited
            .with_key(&["config", "set", "memory", size])
            .expect_status(0);
        audited.line(&format!("set memory to {bytes} bytes"));
        end(child, signal);
        child = audited.start();
        assert_eq!(audited.lines("set memory"), Vec::<String>::new());
        assert_eq!(audited.lines("backup"), Vec::<String>::new());
    }
    // What comes now is new, although the log goes on.
    audited
        .with_key(&["config", "set", "memory", "5GiB"])
        .expect_status(0);
    audited.line("set memory to 5368709120 bytes");
    assert_eq!(audited.lines("set memory").len(), 1);
    end(child, "TERM");
}

/// Whoever could send the signal let callers without a key in, or kept them out, and the audit did not say so.
#[test]
fn a_change_of_the_stage_has_a_line() {
    let mut audited = Audited::new("audit-stage");
    let child = audited.start();
    let settings = audited.keys.path("settings.toml");
    for (stage, change) in [
        ("require", "old=\"stage accept, member root"),
        ("accept", "old=\"stage require, member root"),
    ] {
        std::fs::write(&settings, format!("keys = \"{stage}\"\n")).expect("written");
        signal(child.id(), "HUP");
        let line = audited.line(change);
        assert!(line.contains(&format!("new=\"stage {stage}")), "{line}");
        assert!(
            line.contains("from=\"SIGHUP\"") && line.starts_with("20"),
            "{line}"
        );
    }
    end(child, "TERM");
}
