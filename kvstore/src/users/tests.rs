//! What the table of users keeps to, and its chunks.

use super::*;
use crate::{Command, Limits, Response, SnapshotReader, SnapshotStep, Store};
use trine_keys::{ClusterKey, GroupId};

fn issuer(group: u8) -> Issuer {
    ClusterKey::new(GroupId([group; 8]), [1; 32], [2; 32]).issuer()
}

fn name(name: &str) -> UserName {
    name.parse().expect("a name")
}

fn rights(role: Role, prefix: &[u8]) -> Rights<'_> {
    Rights {
        role,
        front: false,
        prefix,
    }
}

fn at(index: u64) -> Position {
    Position::new(index, 0)
}

/// A table knows the keys that it has given and taken back from those that come later.
#[test]
fn a_key_is_void_once_it_was_rotated_away_or_its_user_removed() {
    let mut users = Users::default();
    let alice = name("alice");
    let rights = rights(Role::Read, b"");
    let first = users.add(at(1), issuer(1), alice, rights).expect("free");
    let first = first.generation;
    assert!(!users.is_void(alice, first) && !users.is_void(alice, first + 1));
    let second = users.rotate(at(2), issuer(1), alice).expect("there");
    let second = second.generation;
    assert!(users.is_void(alice, first) && !users.is_void(alice, second));
    users.remove(at(3), alice).expect("there");
    assert!(users.is_void(alice, second) && !users.is_void(alice, second + 1));
}

/// A key that was void must never count again, whatever is added later.
#[test]
fn no_name_gets_a_generation_twice() {
    let mut users = Users::default();
    let mut seen = Vec::new();
    for index in 1..20 {
        let user = match index % 3 {
            1 => users.add(at(index), issuer(1), name("alice"), rights(Role::Read, b"")),
            2 => users.rotate(at(index), issuer(1), name("alice")),
            _ => {
                users.remove(at(index), name("alice")).expect("there");
                continue;
            }
        };
        let generation = user.expect("changed").generation;
        assert!(!seen.contains(&generation), "{generation} in {seen:?}");
        seen.push(generation);
        let current: Vec<_> = (0..40)
            .filter(|generation| users.is_current(name("alice"), *generation).is_some())
            .collect();
        assert_eq!(current, [generation]);
        assert_eq!(users.changed_at(), at(index));
    }
}

#[test]
fn a_number_stays_with_its_user() {
    let mut users = Users::default();
    let mut add = |index, who| {
        let user = users.add(at(index), issuer(1), name(who), rights(Role::Write, b"p/"));
        user.expect("added").number
    };
    let (alice, bob) = (add(1, "alice"), add(2, "bob"));
    users
        .rotate(at(3), issuer(1), name("alice"))
        .expect("there");
    assert_eq!(
        users.numbered(alice).map(|user| user.name),
        Some(name("alice"))
    );
    users.remove(at(4), name("alice")).expect("there");
    assert_eq!(users.numbered(alice), None);
    assert_eq!(
        users.numbered(bob).map(|user| user.prefix),
        Some(&b"p/"[..])
    );
    assert_eq!(users.numbered(0), None);
    let again = users.add(at(5), issuer(1), name("alice"), rights(Role::Read, b""));
    assert_ne!(again.expect("added").number, alice);
}

#[test]
fn refusals_change_nothing_and_say_why() {
    let mut users = Users::default();
    let added = users.add(at(1), issuer(1), name("alice"), rights(Role::Read, b""));
    added.expect("added");
    let before = users.clone();
    let long = vec![b'x'; USER_PREFIX_BYTES_MAX + 1];
    let cases = [
        (
            issuer(1),
            "alice",
            rights(Role::Read, b""),
            "there is a user with this name already",
        ),
        (
            issuer(1),
            "bob",
            rights(Role::Read, &long),
            "the prefix is longer than the limit of 128 bytes",
        ),
        (
            issuer(1),
            "bob",
            rights(Role::Member, b""),
            "a user's role is admin, write or read, and an admin has no prefix",
        ),
        (
            issuer(1),
            "bob",
            rights(Role::Admin, b"p"),
            "a user's role is admin, write or read, and an admin has no prefix",
        ),
    ];
    for (issuer, who, rights, text) in cases {
        let error = users
            .add(at(2), issuer, name(who), rights)
            .expect_err("refused");
        assert_eq!(error.to_string(), text);
        assert_eq!(users, before);
    }
    let other = users.add(at(2), issuer(2), name("bob"), rights(Role::Read, b""));
    let text = format!(
        "this is not the cluster key file of the group: its users have keys of user root {}",
        issuer(1).root
    );
    assert_eq!(other.expect_err("refused").to_string(), text);
    let other = users.rotate(at(2), issuer(2), name("alice"));
    assert_eq!(other.expect_err("refused").to_string(), text);
    let unknown = "there is no user with this name";
    let rotated = users.rotate(at(2), issuer(1), name("bob"));
    assert_eq!(rotated.expect_err("refused").to_string(), unknown);
    let removed = users.remove(at(2), name("bob"));
    assert_eq!(removed.expect_err("refused").to_string(), unknown);
    assert_eq!(users, before);
    users.remove(at(2), name("alice")).expect("there");
    let bob = users.add(at(3), issuer(2), name("bob"), rights(Role::Read, b""));
    bob.expect("without users the group has no file");
}

fn of_names(count: usize) -> Store {
    let mut store = Store::new(Limits::default(), [1, 2]);
    for number in 0..count {
        let prefix = vec![b'p'; USER_PREFIX_BYTES_MAX];
        let added = store.apply(
            at(number as u64 + 1),
            &Command::AddUser {
                issuer: issuer(1),
                name: name(&format!("user-{number:027}")),
                rights: rights(Role::Write, &prefix),
            },
        );
        assert!(matches!(added, Response::User(_)), "{added:?}");
    }
    store
}

fn chunks(store: &mut Store) -> Vec<Vec<u8>> {
    store.begin_snapshot().expect("none is running");
    let mut chunks = Vec::new();
    loop {
        let mut chunk = Vec::new();
        let step = store.snapshot_chunk(&mut chunk).expect("it was begun");
        if step != SnapshotStep::Pending {
            chunks.push(chunk);
        }
        if step == SnapshotStep::Last {
            return chunks;
        }
    }
}

#[test]
fn as_many_users_as_can_be_fit_into_an_answer_and_into_a_snapshot() {
    let mut store = of_names(USERS_MAX);
    let full = store.apply(
        at(10_000),
        &Command::AddUser {
            issuer: issuer(1),
            name: name("one-more"),
            rights: rights(Role::Read, b""),
        },
    );
    let limit = USERS_MAX as u32;
    assert_eq!(full, Response::Error(StoreError::TooManyUsers { limit }));
    let answer = store.read(&Command::ListUsers);
    assert!(answer.encoded_len() < crate::config::LIST_RESPONSE_BYTES_MAX);
    let Response::Users(users) = answer else {
        panic!("{answer:?}");
    };
    assert_eq!(users.len(), USERS_MAX);
    let written = chunks(&mut store);
    assert!(written.len() > 10, "{} chunks", written.len());
    let mut reader = SnapshotReader::new();
    for chunk in &written {
        assert!(chunk.len() <= crate::config::CHUNK_BYTES_MAX);
        reader.push(chunk).expect("a chunk");
    }
    let restored = reader.finish().expect("complete");
    assert_eq!(restored.users(), store.users());
    assert_eq!(restored.state_hash(), store.state_hash());
}

/// The end is compared with the head, whose hash has the users in it.
#[test]
fn a_snapshot_without_one_of_its_users_is_refused() {
    let (two, three) = (chunks(&mut of_names(2)), chunks(&mut of_names(3)));
    assert_eq!(two.len(), 4, "head, users, items, end");
    let mut reader = SnapshotReader::new();
    reader.push(&three[0]).expect("a head");
    // The position in the header is another; the store's own is what counts here.
    let mut users = two[1].clone();
    users[8..16].copy_from_slice(&three[1][8..16]);
    let crc = crate::checksum::crc32c([&users[..28], &users[32..]]);
    users[28..32].copy_from_slice(&crc.to_le_bytes());
    reader.push(&users).expect("users");
    reader.push(&three[2]).expect("no items");
    assert!(reader.push(&three[3]).is_err());
}

/// Members of an earlier version have to read what a group without users writes.
#[test]
fn a_group_without_users_writes_no_chunk_of_them() {
    let mut store = Store::with_version(Limits::default(), [1, 2], 4);
    let refused = store.apply(
        at(1),
        &Command::AddUser {
            issuer: issuer(1),
            name: name("alice"),
            rights: rights(Role::Read, b""),
        },
    );
    let not_active = StoreError::VersionNotActive {
        required: 5,
        active: 4,
    };
    assert_eq!(refused, Response::Error(not_active));
    let kinds: Vec<u8> = chunks(&mut store).iter().map(|chunk| chunk[6]).collect();
    assert_eq!(kinds, [1, 2, 3]);
}
