//! Reserves further numbers for a server. One thread reserves them, and wakes the threads that wait for them.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use trine_base::announce::Announcer;
use trine_sequencer::{Grant, Supply};
use trine_transport::backend::{MonotonicClock, Waker};
use trine_transport::time::{Clock, Instant};

/// The outcome of one step of a source.
pub(super) enum StepOutcome {
    /// These numbers may be given out.
    Granted(Grant),
    /// There is more to do at once.
    Asked,
    /// There is nothing to do before then, unless numbers are missing.
    Wait(Instant),
    /// No numbers could be reserved, and this is why.
    Failing(String),
}

/// Where numbers are reserved.
pub(super) trait NumberSource {
    /// Does one thing. So many numbers are `missing`.
    fn step(&mut self, missing: u64) -> StepOutcome;

    /// The server has ended: another may have what it held.
    fn give_back(&mut self);
}

/// A failing source is tried again after this time.
const RETRY: Duration = Duration::from_millis(100);
/// The thread looks again after this time even if nobody calls it.
const LOOK: Duration = Duration::from_secs(3_600);

#[derive(Default)]
struct Wants {
    called: bool,
    over: bool,
}

/// Where threads call for numbers.
#[derive(Clone, Default)]
pub(super) struct Desk(Arc<(Mutex<Wants>, Condvar)>);

impl Desk {
    /// Numbers are missing.
    pub(super) fn call(&self) {
        self.change(|wants| wants.called = true);
    }

    /// No more numbers are needed.
    pub(super) fn end(&self) {
        self.change(|wants| wants.over = true);
    }

    fn change(&self, change: impl FnOnce(&mut Wants)) {
        let (wants, changed) = &*self.0;
        change(&mut wants.lock().unwrap_or_else(PoisonError::into_inner));
        changed.notify_one();
    }

    fn is_over(&self) -> bool {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).over
    }

    /// Waits for the end or, if `for_calls`, for a call; at most so long.
    fn wait(&self, at_most: Duration, for_calls: bool) {
        let (wants, changed) = &*self.0;
        let held = wants.lock().unwrap_or_else(PoisonError::into_inner);
        let goes_on = |wants: &mut Wants| !(wants.over || for_calls && wants.called);
        let (mut held, _) = changed
            .wait_timeout_while(held, at_most, goes_on)
            .unwrap_or_else(PoisonError::into_inner);
        if for_calls {
            held.called = false;
        }
    }
}

/// Reserves numbers until the desk is closed. By then no thread may give out any more.
pub(super) fn reserve(
    mut source: impl NumberSource,
    supply: &Supply,
    desk: &Desk,
    wakers: &[Waker],
    announcer: Announcer,
) {
    let mut said = Said::default();
    while !desk.is_over() {
        let step = source.step(supply.missing().unwrap_or(0));
        // A step that the end of the server has cut short is no news.
        if let Some(news) = said.news(&step).filter(|_| !desk.is_over()) {
            announcer.json_line(&news.document());
            announcer.line(news);
        }
        match step {
            StepOutcome::Granted(grant) => {
                supply.add(&grant);
                wakers.iter().for_each(Waker::wake);
            }
            StepOutcome::Asked => {}
            StepOutcome::Wait(until) => {
                let wait: Duration = until.saturating_since(MonotonicClock.now()).into();
                desk.wait(wait.min(LOOK), true);
            }
            StepOutcome::Failing(_) => {
                supply.set_failing();
                wakers.iter().for_each(Waker::wake);
                desk.wait(RETRY, false);
            }
        }
    }
    source.give_back();
}

/// A change of a source that users want to know of.
#[derive(Debug, PartialEq, Eq)]
enum News {
    /// No numbers could be reserved, and this is why.
    Failing(String),
    /// They can be reserved again.
    Over,
}

impl News {
    fn document(&self) -> Value {
        match self {
            Self::Failing(why) => json!({ "not_reserved": why }),
            Self::Over => json!({ "reserved_again": true }),
        }
    }
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failing(why) => write!(f, "no numbers could be reserved; retrying: {why}"),
            Self::Over => f.write_str("numbers can be reserved again"),
        }
    }
}

/// What a server has said about its source.
#[derive(Default)]
struct Said {
    /// The failure that goes on.
    failing: Option<String>,
    /// The source has answered since.
    answered: bool,
    /// A failure was said, and nothing was reserved since.
    is_open: bool,
}

impl Said {
    /// What is to be said about a step. A failure that goes on is said once. It is over when numbers come, or when the
    /// source has answered and there is nothing more to do, as in a server that waits for the lease of another one. An
    /// answer alone may be one of two that a server needs, of which the other one fails each time.
    fn news(&mut self, step: &StepOutcome) -> Option<News> {
        match step {
            StepOutcome::Failing(why) => {
                self.answered = false;
                if self.failing.as_ref() == Some(why) {
                    return None;
                }
                self.failing = Some(why.clone());
                self.is_open = true;
                Some(News::Failing(why.clone()))
            }
            StepOutcome::Granted(_) => {
                self.failing = None;
                let was_open = std::mem::take(&mut self.is_open);
                was_open.then_some(News::Over)
            }
            StepOutcome::Asked => {
                self.answered = true;
                None
            }
            StepOutcome::Wait(_) => {
                if self.answered {
                    self.failing = None;
                }
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call that comes before the wait is not lost, and the end ends every wait.
    #[test]
    fn a_call_in_front_of_the_wait_counts() {
        let desk = Desk::default();
        desk.call();
        desk.wait(LOOK, true);
        desk.call();
        // It is kept while nobody waits for calls.
        desk.wait(Duration::from_millis(1), false);
        desk.wait(LOOK, true);
        desk.end();
        desk.wait(LOOK, true);
        desk.wait(LOOK, false);
        assert!(desk.is_over());
    }

    /// A standby gets no numbers, so the second failure of the same kind had no line.
    #[test]
    fn a_failure_is_said_once_until_the_source_answers() {
        let failing = StepOutcome::Failing("the group is silent".to_owned());
        let granted = StepOutcome::Granted(Grant {
            start: 0,
            end: 10,
            until: Instant::FAR_FUTURE,
        });
        let wait = StepOutcome::Wait(Instant::FAR_FUTURE);
        let mut said = Said::default();
        assert_eq!(said.news(&StepOutcome::Asked), None);
        assert!(said.news(&failing).is_some());
        assert_eq!(said.news(&wait), None);
        assert_eq!(said.news(&failing), None, "nobody has answered meanwhile");
        assert_eq!(said.news(&StepOutcome::Asked), None);
        assert_eq!(said.news(&failing), None, "it reads, and cannot write");
        assert_eq!(said.news(&StepOutcome::Asked), None);
        assert_eq!(said.news(&wait), None);
        assert!(said.news(&failing).is_some());
        assert_eq!(said.news(&granted), Some(News::Over));
        assert_eq!(said.news(&granted), None);
    }

    /// Programs, which read the output with --json, heard nothing of all this.
    #[test]
    fn programs_hear_the_reason_too() {
        let news = News::Failing("the group is silent".to_owned());
        assert_eq!(
            news.document(),
            json!({ "not_reserved": "the group is silent" })
        );
        assert!(news.to_string().ends_with(": the group is silent"));
        assert_eq!(News::Over.document(), json!({ "reserved_again": true }));
    }
}
