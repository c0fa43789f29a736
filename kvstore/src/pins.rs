//! Positions that the group reads at. Replicated state.
//!
//! A pin is a command in the log. The position of the command is the position that is read. Every replica knows the same
//! pins; whether it still has the state of a pin is another question (`shadows.rs`).

use crate::codec::{DecodeError, Reader, Sink};
use crate::config::{PIN_TTL_NS, PINS_MAX, PINS_PER_CLIENT_MAX, PINS_PER_USER_MAX};
use crate::error::StoreError;
use crate::expiry::is_over;
use crate::position::Position;

/// Who takes a pin.
#[derive(Copy, Clone, Eq, PartialEq, Default, Debug)]
pub struct PinOwner {
    /// The client session. It alone renews and ends its pins.
    pub client: u64,
    /// The number of the user whose session it is, 0 for none.
    pub user: u32,
}

/// A position that a client reads at.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) struct Pin {
    position: Position,
    owner: PinOwner,
    /// Group time at the position: it decides which keys had expired.
    time_ns: u64,
    /// Group time from which on the pin has ended.
    until_ns: u64,
}

/// The pins of a group, oldest first.
#[derive(Clone, Eq, PartialEq, Default, Debug)]
pub(crate) struct Pins {
    pins: Vec<Pin>,
}

impl Pin {
    pub(crate) fn position(&self) -> Position {
        self.position
    }

    pub(crate) fn time_ns(&self) -> u64 {
        self.time_ns
    }

    /// Whether what expires then had expired at the pin.
    pub(crate) fn has_expired(&self, expiry_ns: u64) -> bool {
        is_over(expiry_ns, self.time_ns)
    }
}

impl Pins {
    pub(crate) fn is_empty(&self) -> bool {
        self.pins.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.pins.len()
    }

    #[cfg(test)]
    fn positions(&self) -> impl Iterator<Item = Position> {
        self.pins.iter().map(Pin::position)
    }

    /// The pin of this position.
    pub(crate) fn at(&self, position: Position) -> Option<&Pin> {
        let place = self.place_of(position).ok()?;
        Some(&self.pins[place])
    }

    fn place_of(&self, position: Position) -> Result<usize, usize> {
        self.pins
            .binary_search_by_key(&position, |pin| pin.position)
    }

    /// Adds a pin at the newest position.
    ///
    /// # Errors
    /// When the client, its user or the group has as many as it can have.
    pub(crate) fn add(
        &mut self,
        position: Position,
        owner: PinOwner,
        now_ns: u64,
    ) -> Result<(), StoreError> {
        let count_of = |is_own: &dyn Fn(PinOwner) -> bool| {
            let own = self.pins.iter().filter(|pin| is_own(pin.owner));
            own.count()
        };
        if count_of(&|other| other.client == owner.client) >= PINS_PER_CLIENT_MAX {
            let limit = PINS_PER_CLIENT_MAX as u32;
            return Err(StoreError::TooManyPins { limit });
        }
        if owner.user != 0 && count_of(&|other| other.user == owner.user) >= PINS_PER_USER_MAX {
            let limit = PINS_PER_USER_MAX as u32;
            return Err(StoreError::TooManyPinsOfUser { limit });
        }
        if self.pins.len() >= PINS_MAX {
            let limit = PINS_MAX as u32;
            return Err(StoreError::TooManyPins { limit });
        }
        self.pins.push(Pin {
            position,
            owner,
            time_ns: now_ns,
            until_ns: now_ns.saturating_add(PIN_TTL_NS),
        });
        Ok(())
    }

    /// Lets the client's pin live on.
    ///
    /// # Errors
    /// When the client has none at this position.
    pub(crate) fn renew(
        &mut self,
        position: Position,
        client: u64,
        now_ns: u64,
    ) -> Result<(), StoreError> {
        let place = self.place_of_own(position, client)?;
        self.pins[place].until_ns = now_ns.saturating_add(PIN_TTL_NS);
        Ok(())
    }

    /// Ends the client's pin.
    ///
    /// # Errors
    /// When the client has none at this position.
    pub(crate) fn remove(&mut self, position: Position, client: u64) -> Result<(), StoreError> {
        let place = self.place_of_own(position, client)?;
        self.pins.remove(place);
        Ok(())
    }

    /// Only its own client ends or prolongs a pin: positions can be guessed.
    fn place_of_own(&self, position: Position, client: u64) -> Result<usize, StoreError> {
        let place = self.place_of(position).ok();
        place
            .filter(|&place| self.pins[place].owner.client == client)
            .ok_or(StoreError::PinEnded)
    }

    /// Ends the pins whose time is over; true if there were any.
    pub(crate) fn expire(&mut self, now_ns: u64) -> bool {
        let before = self.pins.len();
        self.pins.retain(|pin| pin.until_ns > now_ns);
        self.pins.len() < before
    }

    /// Ends all.
    pub(crate) fn clear(&mut self) {
        self.pins.clear();
    }

    /// The bytes of all pins for a snapshot and for the state hash. None if there are no pins.
    pub(crate) fn write(&self, sink: &mut impl Sink) {
        for pin in &self.pins {
            sink.put_u64(pin.position.as_u64());
            sink.put_u64(pin.owner.client);
            sink.put_u32(pin.owner.user);
            sink.put_u64(pin.time_ns);
            sink.put_u64(pin.until_ns);
        }
    }

    /// Reads `count` pins, none of them newer than the state's position.
    pub(crate) fn read(body: &[u8], count: u32, newest: Position) -> Result<Self, DecodeError> {
        const BAD: DecodeError = DecodeError::BadField { field: "pins" };
        if !(1..=PINS_MAX as u32).contains(&count) {
            return Err(BAD);
        }
        let mut reader = Reader::new(body);
        let mut pins: Vec<Pin> = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let pin = Pin {
                position: Position::from_u64(reader.u64()?),
                owner: PinOwner {
                    client: reader.u64()?,
                    user: reader.u32()?,
                },
                time_ns: reader.u64()?,
                until_ns: reader.u64()?,
            };
            let is_behind = pins.last().is_none_or(|last| last.position < pin.position);
            if !is_behind || pin.position > newest {
                return Err(BAD);
            }
            pins.push(pin);
        }
        reader.finish()?;
        Ok(Self { pins })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: fn(u64) -> Position = |index| Position::new(index, 0);

    fn of(client: u64, user: u32) -> PinOwner {
        PinOwner { client, user }
    }

    #[test]
    fn a_client_has_its_share_and_the_group_a_limit() {
        let mut pins = Pins::default();
        for index in 0..8 {
            assert_eq!(pins.add(AT(index + 1), of(1, 0), 0), Ok(()));
        }
        let limit = StoreError::TooManyPins { limit: 8 };
        assert_eq!(pins.add(AT(9), of(1, 0), 0), Err(limit));
        for index in 8..64 {
            assert_eq!(pins.add(AT(index + 1), of(index, 0), 0), Ok(()));
        }
        let limit = StoreError::TooManyPins { limit: 64 };
        assert_eq!(pins.add(AT(65), of(99, 0), 0), Err(limit));
        assert_eq!(pins.remove(AT(3), 1), Ok(()));
        assert_eq!(pins.add(AT(65), of(99, 0), 0), Ok(()));
    }

    /// A user that may only read opens as many client sessions as it likes.
    #[test]
    fn a_user_has_its_share_whatever_its_clients() {
        let mut pins = Pins::default();
        for index in 1..=16 {
            assert_eq!(pins.add(AT(index), of(index, 5), 0), Ok(()));
        }
        let limit = StoreError::TooManyPinsOfUser { limit: 16 };
        assert_eq!(pins.add(AT(17), of(17, 5), 0), Err(limit));
        assert_eq!(pins.add(AT(17), of(17, 6), 0), Ok(()));
        assert_eq!(pins.remove(AT(3), 3), Ok(()));
        assert_eq!(pins.add(AT(18), of(18, 5), 0), Ok(()));
        // Callers that are no user have no share in common.
        for index in 19..=64 {
            assert_eq!(pins.add(AT(index), of(index, 0), 0), Ok(()), "{index}");
        }
    }

    #[test]
    fn a_pin_ends_in_time_unless_its_own_client_renews_it() {
        let mut pins = Pins::default();
        pins.add(AT(1), of(1, 7), 10).expect("room");
        pins.add(AT(2), of(2, 0), 10).expect("room");
        assert_eq!(pins.renew(AT(1), 1, 20), Ok(()));
        assert_eq!(pins.renew(AT(2), 1, 20), Err(StoreError::PinEnded));
        assert_eq!(pins.remove(AT(2), 1), Err(StoreError::PinEnded));
        assert!(!pins.expire(PIN_TTL_NS + 9));
        assert!(pins.expire(PIN_TTL_NS + 10));
        assert!(pins.positions().eq([AT(1)]));
        assert!(pins.expire(PIN_TTL_NS + 20) && pins.is_empty());
    }

    #[test]
    fn pins_survive_a_snapshot_and_others_are_refused() {
        let mut pins = Pins::default();
        pins.add(AT(1), of(1, 7), 10).expect("room");
        pins.add(AT(2), of(2, 0), 10).expect("room");
        let mut body = Vec::new();
        pins.write(&mut body);
        assert_eq!(Pins::read(&body, 2, AT(2)), Ok(pins));
        for (body, count, newest) in [
            (&body[..], 1, 2),
            (&body[..], 2, 1),
            (&body[..71], 2, 2),
            (&[], 0, 2),
        ] {
            assert!(Pins::read(body, count, AT(newest)).is_err());
        }
        let turned = [&body[36..], &body[..36]].concat();
        assert!(Pins::read(&turned, 2, AT(2)).is_err());
    }
}
