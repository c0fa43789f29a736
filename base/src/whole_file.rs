//! A file that one run makes, and that gets its name once it is whole.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::new_file;

/// A file that is written in one run. Half of it may look like a whole one, so it never has its final name. It goes with the
/// value; only an end of the process that nothing can be done about leaves it.
#[derive(Debug)]
pub struct WholeFile<'p> {
    target: &'p Path,
    partial: PathBuf,
    /// What is written, for people.
    what: &'static str,
    file: BufWriter<File>,
    /// Whether the partial file is not to be removed: it is whole, or removed already.
    is_done: bool,
}

impl<'p> WholeFile<'p> {
    /// Makes `FILE.partial`. `what` is a word for people.
    ///
    /// # Errors
    /// `target` or the partial file is there already, or the latter cannot be made.
    pub fn create(target: &'p Path, what: &'static str) -> Result<Self, Failure> {
        // One that is there may be the only copy of something.
        if std::fs::symlink_metadata(target).is_ok() {
            return Err(Failure::usage(
                format!("{} already exists; nothing was written", target.display()),
                "name another file, or remove that one",
            ));
        }
        let partial = new_file::partial_name(target);
        let file = new_file::open(&partial, what)?;
        require_empty(&file, &partial, what)?;
        new_file::make_private(&file, &partial)?;
        Ok(Self {
            target,
            partial,
            what,
            file: BufWriter::new(file),
            is_done: false,
        })
    }

    /// Writes behind what was written so far.
    ///
    /// # Errors
    /// The disk is full, for example. [`Self::undo`] then removes the file.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let written = self.file.write_all(bytes);
        written.map_err(|error| cannot_write(&self.partial, &error))
    }

    /// Syncs the file and gives it its name.
    ///
    /// # Errors
    /// It could not be written and is removed, or it is whole and keeps the name that it has.
    pub fn finish(mut self) -> Result<(), Failure> {
        let flushed = self.file.flush();
        let synced = flushed.and_then(|()| self.file.get_ref().sync_all());
        if let Err(error) = synced {
            let failure = cannot_write(&self.partial, &error);
            return Err(self.undo(failure));
        }
        // Whatever becomes of its name, all of it is there.
        self.is_done = true;
        new_file::give_name(&self.partial, self.target, self.what)
    }

    /// Removes the file, because of `failure`.
    pub fn undo(mut self, failure: Failure) -> Failure {
        self.is_done = true;
        let what = self.what;
        let state = match std::fs::remove_file(&self.partial) {
            Ok(()) => format!("the {what} was abandoned and its file removed"),
            Err(_) => format!("{} is incomplete", self.partial.display()),
        };
        failure.while_doing(&state)
    }
}

impl Drop for WholeFile<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            let _ = std::fs::remove_file(&self.partial);
        }
    }
}

/// The run that left the file cannot be gone on with, and it may be a file of the user's own.
fn require_empty(file: &File, partial: &Path, what: &str) -> Result<(), Failure> {
    let about = file.metadata();
    let about = about.map_err(|error| new_file::not_made(partial, &error))?;
    match about.len() {
        0 => Ok(()),
        _ => Err(Failure::usage(
            format!(
                "{} already exists, and is not overwritten; nothing was written",
                partial.display()
            ),
            format!(
                "a killed {what} leaves such a file: remove it in that case, or name another file"
            ),
        )),
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    let hint = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::FileTooLarge | io::ErrorKind::QuotaExceeded => {
            "free some space (df, ulimit -f, quota), or give a file elsewhere"
        }
        _ => "check the device, or give a file elsewhere",
    };
    Failure::usage(format!("cannot write {}: {error}", path.display()), hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let name = format!("trine-whole-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let _ = std::fs::remove_dir_all(&path);
            std::fs::create_dir_all(&path).expect("made");
            Self(path)
        }

        fn names(&self) -> Vec<String> {
            let entries = std::fs::read_dir(&self.0).expect("read");
            let name = |entry: io::Result<std::fs::DirEntry>| {
                let name = entry.expect("read").file_name();
                name.into_string().expect("text")
            };
            entries.map(name).collect()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[track_caller]
    fn refused(target: &Path, part: &str) {
        let failure = WholeFile::create(target, "report").expect_err("refused");
        assert_eq!(failure.exit_status(), 2);
        assert!(failure.to_string().contains(part), "{failure}");
    }

    /// An export that was killed had left half of it under the name of a whole one.
    #[test]
    fn the_name_is_given_to_a_whole_file_alone() {
        let place = Scratch::new("name");
        let target = place.0.join("file");
        let mut file = WholeFile::create(&target, "report").expect("made");
        file.write(b"one line\n").expect("written");
        assert_eq!(place.names(), ["file.partial"]);
        refused(&target, "another report is writing");
        file.finish().expect("named");
        assert_eq!(place.names(), ["file"]);
        assert_eq!(std::fs::read(&target).expect("there"), b"one line\n");
        let mode = std::fs::metadata(&target).expect("there").permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        refused(&target, "already exists; nothing was written");
    }

    #[test]
    fn what_is_not_whole_goes() {
        let place = Scratch::new("undone");
        let target = place.0.join("file");
        drop(WholeFile::create(&target, "report").expect("made"));
        assert!(place.names().is_empty(), "a run that ends early");

        let mut file = WholeFile::create(&target, "report").expect("made");
        file.write(b"half").expect("written");
        let failure = file.undo(Failure::interrupted());
        assert!(
            failure.to_string().contains("its file removed"),
            "{failure}"
        );
        assert!(place.names().is_empty());

        let mut file = WholeFile::create(&target, "report").expect("made");
        file.write(b"all").expect("written");
        // A file that was opened for reading takes nothing.
        file.file = BufWriter::new(File::open(&file.partial).expect("opened"));
        file.write(b"the rest").expect("in the buffer");
        let failure = file.finish().expect_err("not written");
        assert!(
            failure.to_string().contains("its file removed"),
            "{failure}"
        );
        assert!(place.names().is_empty());
    }

    #[test]
    fn files_of_others_stay() {
        let place = Scratch::new("others");
        let (target, partial) = (place.0.join("file"), place.0.join("file.partial"));
        std::fs::write(&partial, "dear diary").expect("written");
        let open_to_all = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(&partial, open_to_all).expect("changed");
        refused(&target, "a killed report leaves such a file");
        assert_eq!(std::fs::read(&partial).expect("there"), b"dear diary");
        let mode = std::fs::metadata(&partial).expect("there").permissions();
        assert_eq!(mode.mode() & 0o777, 0o644);
        std::fs::remove_file(&partial).expect("removed");

        symlink(place.0.join("elsewhere"), &partial).expect("made");
        refused(&target, "cannot write");
        assert_eq!(place.names(), ["file.partial"]);
        std::fs::remove_file(&partial).expect("removed");

        // The name was taken while the run went on.
        let mut file = WholeFile::create(&target, "report").expect("made");
        file.write(b"all").expect("written");
        std::fs::write(&target, "mine").expect("written");
        let failure = file.finish().expect_err("the name is taken");
        let says = "the complete report is in";
        assert!(failure.to_string().contains(says), "{failure}");
        assert_eq!(std::fs::read(&target).expect("there"), b"mine");
        assert_eq!(std::fs::read(&partial).expect("there"), b"all");
    }
}
