//! How do commands print: plain text for people, one JSON document for programs. What servers say is in
//! [`crate::announce`].

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::ValueEnum;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::announce::{self, note};
use crate::document::{self, to_document};
use crate::failure::Failure;

/// How answers look.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputForm {
    /// For people.
    Table,
    /// For programs: one JSON document.
    Json,
}

/// Where a command prints to, and in which form.
#[derive(Copy, Clone, Debug)]
pub struct Output {
    /// Whether programs read it.
    pub json: bool,
}

impl Output {
    /// A line for people; nothing in JSON form.
    pub fn line(self, text: impl Display) {
        if !self.json {
            print_all(format!("{text}\n").as_bytes());
        }
    }

    /// The command's answer for programs; nothing in text form. Called once by each command.
    pub fn document(self, document: &impl Serialize) {
        if self.json {
            print_all(to_document(document).as_bytes());
        }
    }

    /// What was done to a key, for programs.
    pub fn done<const N: usize>(self, key: &[u8], facts: [(&str, Value); N]) {
        let mut document = Map::new();
        insert_bytes(&mut document, "key", key);
        self.document_with(document, facts);
    }

    /// A key's value: raw, or in a document that has these facts beside it.
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

    /// One event for programs, on a line of its own; nothing in text form.
    pub fn json_line(self, event: &Value) {
        if self.json {
            print_all(format!("{event}\n").as_bytes());
        }
    }

    /// Raw bytes, exactly as they are. At a terminal a line end follows, for the prompt's sake.
    pub fn raw(self, bytes: &[u8]) {
        print_all(bytes);
        if io::stdout().is_terminal() && bytes.last() != Some(&b'\n') {
            print_all(b"\n");
        }
    }

    /// A failure: to standard error for people; for programs the document that says so, unless the
    /// command has printed its own. The exit status of a server says which failure it was, whoever reads this.
    pub fn failure(self, failure: &Failure) {
        let document = json!({ "error": failure });
        match self.json && !document::is_printed() {
            true if announce::is_server() => announce::announce(to_document(&document)),
            true => self.document(&document),
            false => note(failure),
        }
    }

    /// The failure of one command among others: a line for itself.
    pub fn complain(self, failure: &Failure) {
        match self.json {
            true => self.json_line(&json!({ "error": failure })),
            false => note(failure),
        }
    }
}

/// Writes to standard output; a reader that went away (`trine ... | head`) ends the process
/// quietly, as it would end any other tool. What cannot be written for another reason is no success: a value on its way
/// into a file would be taken for saved.
pub fn print_all(bytes: &[u8]) {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            let cure = "what was written so far is not all of it; make room, or write elsewhere";
            let failure = Failure::usage(format!("cannot write the output: {error}"), cure);
            note(&failure);
            std::process::exit(failure.exit_status().into());
        }
    }
}

/// Puts bytes into a JSON object: as `name` when they are text, as `name_base64` otherwise.
pub fn insert_bytes(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(name.to_owned(), text.into()),
        Err(_) => object.insert(format!("{name}_base64"), STANDARD.encode(bytes).into()),
    };
}

/// A table in plain text: the first column to the left, the others to the right.
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

    /// Adds a row, of as many cells as the header has.
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
