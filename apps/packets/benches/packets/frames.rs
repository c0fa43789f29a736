//! Packets that are drawn once, in one allocation.

use trine_packets::reference::Traffic;
use trine_transport::prng::Prng;

/// Frames, one behind the other.
pub(crate) struct Frames {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Frames {
    /// Draws plain packets.
    pub(crate) fn draw(traffic: &dyn Traffic, count: usize, prng: &mut Prng) -> Self {
        let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(count));
        let mut frame = Vec::new();
        for _ in 0..count {
            traffic.plain(&mut frame, prng);
            bytes.extend_from_slice(&frame);
            ends.push(bytes.len());
        }
        Self { bytes, ends }
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The frame with this number.
    pub(crate) fn get(&self, number: usize) -> &[u8] {
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[number]]
    }
}
