//! The server's end of RFP: where an answer lies for its client to fetch.
//!
//! Answer `n` lies in slot `n mod 8` of the connection's second region, which the client may read and nobody but this
//! end writes. A later answer in the slot says that the former was written over. So no slot has to be cleared, as the
//! one bit of RFP's own answers needs it.

use std::ops::Range;

#[cfg(test)]
use super::slot::TAIL_BYTES;
use super::slot::{ANSWER_BYTES, HEAD_BYTES, Head, Slots, Tear, judge};
use crate::config::{ANSWER_PACKET_MAX, SLOTS};
use crate::route::VerbsRoute;
use trine_transport::backend::TxItem;

/// The place of the answers of a connection.
#[derive(Clone, Debug)]
pub(super) struct Answers {
    /// The sequence of the next answer.
    next: u32,
}

impl Answers {
    pub(super) fn new() -> Self {
        Self { next: 1 }
    }

    /// Whether a packet fits.
    pub(super) fn fits(item: &TxItem<'_, VerbsRoute>) -> bool {
        item.len() <= ANSWER_PACKET_MAX
    }

    /// Writes the next answer: `put` takes an offset in the region, and bytes. Its first bytes, which make it an answer,
    /// come last.
    pub(super) fn put(
        &mut self,
        seed: u32,
        item: &TxItem<'_, VerbsRoute>,
        tear: Option<Tear>,
        slot: &mut [u8; ANSWER_BYTES],
        mut put: impl FnMut(usize, &[u8]),
    ) {
        let sequence = self.next;
        let body = item.body.map(|body| &body[..]);
        let parts = [item.head].into_iter().chain(body);
        let bytes = Head::write(seed, sequence, false, parts, slot);
        let start = sequence as usize % SLOTS * ANSWER_BYTES;
        let parts = tear.map_or([(HEAD_BYTES, bytes), (0, HEAD_BYTES)], |tear| {
            tear.parts(bytes)
        });
        for (from, to) in parts.into_iter().filter(|(from, to)| from < to) {
            put(start + from, &slot[from..to]);
        }
        self.next = sequence.wrapping_add(1);
    }

    /// The first answer of those from sequence `from` on that may still be in their slots; up to the last one.
    pub(super) fn since(&self, from: u32) -> u32 {
        let written = self.next.wrapping_sub(from);
        // A sequence that was not written yet is behind all that were.
        let count = if written < 1 << 31 { written } else { 0 };
        self.next.wrapping_sub(count.min(SLOTS as u32))
    }

    /// True if the sequence was not written yet.
    pub(super) fn is_behind(&self, sequence: u32) -> bool {
        sequence == self.next
    }

    /// Copies the answer with this sequence; where its packet is. `None` if its slot has another one, or is torn.
    pub(super) fn copy<S: Slots>(
        seed: u32,
        sequence: u32,
        slots: &S,
        out: &mut [u8; ANSWER_BYTES],
    ) -> Option<Range<usize>> {
        let slot = sequence as usize % SLOTS;
        let head = Head::read(slots.head(slot), ANSWER_PACKET_MAX)?;
        let copy = &mut out[..head.bytes];
        slots.copy(slot, copy);
        let len = judge(seed, Head { sequence, ..head }, copy)?;
        Some(HEAD_BYTES..HEAD_BYTES + len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::one_sided::slot::seed_of;

    /// Slots of one region.
    struct Region(Vec<u8>);

    impl Slots for &Region {
        fn head(&self, slot: usize) -> [u8; HEAD_BYTES] {
            *self.0[slot * ANSWER_BYTES..].first_chunk().unwrap()
        }

        fn copy(&self, slot: usize, out: &mut [u8]) {
            out.copy_from_slice(&self.0[slot * ANSWER_BYTES..][..out.len()]);
        }
    }

    fn put(answers: &mut Answers, region: &mut Region, packet: &[u8]) -> Vec<(usize, usize)> {
        let item = TxItem {
            route: VerbsRoute::nowhere(),
            head: packet,
            body: None,
            datagram_max: 0,
        };
        let (mut slot, mut puts) = ([0; ANSWER_BYTES], Vec::new());
        answers.put(seed_of(7), &item, None, &mut slot, |at, bytes| {
            region.0[at..at + bytes.len()].copy_from_slice(bytes);
            puts.push((at, bytes.len()));
        });
        puts
    }

    fn read(region: &Region, sequence: u32) -> Option<Vec<u8>> {
        let mut copy = [0; ANSWER_BYTES];
        let packet = Answers::copy(seed_of(7), sequence, &region, &mut copy)?;
        Some(copy[packet].to_vec())
    }

    #[test]
    fn an_answer_begins_to_be_one_with_its_last_write() {
        let (mut answers, mut region) = (Answers::new(), Region(vec![0; SLOTS * ANSWER_BYTES]));
        let puts = put(&mut answers, &mut region, b"answer");
        let first = ANSWER_BYTES;
        assert_eq!(
            puts,
            [(first + HEAD_BYTES, 6 + TAIL_BYTES), (first, HEAD_BYTES)]
        );
        assert_eq!(read(&region, 1), Some(b"answer".to_vec()));
    }

    #[test]
    fn the_last_eight_are_left_and_a_sequence_of_nobody_has_none() {
        let (mut answers, mut region) = (Answers::new(), Region(vec![0; SLOTS * ANSWER_BYTES]));
        assert_eq!(answers.since(1), 1);
        assert!(answers.is_behind(1), "none was written");
        for number in 1..=20u8 {
            put(&mut answers, &mut region, &[number; 1_008]);
        }
        for (from, first) in [
            (1, 13),
            (13, 13),
            (18, 18),
            (21, 21),
            (22, 21),
            (0, 13),
            (u32::MAX, 13),
        ] {
            assert_eq!(answers.since(from), first, "{from}");
        }
        assert_eq!(read(&region, 12), None, "written over by 20");
        for number in 13..=20 {
            assert_eq!(read(&region, number), Some(vec![number as u8; 1_008]));
        }
        assert_eq!(read(&region, 21), None);
    }

    #[test]
    fn the_sequence_goes_around() {
        let (mut answers, mut region) = (
            Answers { next: u32::MAX },
            Region(vec![0; SLOTS * ANSWER_BYTES]),
        );
        put(&mut answers, &mut region, b"last");
        put(&mut answers, &mut region, b"first");
        assert_eq!(answers.since(u32::MAX), u32::MAX);
        assert_eq!(read(&region, u32::MAX), Some(b"last".to_vec()));
        assert_eq!(read(&region, 0), Some(b"first".to_vec()));
        assert!(answers.is_behind(1));
    }
}
