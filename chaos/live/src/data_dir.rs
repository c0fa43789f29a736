//! Checks the data directory of a run.
//!
//! A run kills its replicas, and cuts off, fills and damages what they work with. So it has a group of its own.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use trine_base::failure::Failure;

/// Refuses a directory in which replicas have files.
pub(super) fn require_new(directory: &Path) -> Result<(), Failure> {
    // A directory that cannot be read is not there, or the replicas say what is wrong with it.
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut replicas: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| is_of_a_replica(path) && holds_files(path))
        .collect();
    replicas.sort();
    let Some(first) = replicas.first() else {
        return Ok(());
    };
    Err(Failure::usage(
        format!(
            "{} holds a group: there are files in {}, and this command kills replicas; nothing was started",
            directory.display(),
            first.display()
        ),
        "give a directory that is new, or has no files of replicas, with --data-dir",
    ))
}

/// Whether a replica of `trine up` or of a run would have this directory.
fn is_of_a_replica(path: &Path) -> bool {
    let name = path.file_name().and_then(OsStr::to_str);
    let node_id = name.and_then(|name| name.strip_prefix("replica-"));
    node_id.is_some_and(|node_id| node_id.parse::<u32>().is_ok())
}

/// Small disks leave an empty directory behind, which is as good as new. So is one with the file of a lock, or with what a
/// fresh file system has.
fn holds_files(path: &Path) -> bool {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut names = entries.map(|entry| entry.file_name());
    names.any(|name| name != "lock" && name != "lost+found")
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(PathBuf);

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// `trine chaos --data-dir` opened the directories of a group that was there, and killed its replicas.
    #[test]
    fn a_directory_is_new_until_a_replica_has_files_in_it() {
        let name = format!("trine-chaos-new-{}", std::process::id());
        let scratch = Scratch(std::env::temp_dir().join(name));
        assert_eq!(require_new(&scratch.0), Ok(()), "it is not there");
        for empty in ["replica-2", "replica-x"] {
            std::fs::create_dir_all(scratch.0.join(empty)).expect("made");
        }
        for foreign in ["group.key", "replica-x/identity"] {
            std::fs::write(scratch.0.join(foreign), "").expect("written");
        }
        assert_eq!(require_new(&scratch.0), Ok(()));
        std::fs::write(scratch.0.join("replica-2/identity"), "").expect("written");
        let refused = require_new(&scratch.0).expect_err("there is a group");
        assert_eq!(refused.exit_status(), 2);
        let text = refused.to_string();
        assert!(
            text.contains("replica-2") && text.contains("--data-dir"),
            "{text}"
        );
    }
}
