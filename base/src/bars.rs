//! Which bars are on the terminal, and how does other text go around them?

use std::sync::{Mutex, MutexGuard, PoisonError};

use indicatif::ProgressBar;

/// The bars that are on the terminal now: whoever prints there, on any thread, has to go around them.
static BARS: Mutex<Vec<ProgressBar>> = Mutex::new(Vec::new());

/// Prints something above the bar that is on the terminal, if there is one, which would be torn otherwise.
pub fn above_bars<T>(print: impl FnOnce() -> T) -> T {
    let bar = bars().last().cloned();
    match bar {
        Some(bar) => bar.suspend(print),
        None => print(),
    }
}

/// All of them, the one that was drawn last at the end.
pub fn bars() -> MutexGuard<'static, Vec<ProgressBar>> {
    BARS.lock().unwrap_or_else(PoisonError::into_inner)
}
