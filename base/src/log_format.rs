//! The form of the lines that a server writes.

use clap::{Args, ValueEnum};

use crate::announce;

/// The option of servers beside groups.
#[derive(Clone, Debug, Args)]
pub struct LogFormatArguments {
    /// Format of the lines on standard output and standard error. With json, each line is a JSON object, including
    /// announcements and the last error.
    #[arg(long, env = "TRINE_LOG_FORMAT", default_value = "text", value_enum)]
    pub log_format: LogFormat,
}

/// Format of the lines.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For programs: a JSON object a line.
    Json,
}

impl LogFormat {
    /// From now on the lines beside the log have its form.
    pub fn begin(self) {
        if self == Self::Json {
            announce::speak_in_objects();
        }
    }

    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}
