//! Clients that walk over all keys and flush them, in a part of the seeds.
//!
//! Linearizability is judged key by key, so both are recorded as operations of each key. A flush removes every key. A walk
//! is a read of every key: one that it told was there at some time until its page was answered, and one that no page told
//! was absent at some time during the walk. A key that was there all the time and is missed is not linearizable then. What
//! a page tells is also judged as the state of its position.

use super::Host;
use crate::history::{Action, Answer, History, OperationIndex};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use trine_client::{ClientId, Clients, Finished, Mode, Submission};
use trine_kvstore::{Command, Cursor, Entry, Found, Page, Position, Prefix, Response, WalkContent};
use trine_transport::prng::{Prng, Ratio};
use trine_transport::time::{Duration, Instant};

/// Tags of pages have this bit, and those of flushes.
const PAGE_TAG: u64 = 1 << 61;
const FLUSH_TAG: u64 = 1 << 60;

/// How often a call of a client is followed by a walk, and by a flush.
const WALKS: Ratio = Ratio::percent(2);
const FLUSHES: Ratio = match Ratio::new(3, 1_000) {
    Some(ratio) => ratio,
    None => Ratio::ZERO,
};

/// Keys in a page at most: walks take several pages.
const COUNT_MAX: u64 = 12;
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause before a page that the client library had no room for is asked for again.
const REFUSED_PAUSE: Duration = Duration::from_millis(1);

/// One seed of six has them. Drawn separately, so that the other seeds stay the same.
pub(crate) fn is_drawn(seed: u64) -> bool {
    Prng::new(seed ^ 0x3a1c_5eed_3a1c_5eed).below(6) == 0
}

/// The walks and flushes of one machine.
pub(crate) struct Walks {
    keys: Vec<Vec<u8>>,
    history: Rc<RefCell<History>>,
    prng: Prng,
    next: u64,
    walks: BTreeMap<u64, Walk>,
    /// A walk whose next page is to be asked for, the cursor, and when.
    ready: Option<(Walk, Cursor, Instant)>,
    flushes: BTreeMap<u64, Vec<OperationIndex>>,
}

/// A walk that is under way: the reads of the keys that no page has told yet.
struct Walk {
    /// The number of the client: its session may close, and it opens another one.
    number: u64,
    missing: BTreeMap<Vec<u8>, OperationIndex>,
}

impl Walks {
    pub(crate) fn new(keys: Vec<Vec<u8>>, history: Rc<RefCell<History>>, seed: u64) -> Self {
        Self {
            keys,
            history,
            prng: Prng::new(seed ^ 0xa11_4e75),
            next: 0,
            walks: BTreeMap::new(),
            ready: None,
            flushes: BTreeMap::new(),
        }
    }

    /// Whether an operation with this tag is one of these.
    pub(crate) fn owns(tag: u64) -> bool {
        tag & (PAGE_TAG | FLUSH_TAG) != 0
    }

    /// Begins a walk or a flush of the client with this number, now and then.
    pub(crate) fn call(
        &mut self,
        clients: &mut Clients<Host>,
        (number, id): (u64, ClientId),
        now: Instant,
        simulated: Instant,
    ) {
        if self.prng.chance(FLUSHES) {
            let tag = self.tag(FLUSH_TAG);
            if submit(clients, id, (Mode::Write, tag), &Command::Flush, now) {
                let flushed = self.record(number, simulated, &Action::Flush);
                self.flushes.insert(tag, flushed.into_values().collect());
            }
        }
        // One at a time: each adds an operation for every key.
        if self.walks.is_empty() && self.ready.is_none() && self.prng.chance(WALKS) {
            let tag = self.tag(PAGE_TAG);
            if self.ask_for_page(clients, id, (tag, Cursor::START), now) {
                let missing = self.record(number, simulated, &Action::Get);
                self.walks.insert(tag, Walk { number, missing });
            }
        }
    }

    /// When the next page is to be asked for.
    pub(crate) fn next_call(&self) -> Option<Instant> {
        self.ready.as_ref().map(|(_, _, due)| *due)
    }

    /// Asks for the next page, in the present session of the walk's client.
    pub(crate) fn go_on(
        &mut self,
        clients: &mut Clients<Host>,
        id_of: impl Fn(u64) -> ClientId,
        now: Instant,
        simulated: Instant,
    ) {
        let Some((walk, from, _)) = self.ready.take_if(|(_, _, due)| *due <= simulated) else {
            return;
        };
        let tag = self.tag(PAGE_TAG);
        match self.ask_for_page(clients, id_of(walk.number), (tag, from), now) {
            true => drop(self.walks.insert(tag, walk)),
            false => self.ready = Some((walk, from, simulated + REFUSED_PAUSE)),
        }
    }

    fn tag(&mut self, bit: u64) -> u64 {
        self.next += 1;
        bit | self.next
    }

    /// An operation for each key.
    fn record(
        &self,
        number: u64,
        simulated: Instant,
        action: &Action,
    ) -> BTreeMap<Vec<u8>, OperationIndex> {
        let mut history = self.history.borrow_mut();
        let mut call = |key: &Vec<u8>| {
            let index = history.call(number, simulated.as_nanos(), key, action.clone());
            (key.clone(), index)
        };
        self.keys.iter().map(&mut call).collect()
    }

    fn ask_for_page(
        &mut self,
        clients: &mut Clients<Host>,
        id: ClientId,
        (tag, from): (u64, Cursor),
        now: Instant,
    ) -> bool {
        let count = self.prng.in_range(1..=COUNT_MAX) as u32;
        let command = Command::Walk {
            from,
            count,
            content: WalkContent::Items,
            prefix: Prefix(b""),
        };
        let mode = match self.prng.below(3) {
            0 => Mode::ReadFollower,
            1 => Mode::ReadAnywhere,
            _ => Mode::Read,
        };
        submit(clients, id, (mode, tag), &command, now)
    }

    /// Takes in what is over.
    pub(crate) fn collect(&mut self, finished: &Finished, simulated: Instant) {
        match finished.tag & FLUSH_TAG {
            0 => self.collect_page(finished, simulated),
            _ => self.collect_flush(finished, simulated),
        }
    }

    fn collect_flush(&mut self, finished: &Finished, simulated: Instant) {
        let operations = self.flushes.remove(&finished.tag);
        let mut history = self.history.borrow_mut();
        for index in operations.expect("each flush ends once, and is known") {
            match &finished.result {
                Ok(answer) => {
                    let position = Some(answer.position().as_u64());
                    let answer = match answer.response() {
                        Ok(Response::Count { .. }) => Answer::Flushed,
                        other => panic!("a flush is answered with {other:?}"),
                    };
                    history.complete(index, simulated.as_nanos(), answer, position);
                }
                Err(error) if error.is_definitely_not_applied() => {
                    history.fail(index, simulated.as_nanos());
                }
                // Its outcome will never be known.
                Err(_) => {}
            }
        }
    }

    fn collect_page(&mut self, finished: &Finished, simulated: Instant) {
        let walk = self.walks.remove(&finished.tag);
        let mut walk = walk.expect("each page ends once, and is known");
        // A walk without an answer ends, and what it has not read by then it has not read.
        let Ok(answer) = &finished.result else { return };
        let page = match answer.response() {
            Ok(Response::Page(page)) => page,
            other => panic!("a walk is answered with {other:?}"),
        };
        let next = page.next;
        self.take_page(&mut walk, &page, answer.position(), simulated);
        if next == Cursor::START {
            return self.end(walk, simulated);
        }
        self.ready = Some((walk, next, simulated));
    }

    /// `at`: the position of the answer. That of the page is the last one at which the store changed: a leader's first entry
    /// has no commands, and other reads may have seen it before.
    fn take_page(&self, walk: &mut Walk, page: &Page<'_>, at: Position, simulated: Instant) {
        let Found::Items(items) = &page.found else {
            panic!("a page of items was asked for");
        };
        assert!(
            page.position <= at,
            "a page is of {}, its answer of {at}",
            page.position
        );
        let mut history = self.history.borrow_mut();
        for Entry {
            key,
            value,
            version,
            ..
        } in items.iter()
        {
            assert!(
                version <= page.position,
                "a page of position {} has an item of version {version}",
                page.position
            );
            let is_known = self.keys.iter().any(|known| known == key);
            // Keys of commands that are not judged are told, too.
            if !is_known {
                continue;
            }
            let index = walk.missing.remove(key);
            let index = index.unwrap_or_else(|| {
                panic!("a walk has told {} twice", String::from_utf8_lossy(key))
            });
            let answer = Answer::Value {
                value: value.to_vec(),
                version: Some(version.as_u64()),
            };
            let position = Some(at.as_u64());
            history.complete(index, simulated.as_nanos(), answer, position);
        }
    }

    /// What no page has told was absent at some time.
    fn end(&self, walk: Walk, simulated: Instant) {
        let mut history = self.history.borrow_mut();
        for index in walk.missing.into_values() {
            history.complete(index, simulated.as_nanos(), Answer::NotFound, None);
        }
    }
}

/// A full window refuses it; there will be others.
fn submit(
    clients: &mut Clients<Host>,
    id: ClientId,
    (mode, tag): (Mode, u64),
    command: &Command<'_>,
    now: Instant,
) -> bool {
    let submission = Submission {
        mode,
        command,
        deadline: Some(now + PATIENCE),
        tag,
    };
    clients.submit(now, id, submission).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_seeds_have_walks_and_most_have_none() {
        let drawn = (0..6_000).filter(|&seed| is_drawn(seed)).count();
        assert!((800..1_200).contains(&drawn), "{drawn}");
    }
}
