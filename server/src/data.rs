//! A replica's data directory: how it is opened, and what its errors mean to the user.

use std::path::Path;

use serde_json::json;
use trine_protocol::message::{Incarnation, NodeId};
use trine_protocol::release::Release;
use trine_replica::disk::{
    Directory, DiskCause, DiskError, DiskStage, Fsync, LostMemory, OpenError, OpenOptions, Opened,
    Unused, make_directory, open as open_disk, open_without_memory, unused,
};

use crate::options::FsyncMode;
use crate::options::LogArguments;
use crate::options::ServeArguments;
use trine_base::announce::Announcer;
use trine_base::aside::Aside;
use trine_base::document::path_text;
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::progress::Progress;
use trine_base::units::{show_bytes, show_count};

/// The start of the line that says that a group exists already.
pub const BOOTSTRAP_LINE: &str = "--bootstrap has no effect";

/// Opens the directory of a replica in disk mode and reports its contents. Returns nothing in memory mode. With `lost_memory`,
/// the existing data is set aside, for that reason.
pub fn open(
    arguments: &ServeArguments,
    fresh: Incarnation,
    lost_memory: Option<&str>,
    announcer: Announcer,
) -> Result<Option<Opened<Directory>>, Failure> {
    let Some(path) = arguments.log.directory() else {
        return Ok(None);
    };
    require_own(path)?;
    let directory = lock(path)?;
    let options = OpenOptions {
        node_id: NodeId(arguments.id),
        fsync: arguments.log.fsync.into(),
        segment_bytes: arguments.log_segment,
        incarnation: fresh,
        rejoin: arguments.rejoin,
    };
    let opened = match lost_memory {
        None => open_disk(directory, options),
        Some(why) => open_without_memory(directory, options, LostMemory::new("identity", why)),
    };
    let mut opened = opened.map_err(|error| failure(path, &error))?;
    opened.writer.disk_mut().unwatch();
    tell(&opened, path, arguments.bootstrap, announcer);
    Ok(Some(opened))
}

/// Refuses files of somebody else before a lock is put beside them.
pub fn require_own(path: &Path) -> Result<(), Failure> {
    match unused(path) {
        Some(Unused::Foreign(file)) => Err(failure(path, &OpenError::Foreign { file })),
        Some(Unused::Empty) | None => Ok(()),
    }
}

/// Locks the directory for this process. Long work on it shows its progress, and Ctrl-C ends it.
pub fn lock(path: &Path) -> Result<Directory, Failure> {
    let directory = Directory::lock(path).map_err(|error| not_taken(path, &error))?;
    let shown = path.display().to_string();
    let mut present: Option<(DiskStage, Progress)> = None;
    let shower = Aside::start(move |(step, done, total)| {
        if present.as_ref().is_none_or(|(before, _)| *before != step) {
            // The bar of the previous step goes first.
            present = None;
        }
        let (_, progress) =
            present.get_or_insert_with(|| (step, Progress::new(words(step, &shown), total)));
        progress.set(done, || match step {
            DiskStage::Reading => format!("{} of {}", show_bytes(done), show_bytes(total)),
            DiskStage::Applying => format!("{} of {} entries", show_count(done), show_count(total)),
            DiskStage::Writing => show_bytes(done),
        });
    });
    Ok(directory.watched(move |step, done, total| {
        shower.post((step, done, total));
        !interrupt::interrupted()
    }))
}

/// Creates the directory that holds the directories of several replicas.
pub fn make(path: &Path) -> Result<(), Failure> {
    let what = |error| format!("cannot create the directory {}: {error}", path.display());
    make_directory(path).map_err(|error| not_made(path, what(error)))
}

/// Only a lock error is about other processes.
fn not_taken(path: &Path, error: &DiskError) -> Failure {
    match error.operation {
        "lock" => Failure::usage(error.to_string(), USED),
        _ => not_made(path, error.to_string()),
    }
}

/// Why a directory cannot be created or written, and how to fix that.
fn not_made(path: &Path, what: String) -> Failure {
    let nearest = path.ancestors().find(|part| part.exists());
    if let Some(file) = nearest.filter(|part| !part.is_dir()) {
        return Failure::usage(
            format!(
                "--data-dir {}: {} is not a directory",
                path.display(),
                file.display()
            ),
            "give a directory, or a path at which one can be made, with --data-dir",
        );
    }
    // A path of one name lies in the present directory.
    let nearest = nearest.unwrap_or(Path::new(".")).display();
    Failure::usage(
        what,
        format!(
            "this user must be able to write in {nearest} (ls -ld {nearest}), on a writable file \
             system with free space (findmnt -T {nearest}); or give another directory with \
             --data-dir"
        ),
    )
}

fn words(step: DiskStage, directory: &str) -> String {
    match step {
        DiskStage::Reading => format!("reading {directory}"),
        DiskStage::Applying => "applying the log".to_owned(),
        DiskStage::Writing => format!("writing the new state into {directory}"),
    }
}

impl From<FsyncMode> for Fsync {
    fn from(mode: FsyncMode) -> Self {
        match mode {
            FsyncMode::Each => Self::Each,
            FsyncMode::Batch => Self::Batch,
            FsyncMode::None => Self::None,
        }
    }
}

/// The advice for a directory in use.
pub const USED: &str =
    "stop the other process, or give this replica a directory of its own with --data-dir";

/// The advice for lost memory.
pub const REJOIN: &str = "start it with --rejoin: it sets the files aside and joins its group as a new replica; \
                                 if a majority of the group is lost, see trine recover";

/// The advice for a quarantine.
pub const QUARANTINED: &str = "start it with --rejoin: it sets the files aside and joins its group as a new replica; only if too \
                           few sound replicas are left for that, `trine recover --quarantined --data-dir DIR` lifts the \
                           quarantine and keeps this replica's state as it is";

/// Why a directory cannot be opened, and how to fix that.
pub fn failure(path: &Path, error: &OpenError) -> Failure {
    let shown = path.display();
    let (message, hint) = match error {
        OpenError::Disk(error) if error.cause == DiskCause::Ended => return Failure::interrupted(),
        OpenError::Disk(error) => (error.to_string(), ""),
        OpenError::Lost(_) => (
            format!(
                "this replica has lost what it may have promised: {shown}/{error}; it must not \
                 continue under its old identity"
            ),
            REJOIN,
        ),
        OpenError::Quarantined { .. } => (
            format!("this replica is in quarantine: {shown}/{error}"),
            QUARANTINED,
        ),
        OpenError::Newer { .. } => (
            format!("{shown}/{error}"),
            "run the release that wrote it, or a later one",
        ),
        OpenError::OtherNodeId { .. } => (
            format!("{shown}/{error}"),
            "check --id and --data-dir: each replica has a directory of its own",
        ),
        OpenError::Recovering { .. } => (
            format!("{shown}/{error}"),
            "give the same trine recover once more: it begins with the old files, which are all there; after trine restore, \
             give the same trine restore once more",
        ),
        OpenError::Foreign { .. } => (
            format!("{shown}/{error}: a new data directory must be empty"),
            "give an empty directory, or one that does not exist yet, with --data-dir",
        ),
    };
    Failure::usage(message, hint)
}

fn tell(opened: &Opened<Directory>, path: &Path, bootstrap: bool, announcer: Announcer) {
    let shown = path.display();
    if let Some(lost) = &opened.lost {
        announcer.json_line(&json!({ "lost": lost.to_string(), "directory": path_text(path) }));
        announcer.line(format_args!(
            "does not go on with its files: {shown}/{lost}; they were set aside as {shown}/lost-*, and this replica joins its group as a new one"
        ));
    }
    if let Some(restored) = &opened.restored {
        let (cluster, last) = (restored.cluster(), restored.last_index());
        announcer.json_line(&json!({
            "restored": path_text(path), "cluster": cluster.to_string(), "last_index": last,
        }));
        announcer.line(format_args!(
            "goes on in cluster {cluster} with the log up to entry {last} from {shown}"
        ));
        if bootstrap {
            announcer.line(format_args!(
                "{BOOTSTRAP_LINE}: the directory belongs to a group"
            ));
        }
    }
}

/// The advice for a replica that is too old for its group.
pub fn newer_release(log: &LogArguments) -> String {
    let there = match log.directory() {
        None => String::new(),
        Some(path) => format!("; nothing in {} is lost", path.display()),
    };
    format!(
        "this replica runs release {}: restart it with the release that `trine status` shows for the others{there}",
        Release::THIS
    )
}

/// The advice for a halted replica.
pub fn way_out(log: &LogArguments) -> String {
    match log.directory() {
        None => "start it again: it joins its group as a new one".to_owned(),
        Some(path) => format!(
            "check the disk of {} (free space, errors) and start it again: what it has \
             acknowledged is there",
            path.display()
        ),
    }
}
