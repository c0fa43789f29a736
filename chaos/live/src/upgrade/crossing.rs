//! Backups that one program makes and the other restores.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::Value;
use trine_base::failure::Failure;
use trine_base::network::Network;
use trine_base::ports::free_addresses;
use trine_local::config::START_LIMIT;
use trine_local::{Group, GroupConfig, start as group};

use super::asking::words_of_clients;
use super::program::{Binary, Pair};
use crate::now;

/// The beginning of the key that is looked for in what was restored.
const MARK: &str = "written-before-backup";

/// Where the run keeps its backups, and what it makes of them. Dropping this removes both.
#[derive(Debug)]
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn new() -> Result<Self, Failure> {
        let name = format!("trine-upgrade-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).map_err(|error| {
            let message = format!("cannot make {} for backups: {error}", path.display());
            Failure::usage(message, "set TMPDIR to another directory")
        })?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // There is nobody to tell, and the name says whose it is.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// One backup that was restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Crossed {
    pub(super) made_by: &'static str,
    pub(super) restored_by: &'static str,
    /// What the group was at that time.
    pub(super) when: &'static str,
}

/// Has each program make a backup of the group at `peers`, of a replica of its own, and the other one check and restore it.
/// `replicas` are the node ids of those of the old program and of the new one.
pub(super) fn cross_both<N: Network>(
    network: &N,
    pair: &Pair,
    (scratch, when): (&Scratch, &'static str),
    peers: &str,
    replicas: [usize; 2],
) -> Result<[Crossed; 2], Failure> {
    let (old, new) = (
        (&pair.old, "the old program"),
        (&pair.new, "the new program"),
    );
    for (from, to, replica) in [(old, new, replicas[0]), (new, old, replicas[1])] {
        let place = scratch.0.join("crossing");
        std::fs::create_dir(&place).map_err(|error| {
            let message = format!("cannot make {} for a backup: {error}", place.display());
            Failure::usage(message, "")
        })?;
        let crossed = cross(network, (from.0, to.0), &place, peers, replica);
        // What stays after a failure goes with the run.
        let removed = std::fs::remove_dir_all(&place);
        crossed.map_err(|failure| {
            let what = format!("a backup by {}, restored by {}, {when}", from.1, to.1);
            failure.while_doing(&what)
        })?;
        removed.map_err(|error| {
            let message = format!("cannot remove {}: {error}", place.display());
            Failure::usage(message, "")
        })?;
    }
    let crossed = |from: &'static str, to| Crossed {
        made_by: from,
        restored_by: to,
        when,
    };
    Ok([crossed(old.1, new.1), crossed(new.1, old.1)])
}

/// Writes a mark, has `from` make a backup of this replica, and `to` restore it, read the mark and count the keys.
fn cross<N: Network>(
    network: &N,
    (from, to): (&Binary, &Binary),
    place: &Path,
    peers: &str,
    replica: usize,
) -> Result<(), Failure> {
    let (file, directory) = (place.join("backup"), place.join("replica"));
    // The backup has to hold each write that was acknowledged before it began, also one of the other program.
    let value = format!("{}-{}", from.about.commit, now().as_nanos());
    let put = ["put", MARK, &value].map(OsString::from);
    to.ask(&words_of_clients(network, put, peers))?;
    let of_replica = ["--replica".into(), replica.to_string().into()];
    let backup = ["backup".into(), file.clone().into()].into_iter();
    from.ask(&words_of_clients(network, backup.chain(of_replica), peers))?;
    let verify: [OsString; 4] = [
        "backup".into(),
        "verify".into(),
        file.clone().into(),
        "--json".into(),
    ];
    let keys = keys_in(&to.ask(&verify)?);
    let addresses = free_addresses(1)
        .map_err(|error| Failure::usage(format!("no port for a restored group: {error}"), ""))?;
    let address = addresses[0].to_string();
    to.ask(&[
        "restore".into(),
        file.into(),
        "--data-dir".into(),
        directory.clone().into(),
        "--address".into(),
        address.clone().into(),
    ])?;
    let mut serve_args: Vec<OsString> = ["--log", "disk", "--data-dir"].map(OsString::from).into();
    serve_args.push(directory.into());
    serve_args.extend(network.serve_args());
    let config = GroupConfig {
        program: to.path.clone(),
        addresses,
        serve_args,
        sink: None,
    };
    let mut restored =
        Group::start_as(config, Vec::new(), Vec::new()).map_err(group::live_failure)?;
    let read = group::wait_for_voters(network, &mut restored, 1, START_LIMIT).and_then(|_| {
        let get = ["get", MARK].map(OsString::from);
        let mark = to.ask(&words_of_clients(network, get, &address))?;
        let count = ["count", "--json"].map(OsString::from);
        let count = to.ask(&words_of_clients(network, count, &address))?;
        Ok((mark, keys_in(&count)))
    });
    let restored = group::or_stop(restored, read.as_ref().map(drop).map_err(Clone::clone))?;
    restored.stop().map_err(group::live_failure)?;
    let (mark, found) = read?;
    if mark.trim() != value {
        let message = format!(
            "the restored group has {:?} as {MARK}, not {value:?}",
            mark.trim()
        );
        return Err(Failure::negative(message, ""));
    }
    if keys.is_none() || found != keys {
        let message = format!("the restored group has {found:?} keys, and the backup {keys:?}");
        return Err(Failure::negative(message, ""));
    }
    Ok(())
}

/// The number of keys in a document that says it.
fn keys_in(document: &str) -> Option<u64> {
    let document: Value = serde_json::from_str(document).ok()?;
    document["keys"].as_u64()
}
