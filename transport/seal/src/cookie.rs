//! The proof in a CONNECT that a holder of the key returns this very cookie: a recorded first message of a handshake is
//! worth nothing with another one.
//!
//! It is a MAC beside the handshake and no part of it. A client may get several cookies in one attempt, and a listener on
//! the path can send it more. It proves each of them with the one message that it has made. Another message with the same
//! ephemeral key would use a nonce of the handshake's cipher twice. With another ephemeral key, a forged cookie would make
//! the server's answer worthless.

use crate::mac::MacKey;
use crate::psk::Psk;

/// Bytes of the proof.
pub const COOKIE_PROOF_BYTES: usize = 16;

/// The key of those proofs, made of a pre-shared key.
#[derive(Clone)]
pub struct CookieKey(MacKey);

impl CookieKey {
    /// The key that belongs to `psk`.
    #[must_use]
    pub fn of(psk: &Psk) -> Self {
        Self(MacKey::of(psk, b"trine cookie"))
    }

    /// The proof for a body: the cookie, and all that is sent with it.
    #[must_use]
    pub fn proof(&self, body: &[u8]) -> [u8; COOKIE_PROOF_BYTES] {
        self.0.mac(body)
    }

    /// Whether `proof` is that proof.
    #[must_use]
    pub fn is_good(&self, body: &[u8], proof: &[u8]) -> bool {
        self.0.is_good::<COOKIE_PROOF_BYTES>(body, proof)
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
