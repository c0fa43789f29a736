//! The text form of a history: a header line, then one JSON object a line, an operation each.
//!
//! The form is canonical: equal histories give equal bytes, so a hash of the text is a hash of the
//! run. Keys and values are text if they are printable ASCII, else `0x` and hexadecimal digits.

use super::{Action, Answer, History, Operation, Outcome};
use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;
use std::hash::{Hash, Hasher};

/// Version of the text form, told in its first line.
pub const VERSION: u32 = 1;

/// Why a text is not a history.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// The first line does not name a history of trine.
    #[error("the first line is not a history header; expected {{\"trine_history\":{VERSION}}}")]
    NoHeader,
    /// The text was written by another version of this program.
    #[error(
        "history of version {found}, this program reads version {VERSION}: record it again or use the version that wrote it"
    )]
    OtherVersion {
        /// The version that the header names.
        found: u32,
    },
    /// A line is not an operation.
    #[error("line {line} is not an operation: {cause}")]
    BadLine {
        /// Line number, from one.
        line: usize,
        /// The reason why it is refused.
        cause: String,
    },
}

#[derive(Serialize, Deserialize)]
struct Header {
    trine_history: u32,
}

/// One line. Absent fields are left out, which keeps long histories readable.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    client: u64,
    call: u64,
    #[serde(rename = "return", skip_serializing_if = "Option::is_none")]
    returned: Option<u64>,
    op: Op,
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<u64>,
    result: Outcomes,
    #[serde(skip_serializing_if = "Option::is_none")]
    read: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    existed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<u64>,
}

#[derive(Copy, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Op {
    Get,
    Put,
    PutFor,
    Delete,
    Flush,
    Cas,
    Incr,
}

#[derive(Copy, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Outcomes {
    Value,
    NotFound,
    Written,
    Deleted,
    RangeDeleted,
    Flushed,
    Mismatch,
    Number,
    Refused,
    Unknown,
    Failed,
}

impl History {
    /// The text form.
    pub fn to_text(&self) -> String {
        let mut text = to_json(&Header {
            trine_history: VERSION,
        });
        for operation in self.operations() {
            text.push('\n');
            text.push_str(&to_json(&Line::from(operation)));
        }
        text.push('\n');
        text
    }

    /// Reads the text form.
    pub fn from_text(text: &str) -> Result<Self, HistoryError> {
        let mut lines = text.lines().enumerate();
        let header = lines.next().ok_or(HistoryError::NoHeader)?.1;
        let header: Header = serde_json::from_str(header).map_err(|_| HistoryError::NoHeader)?;
        if header.trine_history != VERSION {
            return Err(HistoryError::OtherVersion {
                found: header.trine_history,
            });
        }
        let mut operations = Vec::new();
        for (number, line) in lines {
            operations.push(parse_line(line).map_err(|cause| HistoryError::BadLine {
                line: number + 1,
                cause,
            })?);
        }
        Ok(Self::from_operations(operations))
    }

    /// A hash over everything recorded: two runs with the same one were the same, byte for byte.
    pub fn hash(&self) -> u64 {
        let mut hasher = SipHasher13::new();
        self.operations.hash(&mut hasher);
        hasher.finish()
    }
}

fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain structs of numbers and strings always serialize")
}

fn parse_line(line: &str) -> Result<Operation, String> {
    let line: Line = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let outcome = line.outcome()?;
    if matches!(outcome, Outcome::Unknown) != line.returned.is_none() {
        return Err("`return` must be absent exactly if the result is unknown".into());
    }
    if line.returned.is_some_and(|returned| returned < line.call) {
        return Err("the operation returns before its call".into());
    }
    Ok(Operation {
        client: line.client,
        call_ns: line.call,
        return_ns: line.returned,
        key: from_text(&line.key)?,
        action: line.action()?,
        outcome,
        position: line.position,
    })
}

impl Line {
    fn action(&self) -> Result<Action, String> {
        let value = || from_text(self.value.as_ref().ok_or("`value` is missing")?);
        Ok(match self.op {
            Op::Get => Action::Get,
            Op::Put => Action::Put { value: value()? },
            Op::PutFor => Action::PutFor {
                value: value()?,
                ttl_ns: self.ttl.ok_or("`ttl` is missing")?,
            },
            Op::Delete => Action::Delete,
            Op::Flush => Action::Flush,
            Op::Cas => Action::Cas {
                expected: self.expected,
                value: value()?,
            },
            Op::Incr => Action::Incr {
                by: self.by.ok_or("`by` is missing")?,
            },
        })
    }

    fn outcome(&self) -> Result<Outcome, String> {
        let version = self.version;
        Ok(Outcome::Known(match self.result {
            Outcomes::Unknown => return Ok(Outcome::Unknown),
            Outcomes::Failed => return Ok(Outcome::Failed),
            Outcomes::Value => Answer::Value {
                value: from_text(self.read.as_ref().ok_or("`read` is missing")?)?,
                version,
            },
            Outcomes::NotFound => Answer::NotFound,
            Outcomes::Written => Answer::Written { version },
            Outcomes::Deleted => Answer::Deleted {
                existed: self.existed.ok_or("`existed` is missing")?,
            },
            Outcomes::RangeDeleted => Answer::RangeDeleted,
            Outcomes::Flushed => Answer::Flushed,
            Outcomes::Mismatch => Answer::Mismatch { version },
            Outcomes::Number => Answer::Number {
                value: self.number.ok_or("`number` is missing")?,
                version,
            },
            Outcomes::Refused => Answer::Refused,
        }))
    }
}

impl From<&Operation> for Line {
    fn from(operation: &Operation) -> Self {
        let mut line = Line {
            client: operation.client,
            call: operation.call_ns,
            returned: operation.return_ns,
            op: Op::Get,
            key: to_text(&operation.key),
            value: operation.action.written_value().map(to_text),
            expected: None,
            by: None,
            ttl: None,
            result: Outcomes::Unknown,
            read: None,
            number: None,
            existed: None,
            version: None,
            position: operation.position,
        };
        line.op = match &operation.action {
            Action::Get => Op::Get,
            Action::Put { .. } => Op::Put,
            Action::PutFor { ttl_ns, .. } => {
                line.ttl = Some(*ttl_ns);
                Op::PutFor
            }
            Action::Delete => Op::Delete,
            Action::Flush => Op::Flush,
            Action::Cas { expected, .. } => {
                line.expected = *expected;
                Op::Cas
            }
            Action::Incr { by } => {
                line.by = Some(*by);
                Op::Incr
            }
        };
        line.set_outcome(&operation.outcome);
        line
    }
}

impl Line {
    fn set_outcome(&mut self, outcome: &Outcome) {
        let answer = match outcome {
            Outcome::Known(answer) => answer,
            Outcome::Unknown => return self.result = Outcomes::Unknown,
            Outcome::Failed => return self.result = Outcomes::Failed,
        };
        self.result = match answer {
            Answer::Value { value, version } => {
                self.read = Some(to_text(value));
                self.version = *version;
                Outcomes::Value
            }
            Answer::NotFound => Outcomes::NotFound,
            Answer::Written { version } => {
                self.version = *version;
                Outcomes::Written
            }
            Answer::Deleted { existed } => {
                self.existed = Some(*existed);
                Outcomes::Deleted
            }
            Answer::RangeDeleted => Outcomes::RangeDeleted,
            Answer::Flushed => Outcomes::Flushed,
            Answer::Mismatch { version } => {
                self.version = *version;
                Outcomes::Mismatch
            }
            Answer::Number { value, version } => {
                self.number = Some(*value);
                self.version = *version;
                Outcomes::Number
            }
            Answer::Refused => Outcomes::Refused,
        };
    }
}

/// Printable form of bytes, as in the text form of a history.
pub(crate) fn to_text(bytes: &[u8]) -> String {
    let printable = bytes.iter().all(|byte| (b' '..=b'~').contains(byte));
    if printable && !bytes.starts_with(b"0x") {
        return bytes.iter().map(|&byte| char::from(byte)).collect();
    }
    let mut text = String::from("0x");
    for byte in bytes {
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

fn from_text(text: &str) -> Result<Vec<u8>, String> {
    let Some(digits) = text.strip_prefix("0x") else {
        return Ok(text.as_bytes().to_vec());
    };
    let not_pairs = || format!("`{text}` is not pairs of hexadecimal digits");
    // A sign would be taken for part of a number.
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) || digits.len() % 2 != 0 {
        return Err(not_pairs());
    }
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).map_err(|_| not_pairs()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_kinds() -> History {
        let mut history = History::new();
        let ends = [
            (
                Action::Put {
                    value: b"plain".to_vec(),
                },
                Answer::Written {
                    version: Some(1 << 16),
                },
            ),
            (
                Action::Get,
                Answer::Value {
                    value: vec![0, 255],
                    version: Some(1 << 16),
                },
            ),
            (Action::Get, Answer::NotFound),
            (
                Action::PutFor {
                    value: b"short".to_vec(),
                    ttl_ns: 1_000_000,
                },
                Answer::Written {
                    version: Some(2 << 16),
                },
            ),
            (Action::Delete, Answer::Deleted { existed: true }),
            (Action::Delete, Answer::RangeDeleted),
            (Action::Flush, Answer::Flushed),
            (
                Action::Cas {
                    expected: Some(7),
                    value: b"0xtricky".to_vec(),
                },
                Answer::Mismatch { version: None },
            ),
            (
                Action::Cas {
                    expected: None,
                    value: b"".to_vec(),
                },
                Answer::Written { version: None },
            ),
            (
                Action::Incr { by: -3 },
                Answer::Number {
                    value: i64::MIN,
                    version: Some(9),
                },
            ),
            (Action::Incr { by: 1 }, Answer::Refused),
        ];
        for (number, (action, answer)) in ends.into_iter().enumerate() {
            let index = history.call(3, number as u64 * 10, b"key \"quoted\"", action);
            history.complete(index, number as u64 * 10 + 5, answer, Some(number as u64));
        }
        let failed = history.call(4, 200, &[7], Action::Get);
        history.fail(failed, 201);
        history.call(4, 202, &[7], Action::Delete);
        history
    }

    #[test]
    fn a_history_survives_its_text_form() {
        let history = all_kinds();
        let text = history.to_text();
        let back = History::from_text(&text).unwrap();
        assert_eq!(back.operations(), history.operations());
        assert_eq!(back.hash(), history.hash());
    }

    #[test]
    fn the_text_form_is_fixed() {
        let mut history = History::new();
        let index = history.call(
            1,
            10,
            b"k",
            Action::Put {
                value: b"v".to_vec(),
            },
        );
        history.complete(
            index,
            20,
            Answer::Written {
                version: Some(65536),
            },
            Some(65536),
        );
        let expected = concat!(
            "{\"trine_history\":1}\n",
            "{\"client\":1,\"call\":10,\"return\":20,\"op\":\"put\",\"key\":\"k\",\"value\":\"v\",",
            "\"result\":\"written\",\"version\":65536,\"position\":65536}\n",
        );
        assert_eq!(history.to_text(), expected);
    }

    #[test]
    fn one_changed_nanosecond_changes_the_hash() {
        let mut one = History::new();
        one.call(1, 10, b"k", Action::Get);
        let mut two = History::new();
        two.call(1, 11, b"k", Action::Get);
        assert_ne!(one.hash(), two.hash());
    }

    #[test]
    fn what_is_not_a_history_is_refused_with_its_cause() {
        assert_eq!(History::from_text(""), Err(HistoryError::NoHeader));
        assert_eq!(History::from_text("hello"), Err(HistoryError::NoHeader));
        assert_eq!(
            History::from_text("{\"trine_history\":9}"),
            Err(HistoryError::OtherVersion { found: 9 })
        );
        let lines = [
            "{}",
            r#"{"client":1,"call":1,"op":"put","key":"k","result":"unknown"}"#,
            r#"{"client":1,"call":1,"op":"get","key":"k","result":"not_found"}"#,
            r#"{"client":1,"call":5,"return":2,"op":"get","key":"k","result":"not_found"}"#,
            r#"{"client":1,"call":1,"return":2,"op":"get","key":"0xq","result":"not_found"}"#,
            r#"{"client":1,"call":1,"return":2,"op":"get","key":"0x+f","result":"not_found"}"#,
            r#"{"client":1,"call":1,"return":2,"op":"get","key":"k","result":"value"}"#,
            r#"{"client":1,"call":1,"return":2,"op":"fly","key":"k","result":"value"}"#,
        ];
        for line in lines {
            let text = format!("{{\"trine_history\":1}}\n{line}\n");
            let error = History::from_text(&text).unwrap_err();
            assert!(
                matches!(error, HistoryError::BadLine { line: 2, .. }),
                "{line}: {error}"
            );
        }
    }
}
