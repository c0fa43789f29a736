//! The packets of a generator and what the reference makes of them.

use crate::config::SAMPLES;
use crate::frame::ETHERNET;
use crate::reference::{Reference, Traffic, draw};
use crate::verdict::Verdict;
use trine_transport::prng::Prng;

/// Bytes at the end of a frame that hold its number.
pub(super) const NUMBER_BYTES: usize = 8;
/// Frames with less could not carry a number behind their headers.
const BYTES_MIN: usize = ETHERNET + 2 * NUMBER_BYTES;

/// The ports by which a packet must leave, and its bytes then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// A bit for each port.
    pub ports: u8,
    /// The frame without its number.
    pub bytes: Vec<u8>,
}

/// A packet, sent over and over with new numbers.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The frame; its last bytes are overwritten by a number.
    pub frame: Vec<u8>,
    /// What must come of it.
    pub expected: Expected,
}

/// All packets of a generator.
pub struct Samples {
    samples: Vec<Sample>,
}

impl Samples {
    /// Draws packets. Without `crafted` ones each is plain.
    #[must_use]
    pub fn draw(
        reference: &dyn Reference,
        traffic: &dyn Traffic,
        ports: u8,
        crafted: bool,
        seed: u64,
    ) -> Self {
        let mut prng = Prng::new(seed);
        let mut samples = Vec::with_capacity(SAMPLES);
        let mut frame = Vec::new();
        while samples.len() < SAMPLES {
            match crafted {
                true => draw(traffic, &mut frame, &mut prng),
                false => traffic.plain(&mut frame, &mut prng),
            }
            // Three of four are plain, and long enough, so this ends.
            if let Some(sample) = Sample::new(&frame, reference, ports) {
                samples.push(sample);
            }
        }
        Self { samples }
    }

    /// The packet with this number.
    #[inline]
    #[must_use]
    pub fn of(&self, number: u64) -> &Sample {
        &self.samples[number as usize % SAMPLES]
    }
}

impl Sample {
    /// `None` if the frame has no room for a number, or if the verdict depends on the number.
    fn new(frame: &[u8], reference: &dyn Reference, ports: u8) -> Option<Self> {
        let head = frame.len().checked_sub(NUMBER_BYTES)?;
        if frame.len() < BYTES_MIN {
            return None;
        }
        let judged = |number: u64| {
            let mut bytes = frame.to_vec();
            bytes[head..].copy_from_slice(&number.to_be_bytes());
            let verdict = reference.judge(&mut bytes);
            let kept = bytes[head..] == number.to_be_bytes();
            bytes.truncate(head);
            (verdict, bytes, kept)
        };
        let (verdict, bytes, kept) = judged(0);
        if !kept || judged(0x00ff_ffff_ffff_ffff) != (verdict, bytes.clone(), true) {
            return None;
        }
        let ports = match verdict {
            Verdict::Forward(port) => 1 << port,
            Verdict::Flood => u8::MAX >> (8 - ports),
            Verdict::Drop(_) => 0,
        };
        let expected = Expected { ports, bytes };
        Some(Self {
            frame: frame.to_vec(),
            expected,
        })
    }
}
