//! Planted bugs: the proof that the simulator's checkers bite (chaos/README.md).
//!
//! Each is one line of the form `canary::planted("name")`. A build with debug assertions, which tests and the simulator have,
//! asks at run time; a thread plants at most one bug, and nothing but tests and the simulator plants any. In a release
//! `planted` is the constant `false`, and nothing of a bug is left in the program: `.ci/run canary` looks for the names.

#[cfg(debug_assertions)]
mod plant {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Whether any thread of this process has ever planted a bug. The question stands where packets and entries go by, and
    /// this answers it with one load as long as there is nothing to find.
    static EVER: AtomicBool = AtomicBool::new(false);

    thread_local! {
        static PLANTED: Cell<Option<&'static str>> = const { Cell::new(None) };
    }

    /// Plants a bug on this thread, or takes it away.
    pub fn plant(bug: Option<&'static str>) {
        // Relaxed: it says something to this thread alone, which has just set it.
        EVER.store(true, Ordering::Relaxed);
        PLANTED.set(bug);
    }

    /// Whether this bug is planted on this thread.
    #[must_use]
    #[inline(always)]
    pub fn planted(bug: &str) -> bool {
        EVER.load(Ordering::Relaxed) && is_planted_here(bug)
    }

    #[cold]
    #[inline(never)]
    fn is_planted_here(bug: &str) -> bool {
        PLANTED.get() == Some(bug)
    }
}

#[cfg(debug_assertions)]
pub use plant::{plant, planted};

/// Whether this bug is planted: never, in this build.
#[cfg(not(debug_assertions))]
#[must_use]
#[inline(always)]
pub const fn planted(_bug: &str) -> bool {
    false
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::{plant, planted};

    /// Tests of one process run side by side, each with its own bug.
    #[test]
    fn a_bug_is_planted_on_one_thread_until_it_is_taken_away() {
        assert!(!planted("one"));
        plant(Some("one"));
        assert!(planted("one") && !planted("another"));
        let elsewhere = std::thread::spawn(|| planted("one"));
        assert!(!elsewhere.join().expect("it only looks"));
        plant(None);
        assert!(!planted("one"));
    }
}
