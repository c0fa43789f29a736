//! The content of a typed call: a small trait, and its implementations for common types.

use std::fmt;

/// A value that travels as a request or a response. The encoding belongs to the type: integers here
/// are little-endian; a struct writes its fields one after the other, or calls its favourite codec.
///
/// ```
/// use trine_rpc::{DecodeError, Message};
///
/// #[derive(Debug, PartialEq)]
/// struct Point {
///     x: u32,
///     y: u32,
/// }
///
/// impl Message for Point {
///     fn encoded_len(&self) -> usize {
///         8
///     }
///
///     fn encode(&self, out: &mut [u8]) {
///         self.x.encode(&mut out[..4]);
///         self.y.encode(&mut out[4..]);
///     }
///
///     fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
///         let (x, y) = bytes.split_at_checked(4).ok_or(DecodeError::new("a point has 8 bytes"))?;
///         Ok(Self { x: u32::decode(x)?, y: u32::decode(y)? })
///     }
/// }
///
/// let point = Point { x: 3, y: 4 };
/// let mut bytes = vec![0; point.encoded_len()];
/// point.encode(&mut bytes);
/// assert_eq!(Point::decode(&bytes), Ok(point));
/// assert!(Point::decode(&bytes[1..]).is_err());
/// ```
pub trait Message: Sized {
    /// Bytes that `encode` writes.
    fn encoded_len(&self) -> usize;

    /// Writes the value. `out` has exactly [`Message::encoded_len`] bytes of unspecified content and
    /// lies in the memory that the backend sends from.
    fn encode(&self, out: &mut [u8]);

    /// Reads a value that takes all of `bytes`. They come from a peer: anything may be in them.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if they are no such value.
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError>;
}

/// Bytes that are no value of the type.
///
/// ```
/// use trine_rpc::{DecodeError, Message};
///
/// let error = u32::decode(b"abc").unwrap_err();
/// assert_eq!(error, DecodeError::new("another number of bytes than the type has"));
/// ```
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct DecodeError {
    reason: &'static str,
}

impl DecodeError {
    /// An error with this reason.
    #[must_use]
    pub const fn new(reason: &'static str) -> Self {
        Self { reason }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the message is malformed: {}", self.reason)
    }
}

impl std::error::Error for DecodeError {}

const WRONG_LENGTH: DecodeError = DecodeError::new("another number of bytes than the type has");

impl Message for () {
    fn encoded_len(&self) -> usize {
        0
    }

    fn encode(&self, _: &mut [u8]) {}

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        if bytes.is_empty() {
            Ok(())
        } else {
            Err(WRONG_LENGTH)
        }
    }
}

impl Message for bool {
    fn encoded_len(&self) -> usize {
        1
    }

    fn encode(&self, out: &mut [u8]) {
        out[0] = u8::from(*self);
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        match bytes {
            [0] => Ok(false),
            [1] => Ok(true),
            [_] => Err(DecodeError::new("a bool is 0 or 1")),
            _ => Err(WRONG_LENGTH),
        }
    }
}

macro_rules! integers {
    ($($integer:ty),*) => {$(
        impl Message for $integer {
            fn encoded_len(&self) -> usize {
                size_of::<Self>()
            }

            fn encode(&self, out: &mut [u8]) {
                out.copy_from_slice(&self.to_le_bytes());
            }

            fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
                let bytes = bytes.try_into().map_err(|_| WRONG_LENGTH)?;
                Ok(Self::from_le_bytes(bytes))
            }
        }
    )*};
}

integers!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128);

impl Message for Vec<u8> {
    fn encoded_len(&self) -> usize {
        self.len()
    }

    fn encode(&self, out: &mut [u8]) {
        out.copy_from_slice(self);
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        Ok(bytes.to_vec())
    }
}

impl Message for String {
    fn encoded_len(&self) -> usize {
        self.len()
    }

    fn encode(&self, out: &mut [u8]) {
        out.copy_from_slice(self.as_bytes());
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let text = str::from_utf8(bytes).map_err(|_| DecodeError::new("text is not UTF-8"))?;
        Ok(text.to_owned())
    }
}

impl<const N: usize> Message for [u8; N] {
    fn encoded_len(&self) -> usize {
        N
    }

    fn encode(&self, out: &mut [u8]) {
        out.copy_from_slice(self);
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        bytes.try_into().map_err(|_| WRONG_LENGTH)
    }
}

/// One byte, 0 or 1, and the value if there is one.
impl<T: Message> Message for Option<T> {
    fn encoded_len(&self) -> usize {
        1 + self.as_ref().map_or(0, T::encoded_len)
    }

    fn encode(&self, out: &mut [u8]) {
        out[0] = u8::from(self.is_some());
        if let Some(value) = self {
            value.encode(&mut out[1..]);
        }
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        match bytes {
            [0] => Ok(None),
            [1, value @ ..] => T::decode(value).map(Some),
            _ => Err(DecodeError::new("an option begins with 0 or 1")),
        }
    }
}

/// One byte, 0 for `Ok` or 1 for `Err`, and the value. The answer of a handler that can fail.
impl<T: Message, E: Message> Message for Result<T, E> {
    fn encoded_len(&self) -> usize {
        1 + match self {
            Ok(value) => value.encoded_len(),
            Err(error) => error.encoded_len(),
        }
    }

    fn encode(&self, out: &mut [u8]) {
        out[0] = u8::from(self.is_err());
        match self {
            Ok(value) => value.encode(&mut out[1..]),
            Err(error) => error.encode(&mut out[1..]),
        }
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        match bytes {
            [0, value @ ..] => T::decode(value).map(Ok),
            [1, error @ ..] => E::decode(error).map(Err),
            _ => Err(DecodeError::new("a result begins with 0 or 1")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of<T: Message>(value: &T) -> Vec<u8> {
        let mut bytes = vec![0xaa; value.encoded_len()];
        value.encode(&mut bytes);
        bytes
    }

    fn comes_back<T: Message + PartialEq + fmt::Debug>(value: T) {
        assert_eq!(T::decode(&bytes_of(&value)), Ok(value));
    }

    #[test]
    fn values_come_back() {
        comes_back(());
        comes_back(true);
        comes_back(0x1234_u16);
        comes_back(-5_i64);
        comes_back(u128::MAX - 1);
        comes_back(vec![1_u8, 2, 3]);
        comes_back("grüße".to_owned());
        comes_back([7_u8; 3]);
        comes_back(Some(9_u32));
        comes_back(None::<u32>);
        comes_back(Ok::<u32, String>(9));
        comes_back(Err::<u32, String>("no".to_owned()));
    }

    #[test]
    fn integers_are_little_endian() {
        assert_eq!(bytes_of(&0x0102_0304_u32), [4, 3, 2, 1]);
    }

    #[test]
    fn what_is_no_value_is_refused() {
        assert!(<()>::decode(&[0]).is_err());
        assert!(bool::decode(&[2]).is_err());
        assert!(u64::decode(&[0; 7]).is_err());
        assert!(String::decode(&[0xff]).is_err());
        assert!(<[u8; 3]>::decode(&[0; 4]).is_err());
        assert!(Option::<u8>::decode(&[]).is_err());
        assert!(Option::<u8>::decode(&[0, 0]).is_err());
        assert!(Result::<u8, u8>::decode(&[2, 0]).is_err());
    }
}
