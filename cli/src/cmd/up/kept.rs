//! The directory with which `trine up` continues a group: which group was made in it?

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use trine_base::ports::addresses_from;
use trine_replica::disk::Directory;

use trine_base::failure::Failure;

/// Refuses a directory whose group has its replicas elsewhere than at `addresses`. Its members would wait for each
/// other there, and further replicas would wait for them.
pub(super) fn require_same_group(
    directory: &Path,
    addresses: &[SocketAddr],
) -> Result<(), Failure> {
    let begun = replicas_in(directory)
        .iter()
        .filter_map(|replica| Directory::first_members(replica))
        .map(|members| members.iter().map(|member| member.address).collect())
        .find(|begun: &Vec<SocketAddr>| begun != addresses);
    match begun {
        None => Ok(()),
        Some(begun) => Err(other_group(directory, &begun, addresses)),
    }
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
            "go on with it: trine up --replicas {count} --base-port {first} --log disk --data-dir {shown}; or begin a \
             new group: give a directory of its own with --data-dir"
        ),
        _ => "give a directory of its own with --data-dir".to_owned(),
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
