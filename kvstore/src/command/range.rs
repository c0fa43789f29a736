//! The range of a scan, and what it returns of the keys.

use crate::codec::{DecodeError, Field, Reader, Sink};

/// Keys that lie one behind the other in the order of their bytes.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum KeyRange<'a> {
    /// The keys that begin with these bytes; with none, all keys.
    Prefix(&'a [u8]),
    /// The keys from `start` on, and before `end` if there is one.
    Between {
        /// The least key that is in it.
        start: &'a [u8],
        /// The least key behind it.
        end: Option<&'a [u8]>,
    },
}

impl KeyRange<'_> {
    /// Whether every key that can lie in the range begins with `prefix`.
    #[must_use]
    pub fn is_within(&self, prefix: &[u8]) -> bool {
        match self {
            Self::Prefix(own) => own.starts_with(prefix),
            Self::Between { start, end } => {
                start.starts_with(prefix)
                    && match (end, after_prefix(prefix)) {
                        (_, None) => true,
                        (None, Some(_)) => false,
                        (Some(end), Some(after)) => **end <= *after,
                    }
            }
        }
    }
}

/// The least key behind all that begin with `prefix`; none if there is no such key.
#[must_use]
pub fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut end = prefix.to_vec();
    // The last byte that can grow does; those after it are 0xff and go.
    while end.pop_if(|byte| *byte == u8::MAX).is_some() {}
    *end.last_mut()? += 1;
    Some(end)
}

/// What a page of a scan holds.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct ScanOptions {
    /// The most keys of the page: 1 to [`crate::config::SCAN_KEYS_MAX`].
    pub limit: u32,
    /// The greatest key first.
    pub reverse: bool,
    /// Without values and versions.
    pub keys_only: bool,
}

impl Default for ScanOptions {
    fn default() -> Self {
        Self {
            limit: crate::config::SCAN_KEYS_MAX,
            reverse: false,
            keys_only: false,
        }
    }
}

impl<'a> Field<'a> for KeyRange<'a> {
    fn write_field(&self, sink: &mut impl Sink) {
        match self {
            Self::Prefix(prefix) => {
                sink.put_u8(0);
                sink.put_bytes(prefix);
            }
            Self::Between { start, end } => {
                sink.put_u8(if end.is_some() { 2 } else { 1 });
                sink.put_bytes(start);
                if let Some(end) = end {
                    sink.put_bytes(end);
                }
            }
        }
    }
    fn read_field(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let form = reader.u8()?;
        let first = reader.bytes()?;
        Ok(match form {
            0 => Self::Prefix(first),
            1 => Self::Between {
                start: first,
                end: None,
            },
            2 => Self::Between {
                start: first,
                end: Some(reader.bytes()?),
            },
            _ => return Err(DecodeError::BadField { field: "range" }),
        })
    }
}

impl Field<'_> for ScanOptions {
    fn write_field(&self, sink: &mut impl Sink) {
        sink.put_u32(self.limit);
        sink.put_u8(u8::from(self.reverse));
        sink.put_u8(u8::from(self.keys_only));
    }
    fn read_field(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            limit: reader.u32()?,
            reverse: reader.flag("reverse")?,
            keys_only: reader.flag("keys_only")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_within_a_prefix_if_no_key_of_it_can_lie_outside() {
        let between = |start: &'static str, end: Option<&'static str>| KeyRange::Between {
            start: start.as_bytes(),
            end: end.map(str::as_bytes),
        };
        assert!(between("a/", Some("a0")).is_within(b"a/"));
        assert!(between("a/b", Some("a/c")).is_within(b"a/"));
        assert!(!between("a/b", Some("a1")).is_within(b"a/"));
        assert!(!between("a/b", None).is_within(b"a/"));
        assert!(!between("a", Some("a/z")).is_within(b"a/"));
        assert!(between("", None).is_within(b""));
        assert!(KeyRange::Prefix(b"a/b").is_within(b"a/"));
        assert!(!KeyRange::Prefix(b"a").is_within(b"a/"));
        let last = KeyRange::Between {
            start: &[0xff, 0xff, 1],
            end: None,
        };
        assert!(last.is_within(&[0xff, 0xff]), "nothing lies behind it");
    }
}
