//! A change in one line.

use serde_json::{Map, Value};
use trine_base::output::insert_bytes;
use trine_base::words::show;
use trine_client::{WatchedChange, WatchedEvent};

pub(super) fn line(event: &WatchedEvent, json: bool) -> String {
    match json {
        true => document(event),
        false => text(event),
    }
}

fn word(change: &WatchedChange) -> &'static str {
    match change {
        WatchedChange::Written { .. } => "written",
        WatchedChange::Removed { .. } => "deleted",
        WatchedChange::Expired { .. } => "expired",
        WatchedChange::Flushed => "flushed",
    }
}

fn text(event: &WatchedEvent) -> String {
    let mut line = format!("{}\t{}", event.position.as_u64(), word(&event.change));
    match &event.change {
        WatchedChange::Written { key, value, .. } => {
            line.push_str(&format!("\t{}", show(key)));
            if let Some(value) = value {
                line.push_str(&format!("\t{}", show(value)));
            }
        }
        WatchedChange::Removed { key } | WatchedChange::Expired { key } => {
            line.push_str(&format!("\t{}", show(key)));
        }
        WatchedChange::Flushed => {}
    }
    line
}

fn document(event: &WatchedEvent) -> String {
    let mut document = Map::new();
    let position = event.position.as_u64();
    document.insert("position".to_owned(), position.into());
    document.insert("change".to_owned(), word(&event.change).into());
    if let Some(command) = event.command {
        document.insert("command".to_owned(), command.row().name.into());
    }
    match &event.change {
        WatchedChange::Written {
            key,
            value,
            value_bytes,
            remaining,
        } => {
            insert_bytes(&mut document, "key", key);
            match value {
                Some(value) => insert_bytes(&mut document, "value", value),
                None => drop(document.insert("value_bytes".to_owned(), (*value_bytes).into())),
            }
            if let Some(remaining) = remaining {
                let ms = remaining.as_nanos().div_ceil(1_000_000);
                document.insert("expires_in_ms".to_owned(), ms.into());
            }
        }
        WatchedChange::Removed { key } | WatchedChange::Expired { key } => {
            insert_bytes(&mut document, "key", key);
        }
        WatchedChange::Flushed => {}
    }
    Value::Object(document).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_kvstore::{Kind, Position};
    use trine_transport::time::Duration;

    fn event(change: WatchedChange) -> WatchedEvent {
        WatchedEvent {
            targets: vec![0],
            position: Position::from_u64(7),
            command: Some(Kind::Append),
            change,
        }
    }

    #[test]
    fn a_line_can_be_taken_apart_whatever_is_in_the_item() {
        let written = |value: Option<&[u8]>| {
            event(WatchedChange::Written {
                key: b"a\tb".to_vec(),
                value: value.map(<[u8]>::to_vec),
                value_bytes: 9,
                remaining: Some(Duration::from_micros(1_500)),
            })
        };
        let with = written(Some(b"two\nlines"));
        assert_eq!(line(&with, false), "7\twritten\t\"a\\tb\"\t\"two\\nlines\"");
        let document: Value = serde_json::from_str(&line(&with, true)).expect("one document");
        assert_eq!(
            document,
            serde_json::json!({
                "position": 7,
                "change": "written",
                "command": "Append",
                "key": "a\tb",
                "value": "two\nlines",
                "expires_in_ms": 2
            })
        );
        assert_eq!(line(&written(None), false), "7\twritten\t\"a\\tb\"");
        assert!(line(&written(None), true).contains(r#""value_bytes":9"#));
        let key = b"k".to_vec();
        assert_eq!(
            line(&event(WatchedChange::Expired { key }), false),
            "7\texpired\tk"
        );
        assert_eq!(line(&event(WatchedChange::Flushed), false), "7\tflushed");
    }
}
