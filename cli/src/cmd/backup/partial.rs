//! The file of a backup while it is not whole: FILE.partial, which another run can go on with.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use trine_base::failure::Failure;
use trine_base::new_file::{self, not_made};
use trine_replica::backup::{Decoder, Encoder, Header, Part};
use trine_server::backup_file::PORTION;

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
        let path = new_file::partial_name(target);
        let mut file = new_file::open(&path, "backup")?;
        let begun = match inspect(&mut file).map_err(|error| not_made(&path, &error))? {
            PartialContent::Nothing => None,
            PartialContent::Part(begun) => Some(*begun),
            PartialContent::Whole => {
                return Err(Failure::usage(
                    format!(
                        "{} is a complete backup that was not renamed yet",
                        path.display()
                    ),
                    format!("rename it: mv {} {}", path.display(), target.display()),
                ));
            }
            PartialContent::Other => {
                return Err(Failure::usage(
                    format!(
                        "{} is not part of a backup, and is not overwritten",
                        path.display()
                    ),
                    "move it away, or give another file",
                ));
            }
        };
        new_file::make_private(&file, &path)?;
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
        // It stays begun: an error tells how far the file has come.
        let Some((_, encoder)) = self.begun else {
            unreachable!("a file is begun before it ends");
        };
        let end = encoder.end();
        let bytes = encoder.bytes() + end.len() as u64;
        self.writing(|file| {
            file.write_all(&end)?;
            file.flush()?;
            file.get_mut().sync_all()
        })?;
        new_file::give_name(&self.path, target, "backup")?;
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
        // What the encoder counts may not have reached the file.
        let about = self.file.get_ref().metadata();
        let bytes = about.map_or_else(|_| self.bytes(), |about| about.len());
        self.remove();
        let hint = match error.kind() {
            io::ErrorKind::StorageFull
            | io::ErrorKind::FileTooLarge
            | io::ErrorKind::QuotaExceeded => {
                "free some space (df, ulimit -f, quota), or give a file elsewhere; `trine status` \
                 shows how much is stored"
            }
            _ => "check the device, or give a file elsewhere",
        };
        Err(Failure::usage(
            format!(
                "cannot write {} beyond {bytes} bytes: {error}; it was removed, and no backup was \
                 made",
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
enum PartialContent {
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
fn inspect(file: &mut File) -> io::Result<PartialContent> {
    let (mut decoder, mut header) = (Decoder::default(), None);
    let mut portion = vec![0; PORTION];
    loop {
        let read = file.read(&mut portion)?;
        decoder.feed(&portion[..read]);
        let is_damaged = loop {
            match decoder.part() {
                Ok(Some(Part::Header(found))) => header = Some(found),
                Ok(Some(Part::Frame(_))) => {}
                Ok(Some(Part::End)) => return Ok(PartialContent::Whole),
                Ok(None) => break false,
                Err(_) => break true,
            }
        };
        match header {
            None if is_damaged => return Ok(PartialContent::Other),
            None if read == 0 => return Ok(PartialContent::Nothing),
            Some(header) if is_damaged || read == 0 => {
                let Some(encoder) = decoder.into_encoder() else {
                    return Ok(PartialContent::Nothing);
                };
                file.set_len(encoder.bytes())?;
                file.seek(SeekFrom::Start(encoder.bytes()))?;
                return Ok(PartialContent::Part(Box::new((header, encoder))));
            }
            _ => {}
        }
    }
}

/// Refuses a file that exists.
pub(super) fn require_free(target: &Path) -> Result<(), Failure> {
    match std::fs::symlink_metadata(target) {
        Ok(_) => Err(Failure::usage(
            format!(
                "{} exists, and a backup never overwrites a file",
                target.display()
            ),
            "give another name, or move that file away",
        )),
        Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
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
        assert_eq!(
            std::fs::metadata(&two).expect("there").mode() & 0o777,
            0o600
        );
        assert!(!path.exists());
    }

    /// A file that happens to have the name is not a backup's.
    #[test]
    fn a_partial_file_of_somebody_else_and_a_whole_one_stay() {
        let place = Scratch::new("other");
        let (file, path) = (place.0.join("file"), place.0.join("file.partial"));
        std::fs::write(&path, "dear diary").expect("written");
        let open_to_all = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(&path, open_to_all).expect("changed");
        let refused = Partial::open(&file).err().expect("refused");
        assert!(
            refused.to_string().contains("is not part of a backup"),
            "{refused}"
        );
        assert_eq!(std::fs::read(&path).expect("there"), b"dear diary");
        let mode = std::fs::metadata(&path).expect("there").mode();
        assert_eq!(mode & 0o777, 0o644, "it is as it was");
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
            refused.to_string().contains("is a complete backup"),
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
            second.to_string().contains("another backup is writing"),
            "{second}"
        );
        first.begin(&header()).expect("written");
        std::fs::write(&file, "mine").expect("written");
        let failure = first.finish(&file).expect_err("refused");
        assert!(failure.to_string().contains("exists now"), "{failure}");
        assert_eq!(std::fs::read(&file).expect("there"), b"mine");
        let third = Partial::open(&file).err().expect("refused");
        assert!(
            third.to_string().contains("never overwrites a file"),
            "{third}"
        );
    }

    /// The error said "beyond 0 bytes" when the last bytes could not be written.
    #[test]
    fn an_end_that_cannot_be_written_is_told_with_the_bytes_that_are_there() {
        let place = Scratch::new("end");
        let target = place.0.join("file");
        let mut partial = Partial::open(&target).expect("made");
        partial.begin(&header()).expect("written");
        partial.append(b"first").expect("written");
        let bytes = partial.keep().expect("kept");
        let path = partial.path.clone();
        // A file that was opened for reading takes nothing.
        partial.file = BufWriter::new(File::open(&path).expect("opened"));
        let failure = partial.finish(&target).expect_err("not written");
        let says = format!("beyond {bytes} bytes: ");
        assert!(
            bytes > 0 && failure.to_string().contains(&says),
            "{failure}"
        );
        assert!(!path.exists() && !target.exists());
    }
}
