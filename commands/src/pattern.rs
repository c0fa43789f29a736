//! A pattern of keys, as KEYS and SCAN take it.

use crate::glob::{Case, Glob};
use crate::limits::PATTERN_BYTES_MAX;

/// A pattern of keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern {
    text: Vec<u8>,
    glob: Glob,
}

impl Pattern {
    /// The pattern with this text.
    ///
    /// # Errors
    /// When it is too long to be compared with many keys.
    pub fn new(text: &[u8]) -> Result<Self, String> {
        require_short(text)?;
        Ok(Self {
            text: text.to_vec(),
            glob: Glob::new(text, Case::Counts),
        })
    }

    /// What every key begins with that fits.
    #[must_use]
    pub fn prefix(&self) -> &[u8] {
        let is_special = |byte: &u8| b"*?[\\".contains(byte);
        let end = self.text.iter().position(is_special);
        &self.text[..end.unwrap_or(self.text.len())]
    }

    /// Whether a key fits.
    #[must_use]
    pub fn fits(&self, key: &[u8]) -> bool {
        self.glob.fits(key)
    }
}

/// Refuses a pattern that is too long to be compared with many names.
pub(crate) fn require_short(text: &[u8]) -> Result<(), String> {
    match text.len() > PATTERN_BYTES_MAX {
        true => Err(format!(
            "the pattern is longer than {PATTERN_BYTES_MAX} bytes"
        )),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_is_what_stands_before_anything_special() {
        for (text, prefix) in [
            ("", ""),
            ("*", ""),
            ("user:*", "user:"),
            ("user:?1", "user:"),
            ("a[bc]", "a"),
            ("a\\*b", "a"),
            ("whole", "whole"),
        ] {
            let pattern = Pattern::new(text.as_bytes()).expect("it is short");
            assert_eq!(pattern.prefix(), prefix.as_bytes(), "{text}");
        }
        assert!(Pattern::new(&[b'a'; PATTERN_BYTES_MAX + 1]).is_err());
    }
}
