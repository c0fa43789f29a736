//! FLUSH: all items end at one position, whatever their number.
//!
//! The command puts empty items in the place of the old ones, so its time does not depend on them. Their memory goes
//! back to the system slice by slice. That is no part of the replicated state: each replica does it when it has time.

use super::Store;
use crate::response::Response;

impl Store {
    pub(super) fn flush(&mut self) -> Response<'_> {
        self.end_pins();
        let items = self.items.flush();
        if let Some(history) = self.history.as_mut().filter(|_| items > 0) {
            history.flushed();
        }
        Response::Count { items }
    }

    /// Gives a slice of what flushed items took back to the system; true once nothing is left. A program calls this
    /// between its turns.
    pub fn free_flushed(&mut self) -> bool {
        self.items.flushed.free_slice()
    }
}
