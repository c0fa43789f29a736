//! What a group of replicas keeps for a sequencer.
//!
//! One value, which every change replaces under the condition that its version is still the one that was read:
//!
//! ```text
//! byte  0 ..  4   "TRSN"
//! byte  4         1, the version of this table
//! byte  5 .. 13   the number behind the last one that is reserved
//! byte 13 .. 21   the server that may give out numbers; 0 if none may
//! byte 21 .. 29   the length of its lease in nanoseconds; 0 if servers need none
//! ```
//!
//! Numbers are little-endian.

use std::fmt;

use trine_transport::time::Duration;

const HEAD: [u8; 5] = *b"TRSN\x01";
const RECORD_BYTES: usize = 29;

/// The value.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The number behind the last one that is reserved.
    pub limit: u64,
    /// The server that may give out numbers; 0 if none may, or if none needs a lease.
    pub holder: u64,
    /// The length of its lease; zero if servers need none.
    pub lease: Duration,
}

/// A value that is none of a sequencer of this release.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct BadRecord;

impl fmt::Display for BadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the value is not a sequencer's, or one of another release")
    }
}

impl Record {
    /// Its bytes.
    pub fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[..5].copy_from_slice(&HEAD);
        let words = [self.limit, self.holder, self.lease.as_nanos()];
        for (place, word) in bytes[5..].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads one.
    ///
    /// # Errors
    /// The bytes are no record.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadRecord> {
        let rest = bytes.strip_prefix(&HEAD).ok_or(BadRecord)?;
        let rest: &[u8; RECORD_BYTES - 5] = rest.try_into().map_err(|_| BadRecord)?;
        let word = |at: usize| {
            let bytes = rest[at..at + 8].try_into().expect("eight bytes");
            u64::from_le_bytes(bytes)
        };
        Ok(Self {
            limit: word(0),
            holder: word(8),
            lease: Duration::from_nanos(word(16)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_and_anything_else_is_refused() {
        let record = Record {
            limit: (1 << 32) + 5,
            holder: u64::MAX,
            lease: Duration::from_secs(1),
        };
        let bytes = record.encode();
        assert_eq!(Record::decode(&bytes), Ok(record));
        for length in 0..bytes.len() {
            assert_eq!(Record::decode(&bytes[..length]), Err(BadRecord));
        }
        assert_eq!(Record::decode(&[&bytes[..], b"x"].concat()), Err(BadRecord));
        assert_eq!(Record::decode(b"17"), Err(BadRecord));
        let mut newer = bytes;
        newer[4] += 1;
        assert_eq!(Record::decode(&newer), Err(BadRecord));
    }
}
