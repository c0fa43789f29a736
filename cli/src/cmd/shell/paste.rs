//! Text that is pasted at the prompt. A line end in it ends a command, unless it is in quotes; what follows the last one
//! stays in the editor.
//!
//! A terminal brackets what is pasted. It is read as a whole before its first command runs: while one runs, the terminal
//! itself reads lines, and it keeps no more than 4,095 bytes of a line.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustyline::{Cmd, ConditionalEventHandler, Event, EventContext, KeyCode, KeyEvent, Modifiers};
use trine_base::words::Splitter;

use crate::config::SHELL_LINE_BYTES_MAX;

/// Reads what is pasted, for the editor; and hands it to the shell.
#[derive(Clone, Default)]
pub(super) struct Pastes(Arc<Mutex<PasteState>>);

#[derive(Default)]
struct PasteState {
    /// While a text arrives.
    arriving: Option<Arriving>,
    /// The text after the command that the editor shows, and where it belongs in the editor's line.
    rest: Option<(usize, Result<String, TooLong>)>,
}

/// What the user has entered: commands to execute, and what stays in the editor, left and right of the cursor.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Entered {
    pub(super) commands: Vec<String>,
    pub(super) left: String,
    pub(super) right: String,
}

/// More was pasted than a command can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLong;

impl Pastes {
    /// Adds what was pasted to the line that the editor has read.
    pub(super) fn entered(&self, line: String) -> Result<Entered, TooLong> {
        let Some((at, rest)) = self.state().rest.take() else {
            let commands = vec![line];
            return Ok(Entered {
                commands,
                ..Entered::default()
            });
        };
        let (first, right) = line.split_at(at);
        let (commands, left) = commands(&format!("{first}\n{}", rest?));
        let right = right.to_owned();
        Ok(Entered {
            commands,
            left,
            right,
        })
    }

    fn state(&self) -> MutexGuard<'_, PasteState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The commands that a line end completes, and the text after the last of them.
fn commands(text: &str) -> (Vec<String>, String) {
    let (mut commands, mut begun) = (Vec::new(), 0);
    let mut splitter = Splitter::default();
    for (at, byte) in text.bytes().enumerate() {
        if splitter.push(byte) {
            commands.push(text[begun..at].to_owned());
            (splitter, begun) = (Splitter::default(), at + 1);
        }
    }
    (commands, text[begun..].to_owned())
}

impl ConditionalEventHandler for Pastes {
    /// The characters of a pasted text stand for themselves and do nothing else: a tab completes no word.
    fn handle(&self, event: &Event, _: u16, _: bool, context: &EventContext<'_>) -> Option<Cmd> {
        let Event::KeySeq(keys) = event else {
            return None;
        };
        let &[KeyEvent(code, modifiers)] = keys.as_slice() else {
            return None;
        };
        self.state()
            .key(code, modifiers, &context.line()[..context.pos()])
    }
}

impl PasteState {
    /// Takes a key, with the line up to the cursor; returns what the editor is to do if that is not what the key says.
    fn key(&mut self, code: KeyCode, modifiers: Modifiers, line: &str) -> Option<Cmd> {
        let Some(arriving) = &mut self.arriving else {
            return (code == KeyCode::BracketedPasteStart).then(|| {
                self.arriving = Some(Arriving::after(line));
                Cmd::Noop
            });
        };
        Some(match (code, modifiers) {
            (KeyCode::BracketedPasteEnd, _) => {
                let arrived = self.arriving.take().expect("it was arriving");
                self.arrived(arrived, line.len())
            }
            // A terminal that does not say where the text ends would keep the user for ever.
            (KeyCode::Char('C'), Modifiers::CTRL) => {
                self.arriving = None;
                Cmd::Interrupt
            }
            (KeyCode::Enter, _) => arriving.line_end(b'\r'),
            (KeyCode::Char('J'), Modifiers::CTRL) => arriving.line_end(b'\n'),
            (KeyCode::Tab, _) => arriving.push('\t'),
            (KeyCode::Char(c), Modifiers::NONE) => arriving.push(c),
            _ => Cmd::Noop,
        })
    }

    /// A text that completes no command is inserted, as if it were typed. Else the line is entered, and the rest with it.
    fn arrived(&mut self, arrived: Arriving, at: usize) -> Cmd {
        let text = match arrived.text.len() as u64 > SHELL_LINE_BYTES_MAX {
            true => Err(TooLong),
            false => Ok(arrived.text),
        };
        match (arrived.has_command, text) {
            (false, Ok(text)) if text.is_empty() => Cmd::Noop,
            (false, Ok(text)) => Cmd::Insert(1, text),
            (_, text) => {
                self.rest = Some((at, text));
                Cmd::AcceptLine
            }
        }
    }
}

/// A text that is being pasted.
struct Arriving {
    /// Finds the end of the first command, to which the line before the cursor belongs.
    splitter: Splitter,
    /// The editor has the first command.
    has_command: bool,
    /// The text, without the first command if the editor has it. One byte too many says that there were more.
    text: String,
    last: u8,
}

impl Arriving {
    fn after(line: &str) -> Self {
        let mut splitter = Splitter::default();
        for byte in line.bytes() {
            splitter.push(byte);
        }
        Self {
            splitter,
            has_command: false,
            text: String::new(),
            last: 0,
        }
    }

    /// `\r`, `\n` and `\r\n` are one line end.
    fn line_end(&mut self, byte: u8) -> Cmd {
        let before = self.last;
        if (before, byte) == (b'\r', b'\n') {
            self.last = byte;
            return Cmd::Noop;
        }
        let done = self.push('\n');
        self.last = byte;
        done
    }

    fn push(&mut self, c: char) -> Cmd {
        self.last = 0;
        if self.text.len() as u64 > SHELL_LINE_BYTES_MAX {
            return Cmd::Noop;
        }
        let mut ended = false;
        if !self.has_command {
            for &byte in c.encode_utf8(&mut [0; 4]).as_bytes() {
                ended |= self.splitter.push(byte);
            }
        }
        if ended {
            self.has_command = true;
            return match std::mem::take(&mut self.text) {
                first if first.is_empty() => Cmd::Noop,
                first => Cmd::Insert(1, first),
            };
        }
        self.text.push(c);
        Cmd::Noop
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pastes a text into a line with the cursor at `|`; returns what the editor inserts, and what is entered if anything is.
    fn paste(line: &str, text: &str) -> (String, Option<Result<Entered, TooLong>>) {
        let (left, right) = line.split_once('|').expect("a cursor");
        let (mut left, mut inserted) = (left.to_owned(), String::new());
        let pastes = Pastes::default();
        let none = Modifiers::NONE;
        let start = (KeyCode::BracketedPasteStart, none);
        let end = (KeyCode::BracketedPasteEnd, none);
        let of_text = text.chars().map(|c| {
            let KeyEvent(code, modifiers) = KeyEvent::from(c);
            (code, modifiers)
        });
        let mut done = None;
        for (code, modifiers) in [start].into_iter().chain(of_text).chain([end]) {
            let told = pastes.state().key(code, modifiers, &left);
            match told.expect("a key of a paste is the paste's") {
                Cmd::Noop => {}
                Cmd::Insert(1, text) => {
                    inserted += &text;
                    left += &text;
                }
                Cmd::AcceptLine => done = Some(pastes.entered(format!("{left}{right}"))),
                Cmd::Interrupt => return (inserted, None),
                other => panic!("{other:?}"),
            }
        }
        // Keys that follow are the editor's again.
        let after = pastes.state().key(KeyCode::Tab, none, "");
        assert_eq!(after, None);
        (inserted, done)
    }

    fn entered(commands: &[&str], left: &str, right: &str) -> Option<Result<Entered, TooLong>> {
        Some(Ok(Entered {
            commands: commands.iter().map(|&command| command.to_owned()).collect(),
            left: left.to_owned(),
            right: right.to_owned(),
        }))
    }

    #[test]
    fn each_line_is_a_command_and_the_last_one_stays() {
        for end in ["\n", "\r", "\r\n"] {
            let text = format!("del a{end}{end}put b\t1{end}del c");
            let (shown, got) = paste("|", &text);
            assert_eq!(shown, "del a");
            assert_eq!(got, entered(&["del a", "", "put b\t1"], "del c", ""));
        }
        let (_, got) = paste("|", "del a\ndel b\n");
        assert_eq!(got, entered(&["del a", "del b"], "", ""));
        // In the middle of a line.
        let (shown, got) = paste("put a |x", "1\nput b ");
        assert_eq!(
            (shown.as_str(), got),
            ("1", entered(&["put a 1"], "put b ", "x"))
        );
        // A text without a line end is typed text.
        assert_eq!(paste("get |", "a\tb"), ("a\tb".to_owned(), None));
    }

    #[test]
    fn a_line_end_in_quotes_belongs_to_the_word() {
        let (_, got) = paste("|", "put a 'x\ny'\nget a\nput b 'z\n");
        assert_eq!(got, entered(&["put a 'x\ny'", "get a"], "put b 'z\n", ""));
        // Also where the quote was typed.
        assert_eq!(paste("put a '|", "x\ny"), ("x\ny".to_owned(), None));
        let (_, got) = paste("put a '|", "x\ny'\nget a");
        assert_eq!(got, entered(&["put a 'x\ny'"], "get a", ""));
    }

    #[test]
    fn more_than_a_command_can_have_is_not_entered_and_ctrl_c_ends_a_paste_without_an_end() {
        let long = "x".repeat(SHELL_LINE_BYTES_MAX as usize);
        let (_, got) = paste("|", &format!("del a\n{long}y"));
        assert_eq!(got, Some(Err(TooLong)));
        assert_eq!(paste("|", &format!("{long}y")).1, Some(Err(TooLong)));
        let (_, got) = paste("|", &format!("del a\n{long}"));
        assert_eq!(got, entered(&["del a"], &long, ""));
        assert_eq!(paste("|", "del a\ndel b\n\u{3}").1, None);
    }
}
