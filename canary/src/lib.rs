//! Planted bugs: they prove that the simulator's checkers find something (chaos/README.md).
//!
//! Each is one line of the form `canary::planted("name")`. A build with debug assertions, which tests and the simulator
//! have, asks at run time. A thread plants at most one bug, and only tests and the simulator plant any. In a release
//! `planted` is the constant `false`, and no bug is left in the program: `.ci/run canary` looks for the names.

#[cfg(debug_assertions)]
mod plant {
    use std::cell::Cell;
    use std::marker::PhantomData;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Whether any thread of this process has ever planted a bug. Code on the path of packets and entries asks this,
    /// and the answer costs one load as long as there is nothing to find.
    static EVER: AtomicBool = AtomicBool::new(false);

    thread_local! {
        static PLANTED: Cell<Option<&'static str>> = const { Cell::new(None) };
    }

    /// A bug is planted while this value lives. It has to be dropped on the same thread: other tests may run there
    /// next.
    #[must_use = "the bug goes with it"]
    #[derive(Debug)]
    pub struct Planted(PhantomData<*const ()>);

    /// Plants a bug on this thread.
    ///
    /// # Panics
    ///
    /// If there is one already.
    pub fn plant(bug: &'static str) -> Planted {
        // Relaxed: only this thread reads it, and this thread has just set it.
        EVER.store(true, Ordering::Relaxed);
        let before = PLANTED.replace(Some(bug));
        assert_eq!(before, None, "one bug at a time");
        Planted(PhantomData)
    }

    impl Drop for Planted {
        fn drop(&mut self) {
            PLANTED.set(None);
        }
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
pub use plant::{Planted, plant, planted};

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
    fn a_bug_is_planted_on_one_thread_for_as_long_as_it_is_held() {
        assert!(!planted("one"));
        let bug = plant("one");
        assert!(planted("one") && !planted("another"));
        let elsewhere = std::thread::spawn(|| planted("one"));
        assert!(!elsewhere.join().expect("it only looks"));
        drop(bug);
        assert!(!planted("one"));
    }
}
