//! New keys, of the operating system's random bytes. Nothing else in this crate asks for them.

use zeroize::Zeroizing;

use crate::cluster::ClusterKey;
use crate::config::{CLUSTER_KEY_RANDOM_BYTES, KEY_BYTES};

/// The operating system gave no random bytes.
#[derive(Debug, thiserror::Error)]
#[error("the operating system gives no random bytes: {0}")]
pub struct DrawError(String);

impl ClusterKey {
    /// A new key for a new group.
    ///
    /// # Errors
    ///
    /// If the operating system gives no random bytes.
    pub fn draw() -> Result<Self, DrawError> {
        let random = random::<CLUSTER_KEY_RANDOM_BYTES>()?;
        Ok(Self::from_random(&random))
    }

    /// A new member root, for [`Self::accepting`].
    ///
    /// # Errors
    ///
    /// If the operating system gives no random bytes.
    pub fn draw_root() -> Result<Zeroizing<[u8; KEY_BYTES]>, DrawError> {
        random::<KEY_BYTES>()
    }
}

fn random<const BYTES: usize>() -> Result<Zeroizing<[u8; BYTES]>, DrawError> {
    let mut random = Zeroizing::new([0; BYTES]);
    getrandom::fill(&mut *random).map_err(|error| DrawError(error.to_string()))?;
    Ok(random)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_drawn_key_is_another() {
        let (one, other) = (
            ClusterKey::draw().expect("drawn"),
            ClusterKey::draw().expect("drawn"),
        );
        assert_ne!(one.group(), other.group());
        assert_ne!(one.member(), other.member());
        assert_ne!(one.admin(), other.admin());
        let root = || ClusterKey::draw_root().expect("drawn");
        assert_ne!(root(), root());
    }
}
