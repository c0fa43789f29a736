//! The log of a server. It is structured and goes to standard error. A separate thread writes it, so that a slow reader
//! delays nothing. Raft logs through it too.

use std::ffi::OsStr;
use std::fmt::{self, Write};
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};

use clap::builder::{PossibleValue, TypedValueParser};
use signal_hook::consts::SIGUSR1;
use signal_hook::iterator::Signals;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::Registry;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;

use trine_base::announce;
use trine_base::failure::Failure;
use trine_base::lines::Lines;
pub use trine_base::log_format::LogFormat;

/// The part of the log that tells who changed what. A change of the level is a warning there, because more filters let
/// warnings pass.
pub const AUDIT: &str = "audit";
/// The part of the log that reports changes of role.
pub const ROLE: &str = "role";

/// The log of this process.
pub struct Logs {
    filter: reload::Handle<Targets, Registry>,
    /// The filter, as it was typed.
    level: Mutex<String>,
    lines: Lines,
}

impl Logs {
    /// Starts the log. A process calls it once.
    pub fn start(level: &str, format: LogFormat) -> Result<Arc<Self>, Failure> {
        let targets = parse_level(level).map_err(|why| Failure::usage(why, ""))?;
        let lines = announce::log_lines().expect("a server logs");
        let (filter, handle) = reload::Layer::new(targets);
        let writer = lines.clone();
        let layer = tracing_subscriber::fmt::layer().with_writer(move || writer.clone());
        let layer = match format {
            LogFormat::Text => layer.with_ansi(std::io::stderr().is_terminal()).boxed(),
            LogFormat::Json => layer.json().boxed(),
        };
        tracing_subscriber::registry()
            .with(filter)
            .with(layer)
            .try_init()
            .map_err(|error| Failure::usage(format!("cannot start the log: {error}"), ""))?;
        trine_replica::log_raft_to(slog::Logger::root(ToTracing, slog::o!()));
        Ok(Arc::new(Self {
            filter: handle,
            level: Mutex::new(level.to_owned()),
            lines,
        }))
    }

    /// The present filter, as it was typed.
    pub fn level(&self) -> String {
        self.level
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Changes the filter from now on. `from` says who wants it.
    ///
    /// The filter also decides whether the audit's lines are written. So a change is told twice: to the old filter, for
    /// whoever turns the audit off, and to the new one, for whoever turns it on.
    pub fn set_level(&self, new: &str, from: &str) -> Result<(), String> {
        let targets = parse_level(new)?;
        // It is held throughout, so that changes at the same time are told one after the other.
        let mut level = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        if *level == new {
            return Ok(());
        }
        let old = std::mem::replace(&mut *level, new.to_owned());
        tracing::warn!(target: AUDIT, from, old, new, "the log level changes now");
        if let Err(error) = self.filter.reload(targets) {
            *level = old;
            return Err(error.to_string());
        }
        tracing::warn!(target: AUDIT, from, old, new, "the log level was changed");
        Ok(())
    }

    /// Lines that were dropped because writing was too slow or failed.
    pub fn dropped_lines(&self) -> u64 {
        self.lines.lost()
    }

    /// At SIGUSR1 the level becomes the one that `said` finds in the settings file. Without a file, or without the
    /// setting in it, the level from the start applies again.
    pub fn reload_at_signal(
        self: &Arc<Self>,
        said: impl Fn() -> Result<Option<String>, Failure> + Send + 'static,
    ) -> Result<(), Failure> {
        let cannot = |error: std::io::Error| {
            Failure::usage(format!("cannot watch for SIGUSR1: {error}"), "")
        };
        let (logs, first) = (Arc::clone(self), self.level());
        let mut signals = Signals::new([SIGUSR1]).map_err(cannot)?;
        let watch = move || {
            for _ in signals.forever() {
                let changed = said()
                    .map_err(|failure| failure.to_string())
                    .and_then(|level| {
                        logs.set_level(level.as_deref().unwrap_or(&first), "SIGUSR1")
                    });
                if let Err(error) = changed {
                    tracing::warn!(error, "the log level stays as it is");
                }
            }
        };
        std::thread::Builder::new()
            .name("log-level".into())
            .spawn(watch)
            .map(drop)
            .map_err(cannot)
    }
}

/// Reads "info" or "warn,raft=debug,trine=trace".
pub fn parse_level(text: &str) -> Result<Targets, String> {
    let wrong = |why: String| {
        format!(
            "{text:?} is not a log level{why}; write off, error, warn, info, debug or trace, or \
             for example warn,raft=debug"
        )
    };
    if text.trim().is_empty() {
        return Err(wrong(String::new()));
    }
    for part in text.split(',') {
        // A bare word that is no level, or a name without one, would count as a module's name, and the log would contain
        // everything of that module.
        let (name, level) = part.split_once('=').unwrap_or(("all", part));
        let is_level = !level.trim().is_empty() && level.trim().parse::<LevelFilter>().is_ok();
        if name.trim().is_empty() || !is_level {
            return Err(wrong(format!(": {part:?} is none")));
        }
    }
    text.parse().map_err(|error| wrong(format!(": {error}")))
}

/// The levels by themselves. A part of the log may have one of its own, behind its name.
pub const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// For clap: takes what [`parse_level`] takes, and offers [`LEVELS`] to completions.
#[derive(Clone, Copy, Debug)]
pub struct LevelParser;

impl TypedValueParser for LevelParser {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        let checked = |text: &str| parse_level(text).map(|_| text.to_owned());
        checked.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(LEVELS.into_iter().map(PossibleValue::new)))
    }
}

/// Passes Raft's slog records to tracing, as target `raft`.
struct ToTracing;

impl slog::Drain for ToTracing {
    type Ok = ();
    type Err = slog::Never;

    fn log(
        &self,
        record: &slog::Record<'_>,
        values: &slog::OwnedKVList,
    ) -> Result<(), slog::Never> {
        /// One event of a constant level. Tracing decides by the level before anything is formatted.
        macro_rules! event {
            ($level:expr) => {
                if tracing::enabled!(target: "raft", $level) {
                    tracing::event!(target: "raft", $level, values = %Values::of(record, values).0, "{}", record.msg());
                }
            };
        }
        match record.level() {
            slog::Level::Critical | slog::Level::Error => event!(tracing::Level::ERROR),
            slog::Level::Warning => event!(tracing::Level::WARN),
            slog::Level::Info => event!(tracing::Level::INFO),
            slog::Level::Debug => event!(tracing::Level::DEBUG),
            slog::Level::Trace => event!(tracing::Level::TRACE),
        }
        Ok(())
    }
}

/// A record's values as "key=value key=value".
struct Values(String);

impl Values {
    fn of(record: &slog::Record<'_>, values: &slog::OwnedKVList) -> Self {
        use slog::KV;
        let mut text = Self(String::new());
        // A value that cannot be shown is left out, because the event itself matters more.
        let _ = record.kv().serialize(record, &mut text);
        let _ = values.serialize(record, &mut text);
        text
    }
}

impl slog::Serializer for Values {
    fn emit_arguments(&mut self, key: slog::Key, value: &fmt::Arguments<'_>) -> slog::Result {
        let space = if self.0.is_empty() { "" } else { " " };
        write!(self.0, "{space}{key}={value}").map_err(slog::Error::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_words_or_lists_by_target() {
        for right in ["warn", "off", "info,raft=debug", "raft=trace", "INFO"] {
            assert!(parse_level(right).is_ok(), "{right}");
        }
        // `nonsense=` was taken: only that part was logged then.
        for wrong in [
            "",
            "loud",
            "raft",
            "raft=loud",
            "info,,",
            "info,perhaps",
            "nonsense=",
            "raft= ",
            "=info",
            "info,raft=",
            "=",
            "a=b=info",
        ] {
            let why = parse_level(wrong).expect_err(wrong);
            assert!(why.contains("raft=debug"), "{why}");
        }
    }
}
