//! PIN, RENEW and UNPIN: positions whose state is kept for a while.
//!
//! Walks at a pin need no ordered index. A scan at one needs it, and finds what the pin had also if the index became whole
//! later: what was removed since then is among the ghosts.

use super::Store;
use crate::config::PIN_SHADOWS_FREED_PER_TURN;
use crate::error::StoreError;
use crate::pins::PinOwner;
use crate::position::Position;
use crate::response::Response;

impl Store {
    pub(super) fn pin(&mut self, at: Position, owner: PinOwner) -> Response<'_> {
        match self.try_pin(at, owner) {
            Ok(()) => Response::Pinned { position: at },
            Err(error) => Response::Error(error),
        }
    }

    fn try_pin(&mut self, at: Position, owner: PinOwner) -> Result<(), StoreError> {
        self.pins.add(at, owner, self.group_time_ns)?;
        self.items.serve_pin(at);
        Ok(())
    }

    pub(super) fn renew_pin(&mut self, position: Position, client: u64) -> Response<'_> {
        match self.pins.renew(position, client, self.group_time_ns) {
            Ok(()) => Response::Pinned { position },
            Err(error) => Response::Error(error),
        }
    }

    pub(super) fn unpin(&mut self, position: Position, client: u64) -> Response<'_> {
        if let Err(error) = self.pins.remove(position, client) {
            return Response::Error(error);
        }
        self.release_ended_pins();
        Response::Done
    }

    /// Ends the pins whose time is over.
    pub(super) fn expire_pins(&mut self) {
        if !self.pins.is_empty() && self.pins.expire(self.group_time_ns) {
            self.release_ended_pins();
        }
    }

    /// Ends all pins: the group does, not this replica alone.
    pub fn end_pins(&mut self) {
        self.pins.clear();
        self.release_ended_pins();
    }

    fn release_ended_pins(&mut self) {
        let Self { pins, items, .. } = self;
        items.retain_pins(|position| pins.at(position).is_some());
    }

    /// How many pins the group has, and how many bytes of shadows this replica keeps for them.
    #[must_use]
    pub fn pin_usage(&self) -> (usize, u64) {
        (self.pins.len(), self.items.shadows.pinned_bytes())
    }

    /// Sets how many bytes of shadows this replica keeps for pins at most. Without a limit of its own it is half of the
    /// live bytes, and at least [`crate::config::PIN_KEPT_BYTES_MIN`].
    pub fn set_retain_bytes(&mut self, most: Option<u64>) {
        self.items.retain_bytes = most;
    }

    /// Frees some of what pins have kept and need no more; true once nothing is left. A program calls this between its
    /// turns. Commands free some as well, but not every store is written to all the time.
    pub fn free_shadows(&mut self) -> bool {
        self.items.free_due_shadows(PIN_SHADOWS_FREED_PER_TURN)
    }
}
