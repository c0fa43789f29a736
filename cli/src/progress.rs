//! How far is something that takes long? A bar on a terminal, a line now and then elsewhere; always on standard error,
//! so that standard output holds the result alone.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Between two lines where there is no terminal; what is over sooner says nothing.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Something on its way from 0 to a total.
pub(crate) struct Progress {
    what: String,
    total: u64,
    bar: Option<ProgressBar>,
    next_line: Instant,
}

impl Progress {
    /// Begins; `what` is a few words in the present tense.
    pub(crate) fn new(what: impl Into<String>, total: u64) -> Self {
        let what = what.into();
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(total);
            let style = ProgressStyle::with_template("{msg} {wide_bar} {percent:>3}%  {prefix}");
            bar.set_style(style.expect("a constant template that parses"));
            bar.set_message(what.clone());
            bar
        });
        Self {
            what,
            total,
            bar,
            next_line: Instant::now() + LINE_EVERY,
        }
    }

    /// Stands at `done` of the total; `detail` says more where somebody looks.
    pub(crate) fn set(&mut self, done: u64, detail: impl FnOnce() -> String) {
        if let Some(bar) = &self.bar {
            bar.set_prefix(detail());
            bar.set_position(done.min(self.total));
        } else if Instant::now() >= self.next_line {
            self.next_line = Instant::now() + LINE_EVERY;
            eprintln!("{}", self.line(done, &detail()));
        }
    }

    fn line(&self, done: u64, detail: &str) -> String {
        let percent = done.min(self.total) * 100 / self.total.max(1);
        let separator = if detail.is_empty() { "" } else { ", " };
        format!("{}: {percent} %{separator}{detail}", self.what)
    }

    /// Prints something above the bar, which would be torn otherwise.
    pub(crate) fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }
}

/// The bar goes away with its value: what follows is the result.
impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_how_far_and_more() {
        let progress = Progress::new("measuring", 40);
        assert_eq!(
            progress.line(10, "7 a second"),
            "measuring: 25 %, 7 a second"
        );
        assert_eq!(progress.line(99, ""), "measuring: 100 %");
        assert_eq!(Progress::new("nothing", 0).line(0, ""), "nothing: 0 %");
    }
}
