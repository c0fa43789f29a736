//! The two programs of a run: which release each of them is, and how it is asked.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_local::{LineSink, Process, Stream};
use trine_protocol::program::Program;

/// How long a program may take to say which one it is.
const VERSION_LIMIT: Duration = Duration::from_secs(10);
/// How long any other command may take.
const COMMAND_LIMIT: Duration = Duration::from_secs(60);
/// How often the end of a command is looked for.
const POLL: Duration = Duration::from_millis(20);

/// What to name instead.
const HINT: &str =
    "--upgrade-from names the program `trine` of the release before, for example target/old/trine";

/// A program file that is `trine`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Binary {
    pub(super) path: PathBuf,
    pub(super) about: Program,
}

/// The program before the upgrade, and the one after it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pair {
    pub(super) old: Binary,
    pub(super) new: Binary,
}

impl Pair {
    /// This program, and the one at `path` as the release before it.
    ///
    /// # Errors
    /// It cannot be run, is not `trine`, or is newer than this program.
    pub(super) fn with(path: &Path) -> Result<Self, Failure> {
        let own = std::env::current_exe().map_err(|error| {
            let message = format!("cannot find the path of this program: {error}");
            Failure::usage(message, "")
        })?;
        let new = Binary {
            path: own,
            about: Program::this(),
        };
        let old = Binary::at(path)?;
        refuse_newer(path, &old.about, &new.about)?;
        Ok(Self { old, new })
    }

    /// Whether both were built from one commit.
    pub(super) fn are_one_build(&self) -> bool {
        self.old.about == self.new.about && self.old.about.commit != "unknown"
    }

    /// Whether a group that has begun with the old program switches to another state version.
    pub(super) fn switch(&self) -> bool {
        self.old.about.state_version != self.new.about.state_version
    }

    pub(super) fn document(&self) -> Value {
        json!({ "from": self.old.about, "to": self.new.about })
    }
}

impl fmt::Display for Binary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Program {
            release, commit, ..
        } = &self.about;
        write!(f, "{release} ({commit})")
    }
}

impl Binary {
    /// The program at `path`, which says itself which one it is.
    fn at(path: &Path) -> Result<Self, Failure> {
        let refused = |why: String| {
            let message = format!("cannot upgrade from {}: {why}", path.display());
            Failure::usage(message, HINT)
        };
        // A bare name would be looked for in the directories of PATH.
        let path = path
            .canonicalize()
            .map_err(|error| refused(missing(&error)))?;
        if path.is_dir() {
            return Err(refused("it is a directory".to_owned()));
        }
        let words = ["version", "--json"].map(OsString::from);
        let said =
            Said::by(&path, &words, VERSION_LIMIT).map_err(|why| refused(why.to_string()))?;
        let about = said
            .succeeded
            .then(|| serde_json::from_str(&said.out).ok())
            .flatten();
        let about = about.ok_or_else(|| {
            let first = said.first_words();
            refused(format!(
                "its `version --json` does not say which release of trine it is: {first}"
            ))
        })?;
        Ok(Self { path, about })
    }

    /// Executes a command of it, and returns what that prints.
    ///
    /// # Errors
    /// The command failed, or did not end in time.
    pub(super) fn ask(&self, words: &[OsString]) -> Result<String, Failure> {
        let shown: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        let what = format!("`{}` of {self}", shown.join(" "));
        let said = Said::by(&self.path, words, COMMAND_LIMIT).map_err(|why| match why {
            Unsaid::Interrupted => Failure::interrupted(),
            why => Failure::negative(format!("{what}: {why}"), ""),
        })?;
        match said.succeeded {
            true => Ok(said.out),
            false => {
                let message = format!("{what} failed: {}", said.first_words());
                Err(Failure::negative(message, ""))
            }
        }
    }
}

fn missing(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "there is no such file".to_owned(),
        _ => error.to_string(),
    }
}

/// There is no way back from a newer release, and only the newer one of two knows how to live with the older.
fn refuse_newer(path: &Path, old: &Program, new: &Program) -> Result<(), Failure> {
    let is_newer = old.state_version > new.state_version
        || old.message_version > new.message_version
        || old.release > new.release;
    if !is_newer {
        return Ok(());
    }
    Err(Failure::usage(
        format!(
            "{} is newer than this program: it is {old}, and this is {new}",
            path.display()
        ),
        "run `trine chaos` of the newer program, and name the older one with --upgrade-from",
    ))
}

/// So much is kept of what a command prints.
const PRINTED_BYTES_MAX: usize = 1 << 20;

/// What a command printed until its end.
struct Said {
    succeeded: bool,
    out: String,
    err: String,
}

/// Why a command came to no end of its own.
#[derive(Debug, thiserror::Error)]
enum Unsaid {
    #[error("it cannot be executed: {0}")]
    Start(io::Error),
    #[error("its process cannot be controlled: {0}")]
    Control(io::Error),
    #[error("it did not end within {0:?}")]
    Late(Duration),
    #[error("interrupted")]
    Interrupted,
}

impl Said {
    fn by(path: &Path, words: &[OsString], limit: Duration) -> Result<Self, Unsaid> {
        let printed: Arc<Mutex<[String; 2]>> = Arc::default();
        let sink: LineSink = {
            let printed = Arc::clone(&printed);
            Arc::new(move |_, stream, line: &str| {
                let mut printed = printed.lock().unwrap_or_else(PoisonError::into_inner);
                let place = &mut printed[usize::from(stream == Stream::Err)];
                if place.len() + line.len() < PRINTED_BYTES_MAX {
                    place.push_str(line);
                    place.push('\n');
                }
            })
        };
        let mut process = Process::start(path, words, 0, Some(sink)).map_err(Unsaid::Start)?;
        let until = Instant::now() + limit;
        let status = loop {
            if let Some(status) = process.wait_at_most(POLL).map_err(Unsaid::Control)? {
                break status;
            }
            if interrupt::interrupted() {
                return Err(Unsaid::Interrupted);
            }
            if Instant::now() >= until {
                return Err(Unsaid::Late(limit));
            }
        };
        let [out, err] =
            std::mem::take(&mut *printed.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(Self {
            succeeded: status.success(),
            out,
            err,
        })
    }

    /// The beginning of what it printed, in one line: first what it complained about.
    fn first_words(&self) -> String {
        const SHOWN: usize = 300;
        let all = [self.err.as_str(), self.out.as_str()].join(" ");
        let words: Vec<&str> = all.split_whitespace().collect();
        match words.is_empty() {
            true => "it printed nothing".to_owned(),
            false => words.join(" ").chars().take(SHOWN).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    struct Script(PathBuf);

    impl Script {
        fn new(name: &str, text: &str) -> Self {
            let name = format!("trine-upgrade-{}-{name}", std::process::id());
            let path = std::env::temp_dir().join(name);
            trine_child::script(&path, text);
            Self(path)
        }

        /// A program that says this of itself.
        fn saying(name: &str, about: &Program) -> Self {
            let about = json!(about);
            Self::new(name, &format!("echo '{about}'"))
        }
    }

    impl Drop for Script {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn a_program_of_the_same_or_an_older_release_is_taken() {
        let script = Script::saying("same", &Program::this());
        let pair = Pair::with(&script.0).expect("the same");
        assert_eq!(pair.old.about, pair.new.about);
        assert!(!pair.switch());
        let older = Program {
            state_version: Program::this().state_version - 1,
            ..Program::this()
        };
        let script = Script::saying("older", &older);
        assert!(Pair::with(&script.0).expect("older").switch());
    }

    #[test]
    fn others_are_refused_with_the_reason() {
        let newer = Program {
            state_version: Program::this().state_version + 1,
            ..Program::this()
        };
        let plain = Script::new("plain", "");
        std::fs::set_permissions(&plain.0, PermissionsExt::from_mode(0o644)).expect("chmod");
        let scripts = [
            plain,
            Script::new("foreign", "echo '{\"release\":\"1.2\"}'"),
            Script::new("mute", "exit 0"),
            Script::new("older-still", "echo 'unrecognized subcommand' >&2; exit 2"),
            Script::saying("newer", &newer),
        ];
        let reasons = [
            "cannot be executed",
            "which release of trine it is: {\"release\"",
            "it printed nothing",
            "unrecognized subcommand",
            "is newer than this program",
        ];
        for (script, reason) in scripts.iter().zip(reasons) {
            let refused = Pair::with(&script.0).expect_err(reason);
            assert_eq!(refused.exit_status(), 2);
            assert!(refused.to_string().contains(reason), "{refused}");
        }
        for (path, reason) in [
            ("/nowhere/trine", "no such file"),
            ("/tmp", "it is a directory"),
        ] {
            let refused = Pair::with(Path::new(path)).expect_err(reason);
            let text = refused.to_string();
            assert!(
                text.contains(reason) && text.contains("--upgrade-from"),
                "{text}"
            );
        }
    }
}
