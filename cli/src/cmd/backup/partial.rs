//! The file of a backup while it is not whole: FILE.partial, which another run can go on with.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, OFlags, RenameFlags, renameat_with};
use rustix::process::geteuid;
use trine_base::failure::Failure;
use trine_replica::backup::{Decoder, Encoder, Header, Part};
use trine_server::backup_file::PORTION;

/// Only the user reads keys, values and users.
const MODE: u32 = 0o600;

/// Somebody else may have put a file of theirs, or a second name of one, where all keys will be written.
fn require_own(file: &File, path: &Path) -> Result<(), Failure> {
    let about = file.metadata().map_err(|error| not_made(path, &error))?;
    let is_own = about.is_file() && about.nlink() == 1 && about.uid() == geteuid().as_raw();
    if !is_own {
        return Err(Failure::usage(
            format!("{} is not a file of this user alone", path.display()),
            "move it away, or give another file, in a directory that others cannot write",
        ));
    }
    let mode = Permissions::from_mode(MODE);
    file.set_permissions(mode)
        .map_err(|error| not_made(path, &error))
}

/// A backup that is being written. One that was not begun goes with the value.
pub(super) struct Partial {
    path: PathBuf,
    file: BufWriter<File>,
    /// Some once the header is written.
    begun: Option<(Header, Encoder)>,
    /// Whether the file is to be left where it is.
    stays: bool,
}

impl Partial {
    /// Opens what an earlier run has left, or makes it.
    pub(super) fn open(target: &Path) -> Result<Self, Failure> {
        require_free(target)?;
        let mut name = OsString::from(target);
        name.push(".partial");
        let path = PathBuf::from(name);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(MODE)
            // A link could lead elsewhere, and a pipe would wait for a reader.
            .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
            .open(&path)
            .map_err(|error| not_made(&path, &error))?;
        require_own(&file, &path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Failure::usage(
                    format!("another backup writes {}", path.display()),
                    "wait for it, or give another file",
                ));
            }
            Err(TryLockError::Error(error)) => return Err(not_made(&path, &error)),
        }
        let begun = match look(&mut file).map_err(|error| not_made(&path, &error))? {
            Found::Nothing => None,
            Found::Part(begun) => Some(*begun),
            Found::Whole => {
                return Err(Failure::usage(
                    format!("{} is a whole backup that has no name yet", path.display()),
                    format!("name it: mv {} {}", path.display(), target.display()),
                ));
            }
            Found::Other => {
                return Err(Failure::usage(
                    format!(
                        "{} is no part of a backup, and it is not overwritten",
                        path.display()
                    ),
                    "move it away, or give another file",
                ));
            }
        };
        Ok(Self {
            path,
            file: BufWriter::with_capacity(PORTION, file),
            stays: begun.is_some(),
            begun,
        })
    }

    /// The subject of the backup, if it was begun.
    pub(super) fn header(&self) -> Option<&Header> {
        self.begun.as_ref().map(|(header, _)| header)
    }

    /// Frames so far.
    pub(super) fn frames(&self) -> u64 {
        self.begun
            .as_ref()
            .map_or(0, |(_, encoder)| encoder.frames())
    }

    /// Bytes so far.
    pub(super) fn bytes(&self) -> u64 {
        self.begun
            .as_ref()
            .map_or(0, |(_, encoder)| encoder.bytes())
    }

    /// Its name, for people.
    pub(super) fn shown(&self) -> String {
        self.path.display().to_string()
    }

    /// Begins it, whatever it held.
    pub(super) fn begin(&mut self, header: &Header) -> Result<(), Failure> {
        let (encoder, bytes) = Encoder::begin(header);
        self.begun = Some((*header, encoder));
        self.stays = true;
        self.writing(|file| {
            file.flush()?;
            file.get_mut().set_len(0)?;
            file.seek(SeekFrom::Start(0))?;
            file.write_all(&bytes)
        })
    }

    /// Writes the next frame.
    pub(super) fn append(&mut self, content: &[u8]) -> Result<(), Failure> {
        let Some((_, encoder)) = &mut self.begun else {
            unreachable!("a file is begun before frames come");
        };
        let head = encoder.frame(content);
        self.writing(|file| {
            file.write_all(&head)?;
            file.write_all(content)
        })
    }

    /// Leaves it for a later run. Returns its bytes.
    pub(super) fn keep(&mut self) -> Result<u64, Failure> {
        if self.begun.is_none() {
            return Ok(0);
        }
        self.writing(|file| file.flush())?;
        Ok(self.bytes())
    }

    /// Ends it, and gives it its name. Returns its bytes.
    pub(super) fn finish(mut self, target: &Path) -> Result<u64, Failure> {
        let Some((_, encoder)) = self.begun.take() else {
            unreachable!("a file is begun before it ends");
        };
        let end = encoder.end();
        let bytes = encoder.bytes() + end.len() as u64;
        self.writing(|file| {
            file.write_all(&end)?;
            file.flush()?;
            file.get_mut().sync_all()
        })?;
        let named = rename(&self.path, target).and_then(|()| sync_directory(target));
        named.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Failure::usage(
                format!(
                    "{} exists by now; the backup is whole in {}",
                    target.display(),
                    self.shown()
                ),
                "give it another name: mv does",
            ),
            _ => Failure::usage(
                format!(
                    "cannot rename {} to {}: {error}",
                    self.shown(),
                    target.display()
                ),
                "the backup is whole; rename it",
            ),
        })?;
        Ok(bytes)
    }

    /// Writes. After an error nothing stays: a full disk is not made fuller.
    fn writing(
        &mut self,
        act: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let Err(error) = act(&mut self.file) else {
            return Ok(());
        };
        let bytes = self.bytes();
        self.remove();
        let hint = match error.kind() {
            io::ErrorKind::StorageFull
            | io::ErrorKind::FileTooLarge
            | io::ErrorKind::QuotaExceeded => {
                "make room (df, ulimit -f, quota), or give a file elsewhere; `trine status` shows how much is stored"
            }
            _ => "see to the device, or give a file elsewhere",
        };
        Err(Failure::usage(
            format!(
                "cannot write {} beyond {bytes} bytes: {error}; it was removed, and there is no backup",
                self.shown()
            ),
            hint,
        ))
    }

    /// It is of no use; that it cannot be removed changes nothing about the failure.
    fn remove(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.stays {
            self.remove();
        }
    }
}

/// The content of a partial file.
enum Found {
    /// Nothing of which anything could be used.
    Nothing,
    /// The beginning of a backup.
    Part(Box<(Header, Encoder)>),
    /// A whole backup.
    Whole,
    /// Somebody else's bytes.
    Other,
}

/// Looks at a file, and cuts off the rest behind its last whole frame.
fn look(file: &mut File) -> io::Result<Found> {
    let (mut decoder, mut header) = (Decoder::default(), None);
    let mut portion = vec![0; PORTION];
    loop {
        let read = file.read(&mut portion)?;
        decoder.feed(&portion[..read]);
        let is_damaged = loop {
            match decoder.part() {
                Ok(Some(Part::Header(found))) => header = Some(found),
                Ok(Some(Part::Frame(_))) => {}
                Ok(Some(Part::End)) => return Ok(Found::Whole),
                Ok(None) => break false,
                Err(_) => break true,
            }
        };
        match header {
            None if is_damaged => return Ok(Found::Other),
            None if read == 0 => return Ok(Found::Nothing),
            Some(header) if is_damaged || read == 0 => {
                let Some(encoder) = decoder.into_encoder() else {
                    return Ok(Found::Nothing);
                };
                file.set_len(encoder.bytes())?;
                file.seek(SeekFrom::Start(encoder.bytes()))?;
                return Ok(Found::Part(Box::new((header, encoder))));
            }
            _ => {}
        }
    }
}

/// A name that exists is refused, also if it came to exist a moment ago.
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        // Some file systems do not know it.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
            std::fs::hard_link(from, to)?;
            std::fs::remove_file(from)
        }
        Err(error) => Err(error.into()),
    }
}

fn sync_directory(target: &Path) -> io::Result<()> {
    let parent = target.parent().filter(|path| !path.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// Refuses a file that exists.
pub(super) fn require_free(target: &Path) -> Result<(), Failure> {
    match std::fs::symlink_metadata(target) {
        Ok(_) => Err(Failure::usage(
            format!(
                "{} exists, and a backup overwrites nothing",
                target.display()
            ),
            "give another name, or move that file away",
        )),
        Err(_) => Ok(()),
    }
}

fn not_made(path: &Path, error: &io::Error) -> Failure {
    Failure::usage(
        format!("cannot write {}: {error}", path.display()),
        "give a file in a directory in which this user may write",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use trine_protocol::message::{BackupHead, ClusterId, Incarnation};

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let name = format!("trine-partial-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let _ = std::fs::remove_dir_all(&path);
            std::fs::create_dir_all(&path).expect("made");
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn header() -> Header {
        Header {
            head: BackupHead {
                image: 7,
                cluster: ClusterId(1),
                index: 2,
                term: 3,
                group_time_ns: 4,
                items: 5,
                logical_bytes: 6,
                state_version: 5,
                users: 0,
            },
            made_at_ms: 8,
            replica: Incarnation(9),
        }
    }

    #[test]
    fn a_run_goes_on_behind_the_last_whole_frame_and_the_file_is_the_same() {
        let place = Scratch::new("resume");
        let (one, two) = (place.0.join("one"), place.0.join("two"));
        let mut whole = Partial::open(&one).expect("made");
        whole.begin(&header()).expect("written");
        for frame in [b"first".as_slice(), b"second", b"third"] {
            whole.append(frame).expect("written");
        }
        whole.finish(&one).expect("named");

        let mut cut = Partial::open(&two).expect("made");
        cut.begin(&header()).expect("written");
        cut.append(b"first").expect("written");
        cut.append(b"second").expect("written");
        cut.keep().expect("kept");
        let path = cut.path.clone();
        drop(cut);
        // The last frame did not reach the file whole.
        let size = std::fs::metadata(&path).expect("there").len();
        let file = OpenOptions::new().write(true).open(&path).expect("opened");
        file.set_len(size - 2).expect("cut");
        drop(file);
        let mut on = Partial::open(&two).expect("opened");
        assert_eq!((on.header(), on.frames()), (Some(&header()), 1));
        on.append(b"second").expect("written");
        on.append(b"third").expect("written");
        on.finish(&two).expect("named");
        let read = |path| std::fs::read(path).expect("there");
        assert_eq!(read(&one), read(&two));
        assert_eq!(std::fs::metadata(&two).expect("there").mode() & 0o777, MODE);
        assert!(!path.exists());
    }

    /// A file that happens to have the name is not a backup's.
    #[test]
    fn a_partial_file_of_somebody_else_and_a_whole_one_stay() {
        let place = Scratch::new("other");
        let (file, path) = (place.0.join("file"), place.0.join("file.partial"));
        std::fs::write(&path, "dear diary").expect("written");
        let refused = Partial::open(&file).err().expect("refused");
        assert!(
            refused.to_string().contains("is no part of a backup"),
            "{refused}"
        );
        assert_eq!(std::fs::read(&path).expect("there"), b"dear diary");
        std::fs::remove_file(&path).expect("removed");
        std::os::unix::fs::symlink(place.0.join("elsewhere"), &path).expect("made");
        assert!(Partial::open(&file).is_err(), "a link leads elsewhere");
        std::fs::remove_file(&path).expect("removed");
        drop(Partial::open(&file).expect("made"));
        assert!(!path.exists(), "nothing was begun");

        let mut whole = Partial::open(&file).expect("made");
        whole.begin(&header()).expect("written");
        std::fs::write(&file, "mine").expect("written");
        whole.finish(&file).expect_err("the name is taken");
        std::fs::remove_file(&file).expect("removed");
        let refused = Partial::open(&file).err().expect("refused");
        assert!(
            refused.to_string().contains("is a whole backup"),
            "{refused}"
        );
        assert!(path.exists());
    }

    #[test]
    fn nothing_is_overwritten_and_only_one_run_writes() {
        let place = Scratch::new("free");
        let file = place.0.join("file");
        let mut first = Partial::open(&file).expect("made");
        let second = Partial::open(&file).err().expect("refused");
        assert!(
            second.to_string().contains("another backup writes"),
            "{second}"
        );
        first.begin(&header()).expect("written");
        std::fs::write(&file, "mine").expect("written");
        let failure = first.finish(&file).expect_err("refused");
        assert!(failure.to_string().contains("exists by now"), "{failure}");
        assert_eq!(std::fs::read(&file).expect("there"), b"mine");
        let third = Partial::open(&file).err().expect("refused");
        assert!(third.to_string().contains("overwrites nothing"), "{third}");
    }
}
