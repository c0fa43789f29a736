//! The arguments that all replicas of a group share: which of them name the replica or give it files.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Stands for the node id.
const PLACEHOLDER: &[u8] = b"{node_id}";
const DATA_DIR: &str = "--data-dir";
/// The options whose value may hold the placeholder. Every other value is the user's own text, as the path of a key is.
const OF_EACH_REPLICA: [&str; 3] = [DATA_DIR, "--metrics", "--eal"];

/// The arguments of the replica with this node id.
pub(super) fn of_node(arguments: &[OsString], node_id: usize) -> Vec<OsString> {
    let mut before = OsStr::new("");
    let mut placed = Vec::with_capacity(arguments.len());
    for argument in arguments {
        placed.push(of_one(before, argument, node_id));
        before = argument;
    }
    placed
}

/// One argument of the replica, which stands behind `before`.
fn of_one(before: &OsStr, argument: &OsStr, node_id: usize) -> OsString {
    let is_of =
        |option: &&str| before == OsStr::new(*option) || joined_value(argument, option).is_some();
    match OF_EACH_REPLICA.into_iter().find(is_of) {
        None => argument.to_owned(),
        Some(option) if option == DATA_DIR => with_last_node_id(argument, node_id),
        Some(_) => with_node_id(argument, node_id),
    }
}

/// The text in which every placeholder became the node id. It may hold any bytes, as paths do.
pub(super) fn with_node_id(text: &OsStr, node_id: usize) -> OsString {
    let node_id = node_id.to_string();
    let mut rest = text.as_bytes();
    let mut out = Vec::with_capacity(rest.len());
    let next = |rest: &[u8]| {
        let mut windows = rest.windows(PLACEHOLDER.len());
        windows.position(|window| window == PLACEHOLDER)
    };
    while let Some(at) = next(rest) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(node_id.as_bytes());
        rest = &rest[at + PLACEHOLDER.len()..];
    }
    out.extend_from_slice(rest);
    OsString::from_vec(out)
}

/// The same for the last placeholder alone. What stands in front of it in the path of a directory is the user's.
fn with_last_node_id(text: &OsStr, node_id: usize) -> OsString {
    let bytes = text.as_bytes();
    let mut windows = bytes.windows(PLACEHOLDER.len());
    let last = windows.rposition(|window| window == PLACEHOLDER);
    let (users, ours) = bytes.split_at(last.unwrap_or_default());
    let mut out = OsStr::from_bytes(users).to_owned();
    out.push(with_node_id(OsStr::from_bytes(ours), node_id));
    out
}

/// Whether replicas with these arguments keep their logs in files.
pub(super) fn keep_files(arguments: &[OsString]) -> bool {
    value_of(arguments, DATA_DIR).is_some()
}

/// Whether their files only count after an orderly end.
pub(super) fn sync_at_the_end_alone(arguments: &[OsString]) -> bool {
    value_of(arguments, "--fsync").is_some_and(|value| value == OsStr::new("none"))
}

/// The value of an option, as an argument behind it or joined to it.
fn value_of<'a>(arguments: &'a [OsString], option: &str) -> Option<&'a OsStr> {
    let is_behind = |pair: &&[OsString]| pair[0].as_os_str() == OsStr::new(option);
    let behind = arguments.windows(2).find(is_behind);
    match behind {
        Some(pair) => Some(pair[1].as_os_str()),
        None => arguments
            .iter()
            .find_map(|argument| joined_value(argument, option)),
    }
}

/// The value in `--option=value`.
fn joined_value<'a>(argument: &'a OsStr, option: &str) -> Option<&'a OsStr> {
    let rest = argument.as_bytes().strip_prefix(option.as_bytes())?;
    rest.strip_prefix(b"=").map(OsStr::from_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&[u8]]) -> Vec<OsString> {
        let words = words.iter().map(|word| OsStr::from_bytes(word).to_owned());
        words.collect()
    }

    /// With a path that was not UTF-8 the placeholder stayed, and all replicas fought over one directory.
    #[test]
    fn a_directory_of_any_bytes_is_one_for_each_replica() {
        let shared = words(&[b"--data-dir", b"dd\xff/replica-{node_id}"]);
        let second = words(&[b"--data-dir", b"dd\xff/replica-2"]);
        assert_eq!(of_node(&shared, 2), second);
        let joined = words(&[b"--data-dir=dd\xff/replica-{node_id}"]);
        assert_eq!(
            of_node(&joined, 2),
            words(&[b"--data-dir=dd\xff/replica-2"])
        );
    }

    /// A path with the placeholder in it became another path, also that of a key.
    #[test]
    fn paths_of_the_user_stay_as_they_are() {
        let shared = words(&[
            b"--key",
            b"/k/{node_id}.key",
            b"--data-dir",
            b"/d/{node_id}/replica-{node_id}",
            b"--tls-cert=/k/{node_id}.pem",
        ]);
        let third = words(&[
            b"--key",
            b"/k/{node_id}.key",
            b"--data-dir",
            b"/d/{node_id}/replica-3",
            b"--tls-cert=/k/{node_id}.pem",
        ]);
        assert_eq!(of_node(&shared, 3), third);
    }

    #[test]
    fn addresses_and_devices_name_the_replica_wherever_it_stands() {
        let shared = words(&[
            b"--metrics",
            b"127.0.0.1:9470+{node_id}",
            b"--eal=--file-prefix trine{node_id} --vdev net_tap{node_id}",
        ]);
        let first = words(&[
            b"--metrics",
            b"127.0.0.1:9470+1",
            b"--eal=--file-prefix trine1 --vdev net_tap1",
        ]);
        assert_eq!(of_node(&shared, 1), first);
    }

    #[test]
    fn whether_there_are_files_and_when_they_count_is_in_the_arguments() {
        let memory = words(&[b"--log", b"memory", b"--fsync", b"batch"]);
        assert!(!keep_files(&memory) && !sync_at_the_end_alone(&memory));
        let disk = words(&[b"--log", b"disk", b"--fsync", b"none", b"--data-dir", b"d"]);
        assert!(keep_files(&disk) && sync_at_the_end_alone(&disk));
        let joined = words(&[b"--fsync=none", b"--data-dir=d"]);
        assert!(keep_files(&joined) && sync_at_the_end_alone(&joined));
    }
}
