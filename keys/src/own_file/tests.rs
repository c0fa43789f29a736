//! Files, pipes and links of this user and of another one. Only root can make those of another one: without root, the tests
//! have to do with what the other user's number is compared with.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, lchown, symlink};

use rustix::fs::mknodat;

use super::*;

const OTHER: u32 = 65_534;
const MODE: u32 = 0o600;

/// A directory that everybody may write to, and that goes with the value.
struct WorldWritable(PathBuf);

impl WorldWritable {
    fn new(name: &str) -> Self {
        let name = format!("trine-own-file-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("made");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("changed");
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn file(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, "before").expect("written");
        path
    }

    fn link(&self, name: &str, target: &Path) -> PathBuf {
        let path = self.path(name);
        symlink(target, &path).expect("made");
        path
    }

    fn pipe(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(MODE), 0).expect("made");
        path
    }
}

impl Drop for WorldWritable {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Makes this another user's; false if only root could.
fn is_given_away(path: &Path) -> bool {
    lchown(path, Some(OTHER), Some(OTHER)).is_ok()
}

fn append(path: &Path, end: AllowedFile) -> io::Result<bool> {
    let mut opened = open(path, OFlags::WRONLY | OFlags::APPEND, MODE, end)?;
    opened.file.write_all(b"+")?;
    Ok(opened.is_new)
}

#[track_caller]
fn is_refused(path: &Path, part: &str) {
    for end in [AllowedFile::File, AllowedFile::Any] {
        let error = append(path, end).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        assert!(
            error.to_string().contains(part) || end == AllowedFile::File,
            "{error}"
        );
    }
}

#[test]
fn a_new_file_and_an_own_one_are_written() {
    let shared = WorldWritable::new("own");
    let path = shared.path("new");
    assert!(append(&path, AllowedFile::File).expect("made"));
    assert_eq!(fs::metadata(&path).expect("there").mode() & 0o7777, MODE);
    assert!(!append(&path, AllowedFile::Any).expect("opened"));
    assert_eq!(fs::read(&path).expect("there"), b"++");
    let inside = shared.path("a/../new");
    fs::create_dir(shared.path("a")).expect("made");
    assert!(!append(&inside, AllowedFile::File).expect("opened"));
    for (path, kind) in [
        (shared.path("a"), ErrorKind::IsADirectory),
        (shared.path("a/"), ErrorKind::IsADirectory),
        (shared.path("new/"), ErrorKind::NotADirectory),
        (shared.path("new/x"), ErrorKind::NotADirectory),
        (shared.path("nowhere/x"), ErrorKind::NotFound),
        (PathBuf::new(), ErrorKind::NotFound),
    ] {
        let error = append(&path, AllowedFile::Any).expect_err("refused");
        assert_eq!(error.kind(), kind, "{}: {error}", path.display());
    }
}

/// Root wrote the secrets of its sessions into a file that another user had put there, and could read.
#[test]
fn files_and_pipes_of_another_user_are_not_written() {
    let shared = WorldWritable::new("foreign");
    let file = shared.file("file");
    let pipe = shared.pipe("pipe");
    if !is_given_away(&file) || !is_given_away(&pipe) {
        return;
    }
    is_refused(&file, "it belongs to another user (number 65534)");
    is_refused(&pipe, "it belongs to another user (number 65534)");
    assert_eq!(fs::read(&file).expect("there"), b"before");
    // An own link leads there, and an own name beside the other user's.
    let link = shared.link("link", &file);
    let error = append(&link, AllowedFile::Any).expect_err("refused");
    assert!(error.to_string().contains("belongs to another user"));
}

#[test]
fn links_of_another_user_are_not_followed_wherever_they_are() {
    let shared = WorldWritable::new("links");
    let own = shared.file("own");
    fs::create_dir(shared.path("inside")).expect("made");
    let link = shared.link("link", &own);
    let nowhere = shared.link("nowhere", &shared.path("made-by-link"));
    let directory = shared.link("directory", &shared.path("inside"));
    let second = shared.link("second", &link);
    if ![&link, &nowhere, &directory]
        .map(|path| is_given_away(path))
        .contains(&true)
    {
        return;
    }
    let new = directory.join("new");
    for path in [&link, &nowhere, &new, &second] {
        is_refused(path, "a link of another user (number 65534) is on the way");
    }
    assert!(!shared.path("made-by-link").exists() && !shared.path("inside/new").exists());
    assert_eq!(fs::read(&own).expect("there"), b"before");
}

#[test]
fn own_links_lead_on_unless_a_plain_file_is_wanted() {
    let shared = WorldWritable::new("own-links");
    let own = shared.file("own");
    let link = shared.link("link", Path::new("own"));
    let second = shared.link("second", &link);
    let new = shared.link("dangling", Path::new("made"));
    fs::create_dir(shared.path("inside")).expect("made");
    let directory = shared.link("directory", Path::new("./inside/"));
    assert!(!append(&second, AllowedFile::Any).expect("opened"));
    assert_eq!(fs::read(&own).expect("there"), b"before+");
    assert!(append(&new, AllowedFile::Any).expect("made"));
    assert!(append(&directory.join("new"), AllowedFile::File).expect("made"));
    assert!(shared.path("made").exists() && shared.path("inside/new").exists());
    let error = append(&link, AllowedFile::File).expect_err("refused");
    assert!(error.to_string().contains("a link is there"), "{error}");
    let circle = shared.link("circle", Path::new("circle"));
    assert!(append(&circle, AllowedFile::Any).is_err());
    // A second name may be one that another user has given to a file that it could not write itself.
    fs::hard_link(&own, shared.path("other-name")).expect("made");
    is_refused(&own, "another name");
}

#[test]
fn devices_and_pipes_take_what_is_written() {
    let shared = WorldWritable::new("devices");
    assert!(!append(Path::new("/dev/null"), AllowedFile::Any).expect("opened"));
    assert!(append(Path::new("/dev/null"), AllowedFile::File).is_err());
    let pipe = shared.pipe("pipe");
    let reader = pipe.clone();
    let reader = std::thread::spawn(move || fs::read(reader).expect("read"));
    assert!(!append(&pipe, AllowedFile::Any).expect("opened"));
    assert_eq!(reader.join().expect("no panic"), b"+");
}

/// `/dev/stdout` and what a shell makes of `>(command)` are links to open files of the process.
#[test]
fn open_files_of_this_process_are_taken_as_they_are() {
    let shared = WorldWritable::new("open");
    let (mut reader, writer) = io::pipe().expect("a pipe");
    let number =
        |file: &dyn std::os::fd::AsRawFd| PathBuf::from(format!("/dev/fd/{}", file.as_raw_fd()));
    assert!(!append(&number(&writer), AllowedFile::Any).expect("opened"));
    drop(writer);
    let mut text = String::new();
    reader.read_to_string(&mut text).expect("read");
    assert_eq!(text, "+");
    let path = shared.file("file");
    let file = File::options().append(true).open(&path).expect("opened");
    // Whoever has opened it may have been another user: the shell in which `sudo` was called.
    let _ = is_given_away(&path);
    assert!(!append(&number(&file), AllowedFile::Any).expect("opened"));
    assert_eq!(fs::read(&path).expect("there"), b"before+");
}
