//! Clients that count ranges, in a part of the seeds that have an ordered index. The answers are kept for
//! `checker/counts.rs`.

use super::Host;
use crate::checker::counts::RangeCount;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use trine_client::{ClientId, Clients, Finished, Mode, Submission};
use trine_kvstore::{Command, KeyRange, Response};
use trine_transport::prng::{Prng, Ratio};
use trine_transport::time::{Duration, Instant};

/// Tags of counts have this bit.
const COUNT_TAG: u64 = 1 << 58;
/// How often a call of a client is followed by a count.
const COUNTS: Ratio = Ratio::percent(5);
const PATIENCE: Duration = Duration::from_secs(5);
/// Families of keys that no other client has keys in.
const FAMILIES: &[u8] = b"rdcnt";

/// One seed of six has them, if it has an ordered index. Those that `REFERENCE.md` names for planted bugs have not, and
/// stay what they are.
pub(crate) fn is_drawn(seed: u64) -> bool {
    seed.is_multiple_of(6)
}

/// The counts of one machine.
pub(crate) struct Counts {
    keys: Vec<Vec<u8>>,
    told: Rc<RefCell<Vec<RangeCount>>>,
    prng: Prng,
    next: u64,
    open: BTreeMap<u64, Vec<Vec<u8>>>,
}

impl Counts {
    pub(crate) fn new(keys: Vec<Vec<u8>>, told: Rc<RefCell<Vec<RangeCount>>>, seed: u64) -> Self {
        Self {
            keys,
            told,
            prng: Prng::new(seed ^ 0xc0_47ed),
            next: 0,
            open: BTreeMap::new(),
        }
    }

    /// Whether an operation with this tag is one of these.
    pub(crate) fn owns(tag: u64) -> bool {
        tag & COUNT_TAG != 0
    }

    /// Counts the keys of a family, or a part of them, now and then.
    pub(crate) fn call(&mut self, clients: &mut Clients<Host>, id: ClientId, now: Instant) {
        if !self.prng.chance(COUNTS) {
            return;
        }
        let family = FAMILIES[self.prng.below(FAMILIES.len() as u64) as usize];
        let mut keys = self.keys.clone();
        keys.retain(|key| key.first() == Some(&family));
        keys.sort_unstable();
        if keys.is_empty() {
            return;
        }
        let whole = self.prng.chance(Ratio::percent(50));
        let mut draw = || self.prng.below(keys.len() as u64) as usize;
        let (one, other) = (draw(), draw());
        let (first, behind) = (one.min(other), one.max(other));
        let (start, end) = (keys[first].clone(), keys[behind].clone());
        let range = match whole {
            true => KeyRange::Prefix(&[family]),
            false => {
                keys = keys[first..behind].to_vec();
                KeyRange::Between {
                    start: &start,
                    end: Some(&end),
                }
            }
        };
        let mode = match self.prng.below(3) {
            0 => Mode::ReadFollower,
            1 => Mode::ReadAnywhere,
            _ => Mode::Read,
        };
        self.next += 1;
        let tag = COUNT_TAG | self.next;
        let submission = Submission {
            mode,
            command: &Command::CountRange { range },
            deadline: Some(now + PATIENCE),
            tag,
        };
        // A full window refuses it; there will be others.
        if clients.submit(now, id, submission).is_ok() {
            self.open.insert(tag, keys);
        }
    }

    /// Takes in what is over.
    pub(crate) fn collect(&mut self, finished: &Finished) {
        let keys = self.open.remove(&finished.tag);
        let keys = keys.expect("each count ends once, and is known");
        let Ok(answer) = &finished.result else { return };
        match answer.response() {
            Ok(Response::Count { items }) => self.told.borrow_mut().push(RangeCount {
                keys,
                items,
                position: answer.position().as_u64(),
            }),
            // There is no index, or not all of it.
            Ok(Response::Error(_)) => {}
            other => panic!("a count is never answered with {other:?}"),
        }
    }
}
