//! How long a server took to answer a packet, in 16 bits: exact to 4 us, then to one part in 4096, up to 134 ms.

use crate::time::Duration;

/// The time from a packet's arrival to its answer: twelve bits of mantissa below four bits of exponent.
#[derive(Copy, Clone, Debug, Eq, PartialEq, Default)]
pub struct ServerTime(u16);

const MANTISSA_BITS: u32 = 12;
const LONGEST: u16 = u16::MAX;

impl ServerTime {
    /// The value for a packet that was answered at once.
    pub const ZERO: Self = Self(0);
    /// Longer than can be said, or not to be told: no sample can be taken.
    pub const UNKNOWN: Self = Self(LONGEST);

    /// Rounds down, so that a sample minus this never falls below the path's RTT.
    #[must_use]
    #[inline]
    pub fn from_duration(taken: Duration) -> Self {
        let ns = taken.as_nanos();
        if ns < 1 << MANTISSA_BITS {
            return Self(ns as u16);
        }
        let exponent = (u64::BITS - ns.leading_zeros()).saturating_sub(MANTISSA_BITS);
        if exponent > 15 {
            return Self(LONGEST);
        }
        // The shift leaves at most twelve bits.
        Self((exponent as u16) << MANTISSA_BITS | (ns >> exponent) as u16)
    }

    /// `None` means longer than the field can say: such an answer gives no RTT sample.
    #[must_use]
    pub fn to_duration(self) -> Option<Duration> {
        let mantissa = u64::from(self.0) & ((1 << MANTISSA_BITS) - 1);
        (self.0 != LONGEST).then(|| Duration::from_nanos(mantissa << (self.0 >> MANTISSA_BITS)))
    }

    pub(super) fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    pub(super) fn to_bits(self) -> u16 {
        self.0
    }
}
