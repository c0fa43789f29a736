//! The proof in a RESET that its sender holds the session's key, though it does not know the session.

use aws_lc_rs::{constant_time, hkdf, hmac};

use crate::psk::Psk;

/// Bytes of the proof.
pub const RESET_MAC_BYTES: usize = 8;

/// The key of those proofs, made of a pre-shared key.
#[derive(Clone)]
pub struct ResetKey(hmac::Key);

impl ResetKey {
    /// The key that belongs to `psk`.
    #[must_use]
    pub fn of(psk: &Psk) -> Self {
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"trine reset");
        let prk = salt.extract(psk.bytes());
        let key = prk
            .expand(&[b"mac"], hmac::HMAC_SHA256)
            .map(hmac::Key::from);
        Self(key.expect("the length of the algorithm's own output"))
    }

    /// The proof for an answer to the probe with this nonce and token.
    #[must_use]
    pub fn mac(&self, nonce: u64, token: u64) -> [u8; RESET_MAC_BYTES] {
        let whole = hmac::sign(&self.0, &message(nonce, token));
        let mut mac = [0; RESET_MAC_BYTES];
        mac.copy_from_slice(&whole.as_ref()[..RESET_MAC_BYTES]);
        mac
    }

    /// Whether `mac` is that proof.
    #[must_use]
    pub fn is_good(&self, nonce: u64, token: u64, mac: &[u8]) -> bool {
        constant_time::verify_slices_are_equal(&self.mac(nonce, token), mac).is_ok()
    }
}

impl std::fmt::Debug for ResetKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ResetKey(..)")
    }
}

fn message(nonce: u64, token: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&nonce.to_le_bytes());
    bytes[8..].copy_from_slice(&token.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_good_for_its_key_nonce_and_token_alone() {
        let key = ResetKey::of(&Psk::new([1; 32]));
        let mac = key.mac(5, 9);
        assert!(key.is_good(5, 9, &mac));
        assert!(!key.is_good(6, 9, &mac) && !key.is_good(5, 8, &mac));
        assert!(!ResetKey::of(&Psk::new([2; 32])).is_good(5, 9, &mac));
        assert!(!key.is_good(5, 9, &mac[..7]) && !key.is_good(5, 9, &[0; 8]));
    }
}
