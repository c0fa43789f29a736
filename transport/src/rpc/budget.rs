//! Who holds how much of one kind of message memory, and who gives some up when others want it.
//!
//! Privileged holders have one half, all others the rest. While three quarters of a half are free to take, anybody takes
//! them. Beyond that each holder has a share of its half: all of it, a quarter, or a sixteenth, and at least one
//! largest message. A holder within its share that finds no room gets it from the holder with most. Nobody has to: then
//! the request that waited first gets a reserve of one largest message. So a half in which all go on slowly still lets
//! one message after the other through.

use std::collections::BTreeMap;

use super::sorted::SortedVec;
use crate::config::{BUDGET_FREE_OF_SHARES, SHARE_OF_ADDRESS, SHARE_OF_IDENTITY, WAITING_FOR_ROOM};
use crate::session::shares::Holder;
use crate::time::{Duration, Instant};

/// Accounts without a message that are kept, at most.
const EMPTY_ACCOUNTS_KEPT: usize = 64;

/// A slot of a session's server end, which is where memory is held.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct SlotId {
    pub(crate) session: u16,
    pub(crate) slot: u8,
}

/// A server end's name in the accounts.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Account {
    pub(crate) holder: Holder,
    pub(crate) session: u16,
}

/// A message that is or shall be held.
#[derive(Copy, Clone, Debug)]
pub(crate) struct HeldMessage {
    pub(crate) holder: Holder,
    pub(crate) place: SlotId,
    /// Since when its slot has been at it.
    pub(crate) since: Instant,
    pub(crate) bytes: usize,
}

/// The answer to a message that wants memory.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It is counted from now on.
    Granted,
    /// There is room as soon as this one has given its memory up.
    After(SlotId),
    /// Not now: its holder has its share already.
    OverShare,
    /// Not now: others have all, and none of them has too much.
    Full,
}

/// The accounts of one kind of memory.
pub(crate) struct Budget {
    /// Of each half.
    limit: usize,
    /// The largest message.
    message_bytes: usize,
    held: BTreeMap<Holder, HolderUsage>,
    privileged: Half,
    common: Half,
}

/// What one holder has.
#[derive(Default)]
struct HolderUsage {
    bytes: usize,
    /// Oldest first.
    pieces: SortedVec<(Instant, SlotId)>,
}

/// The half of a class of holders.
#[derive(Default)]
struct Half {
    bytes: usize,
    /// Its holders by what they have.
    by_bytes: SortedVec<(usize, Holder)>,
    /// The message that uses the reserve.
    reserve: Option<(SlotId, usize)>,
    /// The message that has waited longest for room, and when it last asked.
    waiting: Option<(SlotId, Instant)>,
    /// A holder within its share found no room lately: until then all must make progress.
    short_until: Instant,
}

impl Budget {
    /// Accounts for `bytes` of messages of at most `message_bytes`. Each half holds at least one of them.
    pub(crate) fn new(bytes: usize, message_bytes: usize) -> Self {
        Self {
            limit: (bytes / 2).max(message_bytes),
            message_bytes,
            held: BTreeMap::new(),
            privileged: Half::default(),
            common: Half::default(),
        }
    }

    /// The most that a holder may have while its half is nearly full. `None` for one that has the half as a whole.
    fn share_of(&self, holder: Holder) -> Option<usize> {
        let part = match holder {
            Holder::Privileged | Holder::Shared => return None,
            Holder::Identity(_) => SHARE_OF_IDENTITY,
            Holder::Address(_) => SHARE_OF_ADDRESS,
        };
        Some((self.limit / part).max(self.message_bytes))
    }

    fn half(&self, holder: Holder) -> &Half {
        match holder {
            Holder::Privileged => &self.privileged,
            _ => &self.common,
        }
    }

    fn half_mut(&mut self, holder: Holder) -> &mut Half {
        match holder {
            Holder::Privileged => &mut self.privileged,
            _ => &mut self.common,
        }
    }

    fn held_by(&self, holder: Holder) -> usize {
        self.held.get(&holder).map_or(0, |held| held.bytes)
    }

    /// Whether with so many bytes more `holder` has more than its share, and that matters.
    fn is_too_much(&self, holder: Holder, more: usize) -> bool {
        let (parts, of) = BUDGET_FREE_OF_SHARES;
        let is_nearly_full = self.half(holder).common_bytes() + more > self.limit / of * parts;
        let own = self.held_by(holder) + more;
        is_nearly_full && self.share_of(holder).is_some_and(|share| own > share)
    }

    /// Counts a message that can wait, if there is room for it.
    pub(crate) fn ask(&mut self, now: Instant, piece: &HeldMessage) -> Admission {
        let HeldMessage {
            holder,
            place,
            bytes,
            ..
        } = *piece;
        if self.is_too_much(holder, bytes) {
            return Admission::OverShare;
        }
        if self.half(holder).common_bytes() + bytes <= self.limit {
            let half = self.half_mut(holder);
            half.waiting.take_if(|(waiting, _)| *waiting == place);
            self.add(piece);
            return Admission::Granted;
        }
        if let Some(place) = self.gives_way_to(holder, bytes) {
            return Admission::After(place);
        }
        let half = self.half_mut(holder);
        let is_first = half
            .waiting
            .is_none_or(|(first, asked)| first == place || asked + WAITING_FOR_ROOM < now);
        if is_first && half.reserve.is_none() {
            (half.reserve, half.waiting) = (Some((place, bytes)), None);
            self.add(piece);
            return Admission::Granted;
        }
        if is_first {
            half.waiting = Some((place, now));
        }
        Admission::Full
    }

    /// Counts a message that is there already.
    pub(crate) fn add(&mut self, piece: &HeldMessage) {
        let HeldMessage {
            holder,
            place,
            since,
            bytes,
        } = *piece;
        let held = self.held.entry(holder).or_default();
        let before = held.bytes;
        held.bytes += bytes;
        held.pieces.insert((since, place));
        let after = held.bytes;
        let half = self.half_mut(holder);
        half.bytes += bytes;
        half.by_bytes.remove(&(before, holder));
        half.by_bytes.insert((after, holder));
    }

    /// A message that was counted is held no longer.
    pub(crate) fn remove(&mut self, piece: &HeldMessage) {
        let HeldMessage {
            holder,
            place,
            since,
            bytes,
        } = *piece;
        let Some(held) = self.held.get_mut(&holder) else {
            debug_assert!(false, "{piece:?} was never counted");
            return;
        };
        let before = held.bytes;
        held.bytes -= bytes;
        let was_counted = held.pieces.remove(&(since, place));
        debug_assert!(was_counted, "{piece:?} was never counted");
        let (after, is_empty) = (held.bytes, held.pieces.is_empty());
        // The memory of a few accounts stays: messages come and go, and allocate nothing.
        if is_empty && self.held.len() > EMPTY_ACCOUNTS_KEPT {
            self.held.remove(&holder);
        }
        let half = self.half_mut(holder);
        half.bytes -= bytes;
        half.reserve.take_if(|(of, _)| *of == place);
        half.by_bytes.remove(&(before, holder));
        if !is_empty {
            half.by_bytes.insert((after, holder));
        }
    }

    /// The message that gives way to one of `holder`: the oldest of the holder that would still have more than `holder`
    /// then has. Callers that nothing tells apart take nothing from others and lose nothing to them.
    fn gives_way_to(&self, holder: Holder, bytes: usize) -> Option<SlotId> {
        if matches!(holder, Holder::Privileged | Holder::Shared) {
            return None;
        }
        let mut greediest = self.half(holder).by_bytes.as_slice().iter().rev();
        let (most, of) = greediest.find(|(_, of)| *of != Holder::Shared)?;
        (*most > self.held_by(holder) + bytes).then(|| self.oldest_of(*of))?
    }

    /// The message that must go since `holder` had another one: its own oldest if it has more than its share, or else the
    /// oldest of the holder with most. `None` if all can stay.
    pub(crate) fn must_go(&self, holder: Holder) -> Option<SlotId> {
        if self.is_too_much(holder, 0) {
            return self.oldest_of(holder);
        }
        let half = self.half(holder);
        let (_, greediest) = half
            .by_bytes
            .as_slice()
            .last()
            .filter(|_| half.bytes > self.limit)?;
        self.oldest_of(*greediest)
    }

    fn oldest_of(&self, holder: Holder) -> Option<SlotId> {
        let oldest = self.held.get(&holder)?.pieces.as_slice().first();
        oldest.map(|(_, place)| *place)
    }

    /// A holder of this class found no room within its share: for so long, messages that hold some must make progress.
    pub(crate) fn note_shortage(&mut self, holder: Holder, now: Instant, lasts: Duration) {
        self.half_mut(holder).short_until = now + lasts;
    }

    pub(crate) fn is_short(&self, holder: Holder, now: Instant) -> bool {
        now < self.half(holder).short_until
    }

    /// All that is held.
    pub(crate) fn bytes(&self) -> usize {
        self.privileged.bytes + self.common.bytes
    }

    /// The accounts agree with each other.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        for (half, is_privileged) in [(&self.privileged, true), (&self.common, false)] {
            let of_half = |holder: &Holder| (*holder == Holder::Privileged) == is_privileged;
            let held: Vec<_> = self
                .held
                .iter()
                .filter(|(holder, held)| of_half(holder) && !held.pieces.is_empty())
                .collect();
            assert_eq!(
                half.bytes,
                held.iter().map(|(_, held)| held.bytes).sum::<usize>()
            );
            let mut by_bytes: Vec<_> = held
                .iter()
                .map(|(holder, held)| (held.bytes, **holder))
                .collect();
            by_bytes.sort();
            assert_eq!(half.by_bytes.as_slice(), by_bytes);
        }
    }
}

impl Half {
    /// What is held without the reserve.
    fn common_bytes(&self) -> usize {
        self.bytes - self.reserve.map_or(0, |(_, bytes)| bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: usize = 8;
    /// 16 messages in each half.
    const BYTES: usize = 32 * MESSAGE;

    fn piece(holder: Holder, session: u16, bytes: usize) -> HeldMessage {
        HeldMessage {
            holder,
            place: SlotId { session, slot: 0 },
            since: Instant::from_nanos(u64::from(session)),
            bytes,
        }
    }

    fn now(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// Asks for messages until there is no more room. Returns how many there were and the last answer.
    fn take_all(budget: &mut Budget, holder: Holder, from: u16) -> (u16, Admission) {
        for taken in 0.. {
            match budget.ask(now(1), &piece(holder, from + taken, MESSAGE)) {
                Admission::Granted => budget.check(),
                other => return (taken, other),
            }
        }
        unreachable!()
    }

    #[test]
    fn one_address_leaves_room_for_the_messages_of_others() {
        let mut budget = Budget::new(BYTES, MESSAGE);
        let taken = take_all(&mut budget, Holder::Address(1), 0);
        assert_eq!(taken, (12, Admission::OverShare));
        for other in 2..=5 {
            let one = piece(Holder::Address(other), 100 + other as u16, MESSAGE);
            assert_eq!(budget.ask(now(1), &one), Admission::Granted);
        }
        // All is taken: the oldest of the greediest gives way, as long as it has more than the newcomer will have.
        for oldest in 0..11 {
            let one = piece(
                Holder::Address(10 + u64::from(oldest)),
                200 + oldest,
                MESSAGE,
            );
            let gives_way = SlotId {
                session: oldest,
                slot: 0,
            };
            assert_eq!(budget.ask(now(1), &one), Admission::After(gives_way));
            budget.remove(&piece(Holder::Address(1), oldest, MESSAGE));
            assert_eq!(budget.ask(now(1), &one), Admission::Granted);
        }
        budget.check();
    }

    #[test]
    fn an_identity_has_a_quarter_and_members_their_half() {
        let mut budget = Budget::new(BYTES, MESSAGE);
        for (address, taken) in [(1, 12), (2, 1), (3, 1), (4, 1)] {
            let got = take_all(&mut budget, Holder::Address(address), 100 * address as u16);
            assert_eq!(got.0, taken);
        }
        assert_eq!(
            take_all(&mut budget, Holder::Privileged, 900).0,
            17,
            "and the reserve"
        );
        let mut taken = 0;
        let identity = Holder::Identity(1);
        loop {
            match budget.ask(now(1), &piece(identity, 500 + taken, MESSAGE)) {
                Admission::Granted => taken += 1,
                Admission::After(place) => {
                    budget.remove(&piece(Holder::Address(1), place.session, MESSAGE))
                }
                other => break assert_eq!(other, Admission::OverShare),
            }
        }
        assert_eq!(taken, 4);
    }

    #[test]
    fn callers_that_nothing_tells_apart_have_all_of_the_half() {
        let mut budget = Budget::new(BYTES, MESSAGE);
        assert_eq!(
            take_all(&mut budget, Holder::Shared, 0),
            (17, Admission::Full)
        );
        // They give no way to an address, and an address none to them.
        assert_eq!(take_all(&mut budget, Holder::Address(1), 100).0, 0);
    }

    #[test]
    fn the_message_that_waited_first_gets_the_reserve() {
        let mut budget = Budget::new(BYTES, MESSAGE);
        for address in 0..16 {
            let one = piece(Holder::Address(u64::from(address)), address, MESSAGE);
            assert_eq!(budget.ask(now(1), &one), Admission::Granted);
        }
        let late = |number: u16| {
            piece(
                Holder::Address(50 + u64::from(number)),
                50 + number,
                MESSAGE,
            )
        };
        assert_eq!(
            budget.ask(now(1), &late(0)),
            Admission::Granted,
            "the reserve"
        );
        assert_eq!(budget.ask(now(2), &late(1)), Admission::Full);
        assert_eq!(budget.ask(now(3), &late(2)), Admission::Full);
        budget.remove(&late(0));
        assert_eq!(
            budget.ask(now(4), &late(2)),
            Admission::Full,
            "another waits longer"
        );
        assert_eq!(budget.ask(now(5), &late(1)), Admission::Granted);
        budget.remove(&late(1));
        // One that does not ask again holds nobody up.
        assert_eq!(budget.ask(now(6), &late(2)), Admission::Granted);
        assert_eq!(budget.ask(now(7), &late(3)), Admission::Full);
        budget.remove(&late(2));
        assert_eq!(budget.ask(now(8), &late(4)), Admission::Full);
        let later = now(8) + WAITING_FOR_ROOM;
        assert_eq!(budget.ask(later, &late(4)), Admission::Granted);
        budget.check();
    }

    #[test]
    fn of_messages_that_are_there_the_oldest_of_the_greediest_goes() {
        let mut budget = Budget::new(BYTES, MESSAGE);
        let mut gone = 0;
        for number in 0..40 {
            budget.add(&piece(Holder::Address(1), number, MESSAGE));
            while let Some(place) = budget.must_go(Holder::Address(1)) {
                assert_eq!(place.session, gone, "the oldest");
                budget.remove(&piece(Holder::Address(1), place.session, MESSAGE));
                gone += 1;
            }
        }
        assert_eq!(budget.bytes(), 12 * MESSAGE);
        for number in 0..5 {
            let other = Holder::Address(2 + u64::from(number));
            budget.add(&piece(other, 100 + number, MESSAGE));
            let goes = budget.must_go(other);
            assert_eq!(goes.is_some(), number == 4);
            assert!(goes.is_none_or(|place| place.session == gone));
        }
        budget.check();
    }

    #[test]
    fn a_small_budget_takes_one_largest_message_of_each_class() {
        let mut budget = Budget::new(MESSAGE, MESSAGE);
        for holder in [Holder::Privileged, Holder::Address(1)] {
            let session = u16::from(holder == Holder::Privileged);
            assert_eq!(
                budget.ask(now(1), &piece(holder, session, MESSAGE)),
                Admission::Granted
            );
        }
    }
}
