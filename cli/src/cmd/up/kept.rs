//! The directory with which `trine up` continues a group.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use trine_base::ports::addresses_from;
use trine_replica::disk::{Directory, files_set_aside, first_obstacle};

use trine_base::failure::Failure;
use trine_base::new_file;

/// The file in a group's directory that says where its replicas are: an address a line.
const ADDRESSES: &str = "group.addresses";
/// The same while it is being written.
const TEMPORARY: &str = "group.addresses.tmp";

/// Refuses a directory whose group has its replicas elsewhere than at `addresses`. Its members would wait for each
/// other there, and further replicas would wait for them.
pub(super) fn require_same_group(
    directory: &Path,
    addresses: &[SocketAddr],
) -> Result<(), Failure> {
    let replicas = replicas_in(directory);
    let begun = replicas
        .iter()
        .filter_map(|replica| Directory::first_members(replica))
        .map(|members| members.iter().map(|member| member.address).collect())
        .chain(remembered(directory, &replicas))
        .find(|begun: &Vec<SocketAddr>| begun != addresses);
    match begun {
        None => Ok(()),
        Some(begun) => Err(other_group(directory, &begun, addresses)),
    }
}

/// Writes down where the replicas of this directory are. Their own directories say it only of those that have begun the
/// group together: not after a restore, and not once each has been replaced.
///
/// # Errors
/// The file cannot be written.
pub(super) fn remember(directory: &Path, addresses: &[SocketAddr]) -> Result<(), Failure> {
    let path = directory.join(ADDRESSES);
    let text: String = addresses.iter().map(|own| format!("{own}\n")).collect();
    if std::fs::read_to_string(&path).is_ok_and(|before| before == text) {
        return Ok(());
    }
    // Of this user alone, like everything else in the directory.
    let beside = directory.join(TEMPORARY);
    new_file::replace(&path, &beside, text.as_bytes()).map_err(|error| {
        Failure::usage(
            format!("cannot write {}: {error}", path.display()),
            "give a directory that this user can write in with --data-dir",
        )
    })
}

/// Where the replicas of this directory are, as written down. Nothing as long as none of them has files: whoever wrote
/// it down then did not come to begin a group.
fn remembered(directory: &Path, replicas: &[PathBuf]) -> Option<Vec<SocketAddr>> {
    let text = std::fs::read_to_string(directory.join(ADDRESSES)).ok()?;
    let addresses: Option<Vec<SocketAddr>> = text.lines().map(|line| line.parse().ok()).collect();
    let holds_data = replicas
        .iter()
        .any(|replica| first_obstacle(replica).is_some());
    addresses.filter(|addresses| holds_data && !addresses.is_empty())
}

/// What the directory of a group held before a start.
#[derive(Debug)]
pub(super) struct Before {
    /// The clusters of its replicas, as their status has them.
    clusters: BTreeSet<String>,
    /// What earlier starts have set aside.
    set_aside: BTreeSet<String>,
}

impl Before {
    pub(super) fn of(directory: &Path) -> Self {
        let replicas = replicas_in(directory);
        let clusters = replicas
            .iter()
            .filter_map(|replica| Directory::cluster(replica));
        Self {
            clusters: clusters.map(|cluster| cluster.to_string()).collect(),
            set_aside: set_aside_in(directory),
        }
    }

    /// The files that the replicas have set aside since then, if the group goes on in none of the old clusters.
    pub(super) fn lost(&self, directory: &Path, now: Option<&str>) -> Vec<String> {
        match now {
            Some(now) if !self.clusters.contains(now) => {
                let set_aside = set_aside_in(directory);
                set_aside.difference(&self.set_aside).cloned().collect()
            }
            _ => Vec::new(),
        }
    }
}

/// The files that replicas have set aside, as patterns. All of those that were set aside at once have one.
fn set_aside_in(directory: &Path) -> BTreeSet<String> {
    let of_replica = |replica: PathBuf| {
        let files = files_set_aside(&replica).unwrap_or_default();
        files.into_iter().filter_map(move |file| {
            // `lost-STAMP-NAME`
            let mut parts = file.name.split('-');
            let (lost, stamp) = (parts.next()?, parts.next()?);
            Some(format!("{}/{lost}-{stamp}-*", replica.display()))
        })
    };
    let replicas = replicas_in(directory);
    replicas.into_iter().flat_map(of_replica).collect()
}

fn other_group(directory: &Path, begun: &[SocketAddr], addresses: &[SocketAddr]) -> Failure {
    let shown = directory.display();
    let (count, first) = (begun.len(), begun.first().map_or(0, SocketAddr::port));
    let list = |addresses: &[SocketAddr]| {
        let texts: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
        texts.join(" ")
    };
    let go_on = match addresses_from(first, count) {
        Some(of_up) if of_up == begun => format!(
            "continue it: trine up --replicas {count} --base-port {first} --log disk --data-dir \
             {shown}; or start a new group: give another directory with --data-dir. If its \
             members were changed since, remove {shown}/{ADDRESSES} and try again"
        ),
        _ => "give another directory with --data-dir".to_owned(),
    };
    Failure::usage(
        format!(
            "{shown} holds a group of {count} replicas at {}; this command is for {} at {}",
            list(begun),
            addresses.len(),
            list(addresses)
        ),
        go_on,
    )
}

/// The directories of replicas in that of a group, in the order of their node ids. There may be more than this command
/// starts. Other contents of the directory are ignored.
pub(super) fn replicas_in(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let node_id = |name: &OsStr| name.to_str()?.strip_prefix("replica-")?.parse::<u32>().ok();
    let node_ids = entries.filter_map(|entry| Some((node_id(&entry.file_name())?, entry.path())));
    let node_ids: BTreeMap<u32, PathBuf> = node_ids.collect();
    node_ids.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let name = format!("trine-kept-{}-{name}", std::process::id());
            let path = std::env::temp_dir().join(name);
            for node_id in 1..=3 {
                std::fs::create_dir_all(path.join(format!("replica-{node_id}"))).expect("made");
            }
            Self(path)
        }

        fn write(&self, file: &str) {
            std::fs::write(self.0.join(file), "text").expect("written");
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// The replicas of a restored group did not say where they were. At other ports `trine up` waited for a minute.
    #[test]
    fn a_group_whose_replicas_do_not_say_where_they_are_is_told_by_what_is_written_down() {
        let scratch = Scratch::new("addresses");
        let own = addresses_from(7471, 3).expect("in range");
        remember(&scratch.0, &own).expect("written");
        remember(&scratch.0, &own).expect("there already");
        let ports = addresses_from(7571, 3).expect("in range");
        let more = addresses_from(7471, 5).expect("in range");
        for addresses in [&own, &ports, &more] {
            let free = require_same_group(&scratch.0, addresses);
            assert_eq!(free, Ok(()), "no replica has files yet");
        }
        scratch.write("replica-2/identity");
        assert_eq!(require_same_group(&scratch.0, &own), Ok(()));
        for addresses in [&ports, &more] {
            let refused = require_same_group(&scratch.0, addresses).expect_err("another group");
            let text = refused.to_string();
            for part in ["a group of 3 replicas", "--replicas 3 --base-port 7471"] {
                assert!(text.contains(part), "{text}");
            }
        }
        // Whatever is no list of addresses says nothing.
        for text in ["", "somewhere\n"] {
            std::fs::write(scratch.0.join(ADDRESSES), text).expect("written");
            assert_eq!(require_same_group(&scratch.0, &ports), Ok(()));
        }
    }

    #[test]
    fn files_are_lost_if_some_were_set_aside_and_the_cluster_is_a_new_one() {
        let scratch = Scratch::new("lost");
        scratch.write("replica-1/lost-00000000000000aa-identity");
        let mut before = Before::of(&scratch.0);
        assert!(before.clusters.is_empty(), "{before:?}");
        assert!(before.lost(&scratch.0, Some("c0ffee")).is_empty());
        for file in ["identity", "segment-0000000000000001.log"] {
            scratch.write(&format!("replica-2/lost-00000000000000bb-{file}"));
        }
        let lost = before.lost(&scratch.0, Some("c0ffee"));
        let pattern = scratch.0.join("replica-2/lost-00000000000000bb-*");
        assert_eq!(lost, [pattern.display().to_string()]);
        assert!(before.lost(&scratch.0, None).is_empty());
        before.clusters.insert("c0ffee".to_owned());
        let rejoined = before.lost(&scratch.0, Some("c0ffee"));
        assert!(rejoined.is_empty(), "the group goes on: {rejoined:?}");
    }
}
