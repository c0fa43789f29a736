//! Prints an answer in the shell: for people, raw for pipes, or as a JSON line.

use serde_json::{Map, Value, json};
use trine_commands::Meaning;
use trine_kvstore::{AbortCause, List, Position, RangeItem, Response, Versioned};

use super::parse::{ReplyShape, StoreRequest};
use trine_base::answers::{store_failure, unexpected};
use trine_base::failure::Failure;
use trine_base::output::insert_bytes;
use trine_base::words::show;

/// The reader of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A terminal: prints everything, but nothing that would confuse the terminal.
    People,
    /// A pipe: prints values unchanged, and nothing where there is no value.
    Raw,
    /// One JSON document a line.
    Json,
}

/// The answer's text, without the end of its last line; nothing if there is nothing to print.
pub(super) fn tell(
    request: &StoreRequest,
    response: &Response<'_>,
    form: Form,
) -> Result<Option<Vec<u8>>, Failure> {
    let Some(reading) = &request.reading else {
        return tell_answer(request, response, form);
    };
    reading.read(response, |meaning| match meaning {
        Meaning::Answer(answer) => tell_answer(request, answer, form),
        Meaning::Each(answers) => tell_answer(request, &Response::List(answers.into()), form),
        Meaning::Number(number) => Ok(Some(match form {
            Form::Json => json!({ "number": number }).to_string().into_bytes(),
            Form::People | Form::Raw => number.to_string().into_bytes(),
        })),
        Meaning::Text(text) => Ok(Some(match form {
            Form::Json => json!({ "text": text }).to_string().into_bytes(),
            Form::People | Form::Raw => text.as_bytes().to_vec(),
        })),
        Meaning::Failed(why) => Err(Failure::negative(why.to_owned(), "")),
    })
}

/// The same for an answer that is shown as it is.
fn tell_answer(
    request: &StoreRequest,
    response: &Response<'_>,
    form: Form,
) -> Result<Option<Vec<u8>>, Failure> {
    refusal(request, response)?;
    Ok(match form {
        Form::Json => Some(object(response).to_string().into_bytes()),
        Form::People => Some(for_people(request.shape, response).into_bytes()),
        Form::Raw => raw(request.shape, response),
    })
}

/// Negative answers.
fn refusal(request: &StoreRequest, response: &Response<'_>) -> Result<(), Failure> {
    let no = |text: String| Err(Failure::negative(text, ""));
    match response {
        Response::Error(error) => Err(store_failure(*error)),
        Response::OtherError(_) => Err(unexpected(response)),
        Response::Denied { reason } => no(format!("denied: {reason}; nothing was changed")),
        Response::NotFound | Response::Deleted { existed: false } => {
            no(format!("no such key: {}", show(&request.key)))
        }
        Response::Conflict { current } => no(match current {
            Some(version) => format!("its version is {}; nothing was changed", version.as_u64()),
            None => format!("no such key: {}; nothing was changed", show(&request.key)),
        }),
        Response::Exchanged {
            written: None,
            previous: None,
        } => no("its condition does not hold; nothing was changed".to_owned()),
        Response::Aborted { cause } => no(match cause {
            AbortCause::Refused { index, error } => {
                format!("operation {index}: {error}; nothing was changed")
            }
            _ => "a condition does not hold; nothing was changed".to_owned(),
        }),
        _ => Ok(()),
    }
}

/// A value for a terminal: unchanged if that is harmless, else quoted.
pub(super) fn printable(value: &[u8]) -> String {
    match std::str::from_utf8(value) {
        Ok(text) if !text.is_empty() && !text.chars().any(|c| c.is_control() && c != '\n') => {
            text.to_owned()
        }
        _ => show(value),
    }
}

fn for_people(shape: ReplyShape, response: &Response<'_>) -> String {
    let written = |version: &Position| format!("ok, version {}", version.as_u64());
    match response {
        Response::Value { version, .. } if shape == ReplyShape::Version => {
            version.as_u64().to_string()
        }
        Response::Value { value, .. } => printable(value),
        Response::Written { version } => written(version),
        Response::Deleted { .. } => "1 key deleted".to_owned(),
        Response::Number { value, .. } => value.to_string(),
        Response::Length { bytes, .. } => format!("{bytes} bytes"),
        Response::Exchanged { previous, written } => {
            let before = previous.map_or_else(
                || "nothing was there".to_owned(),
                |previous| format!("was {}", printable(previous.value)),
            );
            match written {
                Some(version) => format!("ok, version {}; {before}", version.as_u64()),
                None => format!("not written; {before}"),
            }
        }
        Response::TimeToLive { remaining_ns } => seconds(*remaining_ns),
        Response::Count { items } => items.to_string(),
        Response::List(list) => {
            let row = |(index, item): (usize, Response<'_>)| match item {
                Response::NotFound => format!("{}) (no such key)", index + 1),
                item => format!("{}) {}", index + 1, for_people(shape, &item)),
            };
            let rows: Vec<String> = list.iter().enumerate().map(row).collect();
            rows.join("\n")
        }
        Response::Items { items, .. } => page(items),
        other => format!("{other:?}"),
    }
}

/// A line for each item. What is no plain text is quoted, for pipes as well: so lines and columns can be told apart.
fn page(items: &List<'_, RangeItem<'_>>) -> String {
    let line = |item: RangeItem<'_>| match item.item {
        Some(found) => format!("{}\t{}", show(item.key), show(found.value)),
        None => show(item.key),
    };
    let lines: Vec<String> = items.iter().map(line).collect();
    lines.join("\n")
}

fn seconds(ns: Option<u64>) -> String {
    ns.map_or_else(
        || "never".to_owned(),
        |ns| format!("{:.3}", ns as f64 / 1e9),
    )
}

fn raw(shape: ReplyShape, response: &Response<'_>) -> Option<Vec<u8>> {
    match response {
        Response::Value { version, .. } if shape == ReplyShape::Version => {
            Some(version.as_u64().to_string().into_bytes())
        }
        Response::Value { value, .. } => Some(value.to_vec()),
        Response::Number { value, .. } => Some(value.to_string().into_bytes()),
        Response::Length { bytes, .. } => Some(bytes.to_string().into_bytes()),
        Response::Exchanged { previous, .. } => previous.map(|previous| previous.value.to_vec()),
        Response::TimeToLive { remaining_ns } => Some(seconds(*remaining_ns).into_bytes()),
        Response::Count { items } => Some(items.to_string().into_bytes()),
        Response::List(list) => {
            let rows: Vec<Vec<u8>> = list
                .iter()
                .map(|item| raw(shape, &item).unwrap_or_default())
                .collect();
            Some(rows.join(&b'\n'))
        }
        Response::Items { items, .. } if items.is_empty() => None,
        Response::Items { items, .. } => Some(page(items).into_bytes()),
        _ => None,
    }
}

/// The document of an answer: an object, whatever the answer is.
fn object(response: &Response<'_>) -> Value {
    match document(response) {
        object @ Value::Object(_) => object,
        Value::Array(answers) => json!({ "answers": answers }),
        other => json!({ "answer": other }),
    }
}

fn document(response: &Response<'_>) -> Value {
    let mut map = Map::new();
    let versioned = |map: &mut Map<String, Value>, found: &Versioned<'_>| {
        insert_bytes(map, "value", found.value);
        map.insert("version".into(), found.version.as_u64().into());
    };
    match response.clone() {
        Response::Value { value, version } => versioned(&mut map, &Versioned { value, version }),
        Response::Written { version } => {
            map.insert("version".into(), version.as_u64().into());
        }
        Response::Deleted { existed } => {
            map.insert("deleted".into(), u64::from(existed).into());
        }
        Response::Number { value, version } => {
            return json!({ "number": value, "version": version.as_u64() });
        }
        Response::Length { bytes, version } => {
            return json!({ "bytes": bytes, "version": version.as_u64() });
        }
        Response::Exchanged { previous, written } => {
            let mut before = Map::new();
            if let Some(previous) = &previous {
                versioned(&mut before, previous);
            }
            let previous = previous.map(|_| Value::Object(before));
            return json!({ "previous": previous, "version": written.map(Position::as_u64) });
        }
        Response::TimeToLive { remaining_ns } => return json!({ "remaining_ns": remaining_ns }),
        Response::Count { items } => return json!({ "keys": items }),
        Response::List(list) => {
            return list.iter().map(|item| document(&item)).collect();
        }
        Response::Items { items, next } => {
            let items: Vec<Value> = items
                .iter()
                .map(|item| {
                    let mut map = Map::new();
                    insert_bytes(&mut map, "key", item.key);
                    if let Some(found) = &item.item {
                        versioned(&mut map, found);
                    }
                    Value::Object(map)
                })
                .collect();
            map.insert("entries".into(), items.into());
            if let Some(next) = next {
                insert_bytes(&mut map, "next", &next);
            }
        }
        Response::NotFound => return Value::Null,
        other => return json!(format!("{other:?}")),
    }
    Value::Object(map)
}

#[cfg(test)]
mod tests {
    use super::super::parse::{LineRequest, parse};
    use super::*;

    fn request(shape: ReplyShape) -> StoreRequest {
        StoreRequest {
            command: Vec::new(),
            read_only: true,
            shape,
            key: b"k".to_vec(),
            reading: None,
        }
    }

    fn told(response: &Response<'_>, form: Form) -> String {
        let told = tell(&request(ReplyShape::Plain), response, form).expect("no refusal");
        String::from_utf8(told.unwrap_or_default()).expect("text")
    }

    #[test]
    fn people_see_what_cannot_harm_their_terminal_and_pipes_get_bytes() {
        let version = Position::from_u64(7);
        let value = Response::Value {
            value: b"\x1b[2J",
            version,
        };
        assert_eq!(told(&value, Form::People), "\"\\x1b[2J\"");
        assert_eq!(told(&value, Form::Raw), "\x1b[2J");
        assert_eq!(
            told(&value, Form::Json),
            r#"{"value":"\u001b[2J","version":7}"#
        );
        let shown = tell(&request(ReplyShape::Version), &value, Form::Raw).expect("no refusal");
        assert_eq!(shown, Some(b"7".to_vec()));
        assert_eq!(told(&Response::Written { version }, Form::Raw), "");
    }

    #[test]
    fn a_list_has_a_line_for_each_key_also_for_those_that_are_not_there() {
        let version = Position::from_u64(7);
        let items = [
            Response::Value {
                value: b"one",
                version,
            },
            Response::NotFound,
        ];
        let list = Response::List(items.as_slice().into());
        assert_eq!(told(&list, Form::People), "1) one\n2) (no such key)");
        assert_eq!(told(&list, Form::Raw), "one\n");
        assert_eq!(
            told(&list, Form::Json),
            r#"{"answers":[{"value":"one","version":7},null]}"#
        );
    }

    #[test]
    fn a_page_has_a_line_for_each_key_and_says_where_it_ends() {
        let version = Position::from_u64(7);
        let value = b"two\nlines".as_slice();
        let items = [
            RangeItem {
                key: b"a",
                item: Some(Versioned { value, version }),
            },
            RangeItem {
                key: b"b",
                item: None,
            },
        ];
        let page = Response::Items {
            items: items.as_slice().into(),
            next: Some(b"c".as_slice().into()),
        };
        let text = "a\t\"two\\nlines\"\nb";
        assert_eq!(told(&page, Form::People), text);
        assert_eq!(told(&page, Form::Raw), text);
        assert_eq!(
            told(&page, Form::Json),
            r#"{"entries":[{"key":"a","value":"two\nlines","version":7},{"key":"b"}],"next":"c"}"#
        );
    }

    #[test]
    fn a_no_is_a_failure_with_status_1() {
        let current = Some(Position::from_u64(9));
        for (response, part) in [
            (Response::NotFound, "no such key: k"),
            (Response::Conflict { current }, "version is 9"),
        ] {
            let failure = tell(&request(ReplyShape::Plain), &response, Form::Raw).expect_err(part);
            assert_eq!(failure.exit_status(), 1);
            assert!(failure.to_string().contains(part), "{failure}");
        }
    }

    /// STRLEN is a read of the whole value for the store; the row says what of the answer is shown.
    #[test]
    fn a_command_of_the_table_is_told_as_its_row_reads_the_answer() {
        let told = |line: &str, response: &Response<'_>, form: Form| {
            let request = match parse(line.as_bytes(), 5_000) {
                Ok(LineRequest::Store(request)) => request,
                other => panic!("{line}: {other:?}"),
            };
            let told = tell(&request, response, form).map(Option::unwrap_or_default);
            told.map(|text| String::from_utf8(text).expect("text"))
        };
        let says = |line: &str, response: &Response<'_>, form: Form, text: &str| {
            let told = told(line, response, form).expect("no refusal");
            assert_eq!(told, text, "{line}");
        };
        let version = Position::from_u64(7);
        let value = Response::Value {
            value: b"four",
            version,
        };
        says("strlen k", &value, Form::People, "4");
        says("strlen k", &Response::NotFound, Form::Raw, "0");
        says(
            "get k",
            &value,
            Form::Json,
            r#"{"value":"four","version":7}"#,
        );
        says("type k", &value, Form::Json, r#"{"text":"string"}"#);
        says("strlen k", &value, Form::Json, r#"{"number":4}"#);
        says("type k", &value, Form::Raw, "string");
        says(
            "mget k",
            &Response::NotFound,
            Form::People,
            "1) (no such key)",
        );
        let items = [value.clone(), Response::Written { version }];
        let list = Response::List(items.as_slice().into());
        says("getex k ex 9", &list, Form::Raw, "four");
        says("exists a b", &list, Form::Raw, "2");
        let full = [
            Response::Error(trine_kvstore::StoreError::Full { limit: 1 }),
            Response::Deleted { existed: false },
        ];
        let list = Response::List(full.as_slice().into());
        let refused = told("set k v exat 1", &list, Form::Raw).expect_err("the store is full");
        assert!(refused.to_string().contains("full"), "{refused}");
        told("get k", &Response::NotFound, Form::Raw).expect_err("no such key");
    }
}
