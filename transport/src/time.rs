//! Time as the protocol sees it: nanoseconds that the caller read from a clock.
//!
//! The core takes `now: Instant` as an argument and hands back deadlines as `Instant`. Only
//! [`Clock`] implementations, which live beside the backends and in the simulator, know where the
//! nanoseconds come from.

use std::fmt;
use std::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};

/// A point in time: nanoseconds since an arbitrary epoch, the same for everything in one process.
///
/// An `Instant` means nothing on another machine and is never sent over the wire.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Instant(u64);

/// A span of time in nanoseconds, at most about 584 years.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Duration(u64);

/// A source of [`Instant`]s that never runs backwards.
pub trait Clock {
    /// The present moment. Callers read it once per turn and pass the value on.
    fn now(&self) -> Instant;

    /// What to add to [`Clock::now`] for the time since 1970. Zero: nobody knows, and all clocks of the program agree.
    fn wall_ahead(&self) -> Duration {
        Duration::ZERO
    }
}

impl<C: Clock + ?Sized> Clock for &C {
    fn now(&self) -> Instant {
        (**self).now()
    }

    fn wall_ahead(&self) -> Duration {
        (**self).wall_ahead()
    }
}

/// A clock that does not advance: one reading of a real clock serves for all work that is done with
/// it.
impl Clock for Instant {
    #[inline]
    fn now(&self) -> Instant {
        *self
    }
}

impl Instant {
    /// The epoch itself.
    pub const ZERO: Self = Self(0);
    /// Later than any moment a process can live to see.
    pub const FAR_FUTURE: Self = Self(u64::MAX);

    /// The moment `nanos` nanoseconds after the epoch.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the epoch.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time passed since `earlier`, zero if `earlier` is in fact later.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }

    /// This moment plus `span`, or `None` beyond the end of time.
    #[must_use]
    pub const fn checked_add(self, span: Duration) -> Option<Self> {
        match self.0.checked_add(span.0) {
            Some(nanos) => Some(Self(nanos)),
            None => None,
        }
    }

    /// This moment plus `span`, at most [`Instant::FAR_FUTURE`].
    #[must_use]
    pub const fn saturating_add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Duration {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// The longest span.
    pub const MAX: Self = Self(u64::MAX);

    /// A span of `nanos` nanoseconds.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// A span of `micros` microseconds.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros * 1_000)
    }

    /// A span of `millis` milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }

    /// A span of `secs` seconds.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs * 1_000_000_000)
    }

    /// The span in nanoseconds.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The span in whole microseconds, rounded down.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// The span in whole milliseconds, rounded down.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// The span in whole seconds, rounded down.
    #[must_use]
    pub const fn as_secs(self) -> u64 {
        self.0 / 1_000_000_000
    }

    /// True for a span of length zero.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The sum, at most [`Duration::MAX`].
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, at least zero.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The product, at most [`Duration::MAX`].
    #[must_use]
    pub const fn saturating_mul(self, factor: u64) -> Self {
        Self(self.0.saturating_mul(factor))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, span: Duration) -> Self {
        Self(self.0 + span.0)
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, span: Duration) {
        self.0 += span.0;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;
    fn sub(self, span: Duration) -> Self {
        Self(self.0 - span.0)
    }
}

/// The span between two moments; the left one must not be the earlier one.
impl Sub for Instant {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        Duration(self.0 - earlier.0)
    }
}

impl Add for Duration {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Duration {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sub for Duration {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl SubAssign for Duration {
    fn sub_assign(&mut self, other: Self) {
        self.0 -= other.0;
    }
}

impl Mul<u64> for Duration {
    type Output = Self;
    fn mul(self, factor: u64) -> Self {
        Self(self.0 * factor)
    }
}

impl Duration {
    /// For people: three digits are left, as of `1.472665ms` `1.47ms`.
    #[must_use]
    pub fn rounded(self) -> Self {
        let digits = self.0.checked_ilog10().unwrap_or(0);
        let unit = 10_u64.pow(digits.saturating_sub(2));
        Self(self.0.saturating_add(unit / 2) / unit * unit)
    }
}

impl Div<u64> for Duration {
    type Output = Self;
    fn div(self, divisor: u64) -> Self {
        Self(self.0 / divisor)
    }
}

impl From<Duration> for std::time::Duration {
    fn from(span: Duration) -> Self {
        Self::from_nanos(span.0)
    }
}

/// Spans beyond 584 years become [`Duration::MAX`].
impl From<std::time::Duration> for Duration {
    fn from(span: std::time::Duration) -> Self {
        Self(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl fmt::Debug for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&std::time::Duration::from(*self), f)
    }
}

/// The span with a unit that suits its size, as in `1.5ms`.
impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&std::time::Duration::from(*self), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_is_in_nanoseconds() {
        let start = Instant::from_nanos(100);
        let later = start + Duration::from_micros(2);
        assert_eq!(later.as_nanos(), 2_100);
        assert_eq!(later - start, Duration::from_nanos(2_000));
        assert_eq!(later - Duration::from_nanos(2_000), start);
        assert_eq!(Duration::from_millis(3) / 2, Duration::from_micros(1_500));
        assert_eq!(Duration::from_secs(1) * 2, Duration::from_millis(2_000));
    }

    #[test]
    fn people_read_three_digits() {
        for (nanos, shown) in [
            (0, "0ns"),
            (7, "7ns"),
            (1_472_665, "1.47ms"),
            (5_003_204_001, "5s"),
            (999_999_999, "1s"),
            (15_000_000_000, "15s"),
        ] {
            assert_eq!(Duration::from_nanos(nanos).rounded().to_string(), shown);
        }
        assert!(Duration::MAX.rounded() > Duration::from_secs(1));
    }

    #[test]
    fn saturating_operations_stop_at_the_ends() {
        let start = Instant::from_nanos(5);
        assert_eq!(
            start.saturating_since(Instant::from_nanos(9)),
            Duration::ZERO
        );
        assert_eq!(start.saturating_add(Duration::MAX), Instant::FAR_FUTURE);
        assert_eq!(start.checked_add(Duration::MAX), None);
        assert_eq!(
            Duration::ZERO.saturating_sub(Duration::from_nanos(1)),
            Duration::ZERO
        );
    }

    #[test]
    fn standard_durations_convert_both_ways() {
        let span = Duration::from(std::time::Duration::from_millis(7));
        assert_eq!(span, Duration::from_millis(7));
        assert_eq!(std::time::Duration::from(span).as_millis(), 7);
        assert_eq!(Duration::from(std::time::Duration::MAX), Duration::MAX);
        assert_eq!(span.to_string(), "7ms");
    }
}
