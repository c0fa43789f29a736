//! `trine up --restore FILE`: a local group that begins with the state of a backup. Its first replica begins alone; the
//! others are taken in as new members, and get the state from it.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use trine_base::announce::Announcer;
use trine_base::arguments::AdminArguments;
use trine_base::capture::CaptureArguments;
use trine_base::endpoint::random_seed;
use trine_base::failure::Failure;
use trine_base::network::Network;
use trine_base::new_file;
use trine_base::units::plural;
use trine_keys::own_file::sync_directory;
use trine_local::{Group, LineSink, start as group};
use trine_protocol::message::{AdminCommand, Incarnation, Member, MemberRole, NodeId};
use trine_replica::disk::first_obstacle;
use trine_server::backup_file::{self, Ttl};

use super::kept::{remember, replicas_in};
use crate::cmd::member::{Wanted, execute};
use crate::cmd::restore::into_directory;

/// The mark in a group's directory that the first replica has not taken all others in yet.
const UNFINISHED: &str = "restoring";

/// Refuses a directory that holds a group. What an interrupted restore has left is none.
pub(super) fn require_new(directory: &Path) -> Result<(), Failure> {
    let replicas = replicas_in(directory);
    let holds_data = |replica: &&PathBuf| first_obstacle(replica).is_some();
    let Some(replica) = replicas.iter().find(holds_data) else {
        return Ok(());
    };
    Err(Failure::usage(
        format!(
            "{} holds a group ({}), and --restore starts a new one; nothing was changed",
            directory.display(),
            replica.display()
        ),
        "omit --restore to continue with that group, or give another directory with --data-dir",
    ))
}

/// Whether a restore into this directory did not come to its end.
///
/// # Errors
/// Its first replica is not made yet, so that there is nothing to go on with.
pub(super) fn is_unfinished(directory: &Path, restores: bool) -> Result<bool, Failure> {
    if !directory.join(UNFINISHED).exists() {
        return Ok(false);
    }
    let first = directory.join("replica-1");
    if !restores && first_obstacle(&first).is_none() {
        return Err(Failure::usage(
            format!(
                "a restore into {} was interrupted before its first replica was made",
                directory.display()
            ),
            "run the same `trine up --restore FILE` again: it starts over",
        ));
    }
    Ok(true)
}

/// Marks the directory, until all replicas vote.
fn mark(directory: &Path) -> Result<(), Failure> {
    let path = directory.join(UNFINISHED);
    let made = new_file::emptied(&path)
        .and_then(|file| file.sync_all())
        .and_then(|()| sync_directory(&path));
    made.map_err(|error| {
        Failure::usage(
            format!("cannot write {}: {error}", path.display()),
            "give a directory that this user can write in with --data-dir",
        )
    })
}

/// The arguments with which the first replica begins the group. With a directory the state is in it by then.
pub(super) fn prepare(
    file: &Path,
    kept: Option<&PathBuf>,
    addresses: &[SocketAddr],
    ttl: Ttl,
    announcer: Announcer,
) -> Result<Vec<OsString>, Failure> {
    let Some(directory) = kept else {
        let words: [OsString; 4] = [
            "--restore".into(),
            file.into(),
            "--expiry".into(),
            ttl.name().into(),
        ];
        return Ok(words.into());
    };
    let content = backup_file::read(file)?;
    // The directories of these replicas do not say it, because none of them will have begun the group with the others.
    remember(directory, addresses)?;
    mark(directory)?;
    let member = Member {
        node_id: NodeId(1),
        role: MemberRole::Voter,
        incarnation: Incarnation(random_seed()?.max(1)),
        address: addresses[0],
    };
    let own = directory.join("replica-1");
    let (cluster, begun) = into_directory(content, (file, &own), member, ttl)?;
    announcer.line(format_args!(
        "cluster {cluster} begins with {} of cluster {} as of entry {}; writes acknowledged there \
         after it are lost",
        plural(begun.items, "key"),
        begun.old,
        begun.old_index
    ));
    Ok(Vec::new())
}

/// Starts all replicas, and has the first one take in those of the others that are no members yet.
pub(super) fn start<N: Network>(
    network: &N,
    (addresses, kept): (&[SocketAddr], Option<&PathBuf>),
    serve_args: Vec<OsString>,
    sink: LineSink,
    begin: Vec<OsString>,
    limit: Duration,
) -> Result<Group, Failure> {
    let (all, sink) = (addresses.to_vec(), Some(sink));
    let mut started = group::start_alone(network, all, serve_args, sink, begin, limit)?;
    let taken_in = take_in_others(network, &mut started, limit);
    let started = group::or_stop(started, taken_in)?;
    if let Some(directory) = kept {
        // A mark that stays does no harm: who is a member already is not taken in again.
        let _ = std::fs::remove_file(directory.join(UNFINISHED));
    }
    Ok(started)
}

/// Has the first replica take in the others, and waits until all of them vote.
fn take_in_others<N: Network>(
    network: &N,
    started: &mut Group,
    limit: Duration,
) -> Result<(), Failure> {
    let count = started.addresses().len();
    let admin = AdminArguments {
        peers: started.peers(),
        timeout: limit,
        capture: CaptureArguments::default(),
    };
    for node_id in (2..).take(count - 1) {
        let add = Wanted {
            command: AdminCommand::Add { voter: true },
            node_id,
            address: None,
        };
        execute(network, &admin, add)?;
    }
    group::wait_for_voters(network, started, count, limit).map(drop)
}
