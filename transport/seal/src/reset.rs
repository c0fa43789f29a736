//! The proof in a RESET that its sender holds the session's key, though it does not know the session.

use crate::mac::MacKey;
use crate::psk::Psk;

/// Bytes of the proof.
pub const RESET_MAC_BYTES: usize = 8;

/// The key of those proofs, made of a pre-shared key.
#[derive(Clone)]
pub struct ResetKey(MacKey);

impl ResetKey {
    /// The key that belongs to `psk`.
    #[must_use]
    pub fn of(psk: &Psk) -> Self {
        Self(MacKey::of(psk, b"trine reset"))
    }

    /// The proof for an answer to the probe with this nonce and token.
    #[must_use]
    pub fn mac(&self, nonce: u64, token: u64) -> [u8; RESET_MAC_BYTES] {
        self.0.mac(&message(nonce, token))
    }

    /// Whether `mac` is that proof.
    #[must_use]
    pub fn is_good(&self, nonce: u64, token: u64, mac: &[u8]) -> bool {
        self.0
            .is_good::<RESET_MAC_BYTES>(&message(nonce, token), mac)
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
