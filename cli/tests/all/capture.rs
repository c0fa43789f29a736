//! `--capture`: files that Wireshark reads, within the limit, and the reasons why there is none.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::common::{Cluster, Ran, TempFile, command, leave_out, trine, wait_for};
use trine_base::ports::free_addresses;
use trine_keys::{ClusterKey, Existing};

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

/// What Wireshark's command line finds in a capture, a line for each frame with these fields. None without that tool.
fn fields(path: &Path, key_log: Option<&str>, names: &[&str]) -> Option<Vec<String>> {
    let script = concat!(
        "lua_script:",
        env!("CARGO_MANIFEST_DIR"),
        "/../transport/trine.lua"
    );
    let mut command = Command::new("tshark");
    command.args(["-X", script, "-T", "fields", "-r"]).arg(path);
    command.args(names.iter().flat_map(|name| ["-e", name]));
    if let Some(log) = key_log {
        command.args(["-o", &format!("trine.key_log:{log}")]);
    }
    match command.output() {
        Ok(output) => {
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{errors}");
            assert!(!errors.contains("Lua"), "{errors}");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            Some(text.lines().map(str::to_owned).collect())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            leave_out("tshark is not installed", "TRINE_NEED_TSHARK");
            None
        }
        Err(error) => panic!("tshark: {error}"),
    }
}

/// The values of a field in a capture. A frame may have several.
pub(crate) fn values(path: &Path, key_log: Option<&str>, name: &str) -> Option<Vec<String>> {
    let lines = fields(path, key_log, &[name])?;
    let all = lines.iter().flat_map(|line| line.split(','));
    Some(
        all.filter(|value| !value.is_empty())
            .map(str::to_owned)
            .collect(),
    )
}

const GOOD: &str = "1";
const BAD: &str = "2";
const NOT_CHECKED: &str = "3";

/// Wireshark has to find requests and their responses in it, and all checksums have to be good.
fn dissected(path: &Path) {
    let Some(checksums) = values(path, None, "trine.checksum.status") else {
        return;
    };
    assert!(!checksums.is_empty(), "no packet was found");
    assert!(
        checksums.iter().all(|status| status == GOOD),
        "{checksums:?}"
    );
    let kinds = values(path, None, "trine.kind").expect("tshark was there");
    assert!(!kinds.is_empty(), "no request was found");
    let linked = values(path, None, "trine.response_to").expect("tshark was there");
    assert!(!linked.is_empty(), "no response was linked");
}

/// `tcpdump -s` and the like store the beginnings of frames. The packets in them were called malformed, as if somebody had sent them
/// so.
#[test]
fn a_frame_that_the_capture_cut_short_is_not_malformed() {
    let (whole, cut) = (TempFile::new("whole"), TempFile::new("cut"));
    let cluster = Cluster::start(&["--capture-limit", "1MiB"]);
    cluster.ok(&["put", "key", &"v".repeat(500), "--capture", whole.path()]);
    // One length ends within bodies, the other within headers.
    for length in ["100", "60"] {
        let editcap = Command::new("editcap")
            .args(["-s", length, whole.path(), cut.path()])
            .status();
        match editcap {
            Ok(status) => assert!(status.success()),
            Err(_) => return leave_out("editcap is not installed", "TRINE_NEED_TSHARK"),
        }
        let Some(short) = values(&cut.0, None, "trine.cut_short") else {
            return;
        };
        assert!(!short.is_empty(), "{length}: no frame is cut short");
        let malformed = values(&cut.0, None, "trine.malformed").expect("tshark was there");
        assert!(malformed.is_empty(), "{length}: {malformed:?}");
    }
    let malformed = values(&whole.0, None, "trine.malformed");
    assert!(malformed.is_none_or(|all| all.is_empty()));
}

#[test]
fn a_byte_that_was_changed_is_shown() {
    let (file, changed) = (TempFile::new("right"), TempFile::new("wrong"));
    let cluster = Cluster::start(&["--capture-limit", "1MiB"]);
    cluster.ok(&["put", "key", "a value to be seen", "--capture", file.path()]);
    let mut bytes = std::fs::read(&file.0).expect("a capture");
    let value = b"a value to be seen";
    let at = bytes.windows(value.len()).position(|part| part == value);
    bytes[at.expect("the value")] = b'b';
    std::fs::write(&changed.0, bytes).expect("written");
    if let Some(checksums) = values(&changed.0, None, "trine.checksum.status") {
        let bad = checksums.iter().filter(|status| *status == BAD).count();
        assert_eq!(bad, 1, "{checksums:?}");
    }
}

/// A replica alone in its group, with a key.
struct Sealed {
    key: TempFile,
    address: String,
    replica: Child,
}

impl Sealed {
    fn start() -> Self {
        let key = TempFile::new("cluster-key");
        let drawn = ClusterKey::draw().expect("random bytes");
        drawn.write(&key.0, Existing::Replace).expect("written");
        let address = free_addresses(1).expect("a free port")[0].to_string();
        let serve = ["serve", "--id", "1", "--bootstrap", "--key", key.path()];
        let mut command = command(&serve, &address);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let replica = command.spawn().expect("a process");
        Self {
            key,
            address,
            replica,
        }
    }

    fn client(&self, args: &[&str]) -> Ran {
        let args = [args, &["--key", self.key.path(), "--timeout", "20s"]].concat();
        trine(&args, &self.address, b"")
    }
}

impl Drop for Sealed {
    fn drop(&mut self) {
        let _ = self.replica.kill();
        let _ = self.replica.wait();
    }
}

#[test]
fn a_sealed_capture_is_read_with_the_key_log_alone() {
    let sealed = Sealed::start();
    sealed.client(&["put", "key", "0"]).expect_status(0);
    let (capture, log, wrong) = (
        TempFile::new("sealed"),
        TempFile::new("key-log"),
        TempFile::new("wrong-key-log"),
    );
    let value = "a value that nobody sees ".repeat(100);
    let watched = ["--capture", capture.path(), "--key-log", log.path()];
    let put = sealed.client(&[&["put", "key", &value], &watched[..]].concat());
    let warning = put.stderr.clone();
    put.expect_status(0);
    assert!(
        warning.contains("--key-log writes the secrets"),
        "{warning}"
    );

    let bytes = std::fs::read(&capture.0).expect("a capture");
    let part = b"nobody sees";
    assert!(!bytes.windows(part.len()).any(|window| window == part));
    let mode = std::fs::metadata(&log.0)
        .expect("a log")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let secrets = std::fs::read_to_string(&log.0).expect("text");
    assert_eq!(secrets.lines().count(), 2, "{secrets}");

    let of_tags = |log: Option<&str>| values(&capture.0, log, "trine.tag.status");
    let Some(unread) = of_tags(None) else {
        return;
    };
    assert!(
        unread.iter().all(|status| status == NOT_CHECKED),
        "{unread:?}"
    );
    let read = of_tags(Some(log.path())).expect("tshark was there");
    assert!(read.iter().all(|status| status == GOOD), "{read:?}");
    assert!(read.len() > 4, "{read:?}");
    let data = values(&capture.0, Some(log.path()), "trine.data").expect("tshark was there");
    let digits: String = part.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(data.iter().any(|data| data.contains(&digits)), "{data:?}");
    let names = ["trine.kind", "trine.response_to"];
    let lines = fields(&capture.0, Some(log.path()), &names).expect("tshark was there");
    assert!(lines.iter().any(|line| line.starts_with('1')), "{lines:?}");
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with('\t') && line.len() > 1)
    );

    // The tags are checked indeed.
    let turned = secrets.replace(['0', '1'], "2");
    std::fs::write(&wrong.0, turned.replace("SECRET_2", "SECRET_0")).expect("written");
    let nonce = secrets.split(' ').nth(1).expect("a nonce");
    let kept = std::fs::read_to_string(&wrong.0).expect("text");
    let other = kept.split(' ').nth(1).expect("a nonce").to_owned();
    std::fs::write(&wrong.0, kept.replace(&other, nonce)).expect("written");
    let refused = of_tags(Some(wrong.path())).expect("tshark was there");
    assert!(refused.iter().all(|status| status == BAD), "{refused:?}");
}

#[test]
fn a_key_log_that_cannot_be_is_told_with_its_hint() {
    let (key, log) = (TempFile::new("errors-key"), TempFile::new("errors-log"));
    let drawn = ClusterKey::draw().expect("random bytes");
    drawn.write(&key.0, Existing::Replace).expect("written");
    let get = |more: &[&str]| trine(&[&["get", "key"], more].concat(), "127.0.0.1:1", b"");
    get(&["--key-log", log.path()]).expect_error(2, &["uses no key", "--key FILE"]);
    let keyed = ["--key", key.path(), "--key-log"];
    let nowhere = [&keyed[..], &["/nowhere/at/all"]].concat();
    get(&nowhere).expect_error(2, &["/nowhere/at/all", "cannot be written", "directory"]);
    std::fs::write(&log.0, "").expect("written");
    std::fs::set_permissions(&log.0, std::fs::Permissions::from_mode(0o644)).expect("changed");
    let open = [&keyed[..], &[log.path()]].concat();
    get(&open).expect_error(2, &["others can read", "0644", "chmod 600"]);
    let serve = [&["serve", "--id", "1"], &open[..]].concat();
    trine(&serve, "127.0.0.1:1", b"").expect_error(2, &["others can read", "chmod 600"]);
}

/// Root wrote packets, and the secrets of its sessions, into files that another user had put there, and wherever that
/// user's links led.
#[test]
fn nothing_is_written_into_what_another_user_has_put_there() {
    let key = TempFile::new("foreign-key");
    let drawn = ClusterKey::draw().expect("random bytes");
    drawn.write(&key.0, Existing::Replace).expect("written");
    let (file, link, target) = (
        TempFile::new("foreign"),
        TempFile::new("foreign-link"),
        TempFile::new("foreign-target"),
    );
    std::fs::write(&file.0, "").expect("written");
    std::fs::set_permissions(&file.0, std::fs::Permissions::from_mode(0o600)).expect("changed");
    std::os::unix::fs::symlink(&target.0, &link.0).expect("made");
    let give = |path: &Path| std::os::unix::fs::lchown(path, Some(65_534), Some(65_534)).is_ok();
    if !give(&file.0) || !give(&link.0) {
        return leave_out(
            "only root can make files of another user",
            "TRINE_NEED_SANDBOX",
        );
    }
    for option in ["--capture", "--key-log"] {
        for (path, why) in [
            (&file, "belongs to another user (number 65534)"),
            (&link, "a link of another user (number 65534)"),
        ] {
            let args = ["get", "key", "--key", key.path(), option, path.path()];
            trine(&args, "127.0.0.1:1", b"").expect_error(2, &[path.path(), why, "a new file"]);
        }
    }
    assert_eq!(std::fs::metadata(&file.0).expect("there").len(), 0);
    assert!(!target.0.exists());
    // A key that another user has put there is that user's.
    assert!(give(&key.0));
    let args = ["get", "key", "--key", key.path()];
    trine(&args, "127.0.0.1:1", b"").expect_error(2, &["belongs to user 65534", "chown root"]);
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
