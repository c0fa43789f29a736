//! Golden bytes of the command codec, and what it must refuse.

use super::*;
use crate::codec::DecodeError;

fn encoded(command: &Command<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    command.encode(&mut bytes);
    assert_eq!(bytes.len(), command.encoded_len());
    bytes
}

#[test]
fn put_has_these_bytes() {
    let bytes = encoded(&Command::Put {
        key: b"ab",
        value: b"xyz",
    });
    assert_eq!(
        bytes,
        [1, 2, 2, 0, 0, 0, b'a', b'b', 3, 0, 0, 0, b'x', b'y', b'z']
    );
}

#[test]
fn execute_round_trips_through_slices_and_bytes() {
    let conditions = [
        Condition::Absent { key: b"a" },
        Condition::VersionIs {
            key: b"b",
            version: Position::new(3, 4),
        },
    ];
    let operations = [
        Command::Increment {
            key: b"n",
            delta: -7,
        },
        Command::GetDelete { key: b"a" },
    ];
    let command = Command::Execute {
        mode: ExecuteMode::Independent,
        conditions: List::from(&conditions),
        operations: List::from(&operations),
    };
    let bytes = encoded(&command);
    let decoded = Command::decode(&bytes).expect("what was encoded decodes");
    assert_eq!(decoded, command);
    let Command::Execute {
        operations: seen, ..
    } = &decoded
    else {
        panic!("the kind changed")
    };
    assert_eq!(seen.iter().collect::<Vec<_>>(), operations);
}

#[test]
fn a_list_inside_a_list_is_refused() {
    let inner = [Command::MultiGet {
        keys: List::default(),
    }];
    let command = Command::Execute {
        mode: ExecuteMode::AllOrNothing,
        conditions: List::default(),
        operations: List::from(&inner),
    };
    assert_eq!(
        Command::decode(&encoded(&command)),
        Err(DecodeError::Nested)
    );
}

#[test]
fn every_truncation_and_every_extension_is_refused() {
    let pairs = [
        Pair {
            key: b"k",
            value: b"v",
        },
        Pair {
            key: b"",
            value: b"",
        },
    ];
    let bytes = encoded(&Command::MultiPut {
        pairs: List::from(&pairs),
    });
    for length in 0..bytes.len() {
        assert_eq!(
            Command::decode(&bytes[..length]),
            Err(DecodeError::Truncated),
            "cut to {length}"
        );
    }
    let longer = [bytes.as_slice(), &[0]].concat();
    assert_eq!(Command::decode(&longer), Err(DecodeError::TrailingBytes));
}

#[test]
fn the_version_byte_is_checked() {
    let mut bytes = encoded(&Command::Get { key: b"k" });
    bytes[0] = STATE_VERSION;
    assert_eq!(
        Command::decode(&bytes),
        Err(DecodeError::WrongVersion {
            version: STATE_VERSION
        })
    );
    bytes[0] = STATE_VERSION + 1;
    assert_eq!(
        Command::decode(&bytes),
        Err(DecodeError::NewerVersion {
            version: STATE_VERSION + 1
        })
    );
}
