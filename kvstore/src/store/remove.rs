//! DELETE and GETDEL.

use super::Store;
use crate::error::StoreError;
use crate::items::KeyLookup;
use crate::response::Response;

impl Store {
    pub(super) fn delete(&mut self, key: &[u8]) -> Response<'_> {
        let found = self.items.find(key);
        let existed = self.live(found).is_some();
        match self.remove(found, key) {
            Ok(()) => Response::Deleted { existed },
            Err(error) => Response::Error(error),
        }
    }

    pub(super) fn get_delete(&mut self, key: &[u8]) -> Response<'_> {
        let found = self.items.find(key);
        let previous = self.depart(found);
        if let Err(error) = self.remove(found, key) {
            return Response::Error(error);
        }
        match previous {
            Some(version) => Response::Value {
                value: &self.departing,
                version,
            },
            None => Response::NotFound,
        }
    }

    /// Removes what was found, expired or not.
    pub(super) fn remove(&mut self, found: KeyLookup, key: &[u8]) -> Result<(), StoreError> {
        if found.slot.is_some() {
            self.note_for_undo(found, key)?;
            let stamp = self.items.item(found).map(|item| item.stamp);
            self.items.remove(found);
            self.note_removed(key, stamp);
        }
        Ok(())
    }
}
