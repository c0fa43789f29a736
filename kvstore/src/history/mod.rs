//! The history: what the last commands have changed, for those who watch keys.
//!
//! A store that keeps one adds an event for each key that a command has changed. An event is the net effect of one
//! position on one key: an EXEC that writes a key twice gives one event, and an undone one gives none. The sweep of a log
//! entry comes before the entry's first command and shares its position. If that command writes a swept key, the event
//! of the sweep goes.
//!
//! The history is a ring of bytes. It is no part of the replicated state: a replica that was rebuilt from a snapshot begins
//! its own. But two replicas that both have the events of a position have the same ones, in the same order.

mod event;
mod segment;
#[cfg(test)]
mod tests;

pub use event::{Change, Event};

use crate::command::Kind;
use crate::config::{HISTORY_SEGMENT_BYTES, HISTORY_VALUE_BYTES_MAX};
use crate::position::Position;
use event::EventRecord;
use segment::Segment;
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher};

/// The latest events of a store.
#[derive(Debug)]
pub struct History {
    segments: VecDeque<Segment>,
    /// How many segments were dropped: the number of the first one that is there.
    dropped: u64,
    /// Bytes that the segments can hold together.
    capacity: usize,
    limit: usize,
    /// Events up to this position are gone, or were never kept.
    oldest: Position,
    /// Where the events are that come next.
    at: Position,
    /// The kind of command that makes them.
    command: Kind,
    /// The events of the sweep at [`History::at`], which its command may replace.
    swept: Vec<(u64, Place)>,
    /// Whether they are in the order of their keys' hashes.
    swept_is_sorted: bool,
}

/// A place between two events of a history.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Debug)]
pub struct Place {
    segment: u64,
    offset: usize,
}

/// The events behind a position are not all there any more.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Compacted {
    /// A watcher that has seen everything up to here, or more, can go on.
    pub oldest: Position,
}

impl History {
    /// An empty history of the changes behind `after`. It takes up to `limit` bytes, and takes them as events come.
    #[must_use]
    pub fn new(limit: usize, after: Position) -> Self {
        Self {
            segments: VecDeque::new(),
            dropped: 0,
            capacity: 0,
            limit,
            oldest: after,
            at: after,
            command: Kind::Get,
            swept: Vec::new(),
            swept_is_sorted: false,
        }
    }

    /// All events behind this position are there.
    #[must_use]
    pub fn oldest(&self) -> Position {
        self.oldest
    }

    /// Bytes that it has from the system.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.capacity
    }

    /// The place of the next event.
    #[must_use]
    pub fn end(&self) -> Place {
        let segments = self.segments.len() as u64;
        Place {
            segment: self.dropped + segments.saturating_sub(1),
            offset: self.segments.back().map_or(0, Segment::len),
        }
    }

    /// The events behind a position, oldest first.
    ///
    /// # Errors
    /// Some of them are gone.
    pub fn after(&self, position: Position) -> Result<Events<'_>, Compacted> {
        if position < self.oldest {
            let oldest = self.oldest;
            return Err(Compacted { oldest });
        }
        let first = self
            .segments
            .partition_point(|segment| segment.last() <= position);
        let place = Place {
            segment: self.dropped + first as u64,
            offset: 0,
        };
        Ok(Events {
            history: self,
            place,
            after: position,
        })
    }

    /// The events from a place on, which an earlier call has named. Nothing if some of them are gone.
    #[must_use]
    pub fn from(&self, place: Place) -> Option<Events<'_>> {
        (place.segment >= self.dropped).then_some(Events {
            history: self,
            place,
            after: Position::ZERO,
        })
    }

    /// The sweep of a log entry begins.
    pub(crate) fn begin_entry(&mut self, at: Position) {
        self.at = at;
        self.command = Kind::Expire;
        self.swept.clear();
    }

    /// A command begins.
    #[inline]
    pub(crate) fn begin(&mut self, at: Position, command: Kind) {
        if at != self.at {
            self.at = at;
            self.swept.clear();
        }
        self.command = command;
    }

    /// The kind of the command, or of its operation, that makes the next events.
    pub(crate) fn set_command(&mut self, command: Kind) {
        self.command = command;
    }

    pub(crate) fn command(&self) -> Kind {
        self.command
    }

    /// A key has this value now. `remaining_ns` is its time to live.
    #[inline]
    pub(crate) fn written(&mut self, key: &[u8], value: &[u8], remaining_ns: Option<u64>) {
        if !self.swept.is_empty() {
            self.replace_swept(key);
        }
        let kept = match value.len() <= HISTORY_VALUE_BYTES_MAX {
            true => Some(value),
            false => None,
        };
        self.push(&Change::Written {
            key,
            value: kept,
            value_bytes: crate::codec::length_u32(value.len()),
            remaining_ns,
        });
    }

    /// A key is gone. `expired` if no command could find it any more.
    pub(crate) fn removed(&mut self, key: &[u8], expired: bool) {
        self.push(&match expired {
            true => Change::Expired { key },
            false => Change::Removed { key },
        });
    }

    /// Bytes that the event of a swept key takes.
    pub(crate) fn expired_bytes(key: &[u8]) -> u64 {
        EventRecord::size_of(&Change::Expired { key }) as u64
    }

    /// The sweep has removed a key.
    pub(crate) fn swept(&mut self, key: &[u8]) {
        let place = self.push(&Change::Expired { key });
        self.swept.push((hash_of(key), place));
        self.swept_is_sorted = false;
    }

    /// All keys are gone.
    pub(crate) fn flushed(&mut self) {
        self.push(&Change::Flushed);
    }

    /// The net effect of a position on a key that it has swept and written is the write.
    #[cold]
    fn replace_swept(&mut self, key: &[u8]) {
        // Thousands may have been swept, and an MSET writes as many keys: a linear search for each would be quadratic.
        if !self.swept_is_sorted {
            self.swept.sort_unstable();
            self.swept_is_sorted = true;
        }
        let hash = hash_of(key);
        let first = self.swept.partition_point(|&(other, _)| other < hash);
        for &(other, place) in &self.swept[first..] {
            if other != hash {
                return;
            }
            let Some(number) = place.segment.checked_sub(self.dropped) else {
                continue;
            };
            let segment = &mut self.segments[number as usize];
            let is_it = segment.record(place.offset).is_some_and(|(record, _)| {
                record.event().is_some_and(|event| event.key() == Some(key))
            });
            if is_it {
                segment.void(place.offset);
            }
        }
    }

    /// Adds an event and says where it is.
    #[inline]
    fn push(&mut self, change: &Change<'_>) -> Place {
        let needed = EventRecord::size_of(change);
        if self
            .segments
            .back()
            .is_none_or(|segment| segment.room() < needed)
        {
            self.add_segment(needed);
        }
        let place = self.end();
        let (at, command) = (self.at, self.command);
        self.segments
            .back_mut()
            .expect("there is one with room")
            .push(at, command, change);
        place
    }

    #[cold]
    fn add_segment(&mut self, needed: usize) {
        let usual = (self.limit / 8).min(HISTORY_SEGMENT_BYTES);
        let size = usual.max(needed);
        let mut spare = None;
        while self.capacity + size > self.limit {
            let Some(front) = self.segments.pop_front() else {
                break;
            };
            self.dropped += 1;
            self.capacity -= front.capacity();
            self.oldest = self.oldest.max(front.last());
            spare = Some(front);
        }
        let segment = match spare.filter(|spare| spare.capacity() == size) {
            Some(spare) => spare.emptied(),
            None => Segment::with_capacity(size),
        };
        self.capacity += segment.capacity();
        self.segments.push_back(segment);
    }
}

/// Keys with equal hashes are told apart by their events.
fn hash_of(key: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(key);
    hasher.finish()
}

/// Events of a history, oldest first.
#[derive(Clone, Debug)]
pub struct Events<'a> {
    history: &'a History,
    place: Place,
    /// Events up to here are passed by.
    after: Position,
}

impl Events<'_> {
    /// The place of the next event.
    #[must_use]
    pub fn place(&self) -> Place {
        self.place
    }
}

impl<'a> Iterator for Events<'a> {
    type Item = Event<'a>;

    fn next(&mut self) -> Option<Event<'a>> {
        loop {
            let number = self.place.segment.checked_sub(self.history.dropped)?;
            let segment = self.history.segments.get(usize::try_from(number).ok()?)?;
            let Some((record, next)) = segment.record(self.place.offset) else {
                if number as usize + 1 >= self.history.segments.len() {
                    return None;
                }
                self.place = Place {
                    segment: self.place.segment + 1,
                    offset: 0,
                };
                continue;
            };
            self.place.offset = next;
            if let Some(event) = record.event()
                && event.position > self.after
            {
                return Some(event);
            }
        }
    }
}
