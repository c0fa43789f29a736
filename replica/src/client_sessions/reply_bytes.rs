//! The bytes of a cached reply: most are a few bytes long, and those need no allocation of their own.

use std::ops::Deref;

/// Longest response that is kept in place; an acknowledged write has fewer bytes.
const INLINE_BYTES_MAX: usize = 22;

#[derive(Clone, PartialEq, Eq, Debug)]
enum Form {
    /// Length, and bytes of which the first so many count.
    Inline(u8, [u8; INLINE_BYTES_MAX]),
    Heap(Box<[u8]>),
}

/// A response of the store, as it was encoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ReplyBytes(Form);

const _: () = assert!(size_of::<ReplyBytes>() == 24);

impl From<&[u8]> for ReplyBytes {
    fn from(bytes: &[u8]) -> Self {
        if bytes.len() > INLINE_BYTES_MAX {
            return Self(Form::Heap(bytes.into()));
        }
        let mut inline = [0; INLINE_BYTES_MAX];
        inline[..bytes.len()].copy_from_slice(bytes);
        Self(Form::Inline(bytes.len() as u8, inline))
    }
}

impl Deref for ReplyBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Form::Inline(len, bytes) => &bytes[..usize::from(*len)],
            Form::Heap(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out_whatever_its_length() {
        for len in 0..60 {
            let bytes: Vec<u8> = (0..len).collect();
            assert_eq!(&*ReplyBytes::from(bytes.as_slice()), bytes.as_slice());
        }
    }
}
