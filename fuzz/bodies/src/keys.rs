//! Texts and ids of keys: what is read again must be what was written, and nothing panics.

use trine_keys::{ClusterKey, Credential, GroupId, KeyId, KeyRing, Presented, UserKey};

/// The text of a cluster key file.
pub fn cluster(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let presented = Presented::parse(text);
    match ClusterKey::parse(text) {
        Ok(key) => {
            let again = ClusterKey::parse(&key.to_text());
            assert_eq!(again.as_ref(), Ok(&key), "a written key is read alike");
            assert_eq!(presented, Ok(Presented::admin(&key)));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// The text of a user's key.
pub fn user(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match UserKey::parse(text) {
        Ok(key) => {
            assert!(text.contains(key.to_text().as_str()), "a key has one text");
            assert_eq!(UserKey::parse(&key.to_file_text()).as_ref(), Ok(&key));
            assert_eq!(Presented::parse(text), Ok(Presented::user(&key)));
            let id = key.key_id();
            assert_eq!(KeyId::decode(&id.encode()), Ok(id));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// An encoded key id, as a CONNECT carries it.
pub fn id(bytes: &[u8]) {
    let read = KeyId::decode(bytes);
    assert_eq!(Credential::parse(bytes), read.ok().map(Credential::from));
    let ring = KeyRing::new([ClusterKey::new(GroupId([7; 8]), [1; 32], [2; 32])]);
    let psk = ring.psk(bytes);
    match read {
        Ok(id) => {
            assert_eq!(id.encode(), bytes, "a key id has one encoding");
            assert_eq!(psk.is_some(), names_a_root_of(&ring, id));
        }
        Err(_) => assert_eq!(psk, None),
    }
}

fn names_a_root_of(ring: &KeyRing, id: KeyId) -> bool {
    ring.key_ids().any(|own| match (own, id) {
        (KeyId::Admin { root: own }, KeyId::User { root, .. }) => own == root,
        (own, id) => own == id,
    })
}
