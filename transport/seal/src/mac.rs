//! A MAC under a key made of a pre-shared one: the proofs of RESET and of a returned cookie, each with a salt of its own.

use aws_lc_rs::{constant_time, hkdf, hmac};

use crate::psk::Psk;

/// The key of one kind of proof.
#[derive(Clone)]
pub(crate) struct MacKey(hmac::Key);

impl MacKey {
    /// The key that belongs to `psk`, for the proofs that `salt` names.
    pub(crate) fn of(psk: &Psk, salt: &[u8]) -> Self {
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, salt);
        let prk = salt.extract(psk.bytes());
        let key = prk
            .expand(&[b"mac"], hmac::HMAC_SHA256)
            .map(hmac::Key::from);
        Self(key.expect("the length of the algorithm's own output"))
    }

    /// The first `N` bytes of the MAC over `message`. `N` is at most 32.
    pub(crate) fn mac<const N: usize>(&self, message: &[u8]) -> [u8; N] {
        let whole = hmac::sign(&self.0, message);
        let mut mac = [0; N];
        mac.copy_from_slice(&whole.as_ref()[..N]);
        mac
    }

    /// Whether `mac` is that one, in a time that does not depend on the position of a difference.
    pub(crate) fn is_good<const N: usize>(&self, message: &[u8], mac: &[u8]) -> bool {
        constant_time::verify_slices_are_equal(&self.mac::<N>(message), mac).is_ok()
    }
}
