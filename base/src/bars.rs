//! Bars on the terminal, and other text around them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use indicatif::ProgressBar;

/// The bars that are on the terminal now. Any thread that prints there has to go around them.
static BARS: Mutex<Vec<ProgressBar>> = Mutex::new(Vec::new());

/// Prints something above the bar on the terminal, if there is one. Otherwise the output would tear the bar.
///
/// `print` must not print through this function itself: no bar appears before it is done.
pub fn above_bars<T>(print: impl FnOnce() -> T) -> T {
    let bars = bars();
    match bars.last() {
        Some(bar) => bar.suspend(print),
        None => print(),
    }
}

/// All bars; the most recently drawn one is last. A bar must be drawn for the first time under this lock: a line that
/// another thread prints between its drawing and its entry here would stand beside it.
pub fn bars() -> MutexGuard<'static, Vec<ProgressBar>> {
    BARS.lock().unwrap_or_else(PoisonError::into_inner)
}
