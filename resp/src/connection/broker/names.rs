//! The names of events of keys, as Redis has them.

use trine_kvstore::Kind;
use trine_kvstore::history::Change;

use super::classes::Classes;

/// An event of a key: its class, and its name.
pub(super) type Named = (Classes, &'static str);

/// The names of a change, in their order. A change of all keys has none, as in Redis. The kind is that of the command
/// that made it.
pub(super) fn names(command: Option<Kind>, change: &Change<'_>) -> [Option<Named>; 2] {
    let generic = |name| (Classes::GENERIC, name);
    let string = |name| (Classes::STRING, name);
    let (first, second) = match (change, command) {
        (Change::Flushed, _) => return [None, None],
        (Change::Expired { .. }, _) => ((Classes::EXPIRED, "expired"), None),
        (Change::Removed { .. }, _) => (generic("del"), None),
        (Change::Written { .. }, Some(Kind::Increment)) => (string("incrby"), None),
        (Change::Written { .. }, Some(Kind::Append)) => (string("append"), None),
        (Change::Written { .. }, Some(Kind::Expire | Kind::ExpireIf | Kind::ExpireIfBeyond)) => {
            (generic("expire"), None)
        }
        (Change::Written { .. }, Some(Kind::Persist)) => (generic("persist"), None),
        // A time to live that SET has given, or kept.
        (
            Change::Written {
                remaining_ns: Some(_),
                ..
            },
            Some(Kind::Set),
        ) => (string("set"), Some(generic("expire"))),
        (Change::Written { .. }, _) => (string("set"), None),
    };
    [Some(first), second]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_names_its_command() {
        let written = |remaining_ns| Change::Written {
            key: b"k",
            value: None,
            value_bytes: 0,
            remaining_ns,
        };
        let removed = Change::Removed { key: b"k" };
        let text = |command, change| {
            let names = names(Some(command), &change);
            let names: Vec<&str> = names.iter().flatten().map(|(_, name)| *name).collect();
            names.join(" ")
        };
        for (command, change, expected) in [
            (Kind::Put, written(None), "set"),
            (Kind::MultiPut, written(None), "set"),
            (Kind::Set, written(Some(1)), "set expire"),
            (Kind::Increment, written(None), "incrby"),
            // The key has had a time to live before.
            (Kind::Increment, written(Some(1)), "incrby"),
            (Kind::Append, written(None), "append"),
            (Kind::Expire, written(Some(1)), "expire"),
            (Kind::ExpireIf, written(Some(1)), "expire"),
            (Kind::ExpireIf, removed, "del"),
            (Kind::Persist, written(None), "persist"),
            (Kind::CompareAndSwap, written(None), "set"),
            (Kind::GetDelete, removed, "del"),
            (Kind::Expire, Change::Expired { key: b"k" }, "expired"),
            (Kind::Flush, Change::Flushed, ""),
        ] {
            assert_eq!(text(command, change), expected, "{command:?}");
        }
    }
}
