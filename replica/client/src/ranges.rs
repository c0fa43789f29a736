//! Reading, counting and deleting ranges of keys, page by page.
//!
//! Each page is the state of one position. A later page is as new as its own answer, so keys that change between two
//! pages may be seen in either state. `pinned.rs` reads all pages as of one position.

use trine_kvstore::config::{SCAN_KEYS_MAX, SCAN_PAGE_BYTES};
use trine_kvstore::{Command, KeyRange, Position, RangeItem, Response, ScanOptions, WalkContent};

/// A walk over the keys of a range. It says which command follows and is told the answer.
///
/// ```
/// use trine_client::RangeWalk;
/// use trine_kvstore::{Command, KeyRange, Limits, Position, Response, Store};
///
/// let mut store = Store::new(Limits::default(), [1, 2]).with_ordered();
/// for (index, key) in ["a/1", "a/2", "b/1"].iter().enumerate() {
///     let (key, value) = (key.as_bytes(), &b"v"[..]);
///     store.apply(Position::new(index as u64 + 1, 0), &Command::Put { key, value });
/// }
/// let mut walk = RangeWalk::over(KeyRange::Prefix(b"a/")).keys_only();
/// let mut keys = Vec::new();
/// while let Some(command) = walk.command() {
///     let response = store.read(&command);
///     let taken = walk.take(&response, |item| keys.push(item.key.to_vec()));
///     assert!(taken, "{response:?}");
/// }
/// assert_eq!(keys, [b"a/1", b"a/2"]);
/// ```
#[derive(Clone, Debug)]
pub struct RangeWalk {
    rest: Rest,
    reverse: bool,
    keys_only: bool,
    /// How many items may still come.
    left: u64,
    /// How many keys a page has at most.
    page_keys: u32,
    is_over: bool,
}

/// A removal of the keys of a range. It says which command follows and is told the answer.
#[derive(Clone, Debug)]
pub struct RangeDeletion {
    rest: Rest,
    is_over: bool,
}

/// What is left of a range.
#[derive(Clone, Debug)]
pub(super) enum Rest {
    Prefix(Vec<u8>),
    Between(Vec<u8>, Option<Vec<u8>>),
}

impl Rest {
    pub(super) fn of(range: KeyRange<'_>) -> Self {
        match range {
            KeyRange::Prefix(prefix) => Self::Prefix(prefix.to_vec()),
            KeyRange::Between { start, end } => {
                Self::Between(start.to_vec(), end.map(<[u8]>::to_vec))
            }
        }
    }

    pub(super) fn range(&self) -> KeyRange<'_> {
        match self {
            Self::Prefix(prefix) => KeyRange::Prefix(prefix),
            Self::Between(start, end) => KeyRange::Between {
                start,
                end: end.as_deref(),
            },
        }
    }

    /// The range without what lies before `next`, or in reverse from `next` on.
    pub(super) fn go_on(&mut self, next: &[u8], reverse: bool) {
        let (start, end) = match self.range() {
            KeyRange::Prefix(prefix) => (prefix.to_vec(), trine_kvstore::after_prefix(prefix)),
            KeyRange::Between { start, end } => (start.to_vec(), end.map(<[u8]>::to_vec)),
        };
        *self = match reverse {
            false => Self::Between(next.to_vec(), end),
            true => Self::Between(start, Some(next.to_vec())),
        };
    }
}

impl RangeWalk {
    /// From the least key of the range to the greatest, with their values.
    #[must_use]
    pub fn over(range: KeyRange<'_>) -> Self {
        Self {
            rest: Rest::of(range),
            reverse: false,
            keys_only: false,
            left: u64::MAX,
            page_keys: SCAN_KEYS_MAX,
            is_over: false,
        }
    }

    /// From the greatest key to the least.
    #[must_use]
    pub const fn reverse(mut self) -> Self {
        self.reverse = true;
        self
    }

    /// Without values and versions.
    #[must_use]
    pub const fn keys_only(mut self) -> Self {
        self.keys_only = true;
        self
    }

    /// Ends after so many items.
    #[must_use]
    pub const fn limit(mut self, items: u64) -> Self {
        self.left = items;
        self.is_over = items == 0;
        self
    }

    /// In pages of at most so many keys; of one, if it is none.
    #[must_use]
    pub const fn page_keys(mut self, keys: u32) -> Self {
        self.page_keys = if keys == 0 { 1 } else { keys };
        self
    }

    /// The command for the next page; nothing at the end.
    #[must_use]
    pub fn command(&self) -> Option<Command<'_>> {
        (!self.is_over).then(|| Command::Scan {
            range: self.rest.range(),
            options: self.options(),
        })
    }

    /// The same for a page as it was at a pin.
    #[must_use]
    pub fn command_at(&self, position: Position) -> Option<Command<'_>> {
        (!self.is_over).then(|| Command::ScanAt {
            position,
            range: self.rest.range(),
            options: self.options(),
        })
    }

    fn options(&self) -> ScanOptions {
        let limit = u32::try_from(self.left).unwrap_or(u32::MAX);
        ScanOptions {
            limit: limit.min(SCAN_KEYS_MAX).min(self.page_keys),
            reverse: self.reverse,
            keys_only: self.keys_only,
        }
    }

    /// Hands out the items of a page. False if the response is none: the walk is where it was.
    pub fn take(&mut self, response: &Response<'_>, mut each: impl FnMut(RangeItem<'_>)) -> bool {
        let Response::Items { items, next } = response else {
            return false;
        };
        items.iter().for_each(&mut each);
        self.left = self.left.saturating_sub(items.len() as u64);
        match next {
            Some(next) if self.left > 0 => self.rest.go_on(next, self.reverse),
            _ => self.is_over = true,
        }
        true
    }
}

impl RangeDeletion {
    /// All keys of the range, the least first.
    #[must_use]
    pub fn of(range: KeyRange<'_>) -> Self {
        Self {
            rest: Rest::of(range),
            is_over: false,
        }
    }

    /// The next command; nothing at the end.
    #[must_use]
    pub fn command(&self) -> Option<Command<'_>> {
        (!self.is_over).then(|| Command::DeleteRange {
            range: self.rest.range(),
            count: u32::MAX,
        })
    }

    /// How many keys were removed; nothing if the response is of another kind.
    pub fn take(&mut self, response: &Response<'_>) -> Option<u32> {
        let Response::RangeDeleted { removed, next } = response else {
            return None;
        };
        match next {
            Some(next) => self.rest.go_on(next, false),
            None => self.is_over = true,
        }
        Some(*removed)
    }
}

/// The bytes that a response to this command may well have. Zero if the usual size will do.
pub(super) fn expected_bytes(command: &Command<'_>) -> usize {
    /// A page ends at its bytes, but what frames its last item comes on top, and where it goes on.
    const ROOM: usize = SCAN_PAGE_BYTES + 1024;
    /// Beside key and value.
    const ITEM_BYTES: usize = 64;
    match command {
        Command::Scan { options, .. } | Command::ScanAt { options, .. } if options.keys_only => {
            ROOM.min((options.limit as usize).saturating_mul(ITEM_BYTES))
        }
        Command::Scan { options, .. } | Command::ScanAt { options, .. } => {
            ROOM.min((options.limit as usize).saturating_mul(16 * ITEM_BYTES))
        }
        Command::Walk {
            content: WalkContent::Items,
            ..
        }
        | Command::WalkAt { .. } => ROOM,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_kvstore::{Limits, Store};

    fn store() -> Store {
        let mut store = Store::new(Limits::default(), [1, 2]).with_ordered();
        for number in 0..5_000_u32 {
            let key = [&[(number % 3) as u8], number.to_be_bytes().as_slice()].concat();
            let at = Position::new(u64::from(number) + 1, 0);
            let value = &[7; 200];
            store.apply(at, &Command::Put { key: &key, value });
        }
        store
    }

    fn keys(walk: RangeWalk, store: &Store) -> (Vec<Vec<u8>>, usize) {
        let (mut walk, mut keys, mut pages) = (walk, Vec::new(), 0);
        while let Some(command) = walk.command() {
            let response = store.read(&command);
            assert!(walk.take(&response, |item| keys.push(item.key.to_vec())));
            assert!(response.encoded_len() <= SCAN_PAGE_BYTES + 1024);
            pages += 1;
        }
        (keys, pages)
    }

    #[test]
    fn a_walk_of_several_pages_sees_every_key_of_its_range_once() {
        let store = store();
        let (forwards, pages) = keys(RangeWalk::over(KeyRange::Prefix(&[1])), &store);
        assert!(pages > 1, "{pages}");
        assert_eq!(forwards.len(), 1_667);
        assert!(forwards.is_sorted() && forwards.iter().all(|key| key[0] == 1));
        let reverse = RangeWalk::over(KeyRange::Prefix(&[1])).reverse();
        let (mut backwards, _) = keys(reverse, &store);
        backwards.reverse();
        assert_eq!(backwards, forwards);
        let few = RangeWalk::over(KeyRange::Prefix(&[1])).limit(1_500);
        assert_eq!(keys(few, &store).0, forwards[..1_500]);
        let none = RangeWalk::over(KeyRange::Prefix(&[1])).limit(0);
        assert_eq!(keys(none, &store), (vec![], 0));
    }

    #[test]
    fn a_deletion_removes_its_range_and_no_other_key() {
        let mut store = store();
        let mut deletion = RangeDeletion::of(KeyRange::Prefix(&[1]));
        let (mut removed, mut index) = (0, 10_000);
        while let Some(command) = deletion.command() {
            index += 1;
            let response = store.apply(Position::new(index, 0), &command);
            removed += deletion.take(&response).expect("it is no other answer");
        }
        assert_eq!((removed, store.stats().items), (1_667, 3_333));
        assert_eq!(deletion.take(&Response::Done), None);
    }
}
