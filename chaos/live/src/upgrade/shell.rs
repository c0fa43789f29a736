//! A client of the old program: its shell, which is given a command and answers with a JSON document in a line.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use serde_json::Value;
use trine_chaos::history::{Action, Answer};
use trine_chaos::workload::Request;
use trine_local::own_command;

/// A longer line is no answer.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;
/// A shell gives its command up before.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// Lines of a shell that wait to be read; further ones wait in its pipe.
const LINES_WAITING: usize = 4;
/// So much is told of what followed something that is no answer, and so long it is waited for.
const REST_LINES_MAX: usize = 8;
const REST_LIMIT: Duration = Duration::from_millis(200);

/// A shell that waits for its next command. It ends when this is dropped.
pub(super) struct Shell {
    child: Child,
    /// Nothing after an answer that was none.
    commands: Option<ChildStdin>,
    answers: Receiver<std::io::Result<String>>,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum End {
    /// With the store's answer, and the position of a write.
    Answered(Answer, Option<u64>),
    /// Without an effect: no replica could do it.
    Failed,
    /// Perhaps with an effect.
    Unknown,
    /// With something that no release says to such a command. The effect is not known either.
    Foreign(String),
}

impl Shell {
    pub(super) fn start(program: &Path, words: &[OsString]) -> std::io::Result<Self> {
        let mut child = own_command(program)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let closed = || std::io::Error::other("a pipe of the shell is missing");
        let commands = child.stdin.take().ok_or_else(closed)?;
        let stdout = child.stdout.take().ok_or_else(closed)?;
        // A shell that says nothing must not hold the run up, so that a thread waits for it. It ends with the shell's output.
        let (sender, answers) = sync_channel(LINES_WAITING);
        std::thread::Builder::new()
            .name("old client's answers".into())
            .spawn(move || read_lines(stdout, &sender))?;
        Ok(Self {
            child,
            commands: Some(commands),
            answers,
        })
    }

    /// Executes a request, and waits for its end.
    pub(super) fn execute(&mut self, request: &Request) -> End {
        let line = line_of(request);
        if let Some(commands) = &mut self.commands {
            // A shell that has ended takes no command, and its missing answer says so.
            let _ = commands.write_all(line.as_bytes());
        }
        match self.answers.recv_timeout(ANSWER_LIMIT) {
            Ok(Ok(answer)) => end_of(&request.action, &answer).unwrap_or_else(|| {
                let said = answer + &self.rest();
                let said: Vec<&str> = said.split_whitespace().collect();
                End::Foreign(format!("to `{}` it said: {}", line.trim(), said.join(" ")))
            }),
            Ok(Err(error)) => End::Foreign(format!("its answer cannot be read: {error}")),
            Err(RecvTimeoutError::Timeout) => End::Foreign(format!(
                "to `{}` it said nothing for {ANSWER_LIMIT:?}",
                line.trim()
            )),
            Err(RecvTimeoutError::Disconnected) => {
                End::Foreign("the shell ended without an answer".to_owned())
            }
        }
    }

    /// Ends the shell, and returns what it had printed.
    fn rest(&mut self) -> String {
        self.commands = None;
        let _ = self.child.kill();
        let mut rest = String::new();
        for _ in 0..REST_LINES_MAX {
            // What cannot be read explains nothing.
            match self.answers.recv_timeout(REST_LIMIT) {
                Ok(Ok(line)) => rest.push_str(&line),
                _ => break,
            }
        }
        rest
    }
}

/// Passes lines on until there are no more, or nobody takes them.
fn read_lines(output: ChildStdout, lines: &SyncSender<std::io::Result<String>>) {
    let mut output = BufReader::new(output);
    loop {
        let mut line = String::new();
        let read = (&mut output).take(ANSWER_BYTES_MAX).read_line(&mut line);
        let is_last = !matches!(read, Ok(1..));
        let passed = match read {
            Ok(0) => return,
            Ok(_) => lines.send(Ok(line)),
            Err(error) => lines.send(Err(error)),
        };
        if is_last || passed.is_err() {
            return;
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // It may have ended already. Nothing is done here that a kill could undo.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The request in the words of the shell. Keys and values of workloads are plain words.
fn line_of(Request { key, action }: &Request) -> String {
    let key = String::from_utf8_lossy(key);
    match action {
        Action::Get => format!("get {key}\n"),
        Action::Put { value } => format!("put {key} {}\n", String::from_utf8_lossy(value)),
        Action::Incr { by } => format!("incr {key} {by}\n"),
        other => unreachable!("no such action is drawn: {other:?}"),
    }
}

/// The meaning of the line that answers an action, if it is an answer to that.
fn end_of(action: &Action, line: &str) -> Option<End> {
    let document: Value = serde_json::from_str(line).ok()?;
    if let Some(error) = document.get("error") {
        return end_of_failure(action, error);
    }
    let version = document["version"].as_u64();
    let text = document["value"].as_str();
    let number = document["number"].as_i64();
    match (action, version, text, number) {
        (Action::Get, Some(_), Some(text), _) => {
            let value = text.as_bytes().to_vec();
            Some(End::Answered(Answer::Value { value, version }, None))
        }
        (Action::Put { .. }, Some(_), ..) => {
            Some(End::Answered(Answer::Written { version }, version))
        }
        (Action::Incr { .. }, Some(_), _, Some(value)) => {
            Some(End::Answered(Answer::Number { value, version }, version))
        }
        _ => None,
    }
}

fn end_of_failure(action: &Action, error: &Value) -> Option<End> {
    let message = error["message"].as_str()?;
    match error["kind"].as_str()? {
        "negative" if action.is_read() && message.contains("no such key") => {
            Some(End::Answered(Answer::NotFound, None))
        }
        "not_reachable" => Some(End::Failed),
        "outcome_unknown" => Some(End::Unknown),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: Action = Action::Get;
    const INCR: Action = Action::Incr { by: 1 };

    fn put() -> Action {
        let value = b"1.1.a".to_vec();
        Action::Put { value }
    }

    #[test]
    fn answers_are_what_the_store_said() {
        let version = Some(65_536);
        let value = Answer::Value {
            value: b"1.1.a".to_vec(),
            version,
        };
        let number = Answer::Number { value: -3, version };
        for (action, line, end) in [
            (
                put(),
                r#"{"version":65536}"#,
                End::Answered(Answer::Written { version }, version),
            ),
            (
                GET,
                r#"{"value":"1.1.a","version":65536}"#,
                End::Answered(value, None),
            ),
            (
                INCR,
                r#"{"number":-3,"version":65536}"#,
                End::Answered(number, version),
            ),
            (
                GET,
                r#"{"error":{"kind":"negative","message":"line 4: no such key: r1"}}"#,
                End::Answered(Answer::NotFound, None),
            ),
            (
                INCR,
                r#"{"error":{"kind":"not_reachable","message":"line 4"}}"#,
                End::Failed,
            ),
            (
                put(),
                r#"{"error":{"kind":"outcome_unknown","message":"line 4"}}"#,
                End::Unknown,
            ),
        ] {
            assert_eq!(end_of(&action, line), Some(end), "{line}");
        }
    }

    #[test]
    fn anything_else_is_no_answer() {
        for (action, line) in [
            (put(), ""),
            (put(), "ok"),
            (put(), "{}"),
            (INCR, r#"{"version":65536}"#),
            (INCR, r#"{"number":1}"#),
            (GET, r#"{"number":1,"version":65536}"#),
            (
                put(),
                r#"{"error":{"kind":"negative","message":"no such key: r1"}}"#,
            ),
            (GET, r#"{"error":{"kind":"negative","message":"denied"}}"#),
            (INCR, r#"{"error":{"kind":"usage","message":"line 1"}}"#),
            (INCR, r#"{"error":{}}"#),
        ] {
            assert_eq!(end_of(&action, line), None, "{line}");
        }
    }
}
