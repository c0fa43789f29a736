//! Cache mode: a fixed amount of memory, and what does not fit is forgotten.
//!
//! After MICA's cache mode: the index is set-associative and lossy, the items lie in a circular
//! log that overwrites the oldest (`log.rs`, `index.rs`). Nothing is ever allocated after
//! construction. A cache is not replicated state: it has no versions, no expiry and no snapshot;
//! it answers GET, PUT, DELETE and MGET. One shard belongs to one thread; clients find the shard
//! of a key with [`shard_of`].

mod index;
mod log;

use crate::codec::{Field, List, length_u32};
use crate::command::Command;
use crate::config::{KEY_BYTES_MAX, LIST_ITEMS_MAX, LIST_RESPONSE_BYTES_MAX, VALUE_BYTES_MAX};
use crate::error::StoreError;
use crate::hash::{Hasher, KeyHash};
use crate::interleave::{LANES, batch, fetch, prefetch};
use crate::position::Position;
use crate::response::Response;
use index::{Index, Slot};
use log::{CacheLog, LogPosition};
use std::borrow::Cow;
use std::fmt;
use std::future::Future;

/// How much memory a cache takes.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct CacheConfig {
    /// Bytes for items; rounded up to whole huge pages.
    pub log_bytes: usize,
    /// Bytes for the index, eight for each item it can find; rounded up to a power of two.
    pub index_bytes: usize,
}

/// The smallest log: room for several of the largest items.
pub const CACHE_LOG_BYTES_MIN: usize = 8 * 1024 * 1024;

/// Why a cache cannot be made.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum CacheConfigError {
    /// The log is smaller than [`CACHE_LOG_BYTES_MIN`].
    LogTooSmall {
        /// The size that was asked for, in bytes.
        asked: usize,
    },
    /// There is no memory for an index.
    NoIndex,
}

impl fmt::Display for CacheConfigError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LogTooSmall { asked } => {
                write!(
                    formatter,
                    "a log of {asked} bytes is smaller than {CACHE_LOG_BYTES_MIN}"
                )
            }
            Self::NoIndex => write!(formatter, "an index of 0 bytes finds nothing"),
        }
    }
}

impl std::error::Error for CacheConfigError {}

/// Counters of a cache.
#[derive(Copy, Clone, Eq, PartialEq, Default, Debug)]
pub struct CacheStats {
    /// Items that a full bucket forgot while they were still in the log.
    pub bucket_evictions: u64,
    /// Times that the log has begun again at its start.
    pub log_rounds: u64,
    /// PUTs that overwrote the old value in place.
    pub in_place: u64,
}

/// One shard of a cache.
#[derive(Debug)]
pub struct Cache {
    hasher: Hasher,
    index: Index,
    log: CacheLog,
    stats: CacheStats,
    /// The encoded elements of a list response.
    scratch: Vec<u8>,
}

/// The shard that a key belongs to. Part of the protocol between cache clients and servers: it
/// depends on nothing but the key.
#[must_use]
pub fn shard_of(key: &[u8], shards: u32) -> u32 {
    let hash = Hasher::new([0, 0]).key(key).0;
    ((u128::from(hash) * u128::from(shards)) >> 64) as u32
}

impl Cache {
    /// An empty cache. Take a random `hash_seed`: a client that knows it can make keys displace
    /// others.
    ///
    /// # Errors
    /// When the configuration leaves no room.
    pub fn new(config: CacheConfig, hash_seed: [u64; 2]) -> Result<Self, CacheConfigError> {
        if config.log_bytes < CACHE_LOG_BYTES_MIN {
            return Err(CacheConfigError::LogTooSmall {
                asked: config.log_bytes,
            });
        }
        if config.index_bytes == 0 {
            return Err(CacheConfigError::NoIndex);
        }
        Ok(Self {
            hasher: Hasher::new(hash_seed),
            index: Index::new(config.index_bytes),
            log: CacheLog::new(config.log_bytes),
            stats: CacheStats::default(),
            scratch: Vec::new(),
        })
    }

    /// The value of a key, if it was not forgotten.
    #[inline]
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.find(self.hasher.key(key), key)
            .map(|(_, position)| self.log.value(position))
    }

    /// Looks up `count` keys in an interleaved way. `found` gets each result with its number, in
    /// no particular order.
    #[inline]
    pub fn get_interleaved<'s, 'k>(
        &'s self,
        count: usize,
        key: impl Fn(usize) -> &'k [u8],
        found: impl FnMut(usize, Option<&'s [u8]>),
    ) {
        batch::<LANES, _>(count, |number| self.get_later(key(number)), found);
    }

    /// Writes a value. The oldest items are forgotten to make room.
    ///
    /// # Errors
    /// When key or value is longer than an item may be.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        check_lengths(key, value)?;
        self.put_hashed(self.hasher.key(key), key, value);
        Ok(())
    }

    /// Writes `count` values one after the other, after it has begun to fetch what they touch. Equal to that many calls of
    /// [`Cache::put`]; `done` gets each result with its number, in their order.
    #[inline]
    pub fn put_batch<'k>(
        &mut self,
        count: usize,
        item: impl Fn(usize) -> (&'k [u8], &'k [u8]),
        mut done: impl FnMut(usize, Result<(), StoreError>),
    ) {
        for first in (0..count).step_by(LANES) {
            let numbers = first..count.min(first + LANES);
            let hashes = self.prefetch_for_puts(numbers.clone().map(|number| item(number).0));
            for (number, hash) in numbers.zip(hashes) {
                let (key, value) = item(number);
                let fits = check_lengths(key, value);
                done(number, fits.map(|()| self.put_hashed(hash, key, value)));
            }
        }
    }

    /// Begins to fetch the buckets of at most [`LANES`] keys, and then the items that the buckets name. The keys' hashes.
    #[inline(always)]
    fn prefetch_for_puts<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> [KeyHash; LANES] {
        let mut hashes = [KeyHash(0); LANES];
        let mut count = 0;
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = self.hasher.key(key);
            prefetch(self.index.bucket(self.index.bucket_of(*hash)));
            count += 1;
        }
        for hash in &hashes[..count] {
            let bucket = self.index.bucket(self.index.bucket_of(*hash));
            let mut matching = bucket.matching(hash.tag());
            while matching != 0 {
                if let Some(position) = self.log.live(bucket.location(matching.trailing_zeros())) {
                    prefetch(self.log.first_byte(position));
                    self.log.prefetch_second_line(position);
                }
                matching &= matching - 1;
            }
        }
        hashes
    }

    fn put_hashed(&mut self, hash: KeyHash, key: &[u8], value: &[u8]) {
        let found = self.find(hash, key);
        if let Some((_, position)) = found
            && self.log.overwrite(position, key, value)
        {
            self.stats.in_place += 1;
            return;
        }
        let position = self.log.append(key, value);
        self.stats.log_rounds = self.log.rounds();
        let slot = found.map_or_else(|| self.slot_for_new(hash), |(slot, _)| slot);
        self.index.set(slot, hash.tag(), position);
    }

    /// Forgets a key; returns whether it was there.
    pub fn delete(&mut self, key: &[u8]) -> bool {
        let found = self.find(self.hasher.key(key), key);
        if let Some((slot, _)) = found {
            self.index.clear(slot);
        }
        found.is_some()
    }

    /// Answers a command. Its versions are always [`Position::ZERO`].
    pub fn apply(&mut self, command: &Command<'_>) -> Response<'_> {
        match *command {
            Command::Get { key } => value_or_not(self.get(key)),
            Command::Put { key, value } => match self.put(key, value) {
                Ok(()) => Response::Written {
                    version: Position::ZERO,
                },
                Err(error) => Response::Error(error),
            },
            Command::Delete { key } => Response::Deleted {
                existed: self.delete(key),
            },
            Command::MultiGet { ref keys } => self.multi_get(keys),
            _ => Response::Error(StoreError::NotInCache),
        }
    }

    /// The cache's counters.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        self.stats
    }

    fn multi_get(&mut self, keys: &List<'_, &[u8]>) -> Response<'_> {
        if keys.len() > LIST_ITEMS_MAX as usize {
            return Response::Error(StoreError::ListTooLong);
        }
        let mut values = std::mem::take(&mut self.scratch);
        values.clear();
        let fits = keys.iter().all(|key| {
            value_or_not(self.get(key)).write_field(&mut values);
            values.len() <= LIST_RESPONSE_BYTES_MAX
        });
        self.scratch = values;
        if !fits {
            return Response::Error(StoreError::ResponseTooLarge);
        }
        Response::List(List::from_encoded(
            length_u32(keys.len()),
            Cow::Borrowed(&self.scratch),
        ))
    }

    #[inline]
    fn find(&self, hash: KeyHash, key: &[u8]) -> Option<(Slot, LogPosition)> {
        let bucket = self.index.bucket_of(hash);
        let mut matching = self.index.bucket(bucket).matching(hash.tag());
        while matching != 0 {
            let slot = matching.trailing_zeros();
            let stored = self.index.bucket(bucket).location(slot);
            if let Some(position) = self.log.live(stored)
                && self.log.has_key(position, key)
            {
                return Some((Slot { bucket, slot }, position));
            }
            matching &= matching - 1;
        }
        None
    }

    #[inline(always)]
    fn get_later(&self, key: &[u8]) -> impl Future<Output = Option<&[u8]>> {
        let hash = self.hasher.key(key);
        let bucket = self.index.bucket(self.index.bucket_of(hash));
        let log = &self.log;
        async move {
            fetch(bucket).await;
            let mut matching = bucket.matching(hash.tag());
            while matching != 0 {
                if let Some(position) = log.live(bucket.location(matching.trailing_zeros())) {
                    log.prefetch_second_line(position);
                    fetch(log.first_byte(position)).await;
                    if log.has_key(position, key) {
                        return Some(log.value(position));
                    }
                }
                matching &= matching - 1;
            }
            None
        }
    }

    /// An empty slot, or one whose item the log has overwritten, or that of the oldest item.
    fn slot_for_new(&mut self, hash: KeyHash) -> Slot {
        let bucket = self.index.bucket_of(hash);
        let age = |slot: u32| {
            if self.index.is_empty(Slot { bucket, slot }) {
                return u64::MAX;
            }
            let stored = self.index.bucket(bucket).location(slot);
            self.log
                .live(stored)
                .map_or(u64::MAX - 1, |position| self.log.age(position))
        };
        let slot = (0..index::WAYS)
            .max_by_key(|&slot| age(slot))
            .expect("a bucket has slots");
        if age(slot) < u64::MAX - 1 {
            self.stats.bucket_evictions += 1;
        }
        Slot { bucket, slot }
    }
}

fn check_lengths(key: &[u8], value: &[u8]) -> Result<(), StoreError> {
    if key.len() > KEY_BYTES_MAX as usize {
        return Err(StoreError::KeyTooLong {
            limit: KEY_BYTES_MAX,
        });
    }
    if value.len() > VALUE_BYTES_MAX as usize {
        return Err(StoreError::ValueTooLong {
            limit: VALUE_BYTES_MAX,
        });
    }
    Ok(())
}

fn value_or_not(value: Option<&[u8]>) -> Response<'_> {
    match value {
        Some(value) => Response::Value {
            value,
            version: Position::ZERO,
        },
        None => Response::NotFound,
    }
}

#[cfg(test)]
mod tests;
