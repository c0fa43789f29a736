//! Progress of a long operation. A terminal shows a bar; other outputs get a line now and then. Both go to standard
//! error, so that standard output holds the result alone.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::announce::{note, stops_writers};
use crate::bars::bars;
use crate::output::Output;

/// The pause between two lines where there is no terminal. A shorter operation prints none.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// A bar that would be gone before anyone could read it is not drawn.
const BAR_AFTER: Duration = Duration::from_millis(300);

/// Progress from 0 to a total.
pub struct Progress {
    what: String,
    /// `None` if the total is unknown.
    total: Option<u64>,
    /// Whether standard error is a terminal.
    terminal: bool,
    /// Nothing is shown at all.
    hidden: bool,
    bar: Option<ProgressBar>,
    next: Instant,
}

impl Progress {
    /// Begins; `what` is a few words in the present tense.
    pub fn new(what: impl Into<String>, total: u64) -> Self {
        Self::towards(what, Some(total))
    }

    /// Works like [`Progress::new`], where the total may be unknown, and shows nothing where no person reads it.
    pub fn at_terminal(what: impl Into<String>, total: Option<u64>, output: Output) -> Self {
        let mut progress = Self::towards(what, total);
        progress.hidden = !Self::shows(output);
        progress
    }

    /// Whether a person reads what [`Progress::at_terminal`] would show.
    pub fn shows(output: Output) -> bool {
        !output.json && is_terminal()
    }

    /// Works like [`Progress::new`], where the total may be unknown.
    pub fn towards(what: impl Into<String>, total: Option<u64>) -> Self {
        let terminal = is_terminal();
        let first = if terminal { BAR_AFTER } else { LINE_EVERY };
        Self {
            what: what.into(),
            total,
            terminal,
            hidden: false,
            bar: None,
            next: Instant::now() + first,
        }
    }

    /// Sets the progress to `done` of the total. `detail` adds text where there is a terminal.
    pub fn set(&mut self, done: u64, detail: impl FnOnce() -> String) {
        if self.bar.is_none() {
            if self.hidden || Instant::now() < self.next {
                return;
            }
            if !self.terminal {
                self.next = Instant::now() + LINE_EVERY;
                note(self.line(done, &detail()));
                return;
            }
            let mut shown = bars();
            let bar = bar(&self.what, self.total);
            shown.push(bar.clone());
            self.bar = Some(bar);
        }
        if let Some(bar) = &self.bar {
            // The bar sometimes redraws when its prefix is set. Both values must agree by then.
            bar.set_position(self.total.map_or(done, |total| done.min(total)));
            bar.set_prefix(detail());
        }
    }

    fn line(&self, done: u64, detail: &str) -> String {
        let share = self
            .total
            .map(|total| format!("{} %", done.min(total) * 100 / total.max(1)));
        let parts = share.into_iter().chain(Some(detail.to_owned()));
        let parts: Vec<String> = parts.filter(|part| !part.is_empty()).collect();
        format!("{}: {}", self.what, parts.join(", "))
    }
}

fn is_terminal() -> bool {
    let stderr = std::io::stderr();
    stderr.is_terminal() && !stops_writers(&stderr)
}

fn bar(what: &str, total: Option<u64>) -> ProgressBar {
    let (bar, template) = match total {
        Some(total) => (
            ProgressBar::new(total),
            "{msg} {wide_bar} {percent:>3}%  {prefix}",
        ),
        None => (ProgressBar::new_spinner(), "{spinner} {msg}  {prefix}"),
    };
    let style = ProgressStyle::with_template(template);
    bar.set_style(style.expect("a constant template that parses"));
    bar.set_message(what.to_owned());
    bar
}

/// The bar goes away with its value, because the result follows.
impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
            bars().retain(|other| !other.is_finished());
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
        assert_eq!(
            Progress::towards("doing", None).line(7, "7 lines"),
            "doing: 7 lines"
        );
    }
}
