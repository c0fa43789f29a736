//! Opens a file that a user has named to be written, and never one of somebody else.
//!
//! Keys, backups, captures and reports go to files that a command line names. Where others may write, too, another user can
//! have put a file, a pipe or a link there first: a command of root would hand its secrets over, or write wherever the link
//! leads. So every step of the way is looked at, and what is looked at is what is opened.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat, fstat, fstatfs, openat,
    readlinkat, statat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::config::{LINKS_MAX, OPEN_TRIES_MAX};

/// What may be at the end of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllowedFile {
    /// Nothing, or a file of this user.
    File,
    /// Also a device, a pipe, or a link of this user or of root.
    Any,
}

/// A file that was opened.
#[derive(Debug)]
pub struct Opened {
    /// The file.
    pub file: File,
    /// Whether this call has made it.
    pub is_new: bool,
}

/// Opens `path` with `flags`, or makes a file with `mode`.
///
/// A file that is there has to belong to this user, under this name alone. A pipe or a device may be root's, too, and is
/// opened to be written only. Links on the way count if they are this user's or root's. Open files of this process
/// (`/dev/stdout`, `/dev/fd/3`) were given to it by whoever started it, and are taken as they are.
///
/// # Errors
/// Somebody else has put there what is there, or the operating system refuses.
pub fn open(path: &Path, flags: OFlags, mode: u32, end: AllowedFile) -> io::Result<Opened> {
    let mut walk = PathWalk::new(path)?;
    for _ in 0..OPEN_TRIES_MAX {
        let name = walk.reach_end(end)?;
        match walk.open(&name, flags, mode) {
            // It came or went since it was looked at.
            Err(error)
                if [ErrorKind::AlreadyExists, ErrorKind::NotFound].contains(&error.kind()) =>
            {
                walk.rest.push(name);
            }
            other => return other,
        }
    }
    Err(io::Error::other("it is repeatedly created and removed"))
}

/// Makes the name of a file durable, which its directory keeps.
///
/// # Errors
/// The operating system refuses.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|path| !path.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// A walk along a path, directory by directory.
struct PathWalk {
    /// The directory that was reached.
    at: OwnedFd,
    /// What follows, the next one last.
    rest: Vec<OsString>,
    /// Links that were followed.
    links: usize,
}

impl PathWalk {
    fn new(path: &Path) -> io::Result<Self> {
        if path.as_os_str().is_empty() {
            return Err(ErrorKind::NotFound.into());
        }
        let mut walk = Self {
            at: directory(".")?,
            rest: Vec::new(),
            links: 0,
        };
        walk.go(path)?;
        Ok(walk)
    }

    /// Puts a path in front of what follows.
    fn go(&mut self, path: &Path) -> io::Result<()> {
        if path.is_absolute() {
            self.at = directory("/")?;
        }
        let is_name =
            |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
        let names = path.components().filter(is_name);
        let names: Vec<OsString> = names.map(|part| part.as_os_str().to_owned()).collect();
        // A path with a slash at its end means a directory.
        if path.as_os_str().as_bytes().ends_with(b"/") || names.is_empty() {
            self.rest.push(".".into());
        }
        self.rest.extend(names.into_iter().rev());
        Ok(())
    }

    /// Follows the way to the last name of it, which is no link that has to be followed by name.
    fn reach_end(&mut self, end: AllowedFile) -> io::Result<OsString> {
        while let Some(name) = self.rest.pop() {
            let is_last = self.rest.is_empty();
            let entry = match self.look(&name) {
                Err(Errno::NOENT) if is_last => return Ok(name),
                other => other?,
            };
            let about = fstat(&entry)?;
            match FileType::from_raw_mode(about.st_mode) {
                FileType::Symlink if is_last && end == AllowedFile::File => {
                    return Err(refused("a link is there"));
                }
                FileType::Symlink => {
                    require_link(&about)?;
                    if is_last && is_open_file(&entry)? {
                        return Ok(name);
                    }
                    self.follow(&entry)?;
                }
                FileType::Directory if is_last => return Err(Errno::ISDIR.into()),
                _ if is_last => {
                    require_own(&about, end)?;
                    return Ok(name);
                }
                FileType::Directory => self.at = entry,
                _ => return Err(Errno::NOTDIR.into()),
            }
        }
        Err(Errno::ISDIR.into())
    }

    fn look(&self, name: &OsString) -> rustix::io::Result<OwnedFd> {
        let is_one = !name.as_bytes().contains(&b'/');
        assert!(is_one, "a name of two steps could lead over a link");
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&self.at, name.as_os_str(), flags, Mode::empty())
    }

    fn follow(&mut self, link: &OwnedFd) -> io::Result<()> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Errno::LOOP.into());
        }
        let target = readlinkat(link, "", Vec::new())?;
        self.go(&PathBuf::from(OsString::from_vec(target.into_bytes())))
    }

    /// Opens what has this name here, and looks at it once more: there may be something else by now.
    fn open(&self, name: &OsString, flags: OFlags, mode: u32) -> io::Result<Opened> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
        let name = name.as_os_str();
        let made = |file: OwnedFd, is_new| Opened {
            file: file.into(),
            is_new,
        };
        let entry = match self.look(&name.to_owned()) {
            Err(Errno::NOENT) => {
                let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
                let file = openat(&self.at, name, flags, Mode::from_raw_mode(mode))?;
                return Ok(made(file, true));
            }
            other => fstat(&other?)?,
        };
        let to_write = (flags - OFlags::RWMODE) | OFlags::WRONLY;
        match FileType::from_raw_mode(entry.st_mode) {
            // An open file of this process.
            FileType::Symlink => {
                let behind = statat(&self.at, name, AtFlags::empty())?;
                let is_file = FileType::from_raw_mode(behind.st_mode) == FileType::RegularFile;
                let flags = if is_file { flags } else { to_write };
                Ok(made(openat(&self.at, name, flags, Mode::empty())?, false))
            }
            FileType::RegularFile => {
                // Should it be a pipe by now, it waits for no reader.
                let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK;
                let file = openat(&self.at, name, flags, Mode::empty())?;
                require_own(&fstat(&file)?, AllowedFile::File)?;
                Ok(made(file, false))
            }
            _ => {
                let flags = to_write | OFlags::NOFOLLOW;
                let file = openat(&self.at, name, flags, Mode::empty())?;
                require_own(&fstat(&file)?, AllowedFile::Any)?;
                Ok(made(file, false))
            }
        }
    }
}

fn directory(path: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(CWD, path, flags, Mode::empty())?)
}

/// Whether a link is one of the kernel's that leads to an open file of a process, as `/dev/stdout` does, and not to a name.
fn is_open_file(link: &OwnedFd) -> io::Result<bool> {
    if fstatfs(link)?.f_type != PROC_SUPER_MAGIC {
        return Ok(false);
    }
    // Other links there, such as `/proc/self`, are names.
    let target = readlinkat(link, "", Vec::new())?.into_bytes();
    Ok(target.starts_with(b"/") || target.contains(&b':'))
}

fn require_link(about: &Stat) -> io::Result<()> {
    match [geteuid().as_raw(), 0].contains(&about.st_uid) {
        true => Ok(()),
        false => Err(refused(&format!("a link of {} is on the way", user(about)))),
    }
}

fn require_own(about: &Stat, end: AllowedFile) -> io::Result<()> {
    let own = geteuid().as_raw();
    let is_file = FileType::from_raw_mode(about.st_mode) == FileType::RegularFile;
    if about.st_uid != own && (is_file || about.st_uid != 0) {
        return Err(refused(&format!("it belongs to {}", user(about))));
    }
    match (is_file, end) {
        (true, _) if about.st_nlink > 1 => Err(refused("the file has another name, too")),
        (false, AllowedFile::File) => Err(refused("it is not a file")),
        _ => Ok(()),
    }
}

fn user(about: &Stat) -> String {
    format!("another user (number {})", about.st_uid)
}

fn refused(why: &str) -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, why.to_owned())
}

#[cfg(test)]
mod tests;
