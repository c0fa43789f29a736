//! A store out of chunks.

use super::format::{ChunkHeader, ChunkKind, ITEM_HEADER_BYTES, RestoreError, SnapshotSummary};
use crate::arena::Stamp;
use crate::codec::{DecodeError, Reader};
use crate::command::STATE_VERSION;
use crate::config::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::pins::Pins;
use crate::position::Position;
use crate::store::Store;
use trine_canary as canary;

/// Builds a store from the chunks of one snapshot, each pushed once and in order. The items go
/// straight into the new store: there is no second copy.
#[derive(Debug, Default)]
pub struct SnapshotReader {
    /// None until the head has come.
    restoring: Option<Restoring>,
    next_sequence: u32,
    ended: bool,
}

#[derive(Debug)]
struct Restoring {
    summary: SnapshotSummary,
    store: Store,
    /// The place of the last item: its order, and its key for equal hashes.
    last: Option<(u64, Vec<u8>)>,
}

impl SnapshotReader {
    /// Waits for the head.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of the chunk that is due.
    #[must_use]
    pub fn expects(&self) -> u32 {
        self.next_sequence
    }

    /// The snapshot that is being restored, once the head has come.
    #[must_use]
    pub fn summary(&self) -> Option<SnapshotSummary> {
        self.restoring.as_ref().map(|restoring| restoring.summary)
    }

    /// The share of [`SnapshotSummary::logical_bytes`] that the received items take.
    #[must_use]
    pub fn logical_bytes(&self) -> u64 {
        let restoring = self.restoring.as_ref();
        restoring.map_or(0, |restoring| restoring.store.items.logical_bytes())
    }

    /// Whether the last chunk has come.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.ended
    }

    /// Takes the next chunk.
    ///
    /// # Errors
    /// When the chunk is damaged, not due or not of this snapshot. After a damaged or undue chunk
    /// the right one can still be pushed; after any other error the reader is useless.
    pub fn push(&mut self, chunk: &[u8]) -> Result<(), RestoreError> {
        let (header, body) = ChunkHeader::open(chunk)?;
        self.check_place(&header)?;
        match (header.kind, &mut self.restoring) {
            (ChunkKind::Head, None) => self.restoring = Some(Restoring::new(header, body)?),
            (ChunkKind::Users, Some(restoring)) => restoring.add_users(header, body)?,
            (ChunkKind::Pins, Some(restoring)) => restoring.add_pins(header, body)?,
            (ChunkKind::Items, Some(restoring)) => restoring.add_items(header, body)?,
            (ChunkKind::End, Some(restoring)) => {
                restoring.check_end(header, body)?;
                self.ended = true;
            }
            _ => {
                return Err(RestoreError::Malformed {
                    sequence: header.sequence,
                });
            }
        }
        self.next_sequence += 1;
        Ok(())
    }

    /// The restored store.
    ///
    /// # Errors
    /// When the last chunk has not come.
    pub fn finish(self) -> Result<Store, RestoreError> {
        match self.restoring {
            Some(restoring) if self.ended => Ok(restoring.store),
            _ => Err(RestoreError::Incomplete {
                expected: self.next_sequence,
            }),
        }
    }

    fn check_place(&self, header: &ChunkHeader) -> Result<(), RestoreError> {
        if self.ended {
            return Err(RestoreError::AfterEnd);
        }
        if let Some(summary) = self.summary()
            && header.position != summary.position
        {
            return Err(RestoreError::OtherSnapshot {
                expected: summary.position,
                found: header.position,
            });
        }
        if header.sequence != self.next_sequence {
            return Err(RestoreError::WrongSequence {
                expected: self.next_sequence,
                found: header.sequence,
            });
        }
        Ok(())
    }
}

impl Restoring {
    fn new(header: ChunkHeader, body: &[u8]) -> Result<Self, RestoreError> {
        let malformed = |_: DecodeError| RestoreError::Malformed {
            sequence: header.sequence,
        };
        let summary = SnapshotSummary::read(header.position, body).map_err(malformed)?;
        if summary.state_version > STATE_VERSION || summary.state_version == 0 {
            return Err(RestoreError::NewerStateVersion {
                version: summary.state_version,
            });
        }
        Ok(Self {
            summary,
            store: Store::from_summary(&summary),
            last: None,
        })
    }

    /// Users stand before all items.
    fn add_users(&mut self, header: ChunkHeader, body: &[u8]) -> Result<(), RestoreError> {
        let malformed = RestoreError::Malformed {
            sequence: header.sequence,
        };
        if self.last.is_some() || self.summary.state_version < ChunkKind::USERS_VERSION {
            return Err(malformed);
        }
        let added = self.store.users.add_body(body, header.items);
        added.map_err(|_| malformed)
    }

    /// Pins stand before all items. They are part of the state, but what they need of earlier positions is not here.
    fn add_pins(&mut self, header: ChunkHeader, body: &[u8]) -> Result<(), RestoreError> {
        let malformed = RestoreError::Malformed {
            sequence: header.sequence,
        };
        let is_due = self.last.is_none() && self.store.pins.is_empty();
        if !is_due {
            return Err(malformed);
        }
        let pins = Pins::read(body, header.items, self.summary.position);
        self.store.pins = pins.map_err(|_| malformed)?;
        Ok(())
    }

    fn add_items(&mut self, header: ChunkHeader, body: &[u8]) -> Result<(), RestoreError> {
        let malformed = |_: DecodeError| RestoreError::Malformed {
            sequence: header.sequence,
        };
        let mut reader = Reader::new(body);
        for _ in 0..header.items {
            let item = StoredItem::read(&mut reader).map_err(malformed)?;
            self.add(&item, header.sequence)?;
        }
        reader.finish().map_err(malformed)
    }

    fn add(&mut self, item: &StoredItem<'_>, sequence: u32) -> Result<(), RestoreError> {
        let items = &mut self.store.items;
        let found = items.find(item.key);
        let order = found.hash.order();
        if let Some((last_order, last_key)) = &mut self.last {
            if (order, item.key) <= (*last_order, last_key.as_slice()) {
                return Err(RestoreError::OutOfOrder { sequence });
            }
            *last_order = order;
            last_key.clear();
            last_key.extend_from_slice(item.key);
        } else {
            self.last = Some((order, item.key.to_vec()));
        }
        if item.stamp.version > self.summary.position {
            return Err(RestoreError::Malformed { sequence });
        }
        if !is_lost(order) {
            items.put(found, item.key, item.value, item.stamp);
        }
        Ok(())
    }

    fn check_end(&self, header: ChunkHeader, body: &[u8]) -> Result<(), RestoreError> {
        let announced: [u8; 8] = body.try_into().map_err(|_| RestoreError::Malformed {
            sequence: header.sequence,
        })?;
        if !self.store.users.is_untouched() && !self.store.users.is_whole() {
            return Err(RestoreError::Malformed {
                sequence: header.sequence,
            });
        }
        let restored = self.store.summary();
        if canary::planted("snapshot misses a bucket") {
            return Ok(());
        }
        if u64::from_le_bytes(announced) != restored.items || restored != self.summary {
            return Err(RestoreError::StateDiffers {
                items_expected: self.summary.items,
                items_found: restored.items,
            });
        }
        Ok(())
    }
}

/// Never; the canary loses one of eight buckets.
fn is_lost(order: u64) -> bool {
    canary::planted("snapshot misses a bucket") && order >> 61 == 5
}

/// An item in a chunk.
struct StoredItem<'a> {
    key: &'a [u8],
    value: &'a [u8],
    stamp: Stamp,
}

impl<'a> StoredItem<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        const _: () = assert!(ITEM_HEADER_BYTES == 4 + 4 + 8 + 8);
        let (key_length, value_length) = (reader.u32()?, reader.u32()?);
        let stamp = Stamp {
            version: Position::from_u64(reader.u64()?),
            expiry_ns: reader.u64()?,
        };
        if key_length > KEY_BYTES_MAX || value_length > VALUE_BYTES_MAX {
            return Err(DecodeError::BadField { field: "length" });
        }
        let key = reader.take(key_length as usize)?;
        Ok(Self {
            key,
            value: reader.take(value_length as usize)?,
            stamp,
        })
    }
}
