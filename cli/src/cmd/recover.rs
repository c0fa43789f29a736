//! `trine recover` makes a new group of one replica from the contents of one data directory, lifts a quarantine, or
//! removes what was set aside.

use std::path::Path;

use serde_json::json;
use trine_protocol::message::{ClusterId, Incarnation, Member, MemberRole, NodeId};
use trine_replica::config::SEGMENT_BYTES;
use trine_replica::disk::{
    DiskCause, Fsync, LeftoverError, OpenError, OpenOptions, RecoverError, lift_quarantine,
    recover, remove_set_aside, unused,
};

use clap::Args;
use std::path::PathBuf;
use trine_base::document::path_text;
use trine_base::endpoint::random_seed;
use trine_base::failure::Failure;
use trine_base::output::Output;
use trine_base::units::{plural, show_bytes};
use trine_base::{interrupt, peers};
use trine_server::data;

#[derive(Debug, Args)]
pub(crate) struct RecoverArguments {
    /// Directory of the surviving replica with the longest log; its process must not run.
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
    /// Node id that the replica was started with.
    #[arg(
        long,
        value_name = "ID",
        value_parser = clap::value_parser!(u32).range(1..),
        required_unless_present_any = ["quarantined", "remove_lost"]
    )]
    pub(crate) id: Option<u32>,
    /// Address at which the others will reach the replica: host:port.
    #[arg(
        long,
        value_name = "HOST:PORT",
        required_unless_present_any = ["quarantined", "remove_lost"]
    )]
    pub(crate) address: Option<String>,
    /// Required: writes that only the lost replicas had acknowledged are gone, and writes that were never acknowledged
    /// may be applied.
    #[arg(long)]
    pub(crate) i_accept_data_loss: bool,
    /// Create no new group: only lift the quarantine of this directory. Its replica was found to hold a state that
    /// differs from the majority's, and continues with that state when it restarts.
    #[arg(long, conflicts_with_all = ["id", "address", "i_accept_data_loss"])]
    pub(crate) quarantined: bool,
    /// Create no new group: only remove the lost-* files of this directory. --rejoin and this command set them aside,
    /// and they are never read. The replica may be running.
    #[arg(long, conflicts_with_all = ["id", "address", "i_accept_data_loss", "quarantined"])]
    pub(crate) remove_lost: bool,
}

pub(crate) fn run(arguments: &RecoverArguments, output: Output) -> Result<(), Failure> {
    let path = &arguments.data_dir;
    if arguments.quarantined {
        return lift(path, output);
    }
    if arguments.remove_lost {
        return remove_lost(path, output);
    }
    let (Some(id), Some(address)) = (arguments.id, &arguments.address) else {
        unreachable!("the command line requires both of a recovery");
    };
    if !arguments.i_accept_data_loss {
        return Err(Failure::usage(
            "this creates a new group from one replica's directory: writes that only the lost \
             replicas had acknowledged are gone, and writes that were logged here but never \
             acknowledged will be applied",
            "if a majority of the group can still be started, start it instead; otherwise give --i-accept-data-loss",
        ));
    }
    require_directory(path)?;
    let address = peers::resolve_replica(address)?;
    data::require_own(path)?;
    if unused(path).is_some() {
        return Err(failure(path, &RecoverError::Empty));
    }
    interrupt::start()?;
    let directory = data::lock(path)?;
    let incarnation = Incarnation(random_seed()?.max(1));
    let node_id = NodeId(id);
    let options = OpenOptions {
        node_id,
        fsync: Fsync::Batch,
        segment_bytes: SEGMENT_BYTES,
        incarnation,
        rejoin: false,
    };
    let member = Member {
        node_id,
        role: MemberRole::Voter,
        incarnation,
        address,
    };
    let cluster = ClusterId(random_seed()?.max(1));
    let done = recover(directory, options, cluster, member);
    let done = done.map_err(|error| failure(path, &error))?;
    output.document(&json!({
        "cluster": cluster.to_string(), "old_cluster": done.old.to_string(),
        "committed": done.committed, "last_index": done.last,
    }));
    let (old, committed, last) = (done.old, done.committed, done.last);
    output.line(format_args!(
        "cluster {cluster} begins with replica {node_id} alone and the state of {old} up to entry {last}"
    ));
    if committed < last {
        let first = committed + 1;
        output.line(format_args!(
            "entries {first} to {last} were not known to be committed, and now count as committed"
        ));
    }
    output.line(format_args!(
        "writes that the lost replicas had acknowledged after entry {last} are gone"
    ));
    output.line(
        "start it with --log disk, then add the others: trine member add; clients must be \
         restarted",
    );
    Ok(())
}

/// Lifts a quarantine, and does nothing else.
fn lift(path: &Path, output: Output) -> Result<(), Failure> {
    require_directory(path)?;
    let lifted = match unused(path) {
        Some(_) => None,
        None => {
            let mut directory = data::lock(path)?;
            lift_quarantine(&mut directory).map_err(|error| data::failure(path, &error))?
        }
    };
    let shown = path.display();
    let Some(why) = lifted else {
        return Err(Failure::negative(
            format!("{shown} is not in quarantine; nothing was changed"),
            "start its replica; its output reports any problem",
        ));
    };
    output.document(&json!({ "directory": path_text(path), "quarantined": why }));
    output.line(format_args!(
        "{shown} is no longer in quarantine; the reason was: {why}"
    ));
    output.line(
        "restart its replica; if its state still differs from the others', it stops and is \
         quarantined again",
    );
    Ok(())
}

/// Removes what was set aside, and does nothing else.
fn remove_lost(path: &Path, output: Output) -> Result<(), Failure> {
    require_directory(path)?;
    let removed = remove_set_aside(path).map_err(|error| {
        let hint = match &error {
            LeftoverError::Recovering => "run the same trine recover again, and then this command",
            LeftoverError::Io(_) => "",
        };
        Failure::usage(format!("{}: {error}", path.display()), hint)
    })?;
    let bytes = removed.iter().map(|file| file.bytes).sum();
    let names: Vec<&str> = removed.iter().map(|file| file.name.as_str()).collect();
    output.document(&json!({ "directory": path_text(path), "removed": names, "bytes": bytes }));
    output.line(format_args!(
        "removed {} from {} ({})",
        plural(removed.len() as u64, "file"),
        path.display(),
        show_bytes(bytes)
    ));
    Ok(())
}

fn require_directory(path: &Path) -> Result<(), Failure> {
    match path.is_dir() {
        true => Ok(()),
        false => Err(Failure::usage(
            format!("{} is not a directory", path.display()),
            "give the data directory of a replica of the lost group with --data-dir",
        )),
    }
}

fn failure(path: &Path, error: &RecoverError) -> Failure {
    match error {
        RecoverError::Open(OpenError::Disk(error)) if error.cause == DiskCause::Ended => {
            Failure::interrupted_after(
                format_args!("no new group was created from {}", path.display()),
                "run the same trine recover again: it starts from the old files, which are all \
                 there",
            )
        }
        RecoverError::Open(error) => data::failure(path, error),
        other => Failure::usage(
            format!("{}: {other}", path.display()),
            "try the directory of another replica of the lost group",
        ),
    }
}
