//! Where the lines of an export go: standard output, or a file that gets its name once it is whole.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use trine_base::failure::Failure;
use trine_base::new_file;
use trine_base::output::print_all;

/// Where the lines go.
pub(super) enum Sink<'p> {
    Standard,
    File(ExportFile<'p>),
}

impl<'p> Sink<'p> {
    /// A new file.
    pub(super) fn create(path: &'p Path) -> Result<Self, Failure> {
        ExportFile::create(path).map(Self::File)
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        match self {
            Self::Standard => {
                print_all(bytes);
                Ok(())
            }
            Self::File(file) => file.write(bytes),
        }
    }

    /// All lines are written.
    pub(super) fn finish(self) -> Result<(), Failure> {
        match self {
            Self::Standard => Ok(()),
            Self::File(file) => file.finish(),
        }
    }

    /// Not all lines are written, for this reason.
    pub(super) fn undo(self, failure: Failure) -> Failure {
        match self {
            Self::Standard => failure.while_doing("not all keys were written"),
            Self::File(file) => file.undo(failure),
        }
    }
}

/// The file of an export. Half an export looks like a whole one, so it never has its final name. It goes with the value; only
/// an end of the process that nothing can be done about leaves it.
pub(super) struct ExportFile<'p> {
    target: &'p Path,
    partial: PathBuf,
    file: BufWriter<File>,
    /// Whether the partial file is not to be removed: it is whole, or removed already.
    is_done: bool,
}

impl<'p> ExportFile<'p> {
    fn create(target: &'p Path) -> Result<Self, Failure> {
        new_file::require_name(
            target,
            "leave FILE out for standard output, or give ./- for a file of that name",
        )?;
        // One that is there may be the only copy of something.
        if std::fs::symlink_metadata(target).is_ok() {
            return Err(Failure::usage(
                format!("{} is there already; nothing was written", target.display()),
                "name another file, or remove that one",
            ));
        }
        let partial = new_file::partial_name(target);
        let file = new_file::open(&partial, "export")?;
        require_empty(&file, &partial)?;
        new_file::make_private(&file, &partial)?;
        Ok(Self {
            target,
            partial,
            file: BufWriter::new(file),
            is_done: false,
        })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let written = self.file.write_all(bytes);
        written.map_err(|error| cannot_write(&self.partial, &error))
    }

    fn finish(mut self) -> Result<(), Failure> {
        let flushed = self.file.flush();
        let synced = flushed.and_then(|()| self.file.get_ref().sync_all());
        if let Err(error) = synced {
            let failure = cannot_write(&self.partial, &error);
            return Err(self.undo(failure));
        }
        // Whatever becomes of its name, all keys are in it.
        self.is_done = true;
        new_file::give_name(&self.partial, self.target, "export")
    }

    fn undo(mut self, failure: Failure) -> Failure {
        self.is_done = true;
        match std::fs::remove_file(&self.partial) {
            Ok(()) => failure.while_doing("the export was given up and its file removed"),
            Err(_) => failure.while_doing("not all keys were written"),
        }
    }
}

impl Drop for ExportFile<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            let _ = std::fs::remove_file(&self.partial);
        }
    }
}

/// An export cannot be gone on with, and what is there may be a file of the user's own.
fn require_empty(file: &File, partial: &Path) -> Result<(), Failure> {
    let about = file.metadata();
    let about = about.map_err(|error| new_file::not_made(partial, &error))?;
    match about.len() {
        0 => Ok(()),
        _ => Err(Failure::usage(
            format!(
                "{} is there already, and it is not overwritten; nothing was written",
                partial.display()
            ),
            "an export that was killed leaves such a file: remove it if it is one, or name another file",
        )),
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    let hint = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::FileTooLarge | io::ErrorKind::QuotaExceeded => {
            "make room (df, ulimit -f, quota), or give a file elsewhere"
        }
        _ => "see to the device, or give a file elsewhere",
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
            let name = format!("trine-export-{name}-{}", std::process::id());
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
        let failure = ExportFile::create(target).err().expect("refused");
        assert_eq!(failure.exit_status(), 2);
        assert!(failure.to_string().contains(part), "{failure}");
    }

    /// A process that was killed left half an export under the name of a whole one.
    #[test]
    fn the_name_is_given_to_a_whole_file_alone() {
        let place = Scratch::new("name");
        let target = place.0.join("file");
        let mut file = ExportFile::create(&target).expect("made");
        file.write(b"one line\n").expect("written");
        assert_eq!(place.names(), ["file.partial"]);
        refused(&target, "another export writes");
        file.finish().expect("named");
        assert_eq!(place.names(), ["file"]);
        assert_eq!(std::fs::read(&target).expect("there"), b"one line\n");
        let mode = std::fs::metadata(&target).expect("there").permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        refused(&target, "is there already; nothing was written");
    }

    #[test]
    fn what_is_not_whole_goes() {
        let place = Scratch::new("undone");
        let target = place.0.join("file");
        drop(ExportFile::create(&target).expect("made"));
        assert!(place.names().is_empty(), "the group was not reached");

        let mut file = ExportFile::create(&target).expect("made");
        file.write(b"half").expect("written");
        let failure = file.undo(Failure::interrupted());
        assert!(
            failure.to_string().contains("its file removed"),
            "{failure}"
        );
        assert!(place.names().is_empty());

        let mut file = ExportFile::create(&target).expect("made");
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
        refused(&target, "an export that was killed leaves such a file");
        assert_eq!(std::fs::read(&partial).expect("there"), b"dear diary");
        let mode = std::fs::metadata(&partial).expect("there").permissions();
        assert_eq!(mode.mode() & 0o777, 0o644);
        std::fs::remove_file(&partial).expect("removed");

        symlink(place.0.join("elsewhere"), &partial).expect("made");
        refused(&target, "cannot write");
        assert_eq!(place.names(), ["file.partial"]);
        std::fs::remove_file(&partial).expect("removed");

        // The name was taken while the export went on.
        let mut file = ExportFile::create(&target).expect("made");
        file.write(b"all").expect("written");
        std::fs::write(&target, "mine").expect("written");
        let failure = file.finish().expect_err("the name is taken");
        let says = "the export is whole in";
        assert!(failure.to_string().contains(says), "{failure}");
        assert_eq!(std::fs::read(&target).expect("there"), b"mine");
        assert_eq!(std::fs::read(&partial).expect("there"), b"all");
        refused(Path::new("-"), "leave FILE out");
    }
}
