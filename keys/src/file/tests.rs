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

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("listed");
        let name = |entry: io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
        let mut names: Vec<String> = entries
            .map(|entry| name(entry).to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
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
    other.write(&path, Existing::Replace).expect("replaced");
    assert_eq!(ClusterKey::read(&path).expect("read"), other);
    assert_eq!(mode(&path), 0o600);
    assert_eq!(directory.names(), ["cluster.key"]);
}

/// A change of `group.key` removed `group.key.new`, which was the key of another group.
#[test]
fn a_file_that_is_replaced_leaves_its_neighbours_alone() {
    let directory = Directory::new("neighbours");
    let path = directory.path("cluster.key");
    cluster().write(&path, Existing::Keep).expect("written");
    let stale = format!(".cluster.key.{}.0.tmp", std::process::id());
    let neighbours = [stale.as_str(), "cluster.key.new", "cluster.key.tmp"];
    for name in neighbours {
        fs::write(directory.path(name), name).expect("written");
    }
    let other = cluster().accepting([3; 32]).expect("settled");
    other.write(&path, Existing::Replace).expect("replaced");
    let file = LockedKeyFile::lock(&path).expect("locked");
    assert_eq!(file.key(), &other);
    let last = other.clone().switched().expect("begun");
    file.replace(&last).expect("replaced");
    assert_eq!(ClusterKey::read(&path).expect("read"), last);
    for name in neighbours {
        let kept = fs::read_to_string(directory.path(name));
        assert_eq!(kept.expect("there"), name);
    }
    assert_eq!(directory.names().len(), 4, "{:?}", directory.names());
}

/// A change of a link put a file in the link's place, and the file that was meant stayed as it was.
#[test]
fn a_link_stays_and_the_file_that_it_leads_to_is_replaced() {
    let (directory, elsewhere) = (Directory::new("link"), Directory::new("link-target"));
    let (link, path) = (directory.path("link.key"), elsewhere.path("real.key"));
    cluster().write(&path, Existing::Keep).expect("written");
    std::os::unix::fs::symlink(&path, &link).expect("linked");
    let begun = cluster().accepting([3; 32]).expect("settled");
    let file = LockedKeyFile::lock(&link).expect("locked");
    file.replace(&begun).expect("replaced");
    let switched = begun.clone().switched().expect("begun");
    for key in [begun, switched.clone()] {
        key.write(&link, Existing::Replace).expect("replaced");
        assert_eq!(fs::read_link(&link).expect("a link"), path);
        assert_eq!(ClusterKey::read(&path).expect("read"), key);
    }
    assert_eq!(directory.names(), ["link.key"]);
    assert_eq!(elsewhere.names(), ["real.key"]);
    fs::remove_file(&path).expect("removed");
    switched
        .write(&link, Existing::Replace)
        .expect_err("the link leads to nothing");
    assert!(fs::read_link(&link).is_ok(), "it stays nevertheless");
}

/// Root changed the file of a replica that runs as another user, which could not read it any more.
#[test]
fn a_file_that_is_replaced_keeps_its_owner() {
    let directory = Directory::new("owner");
    let path = directory.path("cluster.key");
    cluster().write(&path, Existing::Keep).expect("written");
    let is_root = std::os::unix::fs::chown(&path, Some(12_345), Some(12_346)).is_ok();
    let before = fs::metadata(&path).expect("there");
    let begun = cluster().accepting([3; 32]).expect("settled");
    let file = LockedKeyFile::lock(&path).expect("locked");
    file.replace(&begun).expect("replaced");
    let after = fs::metadata(&path).expect("there");
    assert_ne!(after.ino(), before.ino(), "another file");
    assert_eq!((after.uid(), after.gid()), (before.uid(), before.gid()));
    assert_eq!(mode(&path), 0o600);
    assert_eq!(LockedKeyFile::lock(&path).expect("locked").key(), &begun);

    // A user that is not root can give nothing away.
    let given = NewKeyFile::create(&directory.path("new.key"))
        .expect("made")
        .give_to(12_347, 12_348);
    assert_eq!(given.is_ok(), is_root);
    let own = NewKeyFile::create(&directory.path("own.key")).expect("made");
    let owner = own.file.metadata().expect("there").uid();
    own.give_to(owner, 12_349)
        .expect("the group is no obstacle");
    let refused = FileError::Owner {
        path: "/etc/trine/group.key".into(),
        owner: 12_345,
        group: 12_346,
        error: io::ErrorKind::PermissionDenied.into(),
    };
    let said = refused.to_string();
    for part in ["was left alone", "user 12345 and group 12346", "as root"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

/// Of six changes at once one reported success, and the file held a root that another one had made.
#[test]
fn of_changes_at_once_one_succeeds_and_the_others_are_refused() {
    let directory = Directory::new("at-once");
    let path = directory.path("cluster.key");
    cluster().write(&path, Existing::Keep).expect("written");
    let begin = |root: u8| {
        let file = match LockedKeyFile::lock(&path) {
            Ok(file) => file,
            Err(FileError::Busy { .. }) => return None,
            Err(error) => panic!("{error}"),
        };
        let begun = file.key().clone().accepting([root; 32]).ok()?;
        file.replace(&begun).expect("replaced");
        Some(begun)
    };
    let begun: Vec<ClusterKey> = std::thread::scope(|scope| {
        let begin = &begin;
        let threads = [3, 4, 5, 6, 7, 8].map(|root| scope.spawn(move || begin(root)));
        let ended = threads.map(|thread| thread.join().expect("no panic"));
        ended.into_iter().flatten().collect()
    });
    assert_eq!(begun.len(), 1);
    assert_eq!(ClusterKey::read(&path).expect("read"), begun[0]);
    assert_eq!(directory.names(), ["cluster.key"]);
}

#[test]
fn a_locked_file_is_nobody_elses_until_it_is_replaced_or_let_go() {
    let directory = Directory::new("locked");
    let path = directory.path("cluster.key");
    cluster().write(&path, Existing::Keep).expect("written");
    let first = LockedKeyFile::lock(&path).expect("locked");
    let said = LockedKeyFile::lock(&path).expect_err("locked").to_string();
    for part in ["another command is changing", "trine key show"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(ClusterKey::read(&path).is_ok(), "readers do not wait");
    drop(first);
    let first = LockedKeyFile::lock(&path).expect("let go");
    let begun = first.key().clone().accepting([3; 32]).expect("settled");
    first.replace(&begun).expect("replaced");
    assert_eq!(LockedKeyFile::lock(&path).expect("free").key(), &begun);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("changed");
    let open = LockedKeyFile::lock(&path).expect_err("others can read it");
    assert!(matches!(open, FileError::Open { .. }), "{open}");
}

#[test]
fn a_new_file_without_a_key_is_removed() {
    let directory = Directory::new("new");
    let path = directory.path("alice.key");
    let file = NewKeyFile::create(&path).expect("made");
    assert_eq!((mode(&path), file.path()), (0o600, path.as_path()));
    let taken = NewKeyFile::create(&path).expect_err("it is there");
    assert!(matches!(taken, FileError::Exists { .. }), "{taken}");
    drop(file);
    assert!(!path.exists());
    // What an interrupted command has left is taken over, and nothing else.
    for (text, mode, is_taken) in [("", 0o600, true), ("", 0o644, false), ("x", 0o600, false)] {
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("changed");
        let taken = NewKeyFile::create(&path);
        assert_eq!(taken.is_ok(), is_taken, "{text:?} {mode:o}");
        drop(taken);
        assert_eq!(path.exists(), !is_taken);
        let _ = fs::remove_file(&path);
    }
    let nowhere = NewKeyFile::create(&directory.path("absent/alice.key"));
    assert!(matches!(nowhere, Err(FileError::Io { .. })));
    let key = cluster().user_key("alice".parse().expect("a name"), 1);
    let file = NewKeyFile::create(&path).expect("made");
    file.write(&key).expect("written");
    assert_eq!(UserKey::read(&path).expect("read"), key);
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
            "{} is not a file, and a key file is needed",
            directory.0.display()
        )
    );
    for content in [vec![b'#'; FILE_BYTES_MAX + 1], vec![0xff; 10]] {
        let path = directory.path("other");
        fs::write(&path, content).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("changed");
        let expected = "is not a key file: it is not text, or longer than 4096 bytes";
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

/// Root took a key file from a directory in which another user had put it: that user knew the key of the group.
#[test]
fn root_uses_no_key_file_of_another_user() {
    let directory = Directory::new("foreign");
    let path = directory.path("cluster.key");
    cluster().write(&path, Existing::Keep).expect("written");
    for (user, owner, refused) in [(0, 7, true), (0, 0, false), (7, 7, false), (7, 0, false)] {
        assert_eq!(is_foreign(user, owner), refused);
    }
    if std::os::unix::fs::chown(&path, Some(65_534), None).is_err() {
        return;
    }
    let refused = [
        ClusterKey::read(&path).map(drop),
        Presented::read(&path).map(drop),
        UserKey::read(&path).map(drop),
    ];
    for refused in refused {
        let said = refused.expect_err("refused").to_string();
        assert!(
            said.contains("belongs to user 65534") && said.contains("chown root"),
            "{said}"
        );
    }
    // Nor does it write a new key where another user has put something.
    for existing in ["file", "link"] {
        let path = directory.path(existing);
        match existing {
            "file" => fs::write(&path, "").expect("written"),
            _ => std::os::unix::fs::symlink(directory.path("elsewhere"), &path).expect("made"),
        }
        std::os::unix::fs::lchown(&path, Some(65_534), None).expect("root");
        let said = NewKeyFile::create(&path).expect_err("refused").to_string();
        assert!(said.contains("was left alone"), "{said}");
    }
    assert!(!directory.path("elsewhere").exists());
}
