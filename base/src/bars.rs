//! Which bars are on the terminal, and how does other text go around them?

use std::sync::{Mutex, MutexGuard, PoisonError};

use indicatif::ProgressBar;

/// The bars that are on the terminal now. Any thread that prints there has to go around them.
static BARS: Mutex<Vec<ProgressBar>> = Mutex::new(Vec::new());

/// Prints something above the bar on the terminal, if there is one. Otherwise the output would tear the bar.
pub fn above_bars<T>(print: impl FnOnce() -> T) -> T {
    let bar = bars().last().cloned();
    match bar {
        Some(bar) => bar.suspend(print),
        None => print(),
    }
}

/// All bars; the most recently drawn one is last.
pub fn bars() -> MutexGuard<'static, Vec<ProgressBar>> {
    BARS.lock().unwrap_or_else(PoisonError::into_inner)
}
