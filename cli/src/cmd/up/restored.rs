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
use trine_base::units::plural;
use trine_local::{Group, LineSink, start as group};
use trine_protocol::message::{AdminCommand, Incarnation, Member, MemberRole, NodeId};
use trine_server::backup_file::{self, Ttl};

use super::kept::replicas_in;
use crate::cmd::member::{Wanted, execute};
use crate::cmd::restore::into_directory;

/// Refuses a directory that holds a group.
pub(super) fn require_new(directory: &Path) -> Result<(), Failure> {
    let Some(replica) = replicas_in(directory).into_iter().next() else {
        return Ok(());
    };
    Err(Failure::usage(
        format!(
            "{} holds a group ({}), and --restore begins a new one; nothing was changed",
            directory.display(),
            replica.display()
        ),
        "leave --restore out to go on with that group, or give another directory with --data-dir",
    ))
}

/// The arguments with which the first replica begins the group. With a directory the state is in it by then.
pub(super) fn prepare(
    file: &Path,
    kept: Option<&PathBuf>,
    address: SocketAddr,
    ttl: Ttl,
    announcer: Announcer,
) -> Result<Vec<OsString>, Failure> {
    let Some(directory) = kept else {
        let words: [OsString; 4] = [
            "--restore".into(),
            file.into(),
            "--ttl".into(),
            ttl.name().into(),
        ];
        return Ok(words.into());
    };
    let content = backup_file::read(file)?;
    let member = Member {
        node_id: NodeId(1),
        role: MemberRole::Voter,
        incarnation: Incarnation(random_seed()?.max(1)),
        address,
    };
    let own = directory.join("replica-1");
    let (cluster, begun) = into_directory(content, (file, &own), member, ttl)?;
    announcer.line(format_args!(
        "cluster {cluster} begins with {} of cluster {} as of entry {}; what was acknowledged there behind it is lost",
        plural(begun.items, "key"),
        begun.old,
        begun.old_index
    ));
    Ok(Vec::new())
}

/// Starts all replicas, and has the first one take the others in.
pub(super) fn start<N: Network>(
    network: &N,
    addresses: &[SocketAddr],
    serve_args: Vec<OsString>,
    sink: LineSink,
    begin: Vec<OsString>,
    limit: Duration,
) -> Result<Group, Failure> {
    let (all, sink) = (addresses.to_vec(), Some(sink));
    let mut started = group::start_alone(network, all, serve_args, sink, begin, limit)?;
    let admin = AdminArguments {
        peers: started.peers(),
        timeout: limit,
        capture: CaptureArguments::default(),
    };
    for node_id in (2..).take(addresses.len() - 1) {
        let add = Wanted {
            command: AdminCommand::Add { voter: true },
            node_id,
            address: None,
        };
        execute(network, &admin, add)?;
    }
    group::wait_for_voters(network, &mut started, addresses.len(), limit)?;
    Ok(started)
}
