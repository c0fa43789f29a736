//! The form of the lines that a server writes.

use clap::ValueEnum;

use crate::announce;

/// How the lines look.
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
