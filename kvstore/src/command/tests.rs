//! Golden bytes of the command codec, and what it must refuse.

use super::*;
use crate::codec::DecodeError;
use crate::cursor::Cursor;
use crate::limits::Limits;
use crate::position::Position;
use crate::users::Rights;
use trine_keys::{Fingerprint, GroupId, Issuer, Role};

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

/// PUT and GET are read in a short way inside of lists. It must read the same as the general one, and refuse the same.
#[test]
fn the_short_way_reads_operations_as_the_general_one_does() {
    let (key, value) = (&b"key"[..], &b"a value"[..]);
    let whole: Vec<Vec<u8>> = [
        Command::Put { key, value },
        Command::Get { key },
        Command::Put {
            key: b"",
            value: b"",
        },
        Command::Delete { key },
    ]
    .iter()
    .map(|command| [&encoded(command)[..], b"what follows"].concat())
    .collect();
    let compare = |bytes: &[u8]| {
        let (mut short, mut general) = (Reader::new(bytes), Reader::new(bytes));
        let read = Command::read_field(&mut short);
        assert_eq!(read, Command::read(&mut general, true), "{bytes:?}");
        assert!(read.is_err() || short.rest() == general.rest(), "{bytes:?}");
    };
    for bytes in &whole {
        (0..=bytes.len()).for_each(|length| compare(&bytes[..length]));
        for at in 0..bytes.len() {
            for value in 0..=255 {
                let mut changed = bytes.clone();
                changed[at] = value;
                compare(&changed);
            }
        }
    }
}

#[test]
fn set_memory_has_these_bytes() {
    let command = Command::SetMemory {
        memory_bytes: 0x0102,
    };
    let bytes = encoded(&command);
    assert_eq!(bytes, [4, 66, 2, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(Command::decode(&bytes), Ok(command));
}

#[test]
fn commands_about_ranges_have_these_bytes() {
    let range = KeyRange::Between {
        start: b"a",
        end: Some(b"bc"),
    };
    let open = KeyRange::Between {
        start: b"a",
        end: None,
    };
    let options = ScanOptions {
        limit: 0x0102,
        reverse: true,
        keys_only: false,
    };
    let cases: [(Command<'_>, &[u8]); 4] = [
        (
            Command::Scan { range, options },
            b"\x06\x12\x02\x01\0\0\0a\x02\0\0\0bc\x02\x01\0\0\x01\0",
        ),
        (
            Command::CountRange { range: open },
            b"\x06\x13\x01\x01\0\0\0a",
        ),
        (
            Command::DeleteRange {
                range: KeyRange::Prefix(b"p/"),
                count: 7,
            },
            b"\x06\x14\0\x02\0\0\0p/\x07\0\0\0",
        ),
        (Command::SetOrdered { on: true }, b"\x06\x47\x01"),
    ];
    for (command, bytes) in cases {
        assert_eq!(encoded(&command), bytes);
        assert_eq!(Command::decode(bytes), Ok(command));
    }
    for bad in [b"\x06\x47\x02".as_slice(), b"\x06\x13\x03\0\0\0\0"] {
        assert!(Command::decode(bad).is_err());
    }
}

/// One that removes many keys, and pages, would make the answers and the journal of an EXEC too large.
#[test]
fn ranges_are_no_operations_of_execute() {
    let range = KeyRange::Prefix(b"");
    let options = ScanOptions::default();
    for command in [
        Command::Scan { range, options },
        Command::CountRange { range },
        Command::DeleteRange { range, count: 1 },
    ] {
        let operations = [command];
        let execute = Command::Execute {
            mode: ExecuteMode::AllOrNothing,
            conditions: List::default(),
            operations: List::from(&operations),
        };
        let bytes = encoded(&execute);
        assert_eq!(Command::decode(&bytes), Err(DecodeError::Nested));
    }
}

#[test]
fn commands_about_users_have_these_bytes() {
    let issuer = Issuer {
        group: GroupId([9; 8]),
        root: Fingerprint([8; 4]),
    };
    let name = "bo".parse().expect("a name");
    let rights = Rights {
        role: Role::Write,
        front: true,
        prefix: b"p/",
    };
    let cases = [
        (
            Command::AddUser {
                issuer,
                name,
                rights,
            },
            [
                &[5, 67][..],
                &[9; 8],
                &[8; 4],
                b"\x02\0\0\0bo",
                &[2, 1],
                b"\x02\0\0\0p/",
            ]
            .concat(),
        ),
        (
            Command::RemoveUser { name },
            b"\x05\x44\x02\0\0\0bo".to_vec(),
        ),
        (
            Command::RotateUser { issuer, name },
            [&[5, 69][..], &[9; 8], &[8; 4], b"\x02\0\0\0bo"].concat(),
        ),
        (Command::ListUsers, vec![5, 70]),
    ];
    for (command, bytes) in cases {
        assert_eq!(encoded(&command), bytes);
        assert_eq!(Command::decode(&bytes), Ok(command));
    }
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

/// A command of each kind, with its bytes. They are in logs and snapshots of groups at work.
#[test]
fn every_command_has_its_golden_bytes() {
    let key: &[u8] = b"k";
    let value: &[u8] = b"vw";
    let options = SetOptions {
        condition: SetCondition::Present,
        expiry: SetExpiry::After(5),
        return_previous: true,
    };
    let pairs = [Pair { key, value }];
    let keys = [key, b""];
    let conditions = [
        Condition::Absent { key },
        Condition::Present { key },
        Condition::VersionIs {
            key,
            version: Position::from_u64(9),
        },
    ];
    let operations = [
        Command::Count,
        Command::ExpireIf {
            key,
            after_ns: 6,
            condition: ExpireCondition::PresentAndEarlier,
        },
    ];
    let limits = Limits {
        memory_bytes: 1 << 20,
        key_bytes: 64,
        value_bytes: 4096,
    };
    let golden: &[(Command<'_>, &str)] = &[
        (Command::Get { key }, "0101010000006b"),
        (Command::Put { key, value }, "0102010000006b020000007677"),
        (Command::Delete { key }, "0103010000006b"),
        (
            Command::Set {
                key,
                value,
                options,
            },
            "0204010000006b0202050000000000000001020000007677",
        ),
        (Command::GetDelete { key }, "0205010000006b"),
        (
            Command::CompareAndSwap {
                key,
                expected: Position::from_u64(7),
                value,
            },
            "0206010000006b0700000000000000020000007677",
        ),
        (
            Command::Increment { key, delta: -2 },
            "0207010000006bfeffffffffffffff",
        ),
        (Command::Append { key, value }, "0208010000006b020000007677"),
        (
            Command::MultiGet {
                keys: List::from(&keys),
            },
            "020902000000010000006b00000000",
        ),
        (
            Command::MultiPut {
                pairs: List::from(&pairs),
            },
            "020a01000000010000006b020000007677",
        ),
        (
            Command::Expire { key, after_ns: 8 },
            "020b010000006b0800000000000000",
        ),
        (Command::Persist { key }, "020c010000006b"),
        (Command::TimeToLive { key }, "020d010000006b"),
        (
            Command::Execute {
                mode: ExecuteMode::Independent,
                conditions: List::from(&conditions),
                operations: List::from(&operations),
            },
            "030e010300000000010000006b01010000006b02010000006b090000000000000002000000020f0310010000006b060000000000000004",
        ),
        (Command::Count, "020f"),
        (
            Command::ExpireIf {
                key,
                after_ns: 0x0102_0304_0506_0708,
                condition: ExpireCondition::Later,
            },
            "0310010000006b080706050403020102",
        ),
        (
            Command::SetLimits { limits },
            "014000001000000000004000000000100000",
        ),
        (Command::RaiseVersion { version: 3 }, "014103"),
        (
            Command::Walk {
                from: Cursor::new(0x000a_0908_0706_0504).expect("it has 52 bits"),
                count: 100,
                content: WalkContent::Items,
                prefix: Prefix(key),
            },
            "06160405060708090a006400000001010000006b",
        ),
        (Command::Flush, "0617"),
    ];
    for (command, hex) in golden {
        let bytes = encoded(command);
        let shown: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(shown, *hex, "{command:?}");
        assert_eq!(Command::decode(&bytes).as_ref(), Ok(command));
    }
}

#[test]
fn a_kind_is_found_by_its_byte() {
    for &kind in Kind::ALL {
        assert_eq!(Kind::of_byte(kind as u8), Some(kind));
    }
    let known = (0..=u8::MAX).filter(|&byte| Kind::of_byte(byte).is_some());
    assert_eq!(known.count(), Kind::ALL.len());
    assert_eq!(
        Command::decode(&[1, 0]),
        Err(DecodeError::UnknownKind { kind: 0 })
    );
}

/// Access control has to see each of them.
#[test]
fn every_key_of_a_command_is_visited_with_what_is_done_to_it() {
    let seen = |command: &Command<'_>| {
        let mut seen = String::new();
        let visit = |key: &[u8], access| {
            let key = String::from_utf8_lossy(key);
            seen.push_str(&format!("{key}:{access:?} "));
            Ok::<(), ()>(())
        };
        assert_eq!(command.each_key(visit), Ok(()));
        seen.trim_end().to_owned()
    };
    let (key, value): (&[u8], &[u8]) = (b"k", b"v");
    assert_eq!(seen(&Command::Get { key }), "k:Read");
    assert_eq!(seen(&Command::Put { key, value }), "k:Write");
    assert_eq!(seen(&Command::Count), "");
    let walk = Command::Walk {
        from: Cursor::START,
        count: 0,
        content: WalkContent::Keys,
        prefix: Prefix(b"a/"),
    };
    assert_eq!((seen(&walk).as_str(), walk.key()), ("a/:Read", None));
    let keys = [b"a".as_slice(), b"b"];
    let keys = List::from(&keys);
    assert_eq!(seen(&Command::MultiGet { keys }), "a:Read b:Read");
    let pairs = [Pair { key: b"p", value }, Pair { key: b"q", value }];
    let operations = [
        Command::TimeToLive { key: b"t" },
        Command::MultiPut {
            pairs: List::from(&pairs),
        },
    ];
    let conditions = [Condition::Absent { key: b"c" }];
    let execute = Command::Execute {
        mode: ExecuteMode::AllOrNothing,
        conditions: List::from(&conditions),
        operations: List::from(&operations),
    };
    let all = "c:Read t:Read p:Write q:Write";
    assert_eq!(seen(&execute), all);
    let bytes = encoded(&execute);
    let decoded = Command::decode(&bytes).expect("it was encoded");
    assert_eq!(seen(&decoded), all, "also of a decoded one");
    let mut calls = 0;
    let refusal = decoded.each_key(|key, _| {
        calls += 1;
        if key == b"t" { Err("denied") } else { Ok(()) }
    });
    assert_eq!((refusal, calls), (Err("denied"), 2));
}
