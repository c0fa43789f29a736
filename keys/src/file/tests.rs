//! Key files in a directory of the test's own.

use super::*;
use crate::fingerprint::GroupId;

/// A directory that is removed with the value.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("trine-keys-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn cluster() -> ClusterKey {
    ClusterKey::new(GroupId([1; 8]), [1; 32], [2; 32])
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("there").permissions().mode() & 0o7777
}

#[test]
fn a_key_file_is_its_owners_alone() {
    let directory = Directory::new("own");
    let path = directory.path("cluster.key");
    cluster().write(&path, Existing::Keep).expect("written");
    assert_eq!(mode(&path), 0o600);
    assert_eq!(ClusterKey::read(&path).expect("read"), cluster());
    assert_eq!(
        Presented::read(&path).expect("read"),
        Presented::admin(&cluster())
    );
    for shared in [0o640, 0o604, 0o620, 0o660, 0o601] {
        fs::set_permissions(&path, fs::Permissions::from_mode(shared)).expect("changed");
        let said = ClusterKey::read(&path)
            .expect_err("open to others")
            .to_string();
        let path = path.display();
        let expected = format!(
            "the key file {path} can be read by others (mode {shared:04o}): run `chmod 600 {path}`"
        );
        assert_eq!(said, expected);
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).expect("changed");
    assert!(ClusterKey::read(&path).is_ok(), "read-only is fine");
}

#[test]
fn a_credential_of_systemd_is_a_key_file() {
    assert!(!is_open(0o400, 1000, 1000) && !is_open(0o440, 0, 0));
    for (mode, owner, group) in [
        (0o440, 1000, 0),
        (0o440, 0, 1000),
        (0o640, 0, 0),
        (0o444, 0, 0),
    ] {
        assert!(is_open(mode, owner, group), "{mode:o} {owner} {group}");
    }
}

#[test]
fn nothing_is_overwritten_unless_it_is_said() {
    let directory = Directory::new("keep");
    let path = directory.path("cluster.key");
    cluster().write(&path, Existing::Keep).expect("written");
    let other = cluster().accepting([3; 32]).expect("settled");
    let said = other
        .write(&path, Existing::Keep)
        .expect_err("there")
        .to_string();
    assert_eq!(
        said,
        format!(
            "the file {} exists and was left alone: remove it or choose another path",
            path.display()
        )
    );
    assert_eq!(ClusterKey::read(&path).expect("read"), cluster());
    fs::write(directory.path("cluster.key.new"), "half").expect("left behind");
    other.write(&path, Existing::Replace).expect("replaced");
    assert_eq!(ClusterKey::read(&path).expect("read"), other);
    assert_eq!(mode(&path), 0o600);
    assert_eq!(fs::read_dir(&directory.0).expect("listed").count(), 1);
}

#[test]
fn users_have_files_too() {
    let directory = Directory::new("user");
    let path = directory.path("alice.key");
    let key = cluster().user_key("alice".parse().expect("a name"), 1);
    key.write(&path, Existing::Keep).expect("written");
    assert_eq!(mode(&path), 0o600);
    assert_eq!(UserKey::read(&path).expect("read"), key);
    assert_eq!(Presented::read(&path).expect("read"), Presented::user(&key));
    let said = ClusterKey::read(&path).expect_err("a user's").to_string();
    let path = path.display();
    assert_eq!(
        said,
        format!("{path}: line 2: this is a user's key, and a cluster key file is needed")
    );
}

#[test]
fn what_is_no_key_file_is_named() {
    let directory = Directory::new("none");
    let said = |path: &Path| ClusterKey::read(path).expect_err("none").to_string();
    let absent = directory.path("absent");
    assert!(said(&absent).starts_with(&format!("cannot read the key file {}: ", absent.display())));
    assert_eq!(
        said(&directory.0),
        format!(
            "{} is no file, and a key file is needed",
            directory.0.display()
        )
    );
    for content in [vec![b'#'; FILE_BYTES_MAX + 1], vec![0xff; 10]] {
        let path = directory.path("other");
        fs::write(&path, content).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("changed");
        let expected = "is no key file: it is no text, or longer than 4096 bytes";
        assert!(said(&path).ends_with(expected), "{}", said(&path));
    }
}

#[test]
fn the_path_in_the_command_is_one_that_a_shell_takes() {
    assert_eq!(
        quoted(Path::new("/etc/trine/cluster.key")),
        "/etc/trine/cluster.key"
    );
    assert_eq!(quoted(Path::new("my key")), "'my key'");
    assert_eq!(quoted(Path::new("it's")), "'it'\\''s'");
    assert_eq!(quoted(Path::new("-key")), "-- '-key'");
}
