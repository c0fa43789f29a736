//! The slow second implementation of an application, and the source of its packets.

use crate::verdict::Verdict;
use trine_transport::prng::Prng;

/// A second implementation, simple and slow, that shares neither table nor parser with the application.
pub trait Reference: Send {
    /// Judges a frame and changes it, as the application must.
    fn judge(&self, frame: &mut [u8]) -> Verdict;
}

/// Draws the packets of a load.
pub trait Traffic: Send {
    /// Draws a packet that the application forwards, or one that its table does not know.
    fn plain(&self, frame: &mut Vec<u8>, prng: &mut Prng);
    /// Draws a packet with something wrong or unusual about it.
    fn crafted(&self, frame: &mut Vec<u8>, prng: &mut Prng);
}

/// Draws a packet: three of four are plain, one of 16 is random bytes, the others are crafted.
pub fn draw(traffic: &dyn Traffic, frame: &mut Vec<u8>, prng: &mut Prng) {
    match prng.below(16) {
        0..12 => traffic.plain(frame, prng),
        12 => {
            frame.clear();
            let length = prng.below(129) as usize;
            crate::frame::build::random(frame, length, prng);
        }
        _ => traffic.crafted(frame, prng),
    }
}

/// Cuts a frame somewhere, or leaves it without a byte.
pub(crate) fn cut(frame: &mut Vec<u8>, prng: &mut Prng) {
    frame.truncate(prng.below(frame.len() as u64) as usize);
}
