//! Planted bugs: the proof that the simulator's checkers bite (chaos/README.md).
//!
//! Each is one line of the form `canary::planted("name")`. Without the feature `canary`, which no release has, that is
//! the constant `false`, and nothing of a bug is left in the program. With it, a thread plants at most one.

#[cfg(feature = "canary")]
mod plant {
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<&'static str>> = const { Cell::new(None) };
    }

    /// Plants a bug on this thread, or takes it away.
    pub fn plant(bug: Option<&'static str>) {
        PLANTED.set(bug);
    }

    /// Whether this bug is planted on this thread.
    #[must_use]
    pub fn planted(bug: &str) -> bool {
        PLANTED.get() == Some(bug)
    }
}

#[cfg(feature = "canary")]
pub use plant::{plant, planted};

/// Whether this bug is planted: never, in this build.
#[cfg(not(feature = "canary"))]
#[must_use]
#[inline(always)]
pub const fn planted(_bug: &str) -> bool {
    false
}
