//! The bytes of a slot: a packet between two copies of its sequence, and a checksum.
//!
//! Slots of requests are written by a client, and those of answers, which are longer, are read by it.
//!
//! ```text
//! byte 0..3   sequence, little-endian: counts the packets of a connection in one direction from 1
//! byte 4..5   length of the packet
//! byte 6      1: the client fetches its answers; else 0
//! byte 7      0
//! byte 8..    packet
//! then 0..3   sequence
//! then 4..7   CRC32C over the session's nonce, bytes 0 to 7 and the packet
//! ```
//!
//! A device may write the bytes in any order, and a client may write anything at any time. So a slot is copied first, and
//! the copy is judged.

use crate::config::{ANSWER_PACKET_MAX, SLOT_PACKET_MAX, SLOTS};
use trine_transport::wire::crc32c;

/// Bytes in front of the packet.
pub(crate) const HEAD_BYTES: usize = 8;
/// Bytes behind it.
pub(super) const TAIL_BYTES: usize = 8;
/// From one slot of requests to the next: whole cache lines.
pub(crate) const SLOT_BYTES: usize = with_packets_of(SLOT_PACKET_MAX).next_multiple_of(64);
/// From one slot of answers to the next.
pub(crate) const ANSWER_BYTES: usize = with_packets_of(ANSWER_PACKET_MAX).next_multiple_of(64);

/// Bytes of a slot with a packet of this length.
pub(super) const fn with_packets_of(len: usize) -> usize {
    HEAD_BYTES + len + TAIL_BYTES
}

/// Slots that another end or its device writes: nothing but copies come out.
pub(crate) trait Slots {
    /// The first eight bytes of a slot.
    fn head(&self, slot: usize) -> [u8; HEAD_BYTES];

    /// The first bytes of a slot, as many as `out` has room for.
    fn copy(&self, slot: usize, out: &mut [u8]);
}

/// What the first bytes of a slot say.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Head {
    pub(super) sequence: u32,
    /// Bytes that the slot has to hold; not more than it can.
    pub(super) bytes: usize,
    /// The client fetches its answers.
    pub(super) is_fetched: bool,
}

impl Head {
    /// `None` if the slot, which takes packets up to `longest`, can have no such packet.
    #[inline]
    pub(super) fn read(head: [u8; HEAD_BYTES], longest: usize) -> Option<Self> {
        let [a, b, c, d, low, high, fetched, _] = head;
        let packet = usize::from(u16::from_le_bytes([low, high]));
        (packet <= longest).then_some(Self {
            sequence: u32::from_le_bytes([a, b, c, d]),
            bytes: with_packets_of(packet),
            is_fetched: fetched == 1,
        })
    }

    /// Writes the slot of `packet`, which must not be longer than `out` has room for; returns the bytes that count.
    pub(super) fn write<'a>(
        seed: u32,
        sequence: u32,
        is_fetched: bool,
        packet: impl Iterator<Item = &'a [u8]>,
        out: &mut [u8],
    ) -> usize {
        let mut end = HEAD_BYTES;
        for part in packet {
            out[end..end + part.len()].copy_from_slice(part);
            end += part.len();
        }
        let len = (end - HEAD_BYTES) as u16;
        out[..4].copy_from_slice(&sequence.to_le_bytes());
        out[4..6].copy_from_slice(&len.to_le_bytes());
        out[6..HEAD_BYTES].copy_from_slice(&[u8::from(is_fetched), 0]);
        let sum = crc32c(seed, &out[..end]);
        out[end..end + 4].copy_from_slice(&sequence.to_le_bytes());
        out[end + 4..end + TAIL_BYTES].copy_from_slice(&sum.to_le_bytes());
        end + TAIL_BYTES
    }
}

/// The slot that a sequence belongs to.
pub(super) fn slot_of(sequence: u32) -> usize {
    sequence as usize % SLOTS
}

/// What the checksums of a session's slots begin with.
pub(super) fn seed_of(nonce: u64) -> u32 {
    crc32c(0, &nonce.to_le_bytes())
}

/// The length of the packet in this copy of a slot, whose first bytes were read as `head` before. `None` if the slot is
/// not whole.
#[inline]
pub(super) fn judge(seed: u32, head: Head, copy: &[u8]) -> Option<usize> {
    let again = Head::read(*copy.first_chunk()?, usize::from(u16::MAX))?;
    let (summed, tail) = copy.split_last_chunk::<TAIL_BYTES>()?;
    let [a, b, c, d, sum @ ..] = *tail;
    let is_whole = again == head
        && head.bytes == copy.len()
        && u32::from_le_bytes([a, b, c, d]) == head.sequence
        && u32::from_le_bytes(sum) == crc32c(seed, summed);
    is_whole.then(|| summed.len() - HEAD_BYTES)
}

/// How a test of the device leaves a slot half-written.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Tear {
    /// The second half comes before the first.
    Backward,
    /// The second half never comes.
    FirstHalf,
    /// The first half never comes.
    SecondHalf,
}

impl Tear {
    /// The way in which the write with this number is torn, if one write in `interval` is.
    pub(super) fn of_write(number: u64, interval: u32) -> Option<Self> {
        let interval = u64::from(interval);
        if interval == 0 || !number.is_multiple_of(interval) {
            return None;
        }
        Some(match number / interval % 3 {
            0 => Self::Backward,
            1 => Self::FirstHalf,
            _ => Self::SecondHalf,
        })
    }

    /// The parts of a slot of `bytes` bytes that are written, one after the other: where they begin, at a whole word, and
    /// end.
    pub(super) fn parts(self, bytes: usize) -> [(usize, usize); 2] {
        let half = bytes / 2 / HEAD_BYTES * HEAD_BYTES;
        match self {
            Self::Backward => [(half, bytes), (0, half)],
            Self::FirstHalf => [(0, half), (0, 0)],
            Self::SecondHalf => [(half, bytes), (0, 0)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(sequence: u32, packet: &[u8]) -> Vec<u8> {
        let mut out = [0xee; SLOT_BYTES];
        let parts = [&packet[..packet.len() / 2], &packet[packet.len() / 2..]];
        let bytes = Head::write(seed_of(7), sequence, false, parts.into_iter(), &mut out);
        out[..bytes].to_vec()
    }

    /// As somebody reads it who expects this sequence.
    fn judged(seed: u32, sequence: u32, copy: &[u8]) -> Option<usize> {
        let head = Head::read(*copy.first_chunk()?, SLOT_PACKET_MAX)?;
        judge(seed, Head { sequence, ..head }, copy)
    }

    #[test]
    fn its_bytes() {
        let expected = [
            &[0x04, 0x03, 0x02, 0x01, 3, 0, 0, 0][..],
            b"abc",
            &[0x04, 0x03, 0x02, 0x01],
        ]
        .concat();
        let slot = slot(0x0102_0304, b"abc");
        assert_eq!(slot[..15], expected);
        let sum = crc32c(crc32c(0, &7u64.to_le_bytes()), &expected[..11]);
        assert_eq!(slot[15..], sum.to_le_bytes());
    }

    #[test]
    fn the_client_says_whether_it_fetches_and_the_checksum_covers_that() {
        let mut out = [0; SLOT_BYTES];
        let bytes = Head::write(seed_of(7), 9, true, [&b"abc"[..]].into_iter(), &mut out);
        assert_eq!(out[4..8], [3, 0, 1, 0]);
        let head = Head::read(*out.first_chunk().unwrap(), SLOT_PACKET_MAX).unwrap();
        assert!(head.is_fetched);
        assert_eq!(judge(seed_of(7), head, &out[..bytes]), Some(3));
        out[6] = 0;
        assert_eq!(judge(seed_of(7), head, &out[..bytes]), None);
        assert_eq!(judged(seed_of(7), 9, &out[..bytes]), None);
    }

    #[test]
    fn every_length_is_read_as_it_was_written() {
        for len in 0..=SLOT_PACKET_MAX {
            let packet: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let copy = slot(9, &packet);
            assert_eq!(judged(seed_of(7), 9, &copy), Some(len));
            assert_eq!(copy[HEAD_BYTES..HEAD_BYTES + len], packet);
        }
    }

    #[test]
    fn another_session_another_sequence_and_each_changed_byte_are_found_out() {
        let whole = slot(9, b"a packet of some length");
        assert_eq!(judged(seed_of(8), 9, &whole), None, "session");
        assert_eq!(judged(seed_of(7), 17, &whole), None, "sequence");
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            assert_eq!(judged(seed_of(7), 9, &changed), None, "byte {at}");
        }
        for len in 0..whole.len() {
            assert_eq!(judged(seed_of(7), 9, &whole[..len]), None, "length {len}");
        }
    }

    /// A slot that is written over its predecessor is looked at in between, wherever the border of new and old is, and
    /// from whichever end the device writes.
    #[test]
    fn a_mixture_of_two_writes_is_never_a_packet() {
        let old = slot(1, &[1; 60]);
        for packet in [&[2; 60][..], &[1; 60], &[2; 10], &[]] {
            let new = slot(9, packet);
            let longest = old.len().max(new.len());
            for cut in 1..new.len() {
                for forward in [true, false] {
                    let mut mixed = old.clone();
                    mixed.resize(longest, 0);
                    let part = if forward { 0..cut } else { cut..new.len() };
                    mixed[part.clone()].copy_from_slice(&new[part]);
                    let head = Head::read(*mixed.first_chunk().unwrap(), SLOT_PACKET_MAX);
                    let copy = head.and_then(|head| mixed.get(..head.bytes));
                    let found = copy.and_then(|copy| judged(seed_of(7), 9, copy));
                    assert_eq!(found, None, "{packet:?} cut at {cut}, forward {forward}");
                }
            }
        }
    }

    #[test]
    fn a_length_beyond_the_slot_is_no_head() {
        let mut head = [0; HEAD_BYTES];
        for (longest, bytes) in [
            (SLOT_PACKET_MAX, SLOT_BYTES),
            (ANSWER_PACKET_MAX, ANSWER_BYTES),
        ] {
            head[4..6].copy_from_slice(&(longest as u16).to_le_bytes());
            assert!(Head::read(head, longest).is_some_and(|head| head.bytes <= bytes));
            head[4..6].copy_from_slice(&(longest as u16 + 1).to_le_bytes());
            assert_eq!(Head::read(head, longest), None);
        }
    }

    #[test]
    fn tears_take_turns_and_leave_no_whole_slot_but_backward() {
        let tears: Vec<_> = (0..9).map(|number| Tear::of_write(number, 2)).collect();
        let (a, b, c) = (Tear::Backward, Tear::FirstHalf, Tear::SecondHalf);
        let expected = [
            Some(a),
            None,
            Some(b),
            None,
            Some(c),
            None,
            Some(a),
            None,
            Some(b),
        ];
        assert_eq!(tears, expected);
        assert_eq!(Tear::of_write(0, 0), None);
        let written =
            |tear: Tear| -> usize { tear.parts(33).iter().map(|(from, to)| to - from).sum() };
        assert_eq!([written(a), written(b), written(c)], [33, 16, 17]);
        assert_eq!(Tear::SecondHalf.parts(47)[0].0, 16, "a whole word");
    }
}
