//! What a user's key looks like, and what is said of a text that is none.

use super::*;
use crate::cluster::ClusterKey;
use crate::fingerprint::GroupId;
use proptest::prelude::*;

fn cluster() -> ClusterKey {
    ClusterKey::new(GroupId([0x11; 8]), [1; 32], [2; 32])
}

fn key() -> UserKey {
    cluster().user_key("alice".parse().expect("a name"), 2)
}

fn error(text: &str) -> String {
    UserKey::parse(text).expect_err("no key").to_string()
}

#[test]
fn the_key_is_one_word_and_always_the_same() {
    let text = key().to_text();
    let parts: Vec<&str> = text.split(':').collect();
    assert_eq!(parts[..3], ["trine-key-1", "alice", "2"]);
    assert_eq!(parts[3], cluster().issuer().root.to_string());
    assert_eq!(parts[4].len(), 64);
    assert_eq!(parts[5].len(), 8);
    assert!(!text.contains(char::is_whitespace));
    assert_eq!(
        *text,
        "trine-key-1:alice:2:4d6926ce:c8aa11d68e0952dbadef7ace6e841edadb8fd6ddb7cc989596b3b1f92bbe995e:5533f007"
    );
    assert_eq!(UserKey::parse(&text), Ok(key()));
    let file = key().to_file_text();
    assert!(file.starts_with("# Key of one user of a trine group."));
    assert_eq!(UserKey::parse(&file), Ok(key()));
    assert_eq!(UserKey::parse(&format!("  {}\r\n", *text)), Ok(key()));
}

#[test]
fn every_user_generation_and_group_has_another_key() {
    let of = |cluster: &ClusterKey, name: &str, generation| {
        cluster.user_key(name.parse().expect("a name"), generation)
    };
    let other = ClusterKey::new(GroupId([0x12; 8]), [1; 32], [2; 32]);
    let next_root = ClusterKey::new(GroupId([0x11; 8]), [1; 32], [3; 32]);
    let one = of(&cluster(), "alice", 2).psk();
    for different in [
        of(&cluster(), "alice", 3),
        of(&cluster(), "alicf", 2),
        of(&other, "alice", 2),
        of(&next_root, "alice", 2),
    ] {
        assert_ne!(different.psk(), one);
    }
    let new_members = cluster()
        .accepting([9; 32])
        .and_then(ClusterKey::switched)
        .expect("settled");
    assert_eq!(
        of(&new_members, "alice", 2).psk(),
        one,
        "a new member root changes no user"
    );
    assert_ne!(
        one.bytes(),
        key().key.bytes(),
        "sessions have a key of their own"
    );
}

#[test]
fn every_mistake_is_named() {
    let text = key().to_text();
    let with = |from: &str, to: &str| error(&text.replacen(from, to, 1));
    assert_eq!(
        error("# nothing\n"),
        "there is no key: `trine user add NAME` or `trine user rotate NAME` prints one"
    );
    assert_eq!(
        error(&format!("{}\n{}", *text, *text)),
        "line 2 is more than the one key that the file of a user has: keep one of them"
    );
    assert_eq!(
        error(&cluster().to_text()),
        "this is a cluster key file, and a user's key is needed"
    );
    assert_eq!(
        error("hunter2"),
        "it is not a user's key: such a key begins with `trine-key-1:`"
    );
    assert_eq!(error("trine-key-x:"), error("hunter2"));
    assert_eq!(
        with("key-1", "key-2"),
        "this release reads user keys that begin with `trine-key-1:`: use a later release"
    );
    assert_eq!(
        error("trine-key-1:alice:2"),
        "a user's key has 6 parts with `:` between them, and this one has 3: copy the whole key"
    );
    assert_eq!(
        with("alice", "Alice"),
        "the second part of the key is not a user's name: character 1 is not one of a-z 0-9 . _ - which a user's name may have"
    );
    let generation =
        "the third part of the key is not a generation, which is a number from 1 to 4294967295";
    for bad in ["0", "02", "+2", "", "4294967296"] {
        assert_eq!(with(":2:", &format!(":{bad}:")), generation, "{bad}");
    }
    assert_eq!(
        error(&text[..text.len() - 1]),
        "the last part of the key has 8 digits 0-9 a-f: copy the whole key"
    );
    assert_eq!(
        with("alice", "alicf"),
        "the check at the key's end does not match: a character was changed, copy the key again"
    );
    let shown = format!("{:?}", key());
    assert!(!shown.contains(&text[40..60]), "{shown}");
}

proptest! {
    #[test]
    fn what_is_written_is_read(name in "[a-z0-9._-]{1,32}", generation in 1_u32.., root in any::<[u8; 32]>()) {
        let cluster = ClusterKey::new(GroupId([7; 8]), [1; 32], root);
        let key = cluster.user_key(name.parse().expect("a name"), generation);
        prop_assert_eq!(UserKey::parse(&key.to_text()), Ok(key.clone()));
        prop_assert_eq!(UserKey::parse(&key.to_file_text()), Ok(key));
    }

    /// Each key has one text.
    #[test]
    fn what_is_read_is_written_alike(at in 0_usize..200, character in "[!-~]") {
        let text = key().to_text();
        let at = at % text.len();
        let changed = format!("{}{character}{}", &text[..at], &text[at + 1..]);
        if let Ok(read) = UserKey::parse(&changed) {
            prop_assert_eq!(read, key());
            prop_assert_eq!(changed, text.to_string());
        }
    }

    #[test]
    fn any_text_is_answered(text in "(trine-key-1:)?([a-z0-9]{0,64}:?){0,8}") {
        let _ = UserKey::parse(&text);
    }
}
