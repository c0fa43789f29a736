//! Streams of watchers against what has changed.
//!
//! From where it began on, each change of what it watches comes once, in the order of the positions, with its key, its
//! effect and the numbers of its watches. A batch says up to where everything was told: behind that nothing older may be
//! missing, or come.

use super::changes::{Change, Changes, Effect, digest};
use std::collections::BTreeSet;
use trine_client::{WatchBatch, WatchTarget, WatchedChange, WatchedEvent};
use trine_kvstore::config::HISTORY_VALUE_BYTES_MAX;

/// What a stream has told so far.
#[derive(Debug)]
pub struct WatchCheck {
    targets: Vec<(u32, WatchTarget)>,
    keys_only: bool,
    /// Everything up to here was told, or is from before the stream.
    seen: u64,
    /// The first change that is not behind `seen`.
    next: usize,
    /// Those behind `seen` that were told.
    told: BTreeSet<usize>,
    /// The position of the last event.
    last: u64,
    /// Events that were told.
    pub events: u64,
}

impl WatchCheck {
    /// A stream that has begun at a position.
    pub fn new(
        targets: Vec<(u32, WatchTarget)>,
        keys_only: bool,
        began: u64,
        changes: &Changes,
    ) -> Self {
        let next = changes
            .list()
            .partition_point(|change| change.position <= began);
        Self {
            targets,
            keys_only,
            seen: began,
            next,
            told: BTreeSet::new(),
            last: 0,
            events: 0,
        }
    }

    /// The position up to which everything was told.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Takes the next batch.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn take(&mut self, batch: &WatchBatch, changes: &Changes) -> Result<(), String> {
        for event in &batch.events {
            self.take_event(event, changes)?;
        }
        let position = batch.position.as_u64();
        if position < self.seen {
            let seen = words(self.seen);
            return Err(format!(
                "a batch is of {}, and an earlier one of {seen}",
                words(position)
            ));
        }
        if position > changes.position() {
            return Err(format!(
                "a batch is of {}, which no replica has applied",
                words(position)
            ));
        }
        let is_part = self.last > position;
        if is_part != batch.more {
            return Err(format!(
                "a batch of {} whose last event is of {} says that more of that follow: {}",
                words(position),
                words(self.last),
                batch.more
            ));
        }
        self.pass(position + 1, changes)?;
        self.seen = position;
        Ok(())
    }

    fn take_event(&mut self, event: &WatchedEvent, changes: &Changes) -> Result<(), String> {
        let position = event.position.as_u64();
        self.events += 1;
        if position <= self.seen || position < self.last {
            return Err(format!(
                "a change came twice: {event:?}, and everything up to {} was told",
                words(self.seen.max(self.last))
            ));
        }
        self.last = position;
        self.pass(position, changes)?;
        let list = changes.list();
        let start = list.partition_point(|change| change.position < position);
        let same = list[start..]
            .iter()
            .take_while(|change| change.position == position);
        let found = (start..)
            .zip(same)
            .find(|(_, change)| change.key.as_deref() == key_of(event));
        let Some((number, change)) = found else {
            return Err(format!("nothing has happened like {event:?}"));
        };
        if !self.told.insert(number) {
            return Err(format!("a change came twice: {event:?}"));
        }
        match self.is_told_right(event, change) {
            true => Ok(()),
            false => Err(format!("{event:?} is told, and it was {change:?}")),
        }
    }

    /// Everything before a position has to be told by now.
    fn pass(&mut self, before: u64, changes: &Changes) -> Result<(), String> {
        while let Some(change) = changes.list().get(self.next)
            && change.position < before
        {
            if !self.told.remove(&self.next) && !self.ids_of(change).is_empty() {
                return Err(format!(
                    "a change was lost: {change:?} at {}, of a stream that has everything up to {}",
                    words(change.position),
                    words(self.seen)
                ));
            }
            self.next += 1;
        }
        Ok(())
    }

    /// The oldest change that was not told yet.
    pub fn pending<'c>(&self, changes: &'c Changes) -> Option<&'c Change> {
        let list = (0..).zip(changes.list()).skip(self.next);
        list.filter(|(number, _)| !self.told.contains(number))
            .map(|(_, change)| change)
            .find(|change| !self.ids_of(change).is_empty())
    }

    /// The numbers of the watches that a change belongs to.
    fn ids_of(&self, change: &Change) -> Vec<u32> {
        let belongs = |target: &WatchTarget| match &change.key {
            None => true,
            Some(key) => holds(target, key),
        };
        let targets = self.targets.iter();
        let mut ids: Vec<u32> = targets
            .filter(|(_, target)| belongs(target))
            .map(|(id, _)| *id)
            .collect();
        ids.sort_unstable();
        ids
    }

    fn is_told_right(&self, event: &WatchedEvent, change: &Change) -> bool {
        let by = change.command.is_none() || change.command == event.command;
        by && self.ids_of(change) == event.targets && self.is_effect(&event.change, change.effect)
    }

    fn is_effect(&self, told: &WatchedChange, effect: Effect) -> bool {
        match (told, effect) {
            (
                WatchedChange::Written {
                    value,
                    value_bytes,
                    remaining,
                    ..
                },
                Effect::Written {
                    value: expected,
                    bytes,
                    remaining_ns,
                },
            ) => {
                let left_out = self.keys_only || bytes > HISTORY_VALUE_BYTES_MAX;
                let value_is_right = match value {
                    Some(value) => !left_out && digest(value) == expected,
                    None => left_out,
                };
                value_is_right
                    && *value_bytes as usize == bytes
                    && remaining.map(|left| left.as_nanos()) == remaining_ns
            }
            (WatchedChange::Removed { .. }, Effect::Removed)
            | (WatchedChange::Expired { .. }, Effect::Expired)
            | (WatchedChange::Flushed, Effect::Flushed) => true,
            _ => false,
        }
    }
}

fn key_of(event: &WatchedEvent) -> Option<&[u8]> {
    match &event.change {
        WatchedChange::Written { key, .. }
        | WatchedChange::Removed { key }
        | WatchedChange::Expired { key } => Some(key),
        WatchedChange::Flushed => None,
    }
}

fn holds(target: &WatchTarget, key: &[u8]) -> bool {
    match target {
        WatchTarget::Key(own) => own == key,
        WatchTarget::Prefix(prefix) => key.starts_with(prefix),
        WatchTarget::Range { start, end } => {
            key >= start.as_slice() && end.as_ref().is_none_or(|end| key < end.as_slice())
        }
    }
}

fn words(position: u64) -> String {
    format!("{}.{}", position >> 16, position & 0xffff)
}

#[cfg(test)]
mod tests {
    use super::super::changes::tests::changes_of;
    use super::*;
    use trine_kvstore::{Command, Kind, List, Pair, Position};

    fn at(index: u64) -> Position {
        Position::new(index, 0)
    }

    /// Keys a and b are written at 1 to 3, both at 4, and a is deleted at 5.
    fn changes() -> Changes {
        let put = |key: &'static [u8]| Command::Put { key, value: b"v" };
        let pairs = [b"a", b"b"].map(|key| Pair { key, value: b"w" });
        let both = Command::MultiPut {
            pairs: List::from(&pairs),
        };
        let delete = Command::Delete { key: b"a" };
        let commands = [put(b"a"), put(b"b"), put(b"a"), both, delete];
        changes_of(&commands.map(|command| (1, command)))
    }

    fn check(changes: &Changes) -> WatchCheck {
        let targets = vec![
            (7, WatchTarget::Key(b"a".to_vec())),
            (8, WatchTarget::Prefix(Vec::new())),
        ];
        WatchCheck::new(targets, false, at(1).as_u64(), changes)
    }

    fn written(index: u64, key: &[u8], value: &[u8], command: Kind) -> WatchedEvent {
        WatchedEvent {
            targets: if key == b"a" { vec![7, 8] } else { vec![8] },
            position: at(index),
            command: Some(command),
            change: WatchedChange::Written {
                key: key.to_vec(),
                value: Some(value.to_vec()),
                value_bytes: 1,
                remaining: None,
            },
        }
    }

    fn batch(index: u64, more: bool, events: &[WatchedEvent]) -> WatchBatch {
        let events = events.to_vec();
        WatchBatch {
            events,
            position: at(index),
            more,
        }
    }

    fn all() -> Vec<WatchedEvent> {
        let mut all = vec![
            written(2, b"b", b"v", Kind::Put),
            written(3, b"a", b"v", Kind::Put),
            written(4, b"b", b"w", Kind::MultiPut),
            written(4, b"a", b"w", Kind::MultiPut),
        ];
        all.push(WatchedEvent {
            targets: vec![7, 8],
            position: at(5),
            command: Some(Kind::Delete),
            change: WatchedChange::Removed { key: b"a".to_vec() },
        });
        all
    }

    fn take(batches: &[WatchBatch]) -> Result<u64, String> {
        let changes = changes();
        let mut check = check(&changes);
        let mut batches = batches.iter();
        batches.try_for_each(|batch| check.take(batch, &changes))?;
        Ok(check.events)
    }

    #[test]
    fn a_stream_of_all_changes_passes_whatever_its_parts() {
        assert_eq!(take(&[batch(5, false, &all())]), Ok(5));
        let (first, rest) = (&all()[..3], &all()[3..]);
        assert_eq!(take(&[batch(3, true, first), batch(5, false, rest)]), Ok(5));
    }

    #[test]
    fn each_change_that_is_missing_is_lost() {
        for missing in 0..5 {
            let mut events = all();
            events.remove(missing);
            let lost = take(&[batch(5, false, &events)]).expect_err("one is missing");
            assert!(lost.contains("a change was lost"), "{lost}");
        }
        let lost = take(&[batch(4, false, &all()[..3])]).expect_err("a part is missing");
        assert!(lost.contains("a change was lost"), "{lost}");
    }

    #[test]
    fn each_change_that_comes_again_came_twice() {
        for again in 0..5 {
            let event = all()[again].clone();
            let twice = [batch(5, false, &all()), batch(5, false, &[event])];
            let twice = take(&twice).expect_err("one came twice");
            assert!(twice.contains("a change came twice"), "{twice}");
        }
        let mut part = all()[..4].to_vec();
        part.push(all()[2].clone());
        let twice = take(&[batch(5, false, &part)]).expect_err("one came twice");
        assert!(twice.contains("a change came twice"), "{twice}");
    }

    #[test]
    fn a_change_with_another_content_is_not_that_change() {
        let wrong = [
            written(2, b"b", b"w", Kind::Put),
            written(2, b"b", b"v", Kind::Append),
            written(2, b"c", b"v", Kind::Put),
            written(3, b"b", b"v", Kind::Put),
        ];
        for event in wrong {
            let told = take(&[batch(2, false, std::slice::from_ref(&event))]);
            assert!(told.is_err(), "{event:?}");
        }
        let mut other = all()[0].clone();
        other.targets = vec![7, 8];
        assert!(take(&[batch(2, false, &[other])]).is_err());
    }

    #[test]
    fn a_batch_goes_neither_back_nor_beyond_the_log() {
        let beyond = take(&[batch(6, false, &all())]);
        assert!(beyond.is_err_and(|why| why.contains("no replica has applied")));
        let back = take(&[batch(0, false, &[])]);
        assert!(back.is_err_and(|why| why.contains("an earlier one")));
        let no_part = take(&[batch(3, false, &all()[..3])]);
        assert!(no_part.is_err_and(|why| why.contains("more of that follow")));
    }
}
