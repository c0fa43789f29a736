//! An answer to a watcher while it is put together: which events it has, and from where the next one goes on.

use trine_kvstore::Position;
use trine_kvstore::history::Event;
use trine_protocol::message::EventWriter;

/// Where a watcher stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Known {
    /// Everything up to here.
    pub(crate) whole: Position,
    /// So many of its events at the next position that has some.
    pub(crate) part: u32,
}

/// The events of one answer.
#[derive(Debug)]
pub(crate) struct Page {
    writer: EventWriter,
    keys_only: bool,
    bytes_max: usize,
    /// Events that the watcher has already.
    skip: u32,
    known: Known,
    /// The position of the last event; nothing before the first one.
    current: Option<Position>,
    full: bool,
}

impl Page {
    pub(crate) fn new(known: Known, keys_only: bool, bytes_max: usize) -> Self {
        Self {
            writer: EventWriter::default(),
            keys_only,
            bytes_max,
            skip: known.part,
            known: Known { part: 0, ..known },
            current: None,
            full: false,
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.writer.is_empty()
    }

    /// Adds the next event of this watcher; false if it does not fit any more.
    pub(crate) fn add(&mut self, event: &Event<'_>, ids: &[u32]) -> bool {
        if let Some(current) = self.current
            && current != event.position
        {
            self.known = Known {
                whole: current,
                part: 0,
            };
        }
        self.current = Some(event.position);
        if self.skip > 0 {
            self.skip -= 1;
            self.known.part += 1;
            return true;
        }
        let size = EventWriter::size_of(event, ids.len(), self.keys_only);
        if !self.writer.is_empty() && self.writer.reply_len() + size > self.bytes_max {
            self.full = true;
            return false;
        }
        self.writer.push(event, ids, self.keys_only);
        self.known.part += 1;
        true
    }

    /// What the watcher knows with this page. `all` is a position up to which there are no other events of it.
    pub(crate) fn known(&self, all: Position) -> Known {
        match self.full {
            true => self.known,
            // Without an event the position of those that the watcher has already is still to come.
            false => Known {
                whole: all.max(self.known.whole),
                part: match self.current {
                    None => self.skip,
                    Some(_) => 0,
                },
            },
        }
    }

    /// The events.
    pub(crate) fn writer(&self) -> &EventWriter {
        &self.writer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_kvstore::Kind;
    use trine_kvstore::history::Change;
    use trine_protocol::message::WatchReply;

    fn event(position: u64, key: &[u8]) -> Event<'_> {
        Event {
            position: Position::from_u64(position),
            command: Kind::DeleteRange,
            change: Change::Removed { key },
        }
    }

    /// Reads events at these positions page by page, each of which takes `room` of them.
    fn pages(positions: &[u64], room: usize) -> Vec<(Vec<String>, u64, u32)> {
        let keys: Vec<_> = (0..positions.len()).map(|n| format!("{n:03}")).collect();
        let events: Vec<_> = positions
            .iter()
            .zip(&keys)
            .map(|(&position, key)| event(position, key.as_bytes()))
            .collect();
        let size = EventWriter::size_of(&events[0], 1, true);
        let bytes_max = EventWriter::default().reply_len() + room * size;
        let mut known = Known {
            whole: Position::ZERO,
            part: 0,
        };
        let mut pages = Vec::new();
        loop {
            let mut page = Page::new(known, true, bytes_max);
            let behind = events.iter().filter(|event| event.position > known.whole);
            for event in behind {
                if !page.add(event, &[1]) {
                    break;
                }
            }
            let full = page.is_full();
            known = page.known(Position::from_u64(99));
            let reply = page.writer().reply(known.whole.as_u64(), known.part);
            let WatchReply::Events { events, .. } = reply else {
                unreachable!("the writer makes events");
            };
            let key = |event: trine_protocol::message::WatchEvent<'_>| match event.change {
                Change::Removed { key } => String::from_utf8_lossy(key).into_owned(),
                _ => unreachable!("only removals went in"),
            };
            pages.push((
                events.iter().map(key).collect(),
                known.whole.as_u64(),
                known.part,
            ));
            if !full {
                return pages;
            }
        }
    }

    #[test]
    fn a_page_ends_behind_a_whole_position_or_says_how_much_of_one_it_has() {
        let ends = |list: &[(Vec<String>, u64, u32)]| -> Vec<(usize, u64, u32)> {
            list.iter()
                .map(|(keys, whole, part)| (keys.len(), *whole, *part))
                .collect()
        };
        assert_eq!(ends(&pages(&[1, 2, 3], 9)), [(3, 99, 0)]);
        assert_eq!(ends(&pages(&[1, 2, 3], 2)), [(2, 2, 0), (1, 99, 0)]);
        assert_eq!(
            ends(&pages(&[1, 2, 2, 2, 2, 2, 3], 2)),
            [(2, 1, 1), (2, 1, 3), (2, 2, 0), (1, 99, 0)]
        );
    }

    #[test]
    fn the_pages_together_have_each_event_once() {
        let positions = [1, 1, 1, 2, 3, 3, 3, 3, 4, 5, 5];
        for room in 1..12 {
            let told: Vec<_> = pages(&positions, room)
                .into_iter()
                .flat_map(|page| page.0)
                .collect();
            let expected: Vec<_> = (0..positions.len()).map(|n| format!("{n:03}")).collect();
            assert_eq!(told, expected, "{room} to a page");
        }
    }

    /// A replica that has not come to the position of the events that the watcher has already answers without events. It
    /// forgot how many of them the watcher had, and told them again.
    #[test]
    fn an_answer_before_the_position_of_a_part_keeps_the_part() {
        let known = Known {
            whole: Position::from_u64(7),
            part: 2,
        };
        let mut page = Page::new(known, true, 1 << 20);
        let before = Position::from_u64(8);
        assert_eq!(
            page.known(before),
            Known {
                whole: before,
                part: 2
            }
        );
        for key in [b"a", b"b", b"c"] {
            assert!(page.add(&event(9, key), &[1]));
        }
        assert_eq!(page.writer().count(), 1);
        let at = Position::from_u64(9);
        assert_eq!(page.known(at), Known { whole: at, part: 0 });
    }
}
