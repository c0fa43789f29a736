//! When a client reads its next answer out of the server's memory, and how much of it.
//!
//! ```text
//!            a request leaves
//!   Resting ------------------> Due --- READs --- an answer, and none is awaited ---> Resting
//!                                ^        | |
//!                                +-- no --+ +--- too many READs without one: replies ---> Resting
//! ```
//! An answer that is longer than the READ takes a second one, for the rest.
//!
//! While answers are found, the device gets READs of the next ones, too: twice as many after each, as many as are awaited
//! at most. They complete in their order. One that finds nothing makes those behind it stale: their answers are not looked
//! at, and are read again.

use super::device::{Fetched, OneSidedDevice, Written};
use super::sizes::Sizes;
use super::slot::{Head, Slots, judge, slot_of};
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
    /// READs whose results were not looked at, because one in front of them found nothing.
    pub(crate) forsaken: u64,
    /// Answers fetched.
    pub(crate) answers: u64,
    /// Times that a client has asked for its answers as datagrams, because they were slow.
    pub(crate) replies_asked: u64,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum FetchState {
    /// No answer is awaited, or answers come as datagrams.
    Resting,
    /// READs are to be posted, or were, from this time on.
    Due(Instant),
}

/// The result of a poll of the device.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum FetchResult {
    /// Nothing yet.
    Nothing,
    /// The copy holds an answer of so many bytes, those of its slot included.
    Answer(Head),
    /// The answers are slow: they are to be sent.
    Slow,
    /// The queue pair does not work any more.
    Broken,
}

/// What a fetcher works with.
pub(super) struct FetchContext<'a, D> {
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
    state: FetchState,
    /// The sequence of the next answer.
    next: u32,
    /// READs that the device has for it and for those behind it.
    ahead: u32,
    /// Older READs that the device has. Their results will not be looked at.
    stale: u32,
    /// The bytes of its slot that the newest READ of an answer brings, by slots.
    read_bytes: [usize; SLOTS],
    /// READs that the device may have: 1 after one that found nothing.
    window: u32,
    /// It is among those that are polled.
    is_polled: bool,
    /// When the device completed a READ last, or got one while it had none.
    progress_at: Instant,
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
            state: FetchState::Resting,
            next: 1,
            ahead: 0,
            stale: 0,
            read_bytes: [0; SLOTS],
            window: 1,
            is_polled: false,
            progress_at: Instant::ZERO,
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

    /// A request leaves. True if the fetcher was not polled and has to be from now on.
    #[inline]
    pub(super) fn on_request(&mut self, now: Instant, request: RequestNumber) -> bool {
        // A session of this path has no other slot.
        let Some(awaited) = self.awaited.get_mut(usize::from(request.slot())) else {
            return false;
        };
        *awaited = Some(request);
        if self.awaited() == 1 {
            self.asked_at = now;
        }
        if self.is_replied || self.state != FetchState::Resting {
            return false;
        }
        self.state = FetchState::Due(now);
        !std::mem::replace(&mut self.is_polled, true)
    }

    fn awaited(&self) -> usize {
        self.awaited.iter().flatten().count()
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
        if self.ahead == 0 && self.awaited() == 0 {
            self.state = FetchState::Resting;
        }
        self.is_polled = self.stale > 0 || self.state != FetchState::Resting;
        !self.is_polled
    }

    /// The READ that the device has takes so long that this end may as well sleep.
    pub(super) fn is_stuck(&self, now: Instant) -> bool {
        self.under_way() > 0 && now.saturating_since(self.progress_at) > FETCH_TIME_MAX
    }

    /// The server is asked to send its answers.
    pub(super) fn reply(&mut self, counts: &mut FetchCounts) {
        counts.replies_asked += u64::from(!self.is_replied);
        self.is_replied = true;
        self.fast = 0;
        self.pause = FETCH_PAUSE_FIRST;
        self.awaited = [None; SLOTS];
        self.forsake_reads();
        self.state = FetchState::Resting;
    }

    /// The READs that the device has are of no use. Their places in the buffer are the device's until it has completed them.
    fn forsake_reads(&mut self) {
        self.stale += std::mem::take(&mut self.ahead);
        self.window = 1;
    }

    /// Looks at the oldest READ that the device has, and posts those that are due. An answer is in `by.copy` then.
    pub(super) fn poll<D: OneSidedDevice>(&mut self, by: &mut FetchContext<'_, D>) -> FetchResult {
        if self.under_way() > 0 {
            match by.device.fetched(by.number) {
                Fetched::Pending => {}
                Fetched::Done => {
                    self.progress_at = by.now;
                    if self.stale == 0 {
                        self.ahead -= 1;
                        return self.on_read(by);
                    }
                    self.stale -= 1;
                    by.counts.forsaken += 1;
                }
                Fetched::Broken => return self.broken(),
            }
        }
        self.post_due(by)
    }

    /// READs that the device has.
    fn under_way(&self) -> u32 {
        self.ahead + self.stale
    }

    /// The queue pair has to be reset, which takes all READs back.
    #[cold]
    fn broken(&mut self) -> FetchResult {
        (self.ahead, self.stale) = (0, 0);
        self.state = FetchState::Resting;
        FetchResult::Broken
    }

    /// Posts READs of the next answers, as many as are awaited and as the window has room for.
    fn post_due<D: OneSidedDevice>(&mut self, by: &mut FetchContext<'_, D>) -> FetchResult {
        if !matches!(self.state, FetchState::Due(at) if at <= by.now) {
            return FetchResult::Nothing;
        }
        let wanted = self.window.min(self.awaited() as u32).max(1);
        while self.ahead < wanted && self.under_way() < SLOTS as u32 {
            let sequence = self.next.wrapping_add(self.ahead);
            match self.read(by, sequence, 0, self.sizes.fetch()) {
                Written::Done => self.ahead += 1,
                // It will have room when it has completed something.
                Written::Full => break,
                Written::Broken => return self.broken(),
            }
        }
        FetchResult::Nothing
    }

    /// Posts a READ of bytes `from` to `to` of the slot of an answer.
    fn read<D: OneSidedDevice>(
        &mut self,
        by: &mut FetchContext<'_, D>,
        sequence: u32,
        from: usize,
        to: usize,
    ) -> Written {
        let slot = slot_of(sequence);
        let written = by.device.fetch(by.number, by.grant, slot, (from, to));
        if written == Written::Done {
            if self.under_way() == 0 {
                self.progress_at = by.now;
            }
            by.counts.reads += 1;
            by.counts.reads_of_rest += u64::from(from > 0);
            self.read_bytes[slot] = to;
        }
        written
    }

    /// The READ of the next answer has completed.
    fn on_read<D: OneSidedDevice>(&mut self, by: &mut FetchContext<'_, D>) -> FetchResult {
        let slot = slot_of(self.next);
        let bytes = self.read_bytes[slot];
        let head = Head::read(
            by.device.fetch_buffer(by.number).head(slot),
            ANSWER_PACKET_MAX,
        );
        let ahead = head.map_or(u32::MAX, |head| head.sequence.wrapping_sub(self.next));
        let Some(head) = head.filter(|_| ahead < 1 << 31) else {
            return self.on_miss(by);
        };
        if ahead > 0 {
            self.skip(head.sequence);
            return self.on_miss(by);
        }
        if head.bytes > bytes {
            return self.read_rest(by, bytes, head.bytes);
        }
        let copy = &mut by.copy[..head.bytes];
        by.device.fetch_buffer(by.number).copy(slot, copy);
        if judge(by.seed, head, copy).is_none() {
            return self.on_miss(by);
        }
        by.counts.answers += 1;
        self.next = self.next.wrapping_add(1);
        self.sizes.on_answer(head.bytes);
        (self.misses, self.pause) = (0, FETCH_PAUSE_FIRST);
        self.window = (self.window * 2).min(SLOTS as u32);
        FetchResult::Answer(head)
    }

    /// The answer is longer than its READ. The rest is read behind those that the device has.
    fn read_rest<D: OneSidedDevice>(
        &mut self,
        by: &mut FetchContext<'_, D>,
        from: usize,
        to: usize,
    ) -> FetchResult {
        self.forsake_reads();
        match self.read(by, self.next, from, to) {
            Written::Done => self.ahead = 1,
            // Its beginning is read again, too.
            Written::Full => {}
            Written::Broken => return self.broken(),
        }
        FetchResult::Nothing
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

    fn on_miss<D: OneSidedDevice>(&mut self, by: &mut FetchContext<'_, D>) -> FetchResult {
        by.counts.misses += 1;
        self.misses += 1;
        self.forsake_reads();
        self.state = FetchState::Due(by.now + self.pause);
        self.pause = (self.pause * 2).min(FETCH_PAUSE_MAX);
        if self.misses < FETCH_MISSES_MAX {
            return FetchResult::Nothing;
        }
        self.misses = 0;
        FetchResult::Slow
    }
}
