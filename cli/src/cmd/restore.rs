//! `trine restore` makes the data directory of the first member of a new group out of a backup.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use trine_base::document::path_text;
use trine_base::endpoint::random_seed;
use trine_base::failure::Failure;
use trine_base::output::Output;
use trine_base::units::{plural, show_ns};
use trine_base::{interrupt, peers};
use trine_protocol::message::{ClusterId, Incarnation, Member, MemberRole, NodeId};
use trine_replica::backup::{Begun, Content, RestoreError, restore};
use trine_replica::config::SEGMENT_BYTES;
use trine_replica::disk::{
    Directory, DiskCause, Fsync, OpenOptions, first_obstacle, leave_empty, take_back_restore,
};
use trine_server::backup_file::{self, Ttl};
use trine_server::data;

#[derive(Debug, Args)]
pub(crate) struct RestoreArguments {
    /// The backup.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Data directory to create for the first replica of the new group; it must be empty or missing.
    #[arg(long, visible_alias = "dir", value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
    /// The node id of that replica.
    #[arg(long, default_value_t = 1, value_name = "ID", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) id: u32,
    /// Address at which the others will reach that replica: host:port.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) address: String,
    /// Whether the time since the backup is subtracted from times to live.
    #[arg(long, alias = "ttl", value_enum, default_value_t)]
    pub(crate) expiry: Ttl,
}

pub(crate) fn run(arguments: &RestoreArguments, output: Output) -> Result<(), Failure> {
    let directory = &arguments.data_dir;
    let address = peers::resolve_replica(&arguments.address)?;
    interrupt::start_writer()?;
    // Before a large file is read.
    require_free(directory)?;
    let content = backup_file::read(&arguments.file)?;
    let incarnation = Incarnation(random_seed()?.max(1));
    let member = Member {
        node_id: NodeId(arguments.id),
        role: MemberRole::Voter,
        incarnation,
        address,
    };
    let made_at_ms = content.header().made_at_ms;
    let (cluster, begun) = into_directory(
        content,
        (&arguments.file, directory),
        member,
        arguments.expiry,
    )?;
    tell(arguments, cluster, &begun, made_at_ms, output);
    Ok(())
}

/// Makes `directory`, which is empty or not there, that of `member` in a new group. After a failure it is again. First it
/// removes what an interrupted restore has left there.
pub(crate) fn into_directory(
    content: Content,
    (file, directory): (&Path, &Path),
    member: Member,
    ttl: Ttl,
) -> Result<(ClusterId, Begun), Failure> {
    require_free(directory)?;
    let was_there = directory.is_dir();
    let mut disk = data::lock(directory)?;
    take_back_restore(&mut disk).map_err(|error| data::failure(directory, &error))?;
    let options = OpenOptions {
        node_id: member.node_id,
        fsync: Fsync::Batch,
        segment_bytes: SEGMENT_BYTES,
        incarnation: member.incarnation,
        rejoin: false,
    };
    let cluster = ClusterId(random_seed()?.max(1));
    match restore(disk, options, content, cluster, member, ttl.by_now()) {
        Ok(begun) => Ok((cluster, begun)),
        Err(error) => {
            clear(directory, was_there);
            Err(failure(file, directory, &error))
        }
    }
}

/// Removes what this command has written. The lock went with the error: a process that has taken the directory by now keeps
/// it.
fn clear(directory: &Path, was_there: bool) {
    if let Ok(mut disk) = Directory::lock(directory)
        && take_back_restore(&mut disk).is_ok()
    {
        leave_empty(disk, !was_there);
    }
}

fn require_free(directory: &Path) -> Result<(), Failure> {
    match first_obstacle(directory) {
        Some(file) => Err(not_empty(directory, &file)),
        None => Ok(()),
    }
}

fn not_empty(directory: &Path, file: &str) -> Failure {
    Failure::usage(
        format!(
            "{} is not empty: {file} is in it; nothing was changed",
            directory.display()
        ),
        "give an empty directory, or one that does not exist yet, with --data-dir",
    )
}

fn failure(file: &Path, directory: &Path, error: &RestoreError) -> Failure {
    match error {
        RestoreError::Disk(error) if error.cause == DiskCause::Ended => {
            Failure::interrupted_after("nothing was restored", "run the same command again")
        }
        RestoreError::Disk(error) => Failure::usage(
            format!("{error}; nothing was restored"),
            "the directory needs room for the whole backup and a log; give another one with --data-dir",
        ),
        RestoreError::NotEmpty { file } => not_empty(directory, file),
        error => backup_file::failure(file, error),
    }
}

fn tell(
    arguments: &RestoreArguments,
    cluster: ClusterId,
    begun: &Begun,
    made_at_ms: u64,
    output: Output,
) {
    let Begun {
        old,
        old_index,
        index,
        items,
        passed_ns,
    } = *begun;
    output.document(&json!({
        "cluster": cluster.to_string(), "old_cluster": old.to_string(), "old_index": old_index, "index": index,
        "keys": items, "made_at_ms": made_at_ms, "ttl_passed_ns": passed_ns, "directory": path_text(&arguments.data_dir),
    }));
    output.line(format_args!(
        "cluster {cluster} begins with replica {} alone, and with {} of cluster {old} as of entry {old_index}",
        arguments.id,
        plural(items, "key"),
    ));
    output.line(format_args!(
        "writes that cluster {old} acknowledged after entry {old_index} are lost here; the log \
         continues after entry {index}"
    ));
    if passed_ns > 0 {
        output.line(format_args!(
            "{} were subtracted from times to live",
            show_ns(passed_ns)
        ));
    }
    output.line(format_args!(
        "start it: trine serve --id {} --log disk --data-dir {} with the usual options; then add \
         the others: trine member add",
        arguments.id,
        arguments.data_dir.display()
    ));
    output.line(
        "clients of the old cluster must be restarted; a group with users needs the key \
         that it had",
    );
}
