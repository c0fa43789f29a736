//! MGET and MSET.

use super::Store;
use crate::arena::Stamp;
use crate::codec::{Field, List, length_u32};
use crate::command::Pair;
use crate::config::{LIST_ITEMS_MAX, LIST_RESPONSE_BYTES_MAX};
use crate::error::StoreError;
use crate::interleave::LANES;
use crate::position::Position;
use crate::response::{Response, Versioned};
use std::borrow::Cow;

impl Store {
    pub(super) fn multi_get(&mut self, keys: &List<'_, &[u8]>) -> Response<'_> {
        let mut values = std::mem::take(&mut self.scratch);
        values.clear();
        let result = self.append_values(keys, &mut values);
        self.scratch = values;
        match result {
            Ok(()) => Response::List(List::from_encoded(
                length_u32(keys.len()),
                Cow::Borrowed(&self.scratch),
            )),
            Err(error) => Response::Error(error),
        }
    }

    pub(super) fn read_many(&self, keys: &List<'_, &[u8]>) -> Response<'_> {
        let mut values = Vec::new();
        match self.append_values(keys, &mut values) {
            Ok(()) => Response::List(List::from_encoded(
                length_u32(keys.len()),
                Cow::Owned(values),
            )),
            Err(error) => Response::Error(error),
        }
    }

    fn append_values(
        &self,
        keys: &List<'_, &[u8]>,
        values: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        if keys.len() > LIST_ITEMS_MAX as usize {
            return Err(StoreError::ListTooLong);
        }
        let mut left = keys.iter();
        let mut group: [&[u8]; LANES] = [&[]; LANES];
        loop {
            let count = left
                .by_ref()
                .take(LANES)
                .zip(&mut group)
                .map(|(key, place)| *place = key)
                .count();
            if count == 0 {
                return Ok(());
            }
            self.append_group(&group[..count], values)?;
        }
    }

    /// Looks a group up in an interleaved way and appends its answers in order.
    fn append_group(&self, keys: &[&[u8]], values: &mut Vec<u8>) -> Result<(), StoreError> {
        let mut found = [None; LANES];
        self.get_interleaved(
            keys.len(),
            |number| keys[number],
            |number, value| found[number] = value,
        );
        for value in &found[..keys.len()] {
            let response = match *value {
                Some(Versioned { value, version }) => Response::Value { value, version },
                None => Response::NotFound,
            };
            response.write_field(values);
            if values.len() > LIST_RESPONSE_BYTES_MAX {
                return Err(StoreError::ResponseTooLarge);
            }
        }
        Ok(())
    }

    pub(super) fn multi_put(&mut self, at: Position, pairs: &List<'_, Pair<'_>>) -> Response<'_> {
        self.begin_undoable();
        let mut written = self.try_put_all(at, pairs);
        if self.makes_room_to_retry() {
            written = self.try_put_all(at, pairs);
        }
        self.end_undoable(written.is_ok());
        written.map_or_else(Response::Error, |version| Response::Written { version })
    }

    /// MSET as one operation of an EXEC: all of its pairs or none, whatever the others do.
    pub(super) fn put_all(&mut self, at: Position, pairs: &List<'_, Pair<'_>>) -> Response<'_> {
        let mark = self.undo_mark();
        let written = self.try_put_all(at, pairs);
        if written.is_err() {
            self.undo_to(mark);
        }
        written.map_or_else(Response::Error, |version| Response::Written { version })
    }

    fn try_put_all(
        &mut self,
        at: Position,
        pairs: &List<'_, Pair<'_>>,
    ) -> Result<Position, StoreError> {
        if pairs.len() > LIST_ITEMS_MAX as usize {
            return Err(StoreError::ListTooLong);
        }
        let stamp = Stamp {
            version: at,
            expiry_ns: 0,
        };
        pairs.iter().try_for_each(|pair| {
            let found = self.items.find(pair.key);
            self.write(found, pair.key, pair.value, stamp)
        })?;
        Ok(at)
    }
}
