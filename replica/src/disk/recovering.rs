//! The mark of a recovery that is under way. If the recovery ends midway, the next one takes it back and starts over.
//!
//! ```text
//! no mark --> setting aside --> making anew --> no mark         a step is durable before the next one begins
//!    ^             |    ^            |
//!    |  taken back |    | what was   | killed
//!    +-------------+    | made goes  |
//!                       +------------+
//! ```
//! While old files are set aside no new ones are there. Only when all of them are set aside does the mark say so. It is
//! therefore always known which of the files without [`SET_ASIDE`] in front are old.

use trine_protocol::message::Incarnation;

use super::names::{LOCK, RECOVERING, SET_ASIDE, TEMPORARY, is_own, set_aside};
use super::{Disk, DiskError, LostMemory, OpenError};

/// More than a mark ever has.
const BYTES_MAX: u64 = 64;

/// How far a recovery has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RecoveryStage {
    /// Files are being set aside, or brought back.
    SettingAside,
    /// All of them are set aside, and new ones are being made.
    MakingAnew,
}

/// Sets the old files aside; from here on the directory does not open until [`end`].
pub(super) fn begin(disk: &mut impl Disk, stamp: Incarnation) -> Result<(), DiskError> {
    write(disk, RecoveryStage::SettingAside, stamp.0)?;
    set_aside(disk, stamp)?;
    write(disk, RecoveryStage::MakingAnew, stamp.0)
}

/// The new files are complete and durable.
pub(super) fn end(disk: &mut impl Disk) -> Result<(), DiskError> {
    disk.remove(RECOVERING)?;
    disk.sync_names()
}

/// Takes back the changes of an interrupted recovery, if there is one.
pub(super) fn take_back(disk: &mut impl Disk) -> Result<(), OpenError> {
    let Some((step, stamp)) = read(disk)? else {
        return Ok(());
    };
    if step == RecoveryStage::MakingAnew {
        for name in disk.names()? {
            // Somebody may have put a file of another kind there meanwhile.
            if is_own(&name) && name != LOCK && name != RECOVERING {
                disk.remove(&name)?;
            }
        }
        write(disk, RecoveryStage::SettingAside, stamp)?;
    }
    let prefix = prefix(stamp);
    for name in disk.names()? {
        if let Some(old) = name.strip_prefix(&prefix) {
            disk.rename(&name, old)?;
        }
    }
    disk.sync_names()?;
    Ok(end(disk)?)
}

/// Takes back an interrupted attempt that began in an empty directory. Anything else stays as it is.
pub(super) fn take_back_from_empty(disk: &mut impl Disk) -> Result<(), OpenError> {
    let step = read(disk)?.map(|(step, _)| step);
    let mut others = disk.names()?;
    let has_temporary = others.iter().any(|name| name == TEMPORARY);
    others.retain(|name| ![LOCK, RECOVERING, TEMPORARY].contains(&name.as_str()));
    let began_empty = match step {
        Some(RecoveryStage::MakingAnew) => others.iter().all(|name| is_own(name)),
        Some(RecoveryStage::SettingAside) | None => others.is_empty(),
    };
    if !began_empty {
        return Ok(());
    }
    if has_temporary {
        disk.remove(TEMPORARY)?;
    }
    take_back(disk)
}

/// The prefix that [`set_aside`] puts in front of a name.
fn prefix(stamp: u64) -> String {
    format!("{SET_ASIDE}{}-", Incarnation(stamp))
}

fn write(disk: &mut impl Disk, step: RecoveryStage, stamp: u64) -> Result<(), DiskError> {
    let step = match step {
        RecoveryStage::SettingAside => "setting aside",
        RecoveryStage::MakingAnew => "making anew",
    };
    let text = format!("{stamp} {step}");
    disk.create(TEMPORARY, text.len() as u64)?;
    disk.write(TEMPORARY, 0, text.as_bytes())?;
    disk.sync(TEMPORARY)?;
    disk.rename(TEMPORARY, RECOVERING)?;
    disk.sync_names()
}

fn read(disk: &mut impl Disk) -> Result<Option<(RecoveryStage, u64)>, OpenError> {
    if !disk.names()?.iter().any(|name| name == RECOVERING) {
        return Ok(None);
    }
    let mut bytes =
        vec![0; usize::try_from(disk.size(RECOVERING)?.min(BYTES_MAX)).unwrap_or_default()];
    disk.read(RECOVERING, 0, &mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let parsed = text.split_once(' ').and_then(|(stamp, step)| {
        let step = match step {
            "setting aside" => RecoveryStage::SettingAside,
            "making anew" => RecoveryStage::MakingAnew,
            _ => return None,
        };
        Some((step, stamp.parse().ok()?))
    });
    // Without it the old files cannot be told from new ones: none may be removed.
    let damaged = || {
        LostMemory::new(
            RECOVERING,
            "it says nothing about how far a recovery has come",
        )
    };
    parsed.map(Some).ok_or_else(|| damaged().into())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;
    use crate::disk::cache::CachedDisk;
    use crate::disk::tests::{SharedDisk, options, recoverable};
    use crate::disk::{OpenOptions, Recovered, open, recover};
    use trine_protocol::message::{ClusterId, Member, MemberRole, NodeId};

    /// One attempt, which comes to its end or is killed after `changes` changes; returns the disk, and the new group if
    /// there is one.
    fn attempt(
        disk: CachedDisk,
        number: u64,
        changes: Option<usize>,
    ) -> (CachedDisk, Option<Recovered>) {
        let mut disk = disk;
        disk.changes_left = changes;
        let shared = SharedDisk(Rc::new(RefCell::new(disk)));
        let incarnation = Incarnation(number);
        let member = Member {
            node_id: NodeId(1),
            role: MemberRole::Voter,
            incarnation,
            address: ([127, 0, 0, 1], 7471).into(),
        };
        let options = OpenOptions {
            incarnation,
            ..options()
        };
        let done = recover(shared.clone(), options, ClusterId(number), member).ok();
        let mut left = shared.0.borrow().clone();
        left.changes_left = None;
        (left, done)
    }

    /// The state that the directory opens with, if it opens at all; `--rejoin` never sets a
    /// recovery aside.
    fn opens(disk: &CachedDisk) -> Option<(ClusterId, u64)> {
        let opened = open(disk.clone(), options());
        if let Err(error) = &opened {
            assert!(matches!(error, OpenError::Recovering { .. }), "{error}");
            let rejoin = OpenOptions {
                rejoin: true,
                ..options()
            };
            let again = open(disk.clone(), rejoin).map(|_| ());
            assert!(matches!(again, Err(OpenError::Recovering { .. })));
        }
        let restored = opened.ok()?.restored?;
        Some((restored.cluster(), restored.last_index()))
    }

    /// The recovery set the old files aside one by one, and only then made new ones. Killed in between, it left a
    /// directory that it found damaged, or empty. The state had to be put together by hand from the files set aside.
    #[test]
    fn a_recovery_killed_after_any_change_starts_again_with_the_old_files() {
        let begun = CachedDisk::of(&recoverable());
        let (done, whole) = attempt(begun.clone(), 20, None);
        assert_eq!(whole.unwrap().old, ClusterId(7));
        assert_eq!(opens(&done), Some((ClusterId(20), 7)));
        let mut killed = 0;
        loop {
            let (left, done) = attempt(begun.clone(), 21, Some(killed));
            if done.is_some() {
                break;
            }
            for left in [left.clone(), CachedDisk::of(&left.after_power_loss())] {
                match opens(&left) {
                    // All was done but to make it durable that the mark is gone.
                    Some((ClusterId(21), 7)) => continue,
                    state => assert!(state.is_none_or(|state| state == (ClusterId(7), 7))),
                }
                // The attempt that takes it back may be killed as well.
                for again in [0, 1, 2, 5, 9] {
                    let (left, _) = attempt(left.clone(), 22, Some(again));
                    let (left, recovered) = attempt(left, 23, None);
                    assert_eq!(recovered, whole, "killed after {killed}, then {again}");
                    assert_eq!(opens(&left), Some((ClusterId(23), 7)));
                }
            }
            killed += 1;
        }
        assert!(killed > 20, "{killed} changes are no recovery");
    }

    #[test]
    fn a_mark_that_cannot_be_read_lets_no_file_be_touched() {
        let mut disk = recoverable();
        disk.files
            .insert(RECOVERING.to_owned(), b"21 setting".to_vec());
        let shared = SharedDisk(Rc::new(RefCell::new(disk.clone())));
        assert!(matches!(
            take_back(&mut shared.clone()),
            Err(OpenError::Lost(_))
        ));
        assert_eq!(*shared.0.borrow(), disk);
    }
}
