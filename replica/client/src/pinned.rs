//! Reading a range of keys as the state of one position, however many pages it takes.
//!
//! One page is the state of one position anyway. Where more follow, the position is pinned first: a command in the log,
//! whose position every replica knows. Any replica that has kept the state of it gives the next page.

use std::time::Duration;

use trine_kvstore::{Command, Position, RangeItem, Response};

use super::operation::Mode;
use super::pin::{Hold, PinStage, PinnedError, Taken};
use super::ranges::RangeWalk;

/// A walk over the keys of a range, all of them as of one position. It says which command follows, and how it is to be
/// done. It is told the answer.
///
/// ```
/// use std::time::Duration;
/// use trine_client::{Mode, PinnedWalk, RangeWalk};
/// use trine_kvstore::{Command, KeyRange, Limits, Position, Store};
///
/// let mut store = Store::new(Limits::default(), [1, 2]).with_ordered();
/// for index in 1..=1_000_u64 {
///     let (key, value) = (&index.to_be_bytes()[..], &[7; 1_000][..]);
///     store.apply(Position::new(index, 0), &Command::Put { key, value });
/// }
/// let mut walk = PinnedWalk::over(RangeWalk::over(KeyRange::Prefix(b"")), Mode::Read);
/// let (mut index, mut items) = (1_000, 0);
/// while let Some((mode, command)) = walk.command(Duration::ZERO) {
///     index += 1;
///     let at = Position::new(index, 0);
///     let mut bytes = Vec::new();
///     match mode {
///         Mode::Write | Mode::WriteAndClose => store.apply(at, &command).encode(&mut bytes),
///         _ => store.read(&command).encode(&mut bytes),
///     }
///     let response = trine_kvstore::Response::decode(&bytes).expect("an answer");
///     walk.take(Duration::ZERO, at, &response, |_| items += 1).expect("a page");
///     // What is written after the position is not seen.
///     if walk.position().is_some() {
///         index += 1;
///         let (key, value) = (&index.to_be_bytes()[..], &b"later"[..]);
///         store.apply(Position::new(index, 0), &Command::Put { key, value });
///     }
/// }
/// assert_eq!(items, 1_000);
/// ```
#[derive(Clone, Debug)]
pub struct PinnedWalk {
    walk: RangeWalk,
    hold: Hold,
}

impl PinnedWalk {
    /// A walk whose pages are read as `mode` says.
    #[must_use]
    pub const fn over(walk: RangeWalk, mode: Mode) -> Self {
        Self {
            walk,
            hold: Hold::new(mode, PinStage::First),
        }
    }

    /// The position whose state was read, once it is known.
    #[must_use]
    pub const fn position(&self) -> Option<Position> {
        self.hold.position()
    }

    /// Whether every page was handed out.
    #[must_use]
    pub const fn is_read(&self) -> bool {
        self.hold.is_read()
    }

    /// The next command; nothing at the end. `now` is the time since some moment of the caller's choice.
    #[must_use]
    pub fn command(&self, now: Duration) -> Option<(Mode, Command<'_>)> {
        let (first, at) = (|| self.walk.command(), |pin| self.walk.command_at(pin));
        self.hold.command(now, first, at)
    }

    /// Hands out the items of a page. `at` is the position that the answer names.
    ///
    /// # Errors
    /// When the walk cannot go on. What was handed out by then is as of the position.
    pub fn take(
        &mut self,
        now: Duration,
        at: Position,
        response: &Response<'_>,
        each: impl FnMut(RangeItem<'_>),
    ) -> Result<(), PinnedError> {
        match self.hold.take(now, response)? {
            Taken::OfPin => Ok(()),
            Taken::First => self.take_first(at, response, each),
            Taken::AtPin if self.walk.take(response, each) => {
                self.hold.was_read(self.walk.command().is_none());
                Ok(())
            }
            Taken::AtPin => Err(PinnedError::Unexpected),
        }
    }

    fn take_first(
        &mut self,
        at: Position,
        response: &Response<'_>,
        each: impl FnMut(RangeItem<'_>),
    ) -> Result<(), PinnedError> {
        let mut rest = self.walk.clone();
        if !rest.take(response, |_| {}) {
            return Err(PinnedError::Unexpected);
        }
        if rest.command().is_some() {
            // The first page is read again: nothing has kept the state that it shows.
            self.hold.pin();
            return Ok(());
        }
        self.walk.take(response, each);
        self.hold.end_at(at);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::pin::{MISSES_MAX, RENEW_AFTER};
    use super::*;
    use trine_kvstore::{KeyRange, List, StoreError};

    const NOW: Duration = Duration::ZERO;
    const PIN: Position = Position::new(9, 0);

    fn page(keys: &[&'static [u8]], next: Option<&'static [u8]>) -> Response<'static> {
        let items: Vec<_> = keys
            .iter()
            .map(|&key| RangeItem { key, item: None })
            .collect();
        let mut bytes = Vec::new();
        Response::Items {
            items: List::from(items.as_slice()),
            next: next.map(Into::into),
        }
        .encode(&mut bytes);
        Response::decode(bytes.leak()).expect("it was encoded")
    }

    fn walk() -> PinnedWalk {
        PinnedWalk::over(RangeWalk::over(KeyRange::Prefix(b"")), Mode::Read)
    }

    fn take(walk: &mut PinnedWalk, response: &Response<'_>) -> Result<Vec<Vec<u8>>, PinnedError> {
        let mut keys = Vec::new();
        walk.take(NOW, PIN, response, |item| keys.push(item.key.to_vec()))?;
        Ok(keys)
    }

    fn reading() -> PinnedWalk {
        let mut walk = walk();
        assert_eq!(take(&mut walk, &page(&[b"a"], Some(b"b"))), Ok(vec![]));
        assert_eq!(walk.command(NOW), Some((Mode::Write, Command::Pin)));
        let pinned = Response::Pinned { position: PIN };
        assert_eq!(take(&mut walk, &pinned), Ok(vec![]));
        walk
    }

    #[test]
    fn one_page_needs_no_pin() {
        let mut walk = walk();
        assert_eq!(take(&mut walk, &page(&[b"a"], None)), Ok(vec![b"a".into()]));
        assert_eq!((walk.command(NOW), walk.position()), (None, Some(PIN)));
        let few = RangeWalk::over(KeyRange::Prefix(b"")).limit(1);
        let mut walk = PinnedWalk::over(few, Mode::Read);
        let keys = take(&mut walk, &page(&[b"a"], Some(b"b")));
        assert_eq!((keys, walk.command(NOW)), (Ok(vec![b"a".into()]), None));
    }

    #[test]
    fn pages_are_read_at_the_pin_and_it_is_given_back() {
        let mut walk = reading();
        let begins = |walk: &PinnedWalk| match walk.command(NOW) {
            Some((mode, Command::ScanAt { position: PIN, .. })) => mode,
            other => panic!("{other:?}"),
        };
        assert_eq!(begins(&walk), Mode::Read);
        let first = take(&mut walk, &page(&[b"a"], Some(b"b")));
        assert_eq!(first, Ok(vec![b"a".into()]));
        // The replica was restarted: another one has it.
        let miss = Response::Error(StoreError::PinNotHere);
        assert_eq!(take(&mut walk, &miss), Ok(vec![]));
        assert_eq!(begins(&walk), Mode::ReadAnywhere);
        assert_eq!(take(&mut walk, &page(&[b"b"], None)), Ok(vec![b"b".into()]));
        let unpin = Command::Unpin { position: PIN };
        assert_eq!(walk.command(NOW), Some((Mode::WriteAndClose, unpin)));
        assert_eq!(take(&mut walk, &Response::Done), Ok(vec![]));
        assert_eq!(walk.command(NOW), None);
    }

    #[test]
    fn a_pin_is_renewed_in_time() {
        let mut walk = reading();
        let later = RENEW_AFTER;
        let renew = Command::RenewPin { position: PIN };
        assert_eq!(walk.command(later), Some((Mode::Write, renew)));
        let pinned = Response::Pinned { position: PIN };
        walk.take(later, PIN, &pinned, |_| {}).expect("renewed");
        let next = walk.command(later).map(|(mode, _)| mode);
        assert_eq!(next, Some(Mode::Read));
    }

    #[test]
    fn a_state_that_nobody_has_kept_is_told_apart_from_a_pin_that_ended() {
        let mut walk = reading();
        let miss = Response::Error(StoreError::PinNotHere);
        for _ in 0..MISSES_MAX {
            assert_eq!(take(&mut walk, &miss), Ok(vec![]));
        }
        assert_eq!(take(&mut walk, &miss), Err(PinnedError::Gone(PIN)));
        let ended = Response::Error(StoreError::PinEnded);
        assert_eq!(take(&mut reading(), &ended), Err(PinnedError::Ended(PIN)));
        let other = take(&mut reading(), &Response::NotFound);
        assert_eq!(other, Err(PinnedError::Unexpected));
    }
}
