//! The proof in a CONNECT that a holder of the key returns this very cookie: a recorded first message of a handshake is
//! worth nothing with another one.
//!
//! It is a MAC beside the handshake and no part of it. A client may get several cookies in one attempt, and a listener on
//! the path can send it more. It proves each of them with the one message that it has made. Another message with the same
//! ephemeral key would use a nonce of the handshake's cipher twice. With another ephemeral key, a forged cookie would make
//! the server's answer worthless.

use aws_lc_rs::{constant_time, hkdf, hmac};

use crate::psk::Psk;

/// Bytes of the proof.
pub const COOKIE_PROOF_BYTES: usize = 16;

/// The key of those proofs, made of a pre-shared key.
#[derive(Clone)]
pub struct CookieKey(hmac::Key);

impl CookieKey {
    /// The key that belongs to `psk`.
    #[must_use]
    pub fn of(psk: &Psk) -> Self {
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"trine cookie");
        let prk = salt.extract(psk.bytes());
        let key = prk
            .expand(&[b"mac"], hmac::HMAC_SHA256)
            .map(hmac::Key::from);
        Self(key.expect("the length of the algorithm's own output"))
    }

    /// The proof for a body: the cookie, and all that is sent with it.
    #[must_use]
    pub fn proof(&self, body: &[u8]) -> [u8; COOKIE_PROOF_BYTES] {
        let whole = hmac::sign(&self.0, body);
        let mut proof = [0; COOKIE_PROOF_BYTES];
        proof.copy_from_slice(&whole.as_ref()[..COOKIE_PROOF_BYTES]);
        proof
    }

    /// Whether `proof` is that proof.
    #[must_use]
    pub fn is_good(&self, body: &[u8], proof: &[u8]) -> bool {
        constant_time::verify_slices_are_equal(&self.proof(body), proof).is_ok()
    }
}

impl std::fmt::Debug for CookieKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CookieKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_good_for_its_key_and_body_alone() {
        let key = CookieKey::of(&Psk::new([1; 32]));
        let proof = key.proof(b"cookie 1");
        assert!(key.is_good(b"cookie 1", &proof));
        assert!(!key.is_good(b"cookie 2", &proof));
        assert!(!CookieKey::of(&Psk::new([2; 32])).is_good(b"cookie 1", &proof));
        assert!(!key.is_good(b"cookie 1", &proof[..15]));
        assert!(!key.is_good(b"cookie 1", &[0; COOKIE_PROOF_BYTES]));
    }

    /// The bytes of PROTOCOL.md section 9.1, made with Python's `hmac`.
    #[test]
    fn the_proof_has_the_documented_bytes() {
        let key = CookieKey::of(&Psk::new([7; 32]));
        let proof = key.proof(b"the body of a CONNECT");
        assert_eq!(proof, GOLDEN);
    }

    const GOLDEN: [u8; COOKIE_PROOF_BYTES] = [
        0xc4, 0x76, 0x99, 0x2d, 0xe3, 0x59, 0xa3, 0x00, 0xd7, 0x6e, 0xbd, 0x17, 0x45, 0x0f, 0x5e,
        0xcf,
    ];
}
