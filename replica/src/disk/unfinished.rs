//! A restore that did not come to its end, and whether another one may begin in its directory.
//!
//! A restore begins in an empty directory. So what lies there behind its mark with a name of a replica's file is its own, and
//! can go. A recovery, which has the same mark, has set files aside: its directory stays as it is. So does one in which
//! somebody has put any other file.

use std::path::Path;

use super::directory::is_of_file_system;
use super::names::{LOCK, RECOVERING, SET_ASIDE, TEMPORARY, first_file, is_own};
use super::recovering;
use super::{Directory, Disk, OpenError};

/// The first file of the directory at `path` that a restore into it would find in its way. Nothing if there is no directory,
/// if it is empty, or if it holds what an interrupted restore has left. Needs no lock, so it may be out of date.
#[must_use]
pub fn first_obstacle(path: &Path) -> Option<String> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let files = entries.filter(|entry| !is_of_file_system(entry));
    let names = files.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.collect();
    names.sort();
    let is_marked = names.iter().any(|name| name == RECOVERING);
    names.into_iter().find(|name| match is_marked {
        true => !is_own(name),
        false => name != LOCK && name != TEMPORARY,
    })
}

/// A directory that no replica has used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unused {
    /// It holds nothing.
    Empty,
    /// It holds files of somebody else, of which this is the first.
    Foreign(String),
}

/// Says of a directory that is there whether no replica, recovery or restore was in it yet. A caller that
/// has to refuse it then leaves no lock in it. Needs no lock itself, so it may be out of date.
#[must_use]
pub fn unused(path: &Path) -> Option<Unused> {
    let entries = std::fs::read_dir(path).ok()?;
    let entries = entries.map_while(Result::ok);
    let files = entries.filter(|entry| !is_of_file_system(entry));
    let names: Vec<String> = files
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    let is_ours = |name: &String| is_own(name) || name.starts_with(SET_ASIDE);
    match names.iter().min() {
        _ if names.iter().any(is_ours) => None,
        None => Some(Unused::Empty),
        Some(first) => Some(Unused::Foreign(first.clone())),
    }
}

/// Takes back a restore that did not come to its end. Everything else stays as it is.
///
/// # Errors
/// The device fails, or the mark is damaged.
pub fn take_back_restore(disk: &mut impl Disk) -> Result<(), OpenError> {
    recovering::take_back_from_empty(disk)
}

/// Leaves a directory that holds nothing: the file of its lock goes, and with `whole` the directory. One that holds anything
/// stays as it is.
pub fn leave_empty(mut directory: Directory, whole: bool) {
    if !matches!(first_file(&mut directory), Ok(None)) {
        return;
    }
    // It is locked until the end. A process that has this file open notices that it is gone (`Directory::lock`).
    let _ = std::fs::remove_file(directory.path().join(LOCK));
    if whole {
        let _ = std::fs::remove_dir(directory.path());
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let name = format!("trine-unfinished-{}-{name}", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&path).unwrap();
            for (file, text) in files {
                std::fs::write(path.join(file), text).unwrap();
            }
            Self(path)
        }

        fn names(&self) -> Vec<String> {
            let entries = std::fs::read_dir(&self.0).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let mut names: Vec<String> = names.collect();
            names.sort();
            names
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_a_restore_has_left_goes_and_anything_else_stays() {
        let aside = "lost-000000000000000b-identity";
        let (new, old) = ("11 making anew", "11 setting aside");
        for (name, files, goes) in [
            ("none", &[][..], true),
            ("mark", &[(RECOVERING, old)], true),
            ("early", &[(TEMPORARY, "11 set")], true),
            (
                "midway",
                &[
                    (RECOVERING, new),
                    ("synced", ""),
                    ("segment-0000000000000001.log", ""),
                ],
                true,
            ),
            (
                "recovery",
                &[(RECOVERING, new), ("synced", ""), (aside, "")],
                false,
            ),
            (
                "foreign",
                &[(RECOVERING, new), ("synced", ""), ("notes.txt", "")],
                false,
            ),
            ("begun", &[(RECOVERING, old), ("identity", "")], false),
            ("replica", &[("identity", ""), ("synced", "")], false),
            ("other", &[("notes.txt", "")], false),
        ] {
            let scratch = Scratch::new(name, files);
            let before = scratch.names();
            // Which step a recovery has come to is seen under the lock alone.
            let is_free = first_obstacle(&scratch.0).is_none();
            assert_eq!(is_free, goes || name == "begun", "{name}");
            let mut directory = Directory::lock(&scratch.0).unwrap();
            take_back_restore(&mut directory).unwrap();
            leave_empty(directory, true);
            match goes {
                true => assert!(!scratch.0.exists(), "{name}"),
                false => {
                    let mut after = scratch.names();
                    after.retain(|file| file != LOCK);
                    assert_eq!(after, before, "{name}");
                }
            }
        }
    }

    /// A process opens the file of the lock, waits, and gets a lock that nobody else looks at.
    #[test]
    fn a_lock_whose_file_is_gone_is_none() {
        let scratch = Scratch::new("lock", &[]);
        let first = Directory::lock(&scratch.0).unwrap();
        std::fs::remove_file(scratch.0.join(LOCK)).unwrap();
        let second = Directory::lock(&scratch.0).expect("another file is there");
        drop(first);
        assert!(Directory::lock(&scratch.0).is_err(), "the second holds it");
        drop(second);
    }
}
