//! Values that are erased when they are dropped, compared in constant time, and never shown.

use std::fmt;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::config::KEY_BYTES;

/// A root or a user's key.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Secret([u8; KEY_BYTES]);

/// The key of a handshake, which both ends know beforehand.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Psk([u8; KEY_BYTES]);

macro_rules! secret {
    ($name:ident) => {
        impl $name {
            /// The secret of these bytes.
            #[must_use]
            pub fn new(bytes: [u8; KEY_BYTES]) -> Self {
                Self(bytes)
            }

            /// Its bytes. Whoever copies them erases the copy.
            #[must_use]
            pub fn bytes(&self) -> &[u8; KEY_BYTES] {
                &self.0
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                verify_slices_are_equal(&self.0, &other.0).is_ok()
            }
        }

        impl Eq for $name {}

        impl fmt::Debug for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(concat!(stringify!($name), "(..)"))
            }
        }
    };
}

secret!(Secret);
secret!(Psk);
