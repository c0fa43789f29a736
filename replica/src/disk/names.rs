//! Files of a data directory that hold no data, and how data is set aside.

use trine_protocol::message::Incarnation;

use super::writer::{LIFTED, MARKED, QUARANTINED, SYNCED, UNSYNCED};
use super::{Disk, DiskError, identity, segment, snapshot_file};

/// In front of the names of files that were set aside.
pub(super) const SET_ASIDE: &str = "lost-";
/// The file whose lock keeps a directory to one process.
pub(crate) const LOCK: &str = "lock";
/// The mark of a recovery that is under way.
pub(super) const RECOVERING: &str = "recovering";
/// The same while it is being written.
pub(super) const TEMPORARY: &str = "recovering.tmp";

/// Whether a replica, a recovery or a restore gives files this name. Files that were set aside have other ones.
pub(super) fn is_own(name: &str) -> bool {
    let alone = [
        LOCK,
        RECOVERING,
        TEMPORARY,
        SYNCED,
        MARKED,
        UNSYNCED,
        QUARANTINED,
        LIFTED,
    ];
    let is_data = segment::number(name).is_some() || snapshot_file::index(name).is_some();
    alone.contains(&name) || name == identity::FILE || is_data || is_temporary(name)
}

/// Whether it is the name of a file that is not whole yet.
fn is_temporary(name: &str) -> bool {
    let begins = ["identity", "segment", "snapshot-", "spare"];
    name.ends_with(".tmp") && begins.iter().any(|begin| name.starts_with(begin))
}

/// A file of the directory, if it holds any. The lock is the present process's own.
pub(crate) fn first_file(disk: &mut impl Disk) -> Result<Option<String>, DiskError> {
    let names = disk.names()?;
    Ok(names.into_iter().find(|name| name != LOCK))
}

/// Nothing is thrown away: an operator may still want to inspect it. The identity goes first, so that an interrupted
/// attempt never leaves one beside files that are gone.
pub(super) fn set_aside(disk: &mut impl Disk, stamp: Incarnation) -> Result<(), DiskError> {
    let mut names = disk.names()?;
    let stays = |name: &str| name.starts_with(SET_ASIDE) || [LOCK, RECOVERING].contains(&name);
    names.retain(|name| !stays(name));
    names.sort_by_key(|name| name != identity::FILE);
    for name in names {
        if name.ends_with(".tmp") {
            disk.remove(&name)?;
        } else {
            disk.rename(&name, &format!("{SET_ASIDE}{stamp}-{name}"))?;
        }
    }
    disk.sync_names()
}
