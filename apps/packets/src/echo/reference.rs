//! The reference of echo, and the packets that it is tried with.

use crate::frame::build;
use crate::reference::{Reference, Traffic, cut};
use crate::verdict::{Reason, Verdict};
use trine_transport::prng::Prng;

/// An EtherType for local experiments.
const TYPE: u16 = 0x88b5;

/// The remainder, computed digit by digit.
pub struct EchoReference {
    /// Output ports.
    pub ports: u8,
}

impl Reference for EchoReference {
    fn judge(&self, frame: &mut [u8]) -> Verdict {
        if frame.len() < 18 {
            return Verdict::Drop(Reason::Short);
        }
        let digit = |rest: u64, byte: &u8| (rest * 256 + u64::from(*byte)) % u64::from(self.ports);
        Verdict::Forward(frame[14..18].iter().fold(0, digit) as u8)
    }
}

/// Frames with random payload.
pub struct EchoTraffic;

impl Traffic for EchoTraffic {
    fn plain(&self, frame: &mut Vec<u8>, prng: &mut Prng) {
        build::ethernet(frame, crate::frame::OWN_MAC, build::PEER, TYPE);
        build::random(frame, 46, prng);
    }

    fn crafted(&self, frame: &mut Vec<u8>, prng: &mut Prng) {
        self.plain(frame, prng);
        cut(frame, prng);
    }
}
