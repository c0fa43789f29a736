//! How does a server come by further numbers? One thread reserves them, and wakes those that wait for them.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use trine_base::announce::Announcer;
use trine_sequencer::{Grant, Supply};
use trine_transport::backend::{MonotonicClock, Waker};
use trine_transport::time::{Clock, Instant};

/// What one step of a source has led to.
pub(super) enum Step {
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
pub(super) trait Source {
    /// Does one thing. So many numbers are `missing`.
    fn step(&mut self, missing: u64) -> Step;

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
    mut source: impl Source,
    supply: &Supply,
    desk: &Desk,
    wakers: &[Waker],
    announcer: Announcer,
) {
    let mut failing = None;
    while !desk.is_over() {
        match source.step(supply.missing().unwrap_or(0)) {
            Step::Granted(grant) => {
                supply.add(&grant);
                wakers.iter().for_each(Waker::wake);
                if failing.take().is_some() {
                    announcer.line("numbers can be reserved again");
                }
            }
            Step::Asked => {}
            Step::Wait(until) => {
                let wait: Duration = until.saturating_since(MonotonicClock.now()).into();
                desk.wait(wait.min(LOOK), true);
            }
            Step::Failing(why) => {
                supply.set_failing();
                wakers.iter().for_each(Waker::wake);
                if failing.as_ref() != Some(&why) {
                    announcer.line(format_args!(
                        "no numbers could be reserved, and it is tried again: {why}"
                    ));
                    failing = Some(why);
                }
                desk.wait(RETRY, false);
            }
        }
    }
    source.give_back();
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
}
