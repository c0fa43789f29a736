//! A line of an export: one key with its value and expiry, as a JSON object.
//!
//! ```text
//! {"key":"greeting","value":"hello","version":458752}
//! {"key_base64":"/wA=","value":"","version":458753,"expires_in_ms":1500,"expires_at":"2026-01-02T03:04:05.678Z"}
//! ```

use std::fmt;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::error::Category;
use serde_json::{Map, Value};
use trine_base::output::text_or_base64;
use trine_kvstore::config::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use trine_kvstore::{Command, Entry, SetExpiry, SetOptions};

const NS_PER_MS: u64 = 1_000_000;
const FIELDS: [&str; 7] = [
    "key",
    "key_base64",
    "value",
    "value_base64",
    "version",
    "expires_in_ms",
    "expires_at",
];

/// What an import writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImportRecord {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) expiry: Expiry,
}

/// When the key is to expire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    Never,
    /// After this time, counted from the import.
    After(Duration),
    At(SystemTime),
}

/// The fields in the order in which they are written.
#[derive(Serialize)]
struct RecordLine<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_base64: Option<&'a str>,
    version: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_in_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
}

/// The line of an item, without its end. `now` is the time to which the time to live is added.
pub(crate) fn line(entry: &Entry<'_>, now: SystemTime) -> String {
    let (key, value) = (text_or_base64(entry.key), text_or_base64(entry.value));
    let left_ms = entry.remaining_ns.map(|ns| ns.div_ceil(NS_PER_MS));
    // A moment beyond the calendar of RFC 3339 is left out; then the time to live says it.
    let at = left_ms.and_then(|left| now.checked_add(Duration::from_millis(left)));
    let line = RecordLine {
        key: key.as_deref().ok(),
        key_base64: key.as_ref().err().map(String::as_str),
        value: value.as_deref().ok(),
        value_base64: value.as_ref().err().map(String::as_str),
        version: entry.version.as_u64(),
        expires_in_ms: left_ms,
        expires_at: at
            .filter(|&at| has_a_date(at))
            .map(|at| humantime::format_rfc3339_millis(at).to_string()),
    };
    serde_json::to_string(&line).expect("texts and numbers")
}

/// Dates end with the year 9999.
fn has_a_date(at: SystemTime) -> bool {
    const YEAR_10000: u64 = 253_402_300_800;
    at.duration_since(SystemTime::UNIX_EPOCH)
        .is_ok_and(|since| since.as_secs() < YEAR_10000)
}

impl ImportRecord {
    /// What a line says.
    ///
    /// # Errors
    /// Why it is no line of an export.
    pub(crate) fn of_line(line: &[u8]) -> Result<Self, String> {
        let said = |error: serde_json::Error| {
            let text = error.to_string();
            // Each line is parsed by itself, so its number there is always 1.
            let text = text.replace(" at line 1 column", " at column");
            match error.classify() {
                Category::Data => text,
                _ => format!("no JSON: {text}"),
            }
        };
        let Fields(object) = serde_json::from_slice(line).map_err(said)?;
        let is_unknown = |name: &&String| !FIELDS.contains(&name.as_str());
        if let Some(name) = object.keys().find(is_unknown) {
            let known = FIELDS.join(", ");
            return Err(format!("\"{name}\" is none of the fields {known}"));
        }
        Ok(Self {
            key: bytes(&object, "key", KEY_BYTES_MAX)?,
            value: bytes(&object, "value", VALUE_BYTES_MAX)?,
            expiry: expiry(&object)?,
        })
    }

    /// The command that writes it at this time; none if it has expired by then.
    pub(crate) fn command(&self, now: SystemTime) -> Option<Command<'_>> {
        let (key, value) = (self.key.as_slice(), self.value.as_slice());
        let after = match self.expiry {
            Expiry::Never => return Some(Command::Put { key, value }),
            Expiry::After(after) => after,
            Expiry::At(at) => at.duration_since(now).ok()?,
        };
        let after_ns = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
        let options = SetOptions {
            expiry: SetExpiry::After(after_ns),
            ..SetOptions::default()
        };
        (after_ns > 0).then_some(Command::Set {
            key,
            value,
            options,
        })
    }

    /// About the bytes of its command.
    pub(crate) fn bytes(&self) -> usize {
        self.key.len() + self.value.len() + 32
    }
}

/// An object in which each name stands once. Readers of JSON differ in which of two they take.
struct Fields(Map<String, Value>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visit;

        impl<'de> Visitor<'de> for Visit {
            type Value = Fields;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Fields, A::Error> {
                let mut fields = Map::new();
                while let Some((name, value)) = from.next_entry::<String, Value>()? {
                    if fields.contains_key(&name) {
                        let twice = format!("the field \"{name}\" occurs twice");
                        return Err(A::Error::custom(twice));
                    }
                    fields.insert(name, value);
                }
                Ok(Fields(fields))
            }
        }

        from.deserialize_any(Visit)
    }
}

/// The bytes that are there as text or as base64.
fn bytes(object: &Map<String, Value>, name: &str, limit: u32) -> Result<Vec<u8>, String> {
    let coded = format!("{name}_base64");
    let text = |found: &Value, name: &str| match found {
        Value::String(text) => Ok(text.clone()),
        _ => Err(format!("\"{name}\" is not a string")),
    };
    let bytes = match (object.get(name), object.get(&coded)) {
        (Some(plain), None) => text(plain, name)?.into_bytes(),
        (None, Some(found)) => STANDARD
            .decode(text(found, &coded)?)
            .map_err(|error| format!("\"{coded}\" is not base64: {error}"))?,
        (None, None) => return Err(format!("neither \"{name}\" nor \"{coded}\" is present")),
        (Some(_), Some(_)) => return Err(format!("\"{name}\" and \"{coded}\" are both present")),
    };
    match bytes.len() > limit as usize {
        true => Err(format!(
            "the {name} has {} bytes, and the limit is {limit}",
            bytes.len()
        )),
        false => Ok(bytes),
    }
}

/// The moment counts if it is there: time has passed since the export.
fn expiry(object: &Map<String, Value>) -> Result<Expiry, String> {
    if let Some(at) = object.get("expires_at") {
        let text = at.as_str().unwrap_or_default();
        let at = humantime::parse_rfc3339(text).map_err(|_| {
            format!("\"expires_at\" is {at}, not a time such as \"2026-01-02T03:04:05.678Z\"")
        })?;
        return Ok(Expiry::At(at));
    }
    match object.get("expires_in_ms") {
        None => Ok(Expiry::Never),
        Some(left) => match left.as_u64() {
            Some(left_ms @ 1..) => Ok(Expiry::After(Duration::from_millis(left_ms))),
            _ => Err(format!(
                "\"expires_in_ms\" is {left}, not a positive number of milliseconds"
            )),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_kvstore::Position;

    fn entry<'a>(key: &'a [u8], value: &'a [u8], remaining_ns: Option<u64>) -> Entry<'a> {
        Entry {
            key,
            value,
            version: Position::from_u64(7),
            remaining_ns,
        }
    }

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        let plain = line(&entry(b"k", b"two\nlines \"", None), now);
        assert_eq!(plain, r#"{"key":"k","value":"two\nlines \"","version":7}"#);
        let read = ImportRecord::of_line(plain.as_bytes()).expect("it was written");
        assert_eq!(
            (read.value.as_slice(), read.expiry),
            (&b"two\nlines \""[..], Expiry::Never)
        );

        let expiring = line(&entry(&[0xff, 0], b"", Some(1_500_000_001)), now);
        assert_eq!(
            expiring,
            r#"{"key_base64":"/wA=","value":"","version":7,"expires_in_ms":1501,"expires_at":"1970-01-01T00:16:41.501Z"}"#
        );
        let read = ImportRecord::of_line(expiring.as_bytes()).expect("it was written");
        let at = now + Duration::from_millis(1_501);
        assert_eq!(
            (read.key.as_slice(), read.expiry),
            (&[0xff, 0][..], Expiry::At(at))
        );
        let left = |now| match read.command(now) {
            Some(Command::Set { options, .. }) => Some(options.expiry),
            _ => None,
        };
        assert_eq!(left(now), Some(SetExpiry::After(1_501_000_000)));
        let later = now + Duration::from_secs(1);
        assert_eq!(left(later), Some(SetExpiry::After(501_000_000)));
        assert_eq!(read.command(at), None, "it has expired");

        let forever = line(&entry(b"k", b"v", Some(u64::MAX)), now);
        assert!(
            !forever.contains("expires_at") || has_a_date(now),
            "{forever}"
        );
        ImportRecord::of_line(forever.as_bytes()).expect("it was written");
    }

    #[test]
    fn a_bad_line_says_what_is_wrong() {
        for (line, why) in [
            ("", "no JSON: EOF"),
            ("{", "no JSON: EOF while parsing an object at column 1"),
            ("[]", "expected a JSON object"),
            ("7", "expected a JSON object"),
            (
                r#"{"key":"k","value":"a","value":"b"}"#,
                "the field \"value\" occurs twice at column 35",
            ),
            (r#"{"key":"k"}"#, "neither \"value\" nor \"value_base64\""),
            (r#"{"value":"k"}"#, "neither \"key\" nor"),
            (r#"{"key":"k","value":1}"#, "\"value\" is not a string"),
            (
                r#"{"key":"k","key_base64":"aw==","value":""}"#,
                "are both present",
            ),
            (r#"{"key_base64":"!","value":""}"#, "is not base64"),
            (
                r#"{"key":"k","value":"","ttl":5}"#,
                "\"ttl\" is none of the fields",
            ),
            (
                r#"{"key":"k","value":"","expires_in_ms":0}"#,
                "positive number of milliseconds",
            ),
            (
                r#"{"key":"k","value":"","expires_in_ms":-1}"#,
                "positive number of milliseconds",
            ),
            (
                r#"{"key":"k","value":"","expires_at":"soon"}"#,
                "not a time such as",
            ),
            (
                r#"{"key":"k","value":"","expires_at":5}"#,
                "not a time such as",
            ),
        ] {
            let said = ImportRecord::of_line(line.as_bytes()).expect_err(line);
            assert!(said.contains(why), "{line}: {said}");
        }
        let long = format!(r#"{{"key":"{}","value":""}}"#, "k".repeat(65_537));
        let said = ImportRecord::of_line(long.as_bytes()).expect_err("too long");
        assert!(
            said.contains("65537 bytes, and the limit is 65536"),
            "{said}"
        );
    }
}
