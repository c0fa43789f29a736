//! Calls about ranges, as histories record them: a page is one read of each key that it covers, all of them at one
//! position. A range that is deleted is one delete of each.

use crate::history::{Action, Answer, History, OperationIndex};
use trine_kvstore::{KeyRange, Response, ScanOptions};
use trine_transport::prng::{Prng, Ratio};

/// How often a range is called beside an operation.
const RANGES: Ratio = Ratio::percent(6);

/// What a client asks about a range.
pub(super) struct Wish {
    /// The keys that the range can have, in their order.
    pub(super) keys: Vec<Vec<u8>>,
    /// What they begin with.
    pub(super) prefix: u8,
    pub(super) kind: RangeRequest,
}

/// A page, or a deletion of at most so many keys.
#[derive(Clone, Copy)]
pub(super) enum RangeRequest {
    Scan(ScanOptions),
    Delete(u32),
}

/// A call that is under way.
pub(super) struct RangeCall {
    pub(super) caller: usize,
    operations: Vec<(Vec<u8>, OperationIndex)>,
    kind: RangeRequest,
}

/// The source of such calls. Drawn separately, so that seeds without them stay the same.
pub(crate) struct Ranges {
    prng: Prng,
    /// Whether clients turn the index on and off.
    toggles: bool,
}

impl Ranges {
    pub(crate) fn new(seed: u64, toggles: bool) -> Self {
        let prng = Prng::new(seed);
        Self { prng, toggles }
    }

    /// A call about one of the families of keys that are in use, now and then.
    pub(super) fn wish(&mut self, all: &[Vec<u8>]) -> Option<Wish> {
        if !self.prng.chance(RANGES) {
            return None;
        }
        let drawn = &all[self.prng.below(all.len() as u64) as usize];
        let prefix = *drawn.first()?;
        let mut keys: Vec<Vec<u8>> = all.to_vec();
        keys.retain(|key| key.first() == Some(&prefix));
        keys.sort_unstable();
        // Other families see no deletes.
        let may_delete = matches!(prefix, b'd' | b't');
        let most = self.prng.in_range(1..=12) as u32;
        let kind = match self.prng.below(4) {
            0 if may_delete => RangeRequest::Delete(most),
            _ => RangeRequest::Scan(ScanOptions {
                limit: most,
                reverse: self.prng.chance(Ratio::percent(40)),
                keys_only: self.prng.chance(Ratio::percent(20)),
            }),
        };
        Some(Wish { keys, prefix, kind })
    }

    /// A number below 100.
    pub(super) fn percent(&mut self) -> u64 {
        self.prng.below(100)
    }

    /// Whether the index is to be there, if a client changes that now.
    pub(super) fn toggle(&mut self) -> Option<bool> {
        let changes = self.toggles && self.prng.chance(Ratio::percent(2));
        changes.then(|| self.prng.chance(Ratio::percent(75)))
    }
}

impl Wish {
    pub(super) fn range(&self) -> KeyRange<'_> {
        KeyRange::Prefix(std::slice::from_ref(&self.prefix))
    }

    /// Records the call.
    pub(super) fn called(
        self,
        history: &mut History,
        caller: usize,
        client: u64,
        now_ns: u64,
    ) -> RangeCall {
        let action = match self.kind {
            RangeRequest::Scan(_) => Action::Get,
            RangeRequest::Delete(_) => Action::Delete,
        };
        let mut call = |key: Vec<u8>| {
            let index = history.call(client, now_ns, &key, action.clone());
            (key, index)
        };
        RangeCall {
            caller,
            operations: self.keys.into_iter().map(&mut call).collect(),
            kind: self.kind,
        }
    }
}

impl RangeCall {
    /// Records the answer. It says nothing about keys that the page did not reach.
    pub(super) fn answered(
        &self,
        history: &mut History,
        now_ns: u64,
        response: &Response<'_>,
        position: u64,
    ) {
        for (key, operation) in &self.operations {
            let answer = self.answer_about(key, response);
            history.complete(*operation, now_ns, answer, Some(position));
        }
    }

    fn answer_about(&self, key: &[u8], response: &Response<'_>) -> Answer {
        match (self.kind, response) {
            (RangeRequest::Scan(options), Response::Items { items, next }) => {
                let reached = match (next, options.reverse) {
                    (None, _) => true,
                    (Some(next), false) => key < &**next,
                    (Some(next), true) => key >= &**next,
                };
                let found = items.iter().find(|item| item.key == key);
                match found.map(|item| item.item) {
                    None if reached => Answer::NotFound,
                    Some(Some(found)) => Answer::Value {
                        value: found.value.to_vec(),
                        version: Some(found.version.as_u64()),
                    },
                    // Not reached, or there without its value.
                    _ => Answer::Refused,
                }
            }
            (RangeRequest::Delete(_), Response::RangeDeleted { next, .. }) => match next {
                Some(next) if key >= &**next => Answer::Refused,
                _ => Answer::RangeDeleted,
            },
            (_, Response::Error(_)) => Answer::Refused,
            (_, other) => panic!("a range is never answered with {other:?}"),
        }
    }

    /// Records that it certainly was not done.
    pub(super) fn failed(&self, history: &mut History, now_ns: u64) {
        for (_, operation) in &self.operations {
            history.fail(*operation, now_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_kvstore::{List, Position, RangeItem, Versioned};

    fn wish(kind: RangeRequest) -> Wish {
        Wish {
            keys: ["d0", "d1", "d2"].map(|key| key.into()).to_vec(),
            prefix: b'd',
            kind,
        }
    }

    fn answers(kind: RangeRequest, response: &Response<'_>) -> Vec<Answer> {
        let mut history = History::new();
        let call = wish(kind).called(&mut history, 0, 1, 10);
        call.answered(&mut history, 20, response, 7);
        let operations = history.operations().iter();
        operations
            .map(|operation| {
                assert_eq!(operation.position, Some(7));
                operation.answer().expect("it was answered").clone()
            })
            .collect()
    }

    #[test]
    fn a_page_tells_about_the_keys_that_it_reached() {
        let found = Versioned {
            value: b"v".as_slice(),
            version: Position::from_u64(5),
        };
        let items = [RangeItem {
            key: b"d1",
            item: Some(found),
        }];
        let value = Answer::Value {
            value: b"v".to_vec(),
            version: Some(5),
        };
        let page = |next: Option<&'static [u8]>| Response::Items {
            items: List::from(&items),
            next: next.map(Into::into),
        };
        let forwards = ScanOptions::default();
        let all = answers(RangeRequest::Scan(forwards), &page(None));
        assert_eq!(all, [Answer::NotFound, value.clone(), Answer::NotFound]);
        let first = answers(RangeRequest::Scan(forwards), &page(Some(b"d2")));
        assert_eq!(first, [Answer::NotFound, value.clone(), Answer::Refused]);
        let reverse = ScanOptions {
            reverse: true,
            ..forwards
        };
        let last = answers(RangeRequest::Scan(reverse), &page(Some(b"d1")));
        assert_eq!(last, [Answer::Refused, value, Answer::NotFound]);
    }

    #[test]
    fn a_deletion_tells_about_the_keys_before_the_place_where_it_goes_on() {
        let deleted = Response::RangeDeleted {
            removed: 1,
            next: Some(b"d1".as_slice().into()),
        };
        assert_eq!(
            answers(RangeRequest::Delete(1), &deleted),
            [Answer::RangeDeleted, Answer::Refused, Answer::Refused]
        );
    }
}
