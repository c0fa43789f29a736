//! The output of commands: plain text for people, one JSON document for programs. The output of servers is
//! in [`crate::announce`].

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::ValueEnum;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::announce::{self, note, note_failure};
use crate::document::{self, to_document};
use crate::failure::Failure;
use crate::words::printable;

/// Output format.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputForm {
    /// For people.
    Table,
    /// For programs: one JSON document.
    Json,
}

/// The destination and the form of a command's output.
#[derive(Copy, Clone, Debug)]
pub struct Output {
    /// Whether programs read it.
    pub json: bool,
}

impl Output {
    /// Prints a line for people; prints nothing in JSON form.
    pub fn line(self, text: impl Display) {
        if !self.json {
            print_all(printable(&format!("{text}\n")).as_bytes());
        }
    }

    /// Prints a line for a person at a terminal. A script sees the same in the exit status.
    pub fn at_terminal(self, text: impl Display) {
        if io::stdout().is_terminal() {
            self.line(text);
        }
    }

    /// Prints the command's answer for programs; prints nothing in text form. Each command calls it once.
    pub fn document(self, document: &impl Serialize) {
        if self.json {
            print_all(to_document(document).as_bytes());
        }
    }

    /// Reports for programs what was done to a key.
    pub fn done<const N: usize>(self, key: &[u8], facts: [(&str, Value); N]) {
        let mut document = Map::new();
        insert_bytes(&mut document, "key", key);
        self.document_with(document, facts);
    }

    /// Prints a key's value: raw, or in a document together with these facts.
    pub fn value<const N: usize>(self, key: &[u8], value: &[u8], facts: [(&str, Value); N]) {
        if !self.json {
            return self.raw(value);
        }
        let mut document = Map::new();
        insert_bytes(&mut document, "key", key);
        insert_bytes(&mut document, "value", value);
        self.document_with(document, facts);
    }

    fn document_with<const N: usize>(
        self,
        mut document: Map<String, Value>,
        facts: [(&str, Value); N],
    ) {
        for (name, fact) in facts {
            document.insert(name.to_owned(), fact);
        }
        self.document(&Value::Object(document));
    }

    /// Prints one event for programs, on its own line; prints nothing in text form.
    pub fn json_line(self, event: &Value) {
        if self.json {
            print_all(document::line_of(event).as_bytes());
        }
    }

    /// For a command whose answer is a text for another program, and has no JSON form.
    ///
    /// # Errors
    /// JSON is wanted.
    pub fn require_text(self, what: &str) -> Result<(), Failure> {
        match self.json {
            true => Err(Failure::usage(
                format!("{what} has no JSON form"),
                "omit --json or --output json",
            )),
            false => Ok(()),
        }
    }

    /// Prints raw bytes unchanged. At a terminal a line end follows, so that the prompt starts on a new line.
    pub fn raw(self, bytes: &[u8]) {
        print_all(bytes);
        if io::stdout().is_terminal() && bytes.last() != Some(&b'\n') {
            print_all(b"\n");
        }
    }

    /// Reports a failure. People read it on standard error. Programs get a document, unless the command has printed its
    /// own. The exit status of a server tells the failure even if its text is not read.
    pub fn failure(self, failure: &Failure) {
        let document = json!({ "error": failure });
        match self.json && !document::is_printed() {
            true if announce::is_server() => announce::announce(to_document(&document)),
            true => print_failure(&to_document(&document), failure),
            false => note_failure(failure),
        }
    }

    /// Prints the failure of one command among several, on its own line.
    pub fn complain(self, failure: &Failure) {
        match self.json {
            true => print_failure(&document::line_of(&json!({ "error": failure })), failure),
            false => note_failure(failure),
        }
    }
}

/// Writes to standard output. A reader that went away (`trine ... | head`) ends the process quietly, as it would end
/// any other tool. Any other write error is a failure, because the user would otherwise believe that a value was saved
/// in a file.
pub fn print_all(bytes: &[u8]) {
    match write_all(bytes) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            let failure = unwritten(&error);
            note(&failure);
            std::process::exit(failure.exit_status().into());
        }
    }
}

/// Prints the document of a failure. Whatever becomes of it, the failure is no success: where nobody reads it, the process
/// ends with the failure's own status.
fn print_failure(document: &str, failure: &Failure) {
    // Ctrl-C does not wait for a reader that has stopped.
    if failure.is_interrupted() && !has_room_within(Duration::ZERO) {
        note(failure);
        std::process::exit(failure.exit_status().into());
    }
    let Err(error) = write_all(document.as_bytes()) else {
        return;
    };
    // A reader that went away wanted no more. Any other one has to learn it elsewhere.
    if error.kind() != io::ErrorKind::BrokenPipe {
        note(failure);
    }
    std::process::exit(failure.exit_status().into());
}

/// An output of which not all could be written.
pub fn unwritten(error: &io::Error) -> Failure {
    Failure::usage(
        format!("cannot write the output: {error}"),
        "the output is incomplete; free some space, or write elsewhere",
    )
}

/// Whether standard output takes something without a wait by then. True where that cannot be known: the write says why.
pub fn has_room_within(limit: Duration) -> bool {
    let limit = Timespec::try_from(limit).expect("a limit is short");
    let stdout = io::stdout();
    let mut room = [PollFd::new(&stdout, PollFlags::OUT)];
    !matches!(poll(&mut room, Some(&limit)), Ok(0) | Err(Errno::INTR))
}

/// Writes to standard output, for callers that have to say themselves what an error means.
///
/// # Errors
/// Not all of it could be written.
pub fn write_all(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}

/// Inserts bytes into a JSON object: as `name` when they are text, as `name_base64` otherwise.
pub fn insert_bytes(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match text_or_base64(bytes) {
        Ok(text) => object.insert(name.to_owned(), text.into()),
        Err(base64) => object.insert(format!("{name}_base64"), base64.into()),
    };
}

/// Bytes as JSON has them: the text that they are.
///
/// # Errors
/// They are none, and this is their base64.
pub fn text_or_base64(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|_| STANDARD.encode(bytes))
}

/// A table in plain text. The first column is left-aligned, the others are right-aligned.
#[derive(Clone, Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with this header and no rows.
    pub fn new<const N: usize>(header: [&str; N]) -> Self {
        Self {
            rows: vec![header.map(str::to_owned).to_vec()],
        }
    }

    /// Adds a row with as many cells as the header has.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        debug_assert_eq!(cells.len(), self.rows[0].len());
        self.rows.push(cells.to_vec());
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let columns = self.rows[0].len();
        let width = |column: usize| {
            self.rows
                .iter()
                .map(|row| row[column].chars().count())
                .max()
        };
        let widths: Vec<usize> = (0..columns)
            .map(|column| width(column).unwrap_or(0))
            .collect();
        for (number, row) in self.rows.iter().enumerate() {
            if number > 0 {
                writeln!(f)?;
            }
            write!(f, "  {:<width$}", row[0], width = widths[0])?;
            for (cell, width) in row.iter().zip(&widths).skip(1) {
                write!(f, "  {cell:>width$}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(["name", "n"]);
        table.row(["x".into(), "1,000".into()]);
        assert_eq!(table.to_string(), "  name      n\n  x     1,000");
    }

    #[test]
    fn bytes_that_are_no_text_become_base64() {
        let mut object = Map::new();
        insert_bytes(&mut object, "key", b"plain");
        insert_bytes(&mut object, "value", &[0xff, 0]);
        assert_eq!(
            Value::Object(object),
            json!({ "key": "plain", "value_base64": "/wA=" })
        );
    }
}
