//! Reading all keys with their expiries as of one position, in no order.
//!
//! A walk at a pin needs no ordered index. One page is the state of one position anyway.

use std::time::Duration;

use trine_kvstore::{Command, Cursor, Page, Position, Prefix, Response, WalkContent};

use super::operation::Mode;
use super::pin::{Hold, PinStage, PinnedError, Taken};

/// A walk over all items whose keys begin with a prefix, as of one position. It says which command follows, and how it is
/// to be done. It is told the answer.
#[derive(Clone, Debug)]
pub struct WholeWalk {
    prefix: Vec<u8>,
    from: Cursor,
    hold: Hold,
}

impl WholeWalk {
    /// A walk whose pages are read as `mode` says.
    #[must_use]
    pub fn over(prefix: &[u8], mode: Mode) -> Self {
        Self {
            prefix: prefix.to_vec(),
            from: Cursor::START,
            hold: Hold::new(mode, PinStage::First),
        }
    }

    /// The position whose state is read, once it is known.
    #[must_use]
    pub const fn position(&self) -> Option<Position> {
        self.hold.position()
    }

    /// The next command; nothing at the end. `now` is the time since some moment of the caller's choice.
    #[must_use]
    pub fn command(&self, now: Duration) -> Option<(Mode, Command<'_>)> {
        let (from, prefix) = (self.from, Prefix(&self.prefix));
        let (count, content) = (0, WalkContent::Items);
        let first = || {
            Some(Command::Walk {
                from,
                count,
                content,
                prefix,
            })
        };
        let at = |position| {
            Some(Command::WalkAt {
                position,
                from,
                count,
                content,
                prefix,
            })
        };
        self.hold.command(now, first, at)
    }

    /// The items of a page, if the answer has some to hand out. `at` is the position that it names.
    ///
    /// # Errors
    /// When the walk cannot go on.
    pub fn take<'r, 'a>(
        &mut self,
        now: Duration,
        at: Position,
        response: &'r Response<'a>,
    ) -> Result<Option<&'r Page<'a>>, PinnedError> {
        let is_pinned = match self.hold.take(now, response)? {
            Taken::OfPin => return Ok(None),
            taken => taken == Taken::AtPin,
        };
        let Response::Page(page) = response else {
            return Err(PinnedError::Unexpected);
        };
        let is_last = page.next == Cursor::START;
        match (is_pinned, is_last) {
            (true, _) => {
                self.from = page.next;
                self.hold.was_read(is_last);
            }
            (false, true) => self.hold.end_at(at),
            // The first page is read again: nothing has kept the state that it shows.
            (false, false) => {
                self.hold.pin();
                return Ok(None);
            }
        }
        Ok(Some(page))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use trine_kvstore::{Found, Limits, Store};

    /// A store without an index, which is written to between any two pages.
    #[test]
    fn all_pages_are_the_state_of_one_position() {
        let mut store = Store::new(Limits::default(), [1, 2]);
        let mut index = 0;
        let mut put = |store: &mut Store, number: u32, value: &[u8]| {
            index += 1;
            let (key, at) = (number.to_be_bytes(), Position::new(index, 0));
            store.apply(at, &Command::Put { key: &key, value });
            Position::new(index, 1)
        };
        (0..5_000).for_each(|number| {
            put(&mut store, number, b"before");
        });
        let mut walk = WholeWalk::over(b"", Mode::Read);
        let (mut found, mut number) = (BTreeMap::new(), 0);
        while let Some((mode, command)) = walk.command(Duration::ZERO) {
            let value: &[u8] = match walk.position() {
                None => b"before",
                Some(_) => b"after",
            };
            let mut at = Position::ZERO;
            for _ in 0..100 {
                at = put(&mut store, number, value);
                number += 83;
            }
            let mut bytes = Vec::new();
            match mode {
                Mode::Write | Mode::WriteAndClose => store.apply(at, &command).encode(&mut bytes),
                _ => store.read(&command).encode(&mut bytes),
            }
            let response = Response::decode(&bytes).expect("an answer");
            let page = walk
                .take(Duration::ZERO, at, &response)
                .expect("it goes on");
            let Some(Found::Items(items)) = page.map(|page| &page.found) else {
                continue;
            };
            for item in items.iter() {
                let twice = found.insert(item.key.to_vec(), item.value.to_vec());
                assert_eq!(twice, None);
            }
        }
        assert!(found.values().all(|value| value == b"before"));
        assert!((0..5_000_u32).all(|number| found.contains_key(&number.to_be_bytes()[..])));
    }
}
