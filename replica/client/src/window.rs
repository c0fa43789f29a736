//! The numbers of one client session: which are in flight, and the lowest that is still awaited.

use super::config::IN_FLIGHT_MAX;

/// Sequences from 1, at most [`IN_FLIGHT_MAX`] apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Window {
    /// The lowest sequence that is still awaited; equal to `next` when none is.
    lowest: u64,
    /// The sequence that is handed out next.
    next: u64,
    /// Bit i is set exactly when `lowest + i` was handed out and is no longer awaited; bit 0 is never set.
    closed: u64,
}

impl Window {
    pub(super) const fn new() -> Self {
        Self {
            lowest: 1,
            next: 1,
            closed: 0,
        }
    }

    pub(super) const fn lowest_awaited(&self) -> u64 {
        self.lowest
    }

    /// A window whose first sequence is `sequence`.
    pub(super) fn behind(sequence: u64) -> Self {
        Self {
            lowest: sequence,
            next: sequence,
            closed: 0,
        }
    }

    /// Hands out the next sequence, unless it would lie too far above the lowest awaited one.
    pub(super) fn open(&mut self) -> Option<u64> {
        if self.next - self.lowest >= IN_FLIGHT_MAX as u64 {
            return None;
        }
        self.next += 1;
        Some(self.next - 1)
    }

    /// `sequence` is no longer awaited.
    pub(super) fn close(&mut self, sequence: u64) {
        assert!(
            (self.lowest..self.next).contains(&sequence),
            "the sequence is in flight"
        );
        self.closed |= 1 << (sequence - self.lowest);
        let passed = self.closed.trailing_ones();
        self.closed = self.closed.checked_shr(passed).unwrap_or(0);
        self.lowest += u64::from(passed);
        assert!(self.lowest <= self.next, "what is awaited was handed out");
        assert_eq!(self.closed & 1, 0, "the lowest one is awaited");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_awaited_passes_only_what_is_closed() {
        let mut window = Window::new();
        assert_eq!(
            (window.open(), window.open(), window.open()),
            (Some(1), Some(2), Some(3))
        );
        window.close(2);
        assert_eq!(window.lowest_awaited(), 1);
        window.close(1);
        assert_eq!(window.lowest_awaited(), 3);
        window.close(3);
        assert_eq!(window.lowest_awaited(), 4);
    }

    #[test]
    fn one_stuck_command_stops_the_window_64_further_on() {
        let mut window = Window::new();
        for sequence in 1..=64 {
            assert_eq!(window.open(), Some(sequence));
        }
        assert_eq!(window.open(), None);
        for sequence in 2..=64 {
            window.close(sequence);
        }
        assert_eq!(window.open(), None, "the first is still awaited");
        window.close(1);
        assert_eq!(window.lowest_awaited(), 65);
        assert_eq!(window.open(), Some(65));
    }
}
