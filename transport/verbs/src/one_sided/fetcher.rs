//! When does a client read its next answer out of the server's memory, and how much of it?
//!
//! ```text
//!            a request leaves
//!   Resting ------------------> Due --- READ ---> Reading --- an answer, and none is awaited ---> Resting
//!                                ^                  | |
//!                                +--- no answer ----+ +--- too many READs without one: replies ---> Resting
//! ```
//! An answer that is longer than the READ takes a second one, for the rest.

use super::device::{Device, Fetched, Written};
use super::sizes::Sizes;
use super::slot::{ANSWER_BYTES, Head, Slots, judge};
use super::terms::Grant;
use crate::config::{
    ANSWER_PACKET_MAX, FAST_ANSWER, FAST_ANSWERS, FETCH_MISSES_MAX, FETCH_PAUSE_FIRST,
    FETCH_PAUSE_MAX, FETCH_TIME_MAX, SLOTS,
};
use trine_transport::time::{Duration, Instant};
use trine_transport::wire::RequestNumber;

/// What fetching has cost and brought.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct FetchCounts {
    /// READs posted.
    pub(crate) reads: u64,
    /// Those of them that were for the rest of an answer.
    pub(crate) reads_of_rest: u64,
    /// READs that found no new answer, or half of one.
    pub(crate) misses: u64,
    /// Answers fetched.
    pub(crate) answers: u64,
    /// Times that a client has asked for its answers as datagrams, because they were slow.
    pub(crate) replies_asked: u64,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum State {
    /// No answer is awaited, or answers come as datagrams.
    Resting,
    /// A READ is to be posted at this time.
    Due(Instant),
    /// The device has a READ since then; the buffer then holds so many bytes of the slot.
    Reading { since: Instant, bytes: usize },
}

/// What became of a look at the device.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// Nothing yet.
    Nothing,
    /// The buffer holds an answer of so many bytes, those of its slot included.
    Answer(Head),
    /// The answers are slow: they are to be sent.
    Slow,
    /// The queue pair does not work any more.
    Broken,
}

/// What a fetcher works with.
pub(super) struct Reader<'a, D> {
    pub(super) now: Instant,
    pub(super) device: &'a mut D,
    pub(super) counts: &'a mut FetchCounts,
    /// Of the connection.
    pub(super) number: usize,
    pub(super) grant: &'a Grant,
    /// What the checksums of its slots begin with.
    pub(super) seed: u32,
    /// Room for a slot of answers.
    pub(super) copy: &'a mut [u8],
}

/// The client's place in the answers of a connection.
pub(super) struct Fetcher {
    state: State,
    /// The sequence of the next answer.
    next: u32,
    /// The requests of the session whose answers have not come, by slots of the session.
    awaited: [Option<RequestNumber>; SLOTS],
    /// When the first of them left.
    asked_at: Instant,
    sizes: Sizes,
    misses: u32,
    pause: Duration,
    /// The server sends the answers as datagrams.
    is_replied: bool,
    /// Of those, so many in a row were fast.
    fast: u32,
}

impl Fetcher {
    /// `size`: see [`Sizes::new`].
    pub(super) fn new(size: Option<u16>) -> Self {
        Self {
            state: State::Resting,
            next: 1,
            awaited: [None; SLOTS],
            asked_at: Instant::ZERO,
            sizes: Sizes::new(size),
            misses: 0,
            pause: FETCH_PAUSE_FIRST,
            is_replied: false,
            fast: 0,
        }
    }

    /// The first answer that was not fetched.
    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// Whether answers are fetched now, so that requests are to say so.
    #[inline]
    pub(super) fn is_fetching(&self) -> bool {
        !self.is_replied
    }

    /// A request leaves. True if the fetcher was at rest and has to be polled from now on.
    #[inline]
    pub(super) fn on_request(&mut self, now: Instant, request: RequestNumber) -> bool {
        // A session of this path has no other slot.
        let Some(awaited) = self.awaited.get_mut(usize::from(request.slot())) else {
            return false;
        };
        *awaited = Some(request);
        if self.awaited.iter().flatten().count() == 1 {
            self.asked_at = now;
        }
        if self.is_replied || self.state != State::Resting {
            return false;
        }
        self.state = State::Due(now);
        true
    }

    /// An answer has come, in whatever way.
    #[inline]
    pub(super) fn on_answer(&mut self, now: Instant, request: RequestNumber) {
        let awaited = self.awaited.get_mut(usize::from(request.slot()));
        let Some(awaited) = awaited.filter(|awaited| **awaited == Some(request)) else {
            return;
        };
        *awaited = None;
        let is_fast = now.saturating_since(self.asked_at) <= FAST_ANSWER;
        self.asked_at = now;
        if self.is_replied {
            self.fast = if is_fast { self.fast + 1 } else { 0 };
            if self.fast >= FAST_ANSWERS {
                self.is_replied = false;
                self.misses = 0;
            }
        }
    }

    /// True if nothing is to be done until the next request.
    #[inline]
    pub(super) fn rests(&mut self) -> bool {
        if matches!(self.state, State::Due(_)) && self.awaited.iter().all(Option::is_none) {
            self.state = State::Resting;
        }
        self.state == State::Resting
    }

    /// The READ that the device has takes so long that this end may as well sleep.
    pub(super) fn is_stuck(&self, now: Instant) -> bool {
        matches!(self.state, State::Reading { since, .. } if now.saturating_since(since) > FETCH_TIME_MAX)
    }

    /// The server is asked to send its answers.
    pub(super) fn reply(&mut self, counts: &mut FetchCounts) {
        counts.replies_asked += u64::from(!self.is_replied);
        self.is_replied = true;
        self.fast = 0;
        self.pause = FETCH_PAUSE_FIRST;
        self.awaited = [None; SLOTS];
        // The buffer belongs to the device until it has completed the READ.
        if !matches!(self.state, State::Reading { .. }) {
            self.state = State::Resting;
        }
    }

    /// Looks at the READ that the device has, or posts one that is due. The copy of an answer is in `by.copy` then.
    pub(super) fn poll<D: Device>(&mut self, by: &mut Reader<'_, D>) -> Found {
        match self.state {
            State::Resting => Found::Nothing,
            State::Due(at) if by.now < at => Found::Nothing,
            State::Due(_) => self.read(by, 0, self.sizes.fetch()),
            State::Reading { bytes, .. } => match by.device.fetched(by.number) {
                Fetched::Pending => Found::Nothing,
                Fetched::Done => self.on_read(by, bytes),
                Fetched::Broken => {
                    self.state = State::Resting;
                    Found::Broken
                }
            },
        }
    }

    /// Posts a READ of bytes `from` to `to` of the next slot.
    fn read<D: Device>(&mut self, by: &mut Reader<'_, D>, from: usize, to: usize) -> Found {
        let slot = self.next as usize % SLOTS * ANSWER_BYTES;
        match by.device.fetch(by.number, by.grant, slot, (from, to)) {
            Written::Done => {
                by.counts.reads += 1;
                by.counts.reads_of_rest += u64::from(from > 0);
                self.state = State::Reading {
                    since: by.now,
                    bytes: to,
                };
                Found::Nothing
            }
            // It will have room when it has completed something.
            Written::Full => {
                self.state = State::Due(by.now);
                Found::Nothing
            }
            Written::Broken => {
                self.state = State::Resting;
                Found::Broken
            }
        }
    }

    /// The buffer holds the first `bytes` bytes of the slot.
    fn on_read<D: Device>(&mut self, by: &mut Reader<'_, D>, bytes: usize) -> Found {
        if self.is_replied {
            self.state = State::Resting;
            return Found::Nothing;
        }
        let head = Head::read(by.device.fetch_buffer(by.number).head(0), ANSWER_PACKET_MAX);
        let ahead = head.map_or(u32::MAX, |head| head.sequence.wrapping_sub(self.next));
        let Some(head) = head.filter(|_| ahead < 1 << 31) else {
            return self.on_miss(by);
        };
        if ahead > 0 {
            self.skip(head.sequence);
            return self.on_miss(by);
        }
        if head.bytes > bytes {
            return self.read(by, bytes, head.bytes);
        }
        let copy = &mut by.copy[..head.bytes];
        by.device.fetch_buffer(by.number).copy(0, copy);
        if judge(by.seed, head, copy).is_none() {
            return self.on_miss(by);
        }
        by.counts.answers += 1;
        self.next = self.next.wrapping_add(1);
        self.sizes.on_answer(head.bytes);
        (self.misses, self.pause) = (0, FETCH_PAUSE_FIRST);
        self.state = State::Due(by.now);
        Found::Answer(head)
    }

    /// The next answer was written over by the one with this sequence. Those behind it may still be there.
    #[cold]
    fn skip(&mut self, sequence: u32) {
        let first_left = sequence.wrapping_sub(SLOTS as u32 - 1);
        self.next = self.next.wrapping_add(1);
        if first_left.wrapping_sub(self.next) < 1 << 31 {
            self.next = first_left;
        }
    }

    fn on_miss<D: Device>(&mut self, by: &mut Reader<'_, D>) -> Found {
        by.counts.misses += 1;
        self.misses += 1;
        self.state = State::Due(by.now + self.pause);
        self.pause = (self.pause * 2).min(FETCH_PAUSE_MAX);
        if self.misses < FETCH_MISSES_MAX {
            return Found::Nothing;
        }
        self.misses = 0;
        Found::Slow
    }
}
