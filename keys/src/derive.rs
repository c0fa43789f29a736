//! HKDF-SHA256 (RFC 5869) with a label for each purpose.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};

use crate::config::KEY_BYTES;

/// What a derived value is for. No two purposes have labels of which one begins with the other: the zero byte at the
/// end sees to it.
#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    Fingerprint,
    Member,
    Admin,
    User,
    UserSession,
}

impl Purpose {
    fn label(self) -> &'static [u8] {
        match self {
            Self::Fingerprint => b"trine 1 fingerprint\0",
            Self::Member => b"trine 1 member\0",
            Self::Admin => b"trine 1 admin\0",
            Self::User => b"trine 1 user\0",
            Self::UserSession => b"trine 1 user session\0",
        }
    }
}

/// 32 bytes from `secret`. Only the last part of `context` may vary in length.
pub(crate) fn derive(
    salt: &[u8],
    secret: &[u8; KEY_BYTES],
    purpose: Purpose,
    context: [&[u8]; 2],
) -> [u8; KEY_BYTES] {
    let mut derived = [0; KEY_BYTES];
    Salt::new(HKDF_SHA256, salt)
        .extract(secret)
        .expand(&[purpose.label(), context[0], context[1]], HKDF_SHA256)
        .and_then(|material| material.fill(&mut derived))
        .expect("32 bytes are one block of HKDF-SHA256");
    derived
}

/// The first bytes of SHA-256 of `text`: finds accidents, no forgeries.
pub(crate) fn check<const BYTES: usize>(text: &[u8]) -> [u8; BYTES] {
    let sum = digest(&SHA256, text);
    *sum.as_ref()
        .first_chunk()
        .expect("a check is shorter than a digest")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purposes_secrets_salts_and_contexts_give_other_keys() {
        let of =
            |salt: &[u8], secret, purpose, context| derive(salt, &[secret; 32], purpose, context);
        let one = of(b"salt", 1, Purpose::User, [b"1", b"a"]);
        assert_eq!(one, of(b"salt", 1, Purpose::User, [b"1", b"a"]));
        let others = [
            of(b"other", 1, Purpose::User, [b"1", b"a"]),
            of(b"salt", 2, Purpose::User, [b"1", b"a"]),
            of(b"salt", 1, Purpose::UserSession, [b"1", b"a"]),
            of(b"salt", 1, Purpose::User, [b"2", b"a"]),
            of(b"salt", 1, Purpose::User, [b"1", b"b"]),
        ];
        for other in others {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn no_label_begins_with_another() {
        let all = [
            Purpose::Fingerprint,
            Purpose::Member,
            Purpose::Admin,
            Purpose::User,
            Purpose::UserSession,
        ];
        for one in all {
            let begun = all
                .iter()
                .filter(|other| other.label().starts_with(one.label()));
            assert_eq!(begun.count(), 1);
        }
    }
}
