//! When a polling thread yields.

use trine_packets::config::EMPTY_POLLS;

/// Empty polls in a row.
#[derive(Default)]
pub(super) struct Idle {
    polls: u32,
}

impl Idle {
    /// Notes a poll, and lets others run after many empty ones. Returns whether this one was empty.
    pub(super) fn is_after(&mut self, empty: bool) -> bool {
        if !empty {
            self.polls = 0;
            return false;
        }
        self.polls += 1;
        if self.polls >= EMPTY_POLLS {
            self.polls = 0;
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
        true
    }
}
