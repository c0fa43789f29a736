//! A backup file on its way into a new group: how it is read, and what its errors mean to the user.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_base::progress::Progress;
use trine_base::units::show_bytes;
use trine_replica::backup::{Content, Damage, RestoreError, Restorer, TimeToLive, WhatIsWrong};

/// Bytes that one read takes, or one write.
pub const PORTION: usize = 1 << 20;

/// Whether the time since the backup is subtracted from times to live.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Ttl {
    /// The time is not subtracted: each key keeps the time to live that it had left at the backup.
    #[default]
    Keep,
    /// The time is subtracted, by the wall clocks of the two machines: keys that would have expired by now are gone.
    Wall,
}

impl Ttl {
    /// As it is typed.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Wall => "wall",
        }
    }

    /// The same by the clock of this machine.
    #[must_use]
    pub fn by_now(self) -> TimeToLive {
        let since = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH);
        let now_ms = since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(0));
        match self {
            Self::Keep => TimeToLive::Stands,
            Self::Wall => TimeToLive::Wall { now_ms },
        }
    }
}

/// Reads a whole backup into memory. Ctrl-C ends it.
///
/// # Errors
/// The file cannot be read, is damaged, or is of a later release.
pub fn read(path: &Path) -> Result<Content, Failure> {
    let mut file = File::open(path).map_err(|error| not_read(path, &error))?;
    let size = file.metadata().map_or(0, |about| about.len());
    let mut progress = Progress::new(format!("reading {}", path.display()), size);
    let mut restorer = Restorer::default();
    let (mut portion, mut done) = (vec![0; PORTION], 0);
    loop {
        interrupt::check()?;
        let read = file.read(&mut portion);
        let read = read.map_err(|error| not_read(path, &error))?;
        if read == 0 {
            break;
        }
        let fed = restorer.feed(&portion[..read]);
        fed.map_err(|error| failure(path, &error))?;
        done += read as u64;
        progress.set(done, || show_bytes(done));
    }
    restorer.finish().map_err(|error| failure(path, &error))
}

/// A file that cannot be read at all.
#[must_use]
pub fn not_read(path: &Path, error: &io::Error) -> Failure {
    Failure::usage(
        format!("cannot read {}: {error}", path.display()),
        "give the file that `trine backup` has made",
    )
}

/// The damage of a file, and the way out.
#[must_use]
pub fn damaged(path: &Path, damage: &Damage) -> Failure {
    let hint = match damage.what {
        WhatIsWrong::NoBackup => "give the file that `trine backup` has made",
        WhatIsWrong::Newer { .. } => "use the release that wrote it, or a later one",
        _ => "copy it again from an intact copy, or use another backup",
    };
    Failure::negative(format!("{}: {damage}", path.display()), hint)
}

/// Why no group begins with a file.
#[must_use]
pub fn failure(path: &Path, error: &RestoreError) -> Failure {
    let hint = match error {
        RestoreError::Damage(damage) => return damaged(path, damage),
        RestoreError::Newer { .. } | RestoreError::State { .. } => {
            "use the release that wrote it, or a later one"
        }
        RestoreError::Clock { .. } => {
            "set the clock of this machine, or omit --expiry wall: then times to live do not \
             include the time since the backup"
        }
        RestoreError::OtherHeader => "use another backup",
        RestoreError::Index { .. } | RestoreError::NotEmpty { .. } | RestoreError::Disk(_) => "",
    };
    Failure::negative(format!("{}: {error}", path.display()), hint)
}
