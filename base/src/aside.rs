//! Shows progress from a separate thread, so that the working thread does not wait for the terminal.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::config::LAST_LINES_LIMIT;

/// Progress that is shown to the user. Dropping it removes the bar.
pub struct Aside<T>(Arc<Mailbox<T>>);

struct Mailbox<T> {
    state: Mutex<MailboxState<T>>,
    changed: Condvar,
}

struct MailboxState<T> {
    /// The latest value, if it was not shown yet.
    latest: Option<T>,
    closed: bool,
    /// Whether the thread has ended and its output has left the terminal.
    ended: bool,
}

impl<T: Send + 'static> Aside<T> {
    /// Starts the thread. It calls `show` with each posted value, or with the latest if several were posted.
    pub fn start(show: impl FnMut(T) + Send + 'static) -> Self {
        let state = MailboxState {
            latest: None,
            closed: false,
            ended: false,
        };
        let shared = Arc::new(Mailbox {
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("progress".to_owned());
        let begun = thread.spawn(move || of_thread.work(show));
        // Without a thread nothing is shown; the work continues.
        shared.lock().ended = begun.is_err();
        Self(shared)
    }

    /// Posts the present progress, to be shown soon.
    pub fn post(&self, value: T) {
        self.0.lock().latest = Some(value);
        self.0.changed.notify_all();
    }
}

impl<T> Mailbox<T> {
    fn lock(&self) -> MutexGuard<'_, MailboxState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, mut show: impl FnMut(T)) {
        while let Some(value) = self.next() {
            show(value);
        }
        drop(show);
        self.lock().ended = true;
        self.changed.notify_all();
    }

    /// Waits for the next value to show; returns nothing at the end.
    fn next(&self) -> Option<T> {
        let idle = |state: &mut MailboxState<T>| state.latest.is_none() && !state.closed;
        let mut state = self
            .changed
            .wait_while(self.lock(), idle)
            .unwrap_or_else(PoisonError::into_inner);
        state.latest.take().filter(|_| !state.closed)
    }
}

/// The next output must not appear beside the bar. A stopped terminal is not waited for.
impl<T> Drop for Aside<T> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.closed = true;
        self.0.changed.notify_all();
        let shown = |state: &mut MailboxState<T>| !state.ended;
        let waited = self
            .0
            .changed
            .wait_timeout_while(state, LAST_LINES_LIMIT, shown);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn what_was_not_shown_in_time_is_left_out_and_nobody_waits() {
        let (taken, take) = mpsc::channel::<()>();
        let (tell, shown) = mpsc::channel();
        let aside = Aside::start(move |value: u32| {
            tell.send(value).expect("the test listens");
            let _ = take.recv();
        });
        aside.post(0);
        assert_eq!(shown.recv(), Ok(0));
        // The terminal is stopped meanwhile.
        (1..=1_000).for_each(|value| aside.post(value));
        drop(taken);
        assert_eq!(shown.recv(), Ok(1_000));
        drop(aside);
        assert!(shown.recv().is_err(), "the thread has ended");
    }
}
