//! The messages between cache clients and servers.
//!
//! | kind | request | answer |
//! |---|---|---|
//! | HELLO | empty | "TRCH", version of this table (u8), shard (u32), shards (u32), little-endian |
//! | COMMAND | a command in the store's codec | a verdict (u8), after `DONE` the response in the store's codec |
//! | STATS | empty | [`ShardStats`] as JSON |
//!
//! A COMMAND or STATS to which the caller has no right gets the answer in `rights/denied.rs`, which begins with 6.
//! Other kinds get an empty answer. A HELLO to a replica gets one too, because replicas have other kinds.

use serde::{Deserialize, Serialize};

/// Request kinds; none of them is one of a replica's.
pub const HELLO: u8 = 32;
/// A command of the store for one shard.
pub const COMMAND: u8 = 33;
/// A question for a shard's counters.
pub const STATS: u8 = 34;

/// The verdict before a response.
pub const DONE: u8 = 0;
/// The request is no command.
pub const MALFORMED: u8 = 1;
/// The key belongs to another shard.
pub const WRONG_SHARD: u8 = 2;

const MAGIC: [u8; 4] = *b"TRCH";
const VERSION: u8 = 1;
/// The length of a HELLO's answer.
pub const HELLO_BYTES: usize = 13;

/// The answering shard of a server.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// From 0; also the distance of its port from the server's first one.
    pub shard: u32,
    /// The number of shards, never 0.
    pub shards: u32,
}

impl Hello {
    /// Returns its bytes on the wire.
    pub fn encode(self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5..9].copy_from_slice(&self.shard.to_le_bytes());
        bytes[9..].copy_from_slice(&self.shards.to_le_bytes());
        bytes
    }

    /// `None` for the answer of anything but a cache of this release's protocol.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(&MAGIC)?.strip_prefix(&[VERSION])?;
        let (shard, shards) = rest.split_first_chunk::<4>()?;
        let hello = Self {
            shard: u32::from_le_bytes(*shard),
            shards: u32::from_le_bytes(shards.try_into().ok()?),
        };
        (hello.shard < hello.shards).then_some(hello)
    }
}

/// The counters of a shard since its start, and the sizes of its memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardStats {
    /// The shard's number, from 0.
    pub shard: u32,
    /// The size of the circular log.
    pub log_bytes: u64,
    /// The size of the index.
    pub index_bytes: u64,
    /// Reads.
    pub gets: u64,
    /// Reads that found their key.
    pub hits: u64,
    /// Writes.
    pub puts: u64,
    /// Deletions.
    pub deletes: u64,
    /// Turns that answered GETs. The GETs of one turn are looked up interleaved.
    pub bursts: u64,
    /// The most requests that came in one turn.
    pub largest_burst: u64,
    /// Requests that were no command for this shard, or were denied.
    pub refused: u64,
    /// Entries that were evicted because their bucket was full.
    pub bucket_evictions: u64,
    /// How often the log wrapped around.
    pub log_rounds: u64,
    /// Writes that replaced the old value in place.
    pub in_place: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_survives_and_anything_else_is_refused() {
        let hello = Hello {
            shard: 1,
            shards: 2,
        };
        let bytes = hello.encode();
        assert_eq!(Hello::decode(&bytes), Some(hello));
        for length in 0..bytes.len() {
            assert_eq!(Hello::decode(&bytes[..length]), None, "{length} bytes");
        }
        let mut newer = bytes;
        newer[4] += 1;
        assert_eq!(Hello::decode(&newer), None);
        let beyond = Hello {
            shard: 2,
            shards: 2,
        };
        assert_eq!(Hello::decode(&beyond.encode()), None);
        assert_eq!(Hello::decode(&[&bytes[..], &[0]].concat()), None);
    }
}
